"""COIN: 11,827 instructional videos of 180 tasks with the spans of their steps, of 778 kinds.

Source: Tang et al., "COIN: A large-scale dataset for comprehensive instructional video analysis", CVPR 2019.

Layout. Annotations lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any:

* `COIN.json`, else all of `COIN*.json`, whole files before those with `subset` or `head` in their name:
  `{"database": {VIDEO: {"duration": …, "class": …, "subset": …, "annotation": [{"id", "segment", "label"}, …]}}}`; or
* `*coin*train*.csv` and `*coin*test*.csv` as ProcedureVRL (Zhong et al., CVPR 2023) has them, one step a row, no
  header: `FILE NUMBER SECONDS START END` with blanks between. Their names say the part.

Videos are found by their name without suffix, below ROOT/videos, else below ROOT.

A clip is a whole video of the same id, and its label is the video's `class` (none in csv files). The annotated `start`
and `end` of a video, in which all its steps lie, are not used: the published frame accuracy is over every second of
the whole video. Steps are `CLIP#0`, `CLIP#1`, … in the order of time; their number is COIN's own id, 1 to 778, which
leaves 0 for background. There are no captions.

Splits. `coin`: train and test by `subset` (`training`, `testing`), or by the names of the csv files.

Repair rules; every record that one touches is listed:

* Blanks at the ends of labels are trimmed, and runs of blanks inside become one; a step without label is dropped.
* A step whose end is not after its start, or that begins past the end of its video, is dropped; an end past the
  video's is clamped to it.
* The same label twice in a row is kept.
* ProcedureVRL numbers steps from 0; 1 is added, so that a number means the same in both files. The csv files have no
  labels: the number is the label.

Order: videos by id, steps by time. A csv file whose last line has no end is an error: it is cut off.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import KEPT, Oddities
from pipeline.records import Clip, Manifest, Part, Step, Video
from pipeline.shown import shown
from pipeline.sources import (
    annotation_folders,
    check_id,
    find_media,
    natural,
    need_folder,
    read_json,
    read_lines,
    tidy,
    whole_ones,
)

HINT = "COIN.json (or ProcedureVRL's *coin*train*.csv and *coin*test*.csv), and the videos in videos/"
EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 11_827, "clips": 11_827, "captions": 0},
    "coin/train": {"videos": 9_030, "clips": 9_030},
    "coin/test": {"videos": 2_797, "clips": 2_797},
}
"""Of `COIN.json`."""

IN_A_ROW = "same step label twice in a row"

_PARTS = {"training": "train", "testing": "test"}
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class _Row:
    """One video. `steps` are (start, end, number, label)."""

    part: str
    duration: float
    label: str
    steps: tuple[tuple[float, float, int, str], ...]
    file: str = ""
    """Name of its media file, where the annotations have it."""


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load COIN from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video that stands twice.
    """
    files = _find(need_folder(root, HINT))
    rows: dict[str, _Row] = {}
    for file in files:
        for name, row in _json(file) if file.suffix == ".json" else _csv(file):
            if name in rows:
                raise BadDataset(f"{file}: video {name} stands in another annotation file too; keep one")
            rows[name] = row
    rows = {name: rows[name] for name in sorted(rows, key=natural)}
    odd = Oddities()
    steps = [step for name, row in rows.items() for step in _steps(name, row, odd)]
    media, found = find_media(root, videos, rows)
    added = ["numbers of steps: 1 is added, to be COIN's"] if files[0].suffix == ".csv" else []
    return Manifest(
        dataset="coin",
        videos=tuple(Video(name, media.get(name), row.duration, row.file) for name, row in rows.items()),
        clips=tuple(Clip(name, name, label=row.label) for name, row in rows.items()),
        splits=tuple(_splits(rows)),
        steps=tuple(steps),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(file.name for file in files)}", *added, found),
    )


def _find(root: Path) -> list[Path]:
    """Return the annotation files to read, all of one kind."""
    for folder in annotation_folders(root):
        tables = [file for file in sorted(folder.glob("*coin*.csv")) if _part(file)]
        for found in (sorted(folder.glob("COIN*.json")), tables):
            whole = whole_ones(found)
            exact = [file for file in whole if file.name == "COIN.json"]
            if found:
                return exact or whole
    raise BadDataset(f"no annotations of COIN in {root}; expected {HINT}")


def _part(file: Path) -> str:
    return next((part for part in ("train", "test") if part in file.name), "")


def _json(file: Path) -> Iterator[tuple[str, _Row]]:
    match read_json(file):
        case {"database": dict() as database} if database:
            pass
        case _:
            raise BadDataset(f'{file}: expected {{"database": {{VIDEO: …}}}} with videos in it; download it again')
    for name, record in database.items():
        check_id(name, f"{file}: database")
        match record:
            case {
                "duration": int() | float() as duration,
                "class": str(label),
                "subset": str(subset),
                "annotation": list(steps),
            } if duration > 0 and subset in _PARTS:
                found = tuple(_step(f"{file}: {name}: annotation[{n}]", step) for n, step in enumerate(steps))
                yield name, _Row(_PARTS[subset], float(duration), tidy(label), found)
            case _:
                raise BadDataset(
                    f"{file}: {name} is {shown(record, 150)}; expected duration (seconds), class (text), subset "
                    f"({', '.join(_PARTS)}), annotation (a list); download it again"
                )


def _step(where: str, record: Any) -> tuple[float, float, int, str]:
    match record:
        case {
            "id": str() | int() as number,
            "segment": [int() | float() as start, int() | float() as end],
            "label": str(label),
        } if start >= 0 and end >= 0 and _NUMBER.fullmatch(str(number)):
            return float(start), float(end), int(number), label
    raise BadDataset(
        f"{where} is {shown(record, 150)}; expected id (a number), segment ([start, end], seconds), label (text); "
        "download it again"
    )


def _csv(file: Path) -> Iterator[tuple[str, _Row]]:
    steps: defaultdict[str, list[tuple[float, float, int, str]]] = defaultdict(list)
    first: dict[str, tuple[str, float]] = {}
    for row, line in enumerate(read_lines(file, ended=True), start=1):
        name, duration, step = _fields(f"{file}, row {row}", line)
        video = check_id(PurePosixPath(check_id(name, f"{file}, row {row}")).stem, f"{file}, row {row}")
        if first.setdefault(video, (name, duration)) != (name, duration):
            raise BadDataset(
                f"{file}, row {row}: {name} of {duration:g} s, but {first[video][0]} of {first[video][1]:g} s in "
                "another row; give one file and length to a video"
            )
        steps[video].append(step)
    if not steps:
        raise BadDataset(f"{file}: no rows; download it again")
    for video, (name, duration) in first.items():
        yield video, _Row(_part(file), duration, "", tuple(steps[video]), name)


def _fields(where: str, line: str) -> tuple[str, float, tuple[float, float, int, str]]:
    """Return the name of the file, its seconds, and the step."""
    try:
        name, number, *times = line.split()
        duration, start, end = map(float, times)
    except ValueError:
        raise BadDataset(f"{where}: {line!r:.100}; expected FILE NUMBER SECONDS START END") from None
    if not (_NUMBER.fullmatch(number) and all(0 <= time < math.inf for time in (duration, start, end)) and duration):
        raise BadDataset(f"{where}: {line!r:.100}; expected a number from 0, and seconds from 0")
    return name, duration, (start, end, int(number) + 1, str(int(number) + 1))


def _steps(clip: str, row: _Row, odd: Oddities) -> list[Step]:
    """Return the steps of a video in the order of time."""
    steps: list[Step] = []
    for order, (start, end, number, raw) in enumerate(sorted(row.steps)):
        label = odd.text(f"{clip}#{order}", raw)
        span = odd.span(f"{clip}#{order}", start, end, row.duration)
        if label and span:
            steps.append(Step(f"{clip}#{order}", clip, label, *span, number))
    for one, two in pairwise(steps):
        if one.label == two.label:
            odd.note(IN_A_ROW, KEPT, two.id, two.label)
    return steps


def _splits(rows: dict[str, _Row]) -> Iterator[Part]:
    for part in _PARTS.values():
        clips: Sequence[str] = [name for name, row in rows.items() if row.part == part]
        if clips:
            yield Part("coin", part, tuple(clips), ())
