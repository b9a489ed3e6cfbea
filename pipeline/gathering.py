"""Captions of several videos as merging needs them: in order, at times that can be, and without what they repeat.

Order. Captions are taken by start, then end, then place; what is called first, next and before is meant so.

Rolling captions. Where a caption starts at most `TOUCH` seconds after the end of the one before it, the words that it
repeats of that one are removed: see `pipeline/rolling.py`. A caption of which nothing is left adds no words, but stays
a member of its clip.

Times. Every caption has 0 <= start <= end, whatever stands in the file (`in_order` counts what was repaired):

* An end that is no time, or not after its start: the caption keeps its words, and lasts from its start to its start.
* A start that is no time: it is the end, else the start of the caption before it in the file, else 0.
* A start or end below 0 is 0. NaN, infinity and what is beyond `LATEST` are no times.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt

import numpy as np
from numpy.typing import NDArray

from pipeline.asr import Cues
from pipeline.rolling import BLANK, END, Lines, Numbers
from pipeline.sources import tidy

TOUCH = 0.5
"""Seconds between a caption and the next that may repeat it."""
LATEST = 1e7
"""Seconds beyond which a number is no time in a video."""

NO_LENGTH = "end at or before start, or no time: counted as a moment"
NO_START = "start that is no time: the end, or the start before it"
NEGATIVE = "time below 0: counted as 0"
UNSORTED = "not in the order of time: sorted"

_INK = bytes(range(32, 127))
_DELETE = 127
_TOGETHER = 1 << 14
"""Captions that are looked at together: about what a core keeps at hand. Larger arrays cost more for each byte."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Captions:
    """The captions of several videos, one video after the other: in order, and without what they repeat."""

    videos: list[str]
    """(V,) names."""
    sizes: Numbers
    """(V,) captions of each video."""
    start: Seconds
    """(C,) seconds."""
    end: Seconds
    """(C,) seconds; not before start."""
    words: Numbers
    """(C,)"""
    text: NDArray[np.uint8]
    """The texts in UTF-8, each with a blank behind it, but nothing for a caption without words."""
    lengths: Numbers
    """(C,) bytes of each text and its blank."""
    repaired: list[tuple[str, str, int]]
    """What was repaired in which video, and in how many of its captions; one out of order counts once."""


def gather(videos: Iterable[Cues]) -> Captions:
    """Return the captions of several videos as arrays; what was read of one batch is forgotten before the next."""
    found = [_gathered(batch) for batch in _batches(videos)] or [_gathered([])]
    arrays = ("sizes", "start", "end", "words", "text", "lengths")
    return Captions(
        videos=[video for batch in found for video in batch.videos],
        repaired=[what for batch in found for what in batch.repaired],
        **{name: np.concatenate([getattr(batch, name) for batch in found]) for name in arrays},
    )


def _batches(videos: Iterable[Cues]) -> Iterator[list[Cues]]:
    """Yield the videos in lists of about `_TOGETHER` captions."""
    batch: list[Cues] = []
    size = 0
    for cues in videos:
        batch.append(cues)
        size += len(cues.text)
        if size > _TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _gathered(videos: Sequence[Cues]) -> Captions:
    """Return the captions of a batch of videos."""
    repaired: list[tuple[str, str, int]] = []
    times, sizes = _times(videos), np.asarray([len(cues.text) for cues in videos], np.int64)
    texts: list[bytes] = [_lines(cues.text) for cues in videos]
    stops = np.cumsum(sizes)
    for number in _unusual(times, sizes).tolist():
        cues, found, stop = videos[number], Counter[str](), int(stops[number])
        starts, ends, said = in_order(cues, found)
        times[:, stop - len(said) : stop] = starts, ends
        texts[number] = _lines(said)
        repaired += [(what, cues.video, count) for what, count in (+found).items()]
    first = np.zeros(len(times[0]) + 1, np.bool_)
    first[stops - sizes] = True
    start, end = times
    touches = np.append(False, start[1:] <= end[:-1] + TOUCH) if len(start) else np.zeros(0, np.bool_)
    lines = Lines(_tidy_lines(texts))
    text, words, lengths = lines.without(*lines.repeats(touches & ~first[:-1]))
    return Captions([cues.video for cues in videos], sizes, start, end, words, text, lengths, repaired)


def _times(videos: Sequence[Cues]) -> Seconds:
    """Return (2, C) starts and ends as they stand."""
    columns = array("d"), array("d")
    for cues in videos:
        columns[0].fromlist(cues.start)
        columns[1].fromlist(cues.end)
    return np.asarray(columns)


def _unusual(times: Seconds, sizes: Numbers) -> Numbers:
    """Return the videos whose times are not all in [0, LATEST], with start < end, and starts that rise."""
    start, end = times
    video = np.repeat(np.arange(len(sizes)), sizes)
    good = (start < end) & (start >= 0) & (end <= LATEST)
    good[1:] &= (start[:-1] < start[1:]) | (video[:-1] < video[1:])
    return np.unique(video[~good])


def _lines(text: Sequence[str]) -> bytes:
    """Return texts with `END` after each. A text that holds `END` itself is tidied first, and one beyond ASCII."""
    lines = END.join([*text, ""])
    if not lines.isascii() or lines.count(END) > len(text):
        lines = END.join([*_tidied(text), ""])
    return lines.encode()


def _tidy_lines(texts: Sequence[bytes]) -> bytes:
    """Return the lines of all videos, each as `tidy` leaves it."""
    lines = b"".join(texts)
    odd = np.searchsorted(np.cumsum([len(text) for text in texts]), _odd(lines), side="right")
    if not len(odd):
        return lines
    tidied = list(texts)
    for number in np.unique(odd).tolist():
        tidied[number] = _lines(_tidied(texts[number].decode().split(END)[:-1]))
    return b"".join(tidied)


def _odd(lines: bytes) -> Numbers:
    """Return where lines are not tidy: a control character, or a blank beside another, or at an end of a line."""
    text = np.frombuffer(lines, np.uint8)
    control = (text - 1 < BLANK - 1) | (text == _DELETE)  # `END` is 0, and 0 - 1 is 255
    low = text <= BLANK
    pairs = np.flatnonzero(low[1:] & low[:-1])
    pairs = pairs[(text[pairs] > 0) | (text[pairs + 1] > 0)]
    return np.concatenate([np.flatnonzero(text[:1] == BLANK), pairs, np.flatnonzero(control)])


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
