"""Whether one side's rows are the other's at other moments: whole rows apart, or between them.

A row from another moment of the same scene lies between the rows around it, in any network; a row whose picture was
made otherwise does not. And what a change of pictures does to the rows of one video is much alike, what another moment
does is not. `benchmarks/mistakes.py` measures both on real videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pairs = Sequence[tuple[Array, Array]]
"""Rows of A and of B for each video, as many of each."""

FARTHEST = 3
"""Rows by which one side may be late."""
FEWEST = 3
"""Rows of a video that must be left to compare."""
LATE, EXPLAINED = 0.15, 0.05
"""From how many rows' lateness on, and from what share on that it explains, it counts."""


@dataclass(frozen=True, slots=True)
class Lag:
    """B's rows are A's, `rows` later."""

    rows: float
    explained: float
    """Share of what rows of the same number leave unexplained that these explain."""
    left: float
    """Share of B that is not explained at all."""
    agree: tuple[bool, ...]
    """Of each video that is long enough: whether it alone says the same direction."""


def find(pairs: Pairs) -> Lag | None:
    """Return by how much B's rows are late, None where nothing says that they are."""
    some = centred(pairs)
    found = [lag for first in range(-FARTHEST, FARTHEST) if (lag := _between(some, first)) is not None]
    best = max(found, key=lambda lag: lag.explained, default=None)
    if best is None or abs(best.rows) < LATE or best.explained < EXPLAINED:
        return None
    ones = [_direction([pair]) for pair in some]
    return Lag(best.rows, best.explained, best.left, tuple(one * best.rows > 0 for one in ones if one))


def alike(pairs: Pairs) -> float:
    """Return how alike the differences of one video's rows are: 0 not at all, 1 all the same.

    The mean product of two of them over the mean square of one; of videos with one row nothing is known.
    """
    apart = [b - a for a, b in pairs if len(a) > 1]
    square = sum(float(np.sum(one**2)) for one in apart)
    product = sum((float(np.sum(one.sum(0) ** 2)) - float(np.sum(one**2))) / (len(one) - 1) for one in apart)
    return product / square if square else 1.0


def centred(pairs: Pairs) -> list[tuple[Array, Array]]:
    """Return rows less the mean of their video's; of videos with one row each, less the mean of all."""
    some = [(a - a.mean(0), b - b.mean(0)) for a, b in pairs if len(a) > 1]
    if some:
        return some
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return [(a - a.mean(0), b - b.mean(0))]


def cosine(a: Array, b: Array) -> float:
    """Return the cosine of all numbers of `a` and all of `b`; 0 where one side is all zero."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.sum(a * b)) / size if size else 0.0


def _between(pairs: Pairs, first: int) -> Lag | None:
    """Return the lag between `first` and `first + 1` that explains B's rows best; None where there are too few."""
    found = _beside(pairs, (first, first + 1, 0))
    if found is None:
        return None
    (one, two, same), wanted = found
    total = float(wanted @ wanted)
    alone = 1 - cosine(same, wanted) ** 2
    if not total or alone < 1e-12:
        return None
    made = np.stack([one, two], axis=1)
    weights = np.linalg.lstsq(made.T @ made, made.T @ wanted, rcond=1e-9)[0]
    if weights.min() < 0:  # not between the two
        return None
    left = float(np.sum((wanted - made @ weights) ** 2)) / total
    return Lag(first + float(weights[1] / (weights.sum() or 1.0)), 1 - left / alone, left, ())


def _direction(pairs: Pairs) -> float:
    """Return by how much more the next row of A explains B's than the last one does; 0 where there are too few."""
    found = _beside(pairs, (-1, 1))
    return 0.0 if found is None else cosine(found[0][1], found[1]) - cosine(found[0][0], found[1])


def _beside(pairs: Pairs, lags: Sequence[int]) -> tuple[list[Array], Array] | None:
    """Return A's rows at each lag, and B's, of all rows that have them all, as one vector each."""
    first, last = max(0, -min(lags)), max(0, *lags)
    some = [(a, b, len(a) - last) for a, b in pairs if len(a) - first - last >= FEWEST]
    if not some:
        return None
    ours = [np.concatenate([a[first + lag : end + lag].ravel() for a, _, end in some]) for lag in lags]
    return ours, np.concatenate([b[first:end].ravel() for _, b, end in some])
