"""Charades-STA: 6,672 home videos of half a minute, 16,128 sentences with the segment that each describes.

Source: Gao et al., ICCV 2017 (sentences); Sigurdsson et al., ECCV 2016 (videos).

Layout. `charades_sta_train.txt` and `charades_sta_test.txt`, a line `AO8RW 0.0 6.9##a person is putting a book on a
shelf.` (video, seconds, sentence) each, lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has
any; whole files win over those with more in their name (`charades_sta_test.head.txt`). Beside them, or there in
`Charades`, may lie `Charades_v1_train.csv` and `Charades_v1_test.csv`, whose columns `id` and `length` tell how long
the videos of train and those of test are, and `valid_videos.txt`, an id a line, which is compared. Videos are found by
their name without suffix, `AO8RW`, below ROOT/videos, else below ROOT.

A clip is a segment, `AO8RW_0.0_6.9`: the video, and seconds as repaired. Sentences about the same segment are captions
of one clip. A caption is called by its number among its video's in the order of start, end and text, `AO8RW#0`.

Splits. `charades_sta`: train and test. There is no val; papers choose on test.

Repair rules, in this order; every record that one touches is listed:

* A caption loses blanks at its ends and in runs inside; one without text is dropped with its segment.
* Segments that end before they start (4 lines of train) or have no length are dropped.
* Where the video's length is known, segments that start at it or behind are dropped (none is left: 3 of the 4 lines
  above do), and segments that end behind it are cut there. Without a length nothing is cut: a note says of how many.
* A video of which no segment is left is dropped (2 of train).

A video in train and test, and a file whose last line has no end, are errors. Order: videos by id, segments by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import (
    check_id,
    files_of_parts,
    find_media,
    natural,
    need_folder,
    read_lines,
    read_table,
    read_text,
)

HINT = "charades_sta_train.txt and charades_sta_test.txt, Charades_v1_*.csv beside them, and the videos in videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 6_670, "captions": 16_124},
    "charades_sta/train": {"videos": 5_336, "captions": 12_404},
    "charades_sta/test": {"videos": 1_334, "clips": 2_577, "captions": 3_720, "gallery": 2_577},
}
"""Of the whole data set, with lengths. Files and papers have 12,408 sentences and 5,338 videos to train: four of them
have no segment, and two of these videos nothing else."""
PAPERS = {"charades_sta/train": (12_408, "4 lines of the file end before they start")}
"""Queries by their count, and why ours are others."""

NO_SEGMENT = "video without a segment"
UNLISTED = "valid_videos.txt does not name it"
UNKNOWN = "in valid_videos.txt but not in the annotations"

PARTS = ("train", "test")
_LINE = re.compile(r"(\S+) (\d{1,9}(?:\.\d+)?) (\d{1,9}(?:\.\d+)?)##(.*)", re.ASCII)
_LENGTH = re.compile(r"\d{1,9}(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence as it stands in the file."""

    video: str
    start: float
    end: float
    raw: str
    part: str


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load Charades-STA from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in train and test.
    """
    patterns = {part: (f"charades_sta_{part}*.txt",) for part in PARTS}
    files = files_of_parts(need_folder(root, HINT), patterns, f"no Charades-STA sentences in {root}: expected {HINT}")
    lines = sorted(
        (line for part, file in files.items() for line in _lines(part, file)),
        key=lambda line: (natural(line.video), line.start, line.end, line.raw),
    )
    folder = next(iter(files.values())).parent
    parts = _part_of(lines, files)
    odd = Oddities()
    lengths, length_notes = _lengths(folder, parts)
    list_notes = _compare(folder / "valid_videos.txt", parts, odd)
    clips, captions = _clips(lines, lengths, odd)
    splits = tuple(_part(part, parts, clips, captions) for part in files)
    odd.leaks(splits, {clip.id: clip.video for clip in clips})
    there = dict.fromkeys(clip.video for clip in clips)
    media, media_note = find_media(root, videos, there)
    names = ", ".join(file.name for file in files.values())
    return Manifest(
        dataset="charades_sta",
        videos=tuple(Video(video, media.get(video), lengths.get(video, 0.0)) for video in there),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(part for part in splits if part.clips),
        oddities=odd.found(),
        notes=(f"annotations: {names}", *length_notes, *list_notes, media_note),
    )


def _lines(part: str, file: Path) -> Iterator[_Line]:
    rows = read_lines(file, ended=True)
    if not any(map(str.strip, rows)):
        raise BadDataset(f"{file}: no sentences; download it again")
    for number, row in enumerate(rows, start=1):
        match = _LINE.fullmatch(row.rstrip("\r"))
        if match:
            video, start, end, raw = match.groups()
            yield _Line(check_id(video, f"{file}, row {number}"), float(start), float(end), raw, part)
        elif row.strip():
            raise BadDataset(
                f"{file}, row {number}: {row!r:.100}; expected a video, start and end in seconds from 0, ## and a "
                "sentence, such as 'AO8RW 0.0 6.9##a person reads.'"
            )


def _part_of(lines: Sequence[_Line], files: Mapping[str, Path]) -> dict[str, str]:
    """Return the part of each video. Raises BadDataset for a video in both."""
    parts: dict[str, str] = {}
    for line in lines:
        if parts.setdefault(line.video, line.part) != line.part:
            names = " and ".join(str(file) for file in files.values())
            raise BadDataset(f"{names}: {line.video} is in train and test; use the files of one release")
    return parts


def _lengths(folder: Path, videos: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """Return the seconds of each video that a table of Charades tells, and notes."""
    lengths: dict[str, float] = {}
    notes = []
    for name in (f"Charades_v1_{part}.csv" for part in PARTS):
        file = next((place / name for place in (folder, folder / "Charades") if (place / name).is_file()), None)
        if file is None:
            notes.append(f"{name} is not there")
            continue
        for video, seconds in _table(file):
            if lengths.setdefault(video, seconds) != seconds:
                raise BadDataset(f"{file}: {video} has another length here or in the other table; keep one")
    known = {video: seconds for video, seconds in lengths.items() if video in videos}
    unknown = len(videos) - len(known)
    return known, [*notes, f"{unknown:,} of {len(videos):,} videos have no length, so their segments were not cut"]


def _table(file: Path) -> Iterator[tuple[str, float]]:
    row = 1
    for row, record in read_table(file, ("id", "length")):
        if not _LENGTH.fullmatch(record["length"]) or not float(record["length"]):
            raise BadDataset(f"{file}, row {row}: length is {record['length']!r:.50}; expected seconds above 0")
        yield record["id"], float(record["length"])
    with file.open("rb") as table:
        table.seek(-1, 2)
        if table.read(1) != b"\n":  # a number that is cut off looks like a whole one
            raise BadDataset(f"{file}, row {row}: the line has no end, so it is cut off; download it again")


def _compare(file: Path, videos: Mapping[str, str], odd: Oddities) -> list[str]:
    """List where the annotated videos are not those of the list; return a note if there is one."""
    if not file.is_file():
        return []
    listed = set(read_text(file).split())
    for video in sorted(videos.keys() ^ listed, key=natural):
        kind, rule = (UNLISTED, KEPT) if video in videos else (UNKNOWN, DROPPED)
        odd.note(kind, rule, video)
    return [f"{file.name}: {len(videos.keys() & listed):,} of {len(videos):,} videos"]


def _clips(lines: Sequence[_Line], lengths: Mapping[str, float], odd: Oddities) -> tuple[list[Clip], list[Caption]]:
    """Return each segment once, and the sentences about them."""
    clips: dict[str, Clip] = {}
    captions: list[Caption] = []
    raws: dict[str, str] = {}
    for video, own in groupby(lines, key=lambda line: line.video):
        before = len(clips)
        for number, line in enumerate(own):
            name = f"{video}#{number}"
            text = odd.text(name, line.raw)
            if text and (span := odd.span(name, line.start, line.end, lengths.get(video))):
                clip = f"{video}_{span[0]}_{span[1]}"
                clips[clip] = Clip(clip, video, *span)
                captions.append(Caption(name, clip, text))
                raws[name] = line.raw
        if len(clips) == before:
            odd.note(NO_SEGMENT, DROPPED, video)
    odd.captions(captions, clips.values(), raws)
    return list(clips.values()), captions


def _part(part: str, parts: Mapping[str, str], clips: Sequence[Clip], captions: Sequence[Caption]) -> Part:
    ids = {clip.id: None for clip in clips if parts[clip.video] == part}
    return Part("charades_sta", part, tuple(ids), tuple(caption.id for caption in captions if caption.clip in ids))
