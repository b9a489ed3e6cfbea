"""The words of DESIGN 2 as values: what a data set is made of, and what becomes of an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Video:
    """One media file. `path` is None when the data set names it but the file is not there."""

    id: str
    path: Path | None
    duration: float = 0.0
    """Seconds as annotated, to balance the work; 0 when the annotations do not say."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A span of a video in seconds, [start, end); `end` None means to the end of the video."""

    id: str
    video: str
    start: float = 0.0
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Caption:
    """A text that describes a clip."""

    id: str
    clip: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """One side of a split, for example `split1/train`: ids of its clips and of its captions."""

    split: str
    name: str
    clips: tuple[str, ...]
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """A data set as loaded: all that is annotated, with or without its media file."""

    dataset: str
    videos: tuple[Video, ...]
    clips: tuple[Clip, ...] = ()
    captions: tuple[Caption, ...] = ()
    splits: tuple[Part, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What was repaired or left out, one line each, with counts."""


Status = Literal["ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item. `reason` is empty when all went well."""

    item: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    """Seconds of video that were decoded."""
