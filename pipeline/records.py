"""The words of DESIGN 2 as values: what a data set is made of, and what becomes of an item."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Remote:
    """A media file that is fetched when it is needed."""

    url: str
    """http://, https://, s3:// or gs://."""


@dataclass(frozen=True, slots=True, init=False)
class Video:
    """One media file. `path` is None when the data set names it but the file is not there."""

    id: str
    file: str | Remote | None
    """Its path, as text: the Paths of a million videos are 350 MB."""
    duration: float
    """Seconds as annotated, to balance the work; 0 when the annotations do not say."""
    original: str
    """The id as it is annotated, where it was brought into another form; else empty."""

    def __init__(
        self,
        id: str,  # noqa: A002 — the field's name, as for any dataclass
        file: Path | str | Remote | None,
        duration: float = 0.0,
        original: str = "",
    ) -> None:
        values = id, str(file) if isinstance(file, Path) else file, duration, original
        for slot, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, slot, value)

    @property
    def path(self) -> Path | Remote | None:
        """Where it is."""
        return Path(self.file) if isinstance(self.file, str) else self.file


@dataclass(frozen=True, slots=True)
class Clip:
    """A span of a video in seconds, [start, end); `end` None means to the end of the video."""

    id: str
    video: str
    start: float = 0.0
    end: float | None = None
    label: str = ""
    """What it is one of, as the data set calls it: a category, a recipe, a class, the id of a Task."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A text that describes a clip."""

    id: str
    clip: str
    text: str
    windows: tuple[tuple[float, float], ...] = ()
    """Spans of the video in seconds, [start, end), where annotators give several for one text; else empty."""


@dataclass(frozen=True, slots=True)
class Step:
    """A labelled span of a clip, [start, end) in seconds of its video."""

    id: str
    clip: str
    label: str
    start: float
    end: float
    number: int = -1
    """Which step of its task, from 0, or the data set's own number of the label; -1 where there is none."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an instructional video shows: steps in their order. Clips name it by their label."""

    id: str
    name: str
    steps: tuple[str, ...]
    primary: bool = True
    """Whether it is one of those that are evaluated."""


@dataclass(frozen=True, slots=True)
class Part:
    """One side of a split, for example `split1/train`: ids of its clips and of its captions."""

    split: str
    name: str
    clips: tuple[str, ...]
    captions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Oddity:
    """One kind of oddity in the annotations, what was done about it, and every record that had it."""

    kind: str
    rule: str
    """kept, dropped, clamped, swapped, trimmed."""
    records: tuple[str, ...]
    """Ids, each followed by ': ' and a detail where there is one."""


@dataclass(frozen=True)
class Manifest:
    """A data set as loaded: all that is annotated, with or without its media file."""

    dataset: str
    videos: tuple[Video, ...]
    clips: tuple[Clip, ...] = ()
    captions: tuple[Caption, ...] = ()
    splits: tuple[Part, ...] = ()
    steps: tuple[Step, ...] = ()
    tasks: tuple[Task, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What was read and what is not there, one line each, with counts."""
    dedup: bool = False
    """Captions that repeat another of their clip were left out on purpose."""


Status = Literal["ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item. `reason` is empty when all went well."""

    item: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    """Seconds of video that were decoded."""
