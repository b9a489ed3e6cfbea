"""Short captions of speech recognition to longer ones, so that a text says enough to be matched with its video.

TACo (Yang et al., ICCV 2021) merges adjacent clips of HowTo100M until each text has ten words or more.

    merge(Cues("v", [0, 2], [2, 5], ["so first we", "we take the flour and sift it twice"]))
    # [Merged(start=0, end=5, text='so first we we take the flour and sift it twice', first=0, count=2)]

Order, rolling captions, and times that cannot be: `pipeline/gathering.py` says what becomes of them first. What is
called first, next and before is meant in its order.

Greedy rule, in one walk from first to last: the clip at hand takes the next caption if the clip has less than
`min_words` words, or the caption has none to add; and if the caption begins at most `max_gap` seconds after the clip's
end, and the two together last at most `max_seconds`, or no longer than the clip does. Else the clip is closed and the
caption begins another. A clip that is closed with less than `min_words` is joined to the one before it, if gap and
length allow; else it stays short. So a text has `min_words` wherever its neighbours allowed it in that order, and no
clip lasts more than `max_seconds` unless one of its captions does. A text can be empty: of a caption without words that
is away from all others.

Every caption is in exactly one clip, and a clip's captions follow each other: `first` and `count` say which, in the
order above. Every clip has 0 <= start < end: one that would have no length, as all its captions have none, gets
`MOMENT` seconds.

Many videos are merged at once: they are gathered into arrays, and walk in step (`_opening`), which takes numpy a tenth
of the time of a loop over captions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.asr import Cues
from pipeline.gathering import Captions, Seconds, gather
from pipeline.rolling import END, Numbers

MOMENT = 0.1
"""Seconds of a clip whose captions have no length."""


class Merged(NamedTuple):
    """A clip of `count` captions, of which `first` is the number of the first; start and end in seconds."""

    start: float
    end: float
    text: str
    first: int
    count: int  # type: ignore[assignment]  # a tuple's own `count` has no use here


@dataclass(frozen=True)
class Limits:
    """When captions are merged."""

    min_words: int = 10
    max_gap: float = 5.0
    max_seconds: float = 30.0


@dataclass(frozen=True)
class Clips:
    """Merged clips of several videos, one video after the other."""

    clips: Numbers
    """(V,) clips of each video."""
    start: Seconds
    """(N,) seconds."""
    end: Seconds
    """(N,) seconds."""
    first: Numbers
    """(N,) number of the clip's first caption among those of its video."""
    count: Numbers
    """(N,) captions of the clip."""
    text: bytes
    """The clips' texts, each with `END` after it, but nothing for a clip without words."""
    told: NDArray[np.bool_]
    """(N,) whether the clip has words."""


def merge(cues: Cues, min_words: int = 10, max_gap: float = 5.0, max_seconds: float = 30.0) -> list[Merged]:
    """Return the clips of a video: all its captions, in order, merged by the rule above."""
    found = merge_all(gather([cues]), Limits(min_words, max_gap, max_seconds))
    texts = iter(found.text.decode().split(END))
    columns = (found.start, found.end, found.told, found.first, found.count)
    return [
        Merged(start, end, next(texts) if told else "", first, count)
        for start, end, told, first, count in zip(*(column.tolist() for column in columns), strict=True)
    ]


def merge_all(captions: Captions, limits: Limits) -> Clips:
    """Return the clips of several videos."""
    if not len(captions.start):
        nothing, no = np.zeros(0), np.zeros(0, np.int64)
        return Clips(np.zeros_like(captions.sizes), nothing, nothing, no, no, b"", np.zeros(0, np.bool_))
    first = np.flatnonzero(_opening(captions, limits))
    start, end = captions.start[first], np.maximum.reduceat(captions.end, first)
    video = np.repeat(np.arange(len(captions.sizes)), captions.sizes)[first]
    lengths = np.add.reduceat(captions.lengths, first)
    text = captions.text.copy()
    text[np.cumsum(lengths[lengths > 0]) - 1] = ord(END)
    return Clips(
        clips=np.bincount(video, minlength=len(captions.sizes)),
        start=start,
        end=np.where(end > start, end, start + MOMENT),
        first=first - _offsets(captions.sizes)[video],
        count=np.diff(first, append=len(captions.start)),
        text=text.tobytes(),
        told=lengths > 0,
    )


def _offsets(sizes: Numbers) -> Numbers:
    return np.cumsum(sizes) - sizes


def _opening(captions: Captions, limits: Limits) -> NDArray[np.bool_]:
    """Return (C,) whether a clip begins with this caption.

    The videos walk in step: in each step every video that has one takes its next caption. Longest videos first, so
    that those still walking are the first ones.
    """
    opening = np.zeros(len(captions.start), np.bool_)
    order = np.argsort(-captions.sizes, kind="stable")[: np.count_nonzero(captions.sizes)]
    sizes, place = captions.sizes[order], _offsets(captions.sizes)[order]
    walk = _Walk(captions, limits, opening, place)
    walking = np.searchsorted(-sizes, -np.arange(1, sizes[0]), side="left")
    for step, videos in enumerate(walking.tolist(), start=1):
        walk.take(place[:videos] + step)
    walk.close(np.arange(len(order)))
    return opening


class _Walk:
    """The clip at hand of each of several videos, and the one closed before it."""

    def __init__(self, captions: Captions, limits: Limits, opening: NDArray[np.bool_], first: Numbers) -> None:
        self.captions, self.limits, self.opening = captions, limits, opening
        self.first, self.left, self.right = first.copy(), captions.start[first], captions.end[first]
        self.has = captions.words[first]
        self.before_left = np.zeros(len(first))
        self.before_right = np.full(len(first), -1.0)  # none yet

    def take(self, rows: Numbers) -> None:
        """Take the captions `rows`, the next of the first videos, into the clips at hand, or begin others with them."""
        start, end, words = (c[rows] for c in (self.captions.start, self.captions.end, self.captions.words))
        left, right, has = (column[: len(rows)] for column in (self.left, self.right, self.has))
        taken = (has < self.limits.min_words) | (words == 0)
        taken &= start - right <= self.limits.max_gap
        taken &= (end <= right) | (end - left <= self.limits.max_seconds)
        others = np.flatnonzero(~taken)
        self.close(others)
        has += words
        np.maximum(right, end, out=right)
        for column, values in ((self.first, rows), (left, start), (right, end), (has, words)):
            column[others] = values[others]

    def close(self, videos: Numbers) -> None:
        """Close the clips at hand of `videos`; a short one joins the one before it where gap and length allow."""
        left, right = self.left[videos], self.right[videos]
        before_left, before_right = self.before_left[videos], self.before_right[videos]
        joins = (self.has[videos] < self.limits.min_words) & (before_right >= 0)
        joins &= left - before_right <= self.limits.max_gap
        joins &= (right <= before_right) | (right - before_left <= self.limits.max_seconds)
        self.opening[self.first[videos]] = ~joins
        self.before_left[videos] = np.where(joins, before_left, left)
        self.before_right[videos] = np.where(joins, np.maximum(before_right, right), right)
