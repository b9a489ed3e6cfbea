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
order above. Every clip has 0 <= start < end, whatever the times in the file (`repairs` counts them):

* An end that is no time, or not after its start: the caption keeps its words, and lasts from its start to its start.
* A start that is no time: it is the end, else the start of the caption before it in the file, else 0.
* A start or end below 0 is 0. NaN, infinity and what is beyond `LATEST` are no times.
* A clip that would have no length, as all its captions have none, gets `MOMENT` seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import contains, le, lt
from typing import NamedTuple

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

_INK = bytes(range(32, 127))
_SHORTEST_RUN = 5  # characters of three words: "a b c"


class Merged(NamedTuple):
    """A clip of `count` captions, of which `first` is the number of the first; start and end in seconds."""

    start: float
    end: float
    text: str
    first: int
    count: int  # type: ignore[assignment]  # a tuple's own `count` has no use here


_Columns = tuple[Sequence[float], Sequence[float], Sequence[str]]
"""Starts, ends and texts."""


def merge(cues: Cues, min_words: int = 10, max_gap: float = 5.0, max_seconds: float = 30.0) -> list[Merged]:
    """Return the clips of a video: all its captions, in order, merged by the rule above."""
    start, end, raw = in_order(cues)
    if not raw:
        return []
    text = _without_repeats(start, end, raw)
    runs = _runs((start, end, text), min_words, max_gap, max_seconds)
    firsts, *_ = zip(*runs, strict=True)
    joined = " ".join if all(text) else _joined
    return [
        _new((left, right if right > left else left + MOMENT, joined(text[first:stop]), first, stop - first))
        for (first, left, right), stop in zip(runs, (*firsts[1:], len(text)), strict=True)
    ]


_new = partial(tuple.__new__, Merged)  # in a third of the time of Merged(…)


def _joined(texts: Sequence[str]) -> str:
    return " ".join(filter(None, texts))


def _runs(columns: _Columns, min_words: int, max_gap: float, max_seconds: float) -> list[tuple[int, float, float]]:
    """Return each clip's first caption, start and end."""
    start, end, text = columns
    runs: list[tuple[int, float, float]] = []
    first, left, right, words = 0, start[0], end[0], 0
    for number, (from_, to, new) in enumerate(zip(start, end, text, strict=True)):
        near = (words < min_words or not new) and from_ - right <= max_gap
        if near and (to <= right or to - left <= max_seconds):
            words += new.count(" ") + 1 if new else 0
            right = to if to > right else right
            continue
        if words >= min_words or not _joins(runs, left, right, max_gap, max_seconds):
            runs.append((first, left, right))
        first, left, right, words = number, from_, to, new.count(" ") + 1 if new else 0
    if words >= min_words or not _joins(runs, left, right, max_gap, max_seconds):
        runs.append((first, left, right))
    return runs


def _joins(runs: list[tuple[int, float, float]], left: float, right: float, max_gap: float, max_seconds: float) -> bool:
    """Join a short clip to the one before it where gap and length allow; return whether they did."""
    if not runs:
        return False
    first, start, end = runs[-1]
    fits = left - end <= max_gap and (right <= end or right - start <= max_seconds)
    if fits:
        runs[-1] = first, start, max(end, right)
    return fits


def in_order(cues: Cues) -> _Columns:
    """Return starts, ends and texts in the order in which they are numbered: repaired, sorted, without needless blanks.

    Most videos need nothing but the look, which is why that is taken without a loop.
    """
    start, end, text = cues.start, cues.end, cues.text
    if not _are_times(start, end):
        start, end = _repaired(start, end)
    if not _is_sorted(start, end):
        order = sorted(range(len(start)), key=lambda i: (start[i], end[i], i))
        start, end, text = [start[i] for i in order], [end[i] for i in order], [text[i] for i in order]
    return start, end, _tidied(text)


def _tidied(text: Sequence[str]) -> list[str]:
    """Return `tidy` of each text; a video at a time, as most need nothing."""
    joined = "|".join(text)
    if joined.isascii() and "  " not in joined and not joined.encode().translate(None, _INK):
        return list(map(str.strip, text))
    return [one if one.isprintable() and "  " not in one else tidy(one) for one in map(str.strip, text)]


def repairs(cues: Cues) -> Counter[str]:
    """Return how many captions' times are repaired, by what is done; a video out of order counts once."""
    found: Counter[str] = Counter()
    start, end = cues.start, cues.end
    if not _are_times(start, end):
        found[NO_START] = sum(not _is_time(a) for a in start)
        found[NEGATIVE] = sum(min(a, b) < 0 for a, b in zip(start, end, strict=True))
        start, end = _repaired(start, end)
        found[NO_LENGTH] = sum(a == b for a, b in zip(start, end, strict=True))
    found[UNSORTED] = int(not _is_sorted(start, end))
    return +found


def _are_times(start: Sequence[float], end: Sequence[float]) -> bool:
    return not start or (all(map(lt, start, end)) and min(start) >= 0 and max(end) <= LATEST)


def _is_sorted(start: Sequence[float], end: Sequence[float]) -> bool:
    following = start[1:]
    if all(map(lt, start, following)):
        return True
    return all(map(le, zip(start, end, strict=True), zip(following, end[1:], strict=True)))


def _is_time(seconds: float) -> bool:
    return -LATEST <= seconds <= LATEST


def _repaired(start: Sequence[float], end: Sequence[float]) -> tuple[list[float], list[float]]:
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
    return starts, ends


def _without_repeats(start: Sequence[float], end: Sequence[float], text: Sequence[str]) -> list[str]:
    """Return the texts without what each repeats of the one before it."""
    fresh = list(text)
    # A run of words stands in the text before as characters too: that is looked for first, as it is much faster.
    heads = [here[:_SHORTEST_RUN] for here in text[1:]]
    numbers = [number for number, found in enumerate(map(contains, text, heads), start=1) if found]
    if text and min(map(len, text)) < _SHORTEST_RUN:
        numbers = list(range(1, len(text)))
    for number in numbers:
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
