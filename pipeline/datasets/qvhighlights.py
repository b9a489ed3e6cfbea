"""QVHighlights: 10,148 cuts of YouTube videos, two and a half minutes each, with 10,310 queries and their windows.

Source: Lei et al., NeurIPS 2021.

Layout. `highlight_train_release.jsonl`, `highlight_val_release.jsonl` and `highlight_test_release.jsonl`, a line
`{"qid": 2579, "query", "duration": 150, "vid": "NUsG9BgSes0_210.0_360.0", "relevant_windows": [[82, 150]]}` each, lie
in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any; whole files win over those with more in
their name (`highlight_val_release.head100.jsonl`). Test has no `relevant_windows`. Videos are found by their name
without suffix, `NUsG9BgSes0_210.0_360.0` (YouTube id, start and end in that video), below ROOT/videos, else below
ROOT; a file must have its suffix, `.mp4`.

A clip is a whole file. A query is a caption of it, called by its `qid`, with its windows: seconds of the file, in their
order. Saliency scores and `relevant_clip_ids` (the windows in steps of two seconds) are not kept.

Splits. `qvhighlights`: train, val and test by their files.

Repair rules; every record that one touches is listed:

* A query loses blanks at its ends and in runs inside; one without text is dropped, its video stays.
* A window that ends behind the file is cut there. One that ends before it starts, has no length or starts at the end
  of the file is dropped.
* Windows that overlap another of the same video, or are the same, are kept; they belong to different queries.
* `duration` counts where start and end in the file's name are not as far apart.

A video in two parts, or with two durations, is an error. Order: videos by name, queries by `qid`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import check_id, files_of_parts, find_media, natural, need_folder, read_table

HINT = "highlight_train_release.jsonl, highlight_val_release.jsonl, highlight_test_release.jsonl, and videos in videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 10_148, "clips": 10_148, "captions": 10_310},
    "qvhighlights/train": {"captions": 7_218},
    "qvhighlights/val": {"videos": 1_519, "clips": 1_519, "captions": 1_550, "gallery": 1_519},
    "qvhighlights/test": {"videos": 1_529, "clips": 1_529, "captions": 1_542, "gallery": 1_529},
}

OTHER_LENGTH = "start and end in the file's name are not its duration apart"
OVERLAP = "window overlaps another of its video"
SAME = "window is the same as another of its video"

PARTS = ("train", "val", "test")
_WITHOUT_WINDOWS = "test"
_CUT = re.compile(r".+_(\d+(?:\.\d+)?)_(\d+(?:\.\d+)?)", re.ASCII)

_Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Query:
    """A line of a file."""

    number: int
    raw: str
    video: str
    duration: float
    windows: tuple[_Window, ...]
    part: str


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load QVHighlights from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in two parts or with two durations.
    """
    patterns = {part: (f"highlight_{part}_release*.jsonl",) for part in PARTS}
    files = files_of_parts(need_folder(root, HINT), patterns, f"no QVHighlights in {root}: expected {HINT}")
    queries = _queries(files)
    first: dict[str, _Query] = {}
    for query in queries:
        first.setdefault(query.video, query)
    ids = sorted(first, key=natural)
    odd = Oddities()
    clips = [Clip(video, video) for video in ids]
    captions = _captions(queries, odd)
    odd.captions(captions, clips, {str(query.number): query.raw for query in queries})
    splits = [_part(part, clips, captions, first) for part in files]
    odd.leaks(splits, {clip.id: clip.video for clip in clips})
    media, media_note = find_media(root, videos, first)
    return Manifest(
        dataset="qvhighlights",
        videos=tuple(Video(video, media.get(video), first[video].duration) for video in ids),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(splits),
        oddities=odd.found(),
        notes=(*_notes(files, queries), media_note),
    )


def _notes(files: Mapping[str, Path], queries: Sequence[_Query]) -> list[str]:
    missing = [f"highlight_{part}_release.jsonl is not there" for part in PARTS if part not in files]
    without = sum(not query.windows for query in queries)
    more = [f"{without:,} queries of {_WITHOUT_WINDOWS} have no windows, as published"] if without else []
    return [f"annotations: {', '.join(file.name for file in files.values())}", *missing, *more]


def _queries(files: Mapping[str, Path]) -> list[_Query]:
    """Return all queries by number. Raises BadDataset where two contradict each other."""
    found: dict[int, _Query] = {}
    first: dict[str, _Query] = {}
    for part, file in files.items():
        before = len(found)
        for row, query in _read(part, file):
            where = f"{file}, row {row}"
            if query.number in found:
                raise BadDataset(f"{where}: qid {query.number} stands twice in the annotations; keep one")
            found[query.number] = query
            other = first.setdefault(query.video, query)
            if other.part != part:
                raise BadDataset(f"{where}: {query.video} is in {other.part} too; use the files of one release")
            if other.duration != query.duration:
                raise BadDataset(f"{where}: {query.video} lasts {query.duration:g} s, in qid {other.number} not")
        if len(found) == before:
            raise BadDataset(f"{file}: no queries; download it again")
    return [found[number] for number in sorted(found)]


def _read(part: str, file: Path) -> Iterator[tuple[int, _Query]]:
    for row, record in read_table(file, ("qid", "query", "duration", "vid")):
        query = _query(part, record)
        if query is None:
            raise BadDataset(
                f"{file}, row {row}: {shown(record)}; expected qid (integer), query, vid (texts), duration (seconds "
                "above 0) and, but in test, relevant_windows (list of [start, end], seconds from 0)"
            )
        check_id(query.video, f"{file}, row {row}")
        yield row, query


def _query(part: str, record: dict[str, Any]) -> _Query | None:
    match record:
        case {
            "qid": int(number),
            "query": str(raw),
            "duration": int() | float() as duration,
            "vid": str(video),
        } if number >= 0 and 0 < duration < math.inf:
            windows = _windows(record.get("relevant_windows", []))
            if windows or (windows is not None and part == _WITHOUT_WINDOWS):
                return _Query(number, raw, video, float(duration), windows, part)
    return None


def _windows(value: Any) -> tuple[_Window, ...] | None:
    """Return the windows, or None for anything else."""
    found: list[_Window] = []
    for window in value if isinstance(value, list) else [None]:
        match window:
            case [int() | float() as start, int() | float() as end] if (
                0 <= min(start, end) <= max(start, end) < math.inf
            ):
                found.append((float(start), float(end)))
            case _:
                return None
    return tuple(found)


def _captions(queries: Sequence[_Query], odd: Oddities) -> list[Caption]:
    """Return the queries with text as captions."""
    captions = []
    windows: defaultdict[str, list[tuple[str, _Window]]] = defaultdict(list)
    for query in queries:
        name = str(query.number)
        cut = _CUT.fullmatch(query.video)
        if cut and float(cut[2]) - float(cut[1]) != query.duration:
            odd.note(OTHER_LENGTH, KEPT, name, f"{query.video} lasts {query.duration:g} s")
        text = odd.text(name, query.raw)
        named = [(f"{name}#{n}", *window) for n, window in enumerate(query.windows)] if text else []
        spans = [(record, odd.span(record, start, end, query.duration)) for record, start, end in named]
        kept = [(record, span) for record, span in spans if span]
        windows[query.video] += kept
        if text:
            captions.append(Caption(name, query.video, text, tuple(span for _, span in kept)))
    for video in sorted(windows, key=natural):
        _compare(windows[video], odd)
    return captions


def _compare(windows: Sequence[tuple[str, _Window]], odd: Oddities) -> None:
    """List the pairs of windows of one video that overlap, and of these the pairs that are the same."""
    for (first, one), (second, two) in combinations(windows, 2):
        if one[0] < two[1] and two[0] < one[1]:
            odd.note(OVERLAP, KEPT, second, first)
        if one == two:
            odd.note(SAME, KEPT, second, first)


def _part(part: str, clips: Sequence[Clip], captions: Sequence[Caption], first: Mapping[str, _Query]) -> Part:
    ids = {clip.id: None for clip in clips if first[clip.video].part == part}
    return Part("qvhighlights", part, tuple(ids), tuple(caption.id for caption in captions if caption.clip in ids))
