"""EPIC-KITCHENS-100 for retrieval: 76,885 narrated actions in first-person kitchen videos, a sentence each.

Source: Damen et al., "Rescaling egocentric vision", IJCV 2022; the retrieval annotations of its repository.

Layout. Annotations lie in ROOT, ROOT/annotations, ROOT/annotation or ROOT/retrieval_annotations, the first of these
that has any; whole files win over those with `head` or `subset` in their name:

* `EPIC_100_retrieval_train.csv`, `EPIC_100_retrieval_test.csv`: one narration a row. Times are `HH:MM:SS.ss`, lists are
  written as Python writes them.
* `EPIC_100_retrieval_train_sentence.csv`, `EPIC_100_retrieval_test_sentence.csv`: the sentences of a part, each once,
  with the first narration that says it.

Videos are found by their name without suffix, below ROOT/videos, else below ROOT, for example P01/videos/P01_11.MP4.

A clip is a narrated span, its id is the `narration_id`, its label is the verb as spoken. Its one caption has the same
id. Many clips share a sentence, and the published test counts all of them, and similar ones, as right: that relevance
is computed from verb and noun classes and is not part of this manifest. The files of sentences are only checked.

Splits. `epic100`: train and test by file.

Repair rules; every record that one touches is listed:

* A span whose end is not after its start is dropped, with its caption.
* Spans that overlap another of their video are kept, and so are those shorter than one second.
* Blanks at the ends of narrations are trimmed, runs of blanks inside become one; one without text is dropped.
* A file of sentences changes nothing. Listed are sentences that stand there more than once, those whose narration
  says something else, and, where the table is whole, those whose narration is not in the table.

Rows with another id's video, a narration that stands twice, and a video in train and test are errors. Order: videos by
id, then by start, end and narration id.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import check_id, find_media, natural, need_folder, read_table, tidy

HINT = (
    "EPIC_100_retrieval_train.csv and EPIC_100_retrieval_test.csv, their *_sentence.csv beside them, and the videos in "
    "videos/"
)
EXPECTED: dict[str, dict[str, int]] = {
    "": {"clips": 76_885, "captions": 76_885},
    "epic100/train": {"clips": 67_217, "captions": 67_217, "gallery": 67_217},
    "epic100/test": {"clips": 9_668, "captions": 9_668, "gallery": 9_668},
}
"""Rows of the whole tables, as their authors count them."""

OVERLAP = "span that overlaps another of its video"
SHORT = "span shorter than 1 s"
UNKNOWN = "sentence whose narration is not in the table"
OTHER_TEXT = "sentence whose narration says something else"
TWICE = "sentence listed more than once"

COLUMNS = (
    "narration_id", "video_id", "start_timestamp", "stop_timestamp", "narration", "verb", "all_nouns",
    "all_noun_classes",
)  # fmt: skip
"""Those that a table must have."""

_CLOCK = re.compile(r"(\d{1,4}):([0-5]\d):([0-5]\d(?:\.\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Row:
    """One narration."""

    id: str
    video: str
    start: float
    end: float
    text: str
    verb: str
    part: str


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load EPIC-KITCHENS-100's retrieval annotations from `root`, with its media files below `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, a narration that stands twice, a video in two parts.
    """
    folder, tables = _find(need_folder(root, HINT))
    odd = Oddities()
    rows = _ordered([row for part, file in tables.items() for row in _rows(file, part)], tables)
    notes = [note for part, file in tables.items() for note in _sentences(folder, part, file, rows, odd)]
    kept = {row.id: row for row in rows if odd.span(row.id, row.start, row.end)}
    _list_spans(list(kept.values()), odd)
    clips = tuple(Clip(row.id, row.video, row.start, row.end, row.verb) for row in kept.values())
    captions = tuple(Caption(row.id, row.id, text) for row in kept.values() if (text := odd.text(row.id, row.text)))
    odd.captions(captions, clips)
    ids = dict.fromkeys(clip.video for clip in clips)
    media, found = find_media(root, videos, ids)
    return Manifest(
        dataset="epic_kitchens100",
        videos=tuple(Video(name, media.get(name)) for name in ids),
        clips=clips,
        captions=captions,
        splits=tuple(_split(kept, captions)),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(file.name for file in tables.values())}", *notes, found),
    )


def _find(root: Path) -> tuple[Path, dict[str, Path]]:
    """Return the folder and the table of each part."""
    for folder in (root, *(root / name for name in ("annotations", "annotation", "retrieval_annotations"))):
        tables = {part: _table(folder, part) for part in ("train", "test")}
        if found := {part: table for part, table in tables.items() if table}:
            return folder, found
    raise BadDataset(f"no retrieval annotations of EPIC-KITCHENS-100 in {root}; expected {HINT}")


def _table(folder: Path, part: str) -> Path | None:
    found = sorted(folder.glob(f"EPIC_100_retrieval_{part}*.csv"))
    tables = [file for file in found if "sentence" not in file.name and file.is_file()]
    return next((file for file in tables if not _cut(file)), tables[0] if tables else None)


def _cut(file: Path) -> bool:
    return "head" in file.name or "subset" in file.name


def _rows(file: Path, part: str) -> Iterator[_Row]:
    for number, record in read_table(file, COLUMNS):
        where = f"{file}, row {number}"
        name, video = (check_id(record[column], where) for column in ("narration_id", "video_id"))
        if not name.startswith(f"{video}_"):
            raise BadDataset(f"{where}: narration {name} cannot be of video {video}; download it again")
        start, end = (_seconds(where, record[column]) for column in ("start_timestamp", "stop_timestamp"))
        for column in ("all_nouns", "all_noun_classes"):
            _check_list(f"{where}: {column}", record[column])
        yield _Row(name, video, start, end, record["narration"], tidy(record["verb"]), part)


def _seconds(where: str, text: str) -> float:
    if not (match := _CLOCK.fullmatch(text)):
        raise BadDataset(f"{where}: {text!r:.50} is no time; expected HH:MM:SS.ss; download it again")
    hours, minutes, seconds = match.groups()
    # Rounded, so that 00:05:27.28 is the number 327.28 and not the sum of 300 and 27.28.
    return round(3600 * int(hours) + 60 * int(minutes) + float(seconds), 6)


def _check_list(where: str, text: str) -> None:
    try:
        value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise BadDataset(
            f"{where} is {text!r:.50}; expected a list as Python writes it, such as ['plate']; is it cut off?"
        )


def _ordered(rows: Sequence[_Row], tables: Mapping[str, Path]) -> list[_Row]:
    """Return the rows by video and time. Raises BadDataset for what stands twice or in two parts."""
    parts: dict[str, str] = {}
    for row in rows:
        if parts.setdefault(row.video, row.part) != row.part:
            file = tables[row.part]
            raise BadDataset(f"{file}: video {row.video} is in train and in test, narration {row.id}; keep one")
    ids: set[str] = set()
    for row in rows:
        if row.id in ids:
            file = tables[row.part]
            raise BadDataset(f"{file}: narration {row.id} stands twice in the {row.part} table; keep one")
        ids.add(row.id)
    return sorted(rows, key=lambda row: (natural(row.video), row.start, row.end, natural(row.id)))


def _list_spans(rows: Sequence[_Row], odd: Oddities) -> None:
    """List what is short, and each pair that overlaps under the later of the two."""
    for place, row in enumerate(rows):
        if round(row.end - row.start, 6) < 1:
            odd.note(SHORT, KEPT, row.id, f"{row.end - row.start:.3g} s")
        for later in rows[place + 1 :]:
            if later.video != row.video or later.start >= row.end:
                break
            odd.note(OVERLAP, KEPT, later.id, f"with {row.id}")


def _sentences(folder: Path, part: str, table: Path, rows: Sequence[_Row], odd: Oddities) -> Iterator[str]:
    """List what is odd in the sentences of a part; yield a note."""
    file = folder / f"EPIC_100_retrieval_{part}_sentence.csv"
    if not file.is_file():
        yield f"{file.name} is not beside {table.name}"
        return
    listed = sorted(_listed(file), key=lambda row: natural(row[0]))
    texts = {row.id: tidy(row.text) for row in rows if row.part == part}
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in listed:
        ids[text].append(name)
        if name not in texts and not _cut(table):
            odd.note(UNKNOWN, KEPT, name, text)
        if texts.get(name, text) != text:
            odd.note(OTHER_TEXT, KEPT, name, f"{texts[name]!r}, listed as {text!r}")
    for text, names in ids.items():
        for name in names[1:]:
            odd.note(TWICE, KEPT, name, f"as {names[0]}: {text}")
    known = sum(name in texts for name, _ in listed)
    yield f"{file.name}: {len(listed):,} sentences, the narrations of {known:,} are in {table.name}"


def _listed(file: Path) -> Iterator[tuple[str, str]]:
    row = 0
    for row, record in read_table(file, ("narration_id", "narration")):
        yield check_id(record["narration_id"], f"{file}, row {row}"), tidy(record["narration"])
    if not file.read_bytes().endswith(b"\n"):
        raise BadDataset(f"{file}, row {row}: the line has no end, so it is cut off; download it again")


def _split(rows: Mapping[str, _Row], captions: Sequence[Caption]) -> Iterator[Part]:
    for part in ("train", "test"):
        clips = tuple(row.id for row in rows.values() if row.part == part)
        if clips:
            yield Part("epic100", part, clips, tuple(c.id for c in captions if rows[c.clip].part == part))
