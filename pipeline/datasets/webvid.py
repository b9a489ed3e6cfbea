"""WebVid: short stock videos with the text that sold them, 2.5 or 10 million. Every video is one clip, the whole file.

Source: Bain et al., "Frozen in time", ICCV 2021; withdrawn by its owner since.

Layout. Tables lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any:
`results_2M_train.csv`, `results_2M_val.csv`, `test_webvid.csv`, or any `*webvid*.csv` and `results_*.csv` whose name
says `train`, `val` or `test`. They have the columns `videoid`, `name` (the caption) and `duration` (`PT00H00M17S`), in
any order; others are ignored. There is one table to a part; whole ones win over those with `head` or `subset` in their
name.

Videos are found by their name without suffix, `VIDEOID`, below ROOT/videos, else below ROOT, for example in the folders
`page_dir` (videos/027701_027750/1053841541.mp4). Captions and clips have their video's id.

Splits. `webvid`: train, val, test by the tables' names.

Repair rules; every record that one touches is listed:

* Blanks at the ends of captions are trimmed, runs of blanks inside become one; a caption without text is dropped, its
  video stays.
* A video that stands twice in a table counts once; where its rows differ, the first by caption, then by duration,
  counts.
* A video of val or test is dropped from train, one of test from val too.
* A duration of zero is unknown.

A table whose last line has no end is an error: it is cut off. Order: by videoid, as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import annotation_folders, check_id, find_media, natural, need_folder, read_table, the_one

HINT = "results_2M_train.csv, results_2M_val.csv and test_webvid.csv, or some of them, and the videos in videos/"
EXPECTED: dict[str, dict[str, int]] = {}
"""Its authors give round numbers only: 2.5 and 10 million."""

TWICE = "video listed twice in a table"
TWICE_OTHER = "video listed twice in a table, with another caption or duration"
IN_TWO = "video that another part has too"
NO_DURATION = "duration of zero"

_PARTS = ("test", "val", "train")
"""In this order: what an earlier one holds, a later one must not."""
_DURATION = re.compile(r"PT(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6}(?:\.\d+)?)S)?", re.ASCII)

_Row = tuple[str, float]
"""Caption as it stands in the file, and seconds."""


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load WebVid from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged tables, and for two tables of one part.
    """
    tables = _find(need_folder(root, HINT))
    odd = Oddities()
    rows: dict[str, _Row] = {}
    part_of: dict[str, str] = {}
    for part, file in tables.items():
        for name, row in _table(file, odd).items():
            if name in rows:
                odd.note(IN_TWO, DROPPED, name, f"in {part_of[name]}, left out of {part}")
            else:
                rows[name], part_of[name] = row, part
    ids = sorted(rows, key=natural)
    clips = tuple(Clip(name, name) for name in ids)
    captions = tuple(Caption(name, name, text) for name in ids if (text := odd.text(name, rows[name][0])))
    odd.captions(captions, clips)
    media, found = find_media(root, videos, rows)
    return Manifest(
        dataset="webvid",
        videos=tuple(Video(name, media.get(name), rows[name][1]) for name in ids),
        clips=clips,
        captions=captions,
        splits=tuple(_splits(clips, captions, part_of)),
        oddities=odd.found(),
        notes=(f"tables: {', '.join(file.name for file in tables.values())}", found),
    )


def _find(root: Path) -> dict[str, Path]:
    """Return the table of each part."""
    for folder in annotation_folders(root):
        files = sorted({*folder.glob("*webvid*.csv"), *folder.glob("results_*.csv")})
        tables: dict[str, Path] = {}
        for part in _PARTS:
            found = [file for file in files if part in file.name.lower() and file.is_file()]
            if file := the_one(found, part):
                tables[part] = file
        if tables:
            return tables
    raise BadDataset(f"no table of WebVid in {root}; expected {HINT}")


def _table(file: Path, odd: Oddities) -> dict[str, _Row]:
    """Return the rows of a table by video, each once, in their order."""
    rows = sorted(_rows(file), key=lambda row: (natural(row[0]), *row[1:]))
    found: dict[str, _Row] = {}
    for name, raw, seconds in rows:
        if name in found:
            odd.note(TWICE if found[name] == (raw, seconds) else TWICE_OTHER, DROPPED, name, file.name)
            continue
        found[name] = raw, seconds
        if not seconds:
            odd.note(NO_DURATION, KEPT, name)
    return found


def _rows(file: Path) -> Iterator[tuple[str, str, float]]:
    row = 1
    for row, record in read_table(file, ("videoid", "name", "duration")):
        name = check_id(record["videoid"], f"{file}, row {row}")
        if not (match := _DURATION.fullmatch(record["duration"])):
            raise BadDataset(
                f"{file}, row {row}: duration of video {name} is {record['duration']!r:.50}; expected PT00H00M17S or "
                "the like; download it again"
            )
        hours, minutes, seconds = (float(number or 0) for number in match.groups())
        yield name, record["name"], 3600 * hours + 60 * minutes + seconds
    _check_end(file, row)


def _check_end(file: Path, row: int) -> None:
    """Raise BadDataset if the last line has no end: a caption or an address that is cut off looks like a whole one."""
    with file.open("rb") as table:
        if row == 1:
            raise BadDataset(f"{file}: no rows; download it again")
        table.seek(-1, 2)
        if table.read(1) != b"\n":
            raise BadDataset(f"{file}, row {row}: the line has no end, so it is cut off; download it again")


def _splits(clips: tuple[Clip, ...], captions: tuple[Caption, ...], part_of: Mapping[str, str]) -> Iterator[Part]:
    for part in reversed(_PARTS):
        ids = tuple(clip.id for clip in clips if part_of[clip.id] == part)
        if ids:
            yield Part("webvid", part, ids, tuple(c.id for c in captions if part_of[c.clip] == part))
