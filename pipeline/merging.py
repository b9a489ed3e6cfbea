"""Short captions of speech recognition to longer ones, so that a text says enough to be matched with its video.

TACo (Yang et al., ICCV 2021) merges adjacent clips of HowTo100M until each text has ten words or more.

    merge(Cues("v", [0, 2], [2, 5], ["so first we", "we take the flour and sift it twice"]))
    # [Merged(start=0, end=5, text='so first we we take the flour and sift it twice', first=0, count=2)]

Order. Captions are taken by start, then end, then place; what is called first, next and before is meant so.

Rolling captions. Recognised speech is shown in lines that roll: a caption often begins with the end of the one before
it. Where it starts at most `TOUCH` seconds after the end of that one, the longest run of words that ends the one
before, as it stood in the file, and begins this one is removed from this one, if it is of three words or more, or all
of either caption. A caption of which nothing is left adds no words, but stays a member of its clip.

Greedy rule, in one walk from first to last: the clip at hand takes the next caption if the clip has less than
`min_words` words, or the caption has none to add; and if the caption begins at most `max_gap` seconds after the clip's
end, and the two together last at most `max_seconds`, or no longer than the clip does. Else the clip is closed and the
caption begins another. A clip that is closed with less than `min_words` is joined to the one before it, if gap and
length allow; else it stays short. So a text has `min_words` wherever its neighbours allowed it in that order, and no
clip lasts more than `max_seconds` unless one of its captions does. A text can be empty: of a caption without words that
is away from all others.

Every caption is in exactly one clip, and a clip's captions follow each other: `first` and `count` say which, in the
order above. Every clip has 0 <= start < end, whatever the times in the file (`in_order` counts them):

* An end that is no time, or not after its start: the caption keeps its words, and lasts from its start to its start.
* A start that is no time: it is the end, else the start of the caption before it in the file, else 0.
* A start or end below 0 is 0. NaN, infinity and what is beyond `LATEST` are no times.
* A clip that would have no length, as all its captions have none, gets `MOMENT` seconds.

Many videos are merged at once: they are gathered into arrays, and walk in step (`_opening`), which takes numpy a tenth
of the time of a loop over captions.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from operator import contains, itemgetter, lt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.asr import Cues
from pipeline.sources import tidy

TOUCH = 0.5
"""Seconds between a caption and the next that may repeat it."""
RUN = 3
"""Words of a repeated run, at least, unless it is all of either caption."""
MOMENT = 0.1
"""Seconds of a clip whose captions have no length."""
LATEST = 1e7
"""Seconds beyond which a number is no time in a video."""

NO_LENGTH = "end at or before start, or no time: counted as a moment"
NO_START = "start that is no time: the end, or the start before it"
NEGATIVE = "time below 0: counted as 0"
UNSORTED = "not in the order of time: sorted"

END = b"\0"
"""Ends the text of a clip. No text holds it: control characters are blanks here."""

_INK = bytes(range(32, 127))
_SHORTEST_RUN = 5  # characters of three words: "a b c"
_HEAD = itemgetter(slice(_SHORTEST_RUN))

_Numbers = NDArray[np.int64]
_Seconds = NDArray[np.float64]


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
class Captions:
    """The captions of several videos, one video after the other: in order, and without what they repeat."""

    videos: list[str]
    """(V,) names."""
    sizes: _Numbers
    """(V,) captions of each video."""
    start: _Seconds
    """(C,) seconds."""
    end: _Seconds
    """(C,) seconds; not before start."""
    words: _Numbers
    """(C,)"""
    text: NDArray[np.uint8]
    """The texts in UTF-8, each with a blank behind it, but nothing for a caption without words."""
    lengths: _Numbers
    """(C,) bytes of each text and its blank."""
    repaired: list[tuple[str, str, int]]
    """What was repaired in which video, and in how many of its captions; one out of order counts once."""


@dataclass(frozen=True)
class Clips:
    """Merged clips of several videos, one video after the other."""

    clips: _Numbers
    """(V,) clips of each video."""
    start: _Seconds
    """(N,) seconds."""
    end: _Seconds
    """(N,) seconds."""
    first: _Numbers
    """(N,) number of the clip's first caption among those of its video."""
    count: _Numbers
    """(N,) captions of the clip."""
    text: bytes
    """The clips' texts, each with `END` after it, but nothing for a clip without words."""
    told: NDArray[np.bool_]
    """(N,) whether the clip has words."""


def merge(cues: Cues, min_words: int = 10, max_gap: float = 5.0, max_seconds: float = 30.0) -> list[Merged]:
    """Return the clips of a video: all its captions, in order, merged by the rule above."""
    found = merge_all(gather([cues]), Limits(min_words, max_gap, max_seconds))
    texts = iter(found.text.decode().split(END.decode()))
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
    text[np.cumsum(lengths[lengths > 0]) - 1] = END[0]
    return Clips(
        clips=np.bincount(video, minlength=len(captions.sizes)),
        start=start,
        end=np.where(end > start, end, start + MOMENT),
        first=first - _offsets(captions.sizes)[video],
        count=np.diff(first, append=len(captions.start)),
        text=text.tobytes(),
        told=lengths > 0,
    )


def _offsets(sizes: _Numbers) -> _Numbers:
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

    def __init__(self, captions: Captions, limits: Limits, opening: NDArray[np.bool_], first: _Numbers) -> None:
        self.captions, self.limits, self.opening = captions, limits, opening
        self.first, self.left, self.right = first.copy(), captions.start[first], captions.end[first]
        self.has = captions.words[first]
        self.before_left = np.zeros(len(first))
        self.before_right = np.full(len(first), -1.0)  # none yet

    def take(self, rows: _Numbers) -> None:
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

    def close(self, videos: _Numbers) -> None:
        """Close the clips at hand of `videos`; a short one joins the one before it where gap and length allow."""
        left, right = self.left[videos], self.right[videos]
        before_left, before_right = self.before_left[videos], self.before_right[videos]
        joins = (self.has[videos] < self.limits.min_words) & (before_right >= 0)
        joins &= left - before_right <= self.limits.max_gap
        joins &= (right <= before_right) | (right - before_left <= self.limits.max_seconds)
        self.opening[self.first[videos]] = ~joins
        self.before_left[videos] = np.where(joins, before_left, left)
        self.before_right[videos] = np.where(joins, np.maximum(before_right, right), right)


def gather(videos: Iterable[Cues]) -> Captions:
    """Return the captions of several videos as arrays; what was read of one video is forgotten before the next."""
    names: list[str] = []
    texts: list[bytes] = []
    start, end, sizes = array("d"), array("d"), array("q")
    repaired: list[tuple[str, str, int]] = []
    for cues in videos:
        found: Counter[str] = Counter()
        starts, ends, raw = in_order(cues, found)
        repaired += [(what, cues.video, number) for what, number in (+found).items()]
        names.append(cues.video)
        sizes.append(len(raw))
        start.fromlist(starts)
        end.fromlist(ends)
        if raw:
            texts += "\n".join(_without_repeats(starts, ends, raw)).encode(), b"\n"
    text, words, lengths = _counted(b"".join(texts))
    return Captions(
        names, np.frombuffer(sizes, np.int64), np.frombuffer(start), np.frombuffer(end), words, text, lengths, repaired
    )


def _counted(lines: bytes) -> tuple[NDArray[np.uint8], _Numbers, _Numbers]:
    """Return `text`, `words` and `lengths` as Captions has them, of texts that are a line each."""
    text = np.frombuffer(bytearray(lines), np.uint8)
    stops = np.flatnonzero(text == ord("\n"))
    text[stops] = ord(" ")
    words = np.diff(np.searchsorted(np.flatnonzero(text == ord(" ")), stops, side="right"), prepend=0)
    lengths = np.diff(stops, prepend=-1)
    empty = lengths == 1
    return np.delete(text, stops[empty]), np.where(empty, 0, words), np.where(empty, 0, lengths)


def in_order(cues: Cues, repaired: Counter[str]) -> tuple[list[float], list[float], Sequence[str]]:
    """Return starts, ends and texts in the order in which they are numbered: repaired, sorted, without needless blanks.

    Counts in `repaired` what was done. Most videos need nothing but the look, which is why that is without a loop.
    """
    start, end, text = cues.start, cues.end, cues.text
    if start and not (all(map(lt, start, end)) and min(start) >= 0 and max(end) <= LATEST):
        start, end = _repaired(start, end, repaired)
    if not all(map(lt, start, islice(start, 1, None))):
        order = sorted(range(len(start)), key=lambda i: (start[i], end[i], i))
        repaired[UNSORTED] += order != list(range(len(order)))
        start, end, text = [start[i] for i in order], [end[i] for i in order], [text[i] for i in order]
    return start, end, _tidied(text)


def _tidied(text: Sequence[str]) -> Sequence[str]:
    """Return `tidy` of each text; a video at a time, as most need nothing."""
    joined = f"|{'|'.join(text)}|"
    printable = not joined.encode().translate(None, _INK) if joined.isascii() else joined.isprintable()
    if printable and "  " not in joined:
        return [one.strip() for one in text] if " |" in joined or "| " in joined else text
    return [one if one.isprintable() and "  " not in one else tidy(one) for one in map(str.strip, text)]


def _is_time(seconds: float) -> bool:
    return -LATEST <= seconds <= LATEST


def _repaired(start: Sequence[float], end: Sequence[float], repaired: Counter[str]) -> tuple[list[float], list[float]]:
    """Return starts and ends with 0 <= start <= end."""
    starts: list[float] = []
    ends: list[float] = []
    before = 0.0
    for from_, to in zip(start, end, strict=True):
        if _is_time(from_):
            before = max(from_, 0.0)
        elif _is_time(to):
            before = max(to, 0.0)
        starts.append(before)
        ends.append(to if _is_time(to) and to > before else before)
    repaired[NO_START] += sum(not _is_time(a) for a in start)
    repaired[NEGATIVE] += sum(min(a, b) < 0 for a, b in zip(start, end, strict=True))
    repaired[NO_LENGTH] += sum(a == b for a, b in zip(starts, ends, strict=True))
    return starts, ends


def _without_repeats(start: Sequence[float], end: Sequence[float], text: Sequence[str]) -> Sequence[str]:
    """Return the texts without what each repeats of the one before it."""
    fresh = list(text)
    # A run of words stands in the text before as characters too: that is looked for first, as it is much faster.
    heads = map(_HEAD, islice(text, 1, None))
    may: Iterable[int] = compress(count(1), map(contains, text, heads))
    if text and min(map(len, text)) < _SHORTEST_RUN:
        may = range(1, len(text))
    for number in may:
        if start[number] <= end[number - 1] + TOUCH:
            fresh[number] = _rest(text[number - 1], text[number])
    return fresh


def _rest(before: str, here: str) -> str:
    """Return `here` without the longest run of words that ends `before` and begins it."""
    head = " ".join(here.split(" ", RUN)[:RUN])
    at = before.find(head) if here else -1
    while at >= 0:
        run = before[at:]
        if (not at or before[at - 1] == " ") and _begins(here, run):
            return here[len(run) + 1 :]
        at = before.find(head, at + 1)
    return here[len(before) + 1 :] if before and _begins(here, before) else here


def _begins(text: str, run: str) -> bool:
    """Return whether the words of `run` begin `text`."""
    return text.startswith(run) and text[len(run) : len(run) + 1] in ("", " ")
