"""TACoS: 127 kitchen videos of some minutes, 18,227 sentences with the segment that each describes.

Source: Regneri et al., TACL 2013; Rohrbach et al., ECCV 2012 (the videos). These files: Zhang et al., "2D-TAN", AAAI
2020, with 9,790 / 4,436 / 4,001 sentences of 75 / 27 / 25 videos. Papers also give 10,146 / 4,589 / 4,083 sentences.

Layout. `train.json`, `val.json` and `test.json`, each `{"s17-d69.avi": {"timestamps": [[224, 358]], "sentences",
"fps": 29.4, "num_frames": 12438}}` with timestamps in frames, lie in ROOT, ROOT/annotations or ROOT/annotation, the
first of these that has any; whole files win over those with more in their name (`val.subset.json`). Videos are found
by their name without suffix, `s17-d69`, below ROOT/videos, else below ROOT.

A video's id is its name without `.avi`; seconds are frames / fps. A clip is a segment, `s17-d69_224_358`: the video,
and frames as repaired. Sentences about the same segment are captions of one clip. A caption is called by its place in
its video's list, `s17-d69#0`; these lists are in no order of time.

Splits. `tacos`: train, val and test by their files.

Repair rules; every record that one touches is listed:

* A caption loses blanks at its ends and in runs inside; one without text is dropped with its segment.
* A segment that ends behind the last frame is cut there (43 sentences of train, 5 of test). One that ends before it
  starts, has no length or starts at the end of the video is dropped; a video of which no segment is left, too.
* A sentence that stands twice about one segment stays twice: 2,284 do, letter by letter.

A video in two parts is an error. Order: videos by id; segments by time, captions by their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import check_id, files_of_parts, find_media, natural, need_folder, read_json

HINT = "train.json, val.json and test.json of TACoS, and the videos s….avi in videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 127, "clips": 7_069, "captions": 18_227},
    "tacos/train": {"videos": 75, "clips": 3_530, "captions": 9_790, "gallery": 3_530},
    "tacos/val": {"videos": 27, "clips": 2_001, "captions": 4_436, "gallery": 2_001},
    "tacos/test": {"videos": 25, "clips": 1_538, "captions": 4_001, "gallery": 1_538},
}
_OWN = "2D-TAN's files, which these are, have fewer sentences than its paper and others count"
PAPERS = {"tacos/train": (10_146, _OWN), "tacos/val": (4_589, _OWN), "tacos/test": (4_083, _OWN)}
"""Queries by their count, and why ours are others."""

NO_SEGMENT = "video without a segment"

PARTS = ("train", "val", "test")
_SUFFIX = ".avi"


@dataclass(frozen=True, slots=True)
class _Film:
    """A video as its file tells it: segments in frames, with their sentences."""

    part: str
    original: str
    fps: float
    frames: int
    moments: tuple[tuple[int, int, str], ...]

    @property
    def duration(self) -> float:
        return self.frames / self.fps


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load TACoS from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in two parts.
    """
    patterns = {part: (f"{part}.json", f"{part}.*.json") for part in PARTS}
    files = files_of_parts(need_folder(root, HINT), patterns, f"no TACoS in {root}: expected {HINT}")
    films = _films(files)
    odd = Oddities()
    clips, captions = _clips(films, odd)
    splits = [_part(part, films, clips, captions) for part in files]
    odd.leaks(splits, {clip.id: clip.video for clip in clips})
    there = dict.fromkeys(clip.video for clip in clips)
    media, media_note = find_media(root, videos, there)
    missing = [f"{part}.json is not there" for part in PARTS if part not in files]
    return Manifest(
        dataset="tacos",
        videos=tuple(_video(name, films[name], media.get(name)) for name in there),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(part for part in splits if part.clips),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(file.name for file in files.values())}", *missing, media_note),
    )


def _films(files: Mapping[str, Path]) -> dict[str, _Film]:
    """Return all videos by id, in order. Raises BadDataset for one that stands in two files, or twice."""
    films: dict[str, _Film] = {}
    for part, file in files.items():
        for film in _read(part, file):
            name = check_id(film.original.removesuffix(_SUFFIX), str(file))
            if name in films:
                raise BadDataset(f"{file}: {name} is in {films[name].part} too; use the files of one release")
            films[name] = film
    return {name: films[name] for name in sorted(films, key=natural)}


def _read(part: str, file: Path) -> Iterator[_Film]:
    data = read_json(file)
    if not isinstance(data, dict) or not data:
        raise BadDataset(f"{file}: expected an object of videos; download it again")
    for original, record in data.items():
        check_id(original, str(file))
        film = _film(part, original, record)
        if film is None:
            raise BadDataset(
                f"{file}: {original} is {shown(record)}; expected fps and num_frames above 0, timestamps (list of "
                "[start, end], whole frames from 0) and as many sentences (list of texts)"
            )
        yield film


def _film(part: str, original: str, record: Any) -> _Film | None:
    match record:
        case {
            "timestamps": list(spans),
            "sentences": list(texts),
            "fps": int() | float() as fps,
            "num_frames": int(frames),
        } if 0 < fps < math.inf and 0 < frames / fps < math.inf and len(spans) == len(texts) > 0:
            moments = [found for span, text in zip(spans, texts, strict=True) if (found := _moment(span, text))]
            return _Film(part, original, float(fps), frames, tuple(moments)) if len(moments) == len(spans) else None
    return None


def _moment(span: Any, text: Any) -> tuple[int, int, str] | None:
    match span, text:
        case [int(start), int(end)], str() if start >= 0 and end >= 0:
            return start, end, text
    return None


def _video(name: str, film: _Film, path: Path | None) -> Video:
    return Video(name, path, film.duration, film.original if film.original != name else "")


def _clips(films: Mapping[str, _Film], odd: Oddities) -> tuple[list[Clip], list[Caption]]:
    """Return each segment once, by time, and the sentences about them."""
    clips: list[Clip] = []
    captions: list[Caption] = []
    raws: dict[str, str] = {}
    for video, film in films.items():
        segments: dict[str, Clip] = {}
        for number, (start, end, raw) in enumerate(film.moments):
            name = f"{video}#{number}"
            text = odd.text(name, raw)
            if text and (span := odd.span(name, start / film.fps, end / film.fps, film.duration)):
                clip = f"{video}_{start}_{min(end, film.frames)}"
                segments[clip] = Clip(clip, video, *span)
                captions.append(Caption(name, clip, text))
                raws[name] = raw
        if not segments:
            odd.note(NO_SEGMENT, DROPPED, video)
        clips += sorted(segments.values(), key=lambda clip: (clip.start, clip.end))
    odd.captions(captions, clips, raws)
    return clips, captions


def _part(part: str, films: Mapping[str, _Film], clips: Sequence[Clip], captions: Sequence[Caption]) -> Part:
    ids = {clip.id: None for clip in clips if films[clip.video].part == part}
    return Part("tacos", part, tuple(ids), tuple(caption.id for caption in captions if caption.clip in ids))
