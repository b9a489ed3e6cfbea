"""ActivityNet Captions: 14,926 YouTube videos of two minutes, each told in sentences that have a segment each.

Source: Krishna et al., ICCV 2017; Caba Heilbron et al., CVPR 2015 (the videos).

Layout. `train.json`, `val_1.json` and `val_2.json`, each `{"v_ID": {"duration", "timestamps", "sentences"}}`, seconds,
lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any; whole files win over those with
`subset` or `head` in their name. The two val files are two annotators' of the same videos. `train_list.txt`,
`val_1_list.txt` and `val_2_list.txt`, if they lie in `ce_lists` beside them, are compared. Videos are found by their
name without suffix, `v_` in front, below ROOT/videos, else below ROOT.

Clips are the whole video (`v_X`) and each segment (`v_X@val_1#0`: the file, and the number in its list). Captions are
each sentence, called as its clip, and on the whole video one paragraph for each file (`v_X@val_1`): all sentences of
the video, also those without a segment, in the order of start, end and number, a blank between them.

Splits, each with the parts train, val_1 and val_2; those two share their videos:

* `grounding`: sentences and segments. 2D-TAN (Zhang et al., AAAI 2020) validates on val_1 and tests on val_2.
* `paragraph`: paragraphs and whole videos, as retrieval is measured.

Repair rules; every record that one touches is listed:

* Two segments of train that end before they start have a published correction, which swaps start and end: `SWAPPED_IN`.
  Any other such segment is dropped, and so are those of zero length and those behind the end of the video.
* Segments that end behind the video are cut there. Durations are read to the microsecond: they carry noise of binary
  arithmetic (70.28999999999999), and without it only 35 segments end too late, each by 0.01 s.
* A sentence loses blanks at its ends and in runs inside; one without text is dropped with its segment.
* Where the two val files give a video different durations, that of val_1 counts.
* Videos that a list names and the annotations lack are left out, those that no list names stay.

A video in train and val is an error. Order: videos by id; the whole, then segments by file and number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, INVERTED, KEPT, SWAPPED, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import check_id, files_of_parts, find_media, natural, need_folder, read_json, read_text

HINT = "train.json, val_1.json and val_2.json of ActivityNet Captions, and the videos v_….mp4 in videos/"

PARTS = ("train", "val_1", "val_2")
SHARED = {split: [{"val_1", "val_2"}] for split in ("grounding", "paragraph")}
DEFAULT_SPLIT = "paragraph"
_VIDEOS = {"train": 10_009, "val_1": 4_917, "val_2": 4_885}
_SEGMENTS = {"train": 37_419, "val_1": 17_505, "val_2": 17_031}
EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 14_926, "clips": 14_926 + 71_955, "captions": 71_955 + 19_811},
    **{f"grounding/{p}": {"videos": _VIDEOS[p], "clips": n, "captions": n, "gallery": n} for p, n in _SEGMENTS.items()},
    **{f"paragraph/{p}": {"videos": n, "clips": n, "captions": n, "gallery": n} for p, n in _VIDEOS.items()},
}
"""Of the whole data set. Train has 37,421 sentences, two of them with a segment of zero length."""
PAPERS = {"grounding/train": (37_417, "2 segments whose ends are swapped are mended here and dropped there")}
"""Queries by their count, and why ours are others."""

SWAPPED_IN = ("v_0bosp4-pyTM", "v_rhOtqArO-3Y")
"""Videos of train with a segment whose start and end are to be swapped."""
UNLISTED = "no split list names it"
UNKNOWN = "in a list but not in the annotations"
DURATIONS = "another duration in val_2 than in val_1"


@dataclass(frozen=True, slots=True)
class _Told:
    """A video as one file tells it."""

    part: str
    video: str
    duration: float
    moments: tuple[tuple[float, float, str], ...]
    """Start, end and sentence as they stand in the file."""


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load ActivityNet Captions from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in train and val.
    """
    patterns = {part: (f"{part}.json", f"{part}.*.json") for part in PARTS}
    files = files_of_parts(need_folder(root, HINT), patterns, f"no ActivityNet Captions in {root}: expected {HINT}")
    told = sorted(
        (one for part, file in files.items() for one in _read(part, file)),
        key=lambda one: (natural(one.video), PARTS.index(one.part)),
    )
    odd = Oddities()
    durations = _durations(told, odd)
    media, media_note = find_media(root, videos, durations)
    segments, sentences, paragraphs = _texts(told, durations, odd)
    whole = [Clip(video, video) for video in durations]
    clips = sorted([*whole, *segments], key=lambda clip: natural(clip.video))  # stable: the whole, then its segments
    captions = [*sentences, *paragraphs]
    odd.captions(captions, clips)
    parts = [part for name in files for part in _parts(name, (segments, sentences, paragraphs))]
    notes = [_compare(files[name], name, told, odd) for name in files]
    odd.leaks(parts, {clip.id: clip.video for clip in clips})
    missing = [f"{part}.json is not there" for part in PARTS if part not in files]
    return Manifest(
        dataset="activitynet",
        videos=tuple(Video(video, media.get(video), seconds) for video, seconds in durations.items()),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(sorted((part for part in parts if part.clips), key=lambda p: (p.split, PARTS.index(p.name)))),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(f.name for f in files.values())}", *missing, *filter(None, notes), media_note),
    )


def _read(part: str, file: Path) -> Iterator[_Told]:
    data = read_json(file)
    if not isinstance(data, dict) or not data:
        raise BadDataset(f"{file}: expected an object of videos; download it again")
    for video, record in data.items():
        check_id(video, f"{file}")
        match record:
            case {"duration": int() | float() as seconds, "timestamps": list(spans), "sentences": list(texts)} if (
                0 < seconds < math.inf and len(spans) == len(texts) > 0
            ):
                moments = tuple(_moment(span, text) for span, text in zip(spans, texts, strict=True))
            case _:
                moments = (None,)
        if None in moments:
            raise BadDataset(
                f"{file}: {video} is {shown(record)}; expected duration (seconds), timestamps (list of [start, end], "
                "seconds from 0) and as many sentences (list of texts)"
            )
        told = tuple(moment for moment in moments if moment)
        yield _Told(part, video, round(seconds, 6), told)


def _moment(span: Any, text: Any) -> tuple[float, float, str] | None:
    match span, text:
        case [int() | float() as start, int() | float() as end], str():
            return (float(start), float(end), text) if 0 <= start < math.inf and 0 <= end < math.inf else None
    return None


def _durations(told: Sequence[_Told], odd: Oddities) -> dict[str, float]:
    """Return each video's seconds. Raises BadDataset for a video in train and val."""
    first: dict[str, _Told] = {}
    for one in told:
        other = first.setdefault(one.video, one)
        if other.part == "train" != one.part:
            raise BadDataset(f"{one.part}.json: {one.video} is in train.json too; use the files of one release")
        if other.duration != one.duration:
            odd.note(DURATIONS, KEPT, one.video, f"{other.duration:g} in {other.part}, {one.duration:g} in {one.part}")
    return {video: one.duration for video, one in first.items()}


_Texts = tuple[list[Clip], list[Caption], list[Caption]]
"""Segments, their sentences, and paragraphs."""


def _texts(told: Sequence[_Told], durations: dict[str, float], odd: Oddities) -> _Texts:
    """Return segments, their sentences in the same order, and the paragraphs."""
    segments, sentences, paragraphs = [], [], []
    for one in told:
        ordered = []
        for number, (start, end, raw) in enumerate(one.moments):
            name = f"{one.video}@{one.part}#{number}"
            text = odd.text(name, raw)
            if one.part == "train" and one.video in SWAPPED_IN and end < start:
                odd.note(INVERTED, SWAPPED, name, f"{start:g} to {end:g}")
                start, end = end, start  # noqa: PLW2901 (as published since)
            ordered.append((start, end, number, text))
            if text and (span := odd.span(name, start, end, durations[one.video])):
                segments.append(Clip(name, one.video, *span))
                sentences.append(Caption(name, name, text))
        paragraph = " ".join(text for *_, text in sorted(ordered) if text)
        if paragraph:
            paragraphs.append(Caption(f"{one.video}@{one.part}", one.video, paragraph))
    return segments, sentences, paragraphs


def _parts(name: str, texts: _Texts) -> list[Part]:
    segments, _, paragraphs = texts
    moments = tuple(clip.id for clip in segments if _file(clip.id) == name)
    told = [caption for caption in paragraphs if _file(caption.id) == name]
    whole = tuple(caption.clip for caption in told)
    return [Part("grounding", name, moments, moments), Part("paragraph", name, whole, tuple(c.id for c in told))]


def _file(name: str) -> str:
    return name.rpartition("@")[2].partition("#")[0]


def _compare(file: Path, name: str, told: Sequence[_Told], odd: Oddities) -> str:
    """List where the videos of a file are not those of its list; return a note if there is a list."""
    path = file.parent / "ce_lists" / f"{name}_list.txt"
    if not path.is_file():
        return ""
    listed = set(read_text(path).split())
    annotated = {one.video for one in told if one.part == name}
    for video in sorted(annotated ^ listed, key=natural):
        kind, rule = (UNLISTED, KEPT) if video in annotated else (UNKNOWN, DROPPED)
        odd.note(kind, rule, video, path.name)
    return f"{path.name}: {len(annotated & listed):,} of {len(annotated):,} videos"
