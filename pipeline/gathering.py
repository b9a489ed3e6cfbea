"""Captions of several videos as merging needs them: in order, at times that can be, and without what they repeat.

Order. Captions are taken by start, then end, then place; what is called first, next and before is meant so.

Rolling captions. Recognised speech is shown in lines that roll: a caption often begins with the end of the one before
it. Where it starts at most `TOUCH` seconds after the end of that one, the longest run of words that ends the one
before, as it stood in the file, and begins this one is removed from this one, if it is of three words or more, or all
of either caption. A caption of which nothing is left adds no words, but stays a member of its clip.

Times. Every caption has 0 <= start <= end, whatever stands in the file (`in_order` counts what was repaired):

* An end that is no time, or not after its start: the caption keeps its words, and lasts from its start to its start.
* A start that is no time: it is the end, else the start of the caption before it in the file, else 0.
* A start or end below 0 is 0. NaN, infinity and what is beyond `LATEST` are no times.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice
from operator import contains, itemgetter, lt

import numpy as np
from numpy.typing import NDArray

from pipeline.asr import Cues
from pipeline.sources import tidy

TOUCH = 0.5
"""Seconds between a caption and the next that may repeat it."""
RUN = 3
"""Words of a repeated run, at least, unless it is all of either caption."""
LATEST = 1e7
"""Seconds beyond which a number is no time in a video."""

NO_LENGTH = "end at or before start, or no time: counted as a moment"
NO_START = "start that is no time: the end, or the start before it"
NEGATIVE = "time below 0: counted as 0"
UNSORTED = "not in the order of time: sorted"

_INK = bytes(range(32, 127))
_SHORTEST_RUN = 5  # characters of three words: "a b c"
_HEAD = itemgetter(slice(_SHORTEST_RUN))

Numbers = NDArray[np.int64]
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


def _counted(lines: bytes) -> tuple[NDArray[np.uint8], Numbers, Numbers]:
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
