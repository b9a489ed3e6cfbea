"""What makes two sets of rows differ, as far as the numbers of the rows show it.

    for finding in diagnose(pairs, counts, rate=1.0):
        print(finding.sure, finding.text)

Some mistakes leave traces that nothing else leaves: rows of length 1, a factor, rows that lie between the other side's
rows. Others - the scaler, the mean pixel, a crop - only move rows, by amounts that overlap; of these the ones that were
measured to move rows as much are listed, and never called more than possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline import lags
from pipeline.lags import Array, Pairs

SAME = 0.02
"""Centred relative error below which features are the same: correct implementations differ by less."""
UNIT = 0.01
"""By which the length of an L2-normalised row may differ from 1."""
CONSTANT = 0.98
"""Share of a difference that one vector makes, above which it is one vector."""
LEFT = 0.5
"""Centred relative error without that vector, from which on it is not all that differs."""
UNRELATED = 0.1
"""Centred cosine below which rows have nothing in common."""
MOMENTS = 0.1
"""How alike the differences of a video's rows are (`lags.alike`), below which they are not of changed pictures."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found about the difference."""

    kind: str
    """same, float16, l2, factor, offset, shift, count, rate, network, picture, unknown."""
    sure: Literal["certain", "likely", "possible"]
    text: str


@dataclass(frozen=True, slots=True)
class Moved:
    """How rows are moved, whichever side is which."""

    error: float
    """|a - b| over the mean spread of both sides' rows in a video."""
    uneven: float
    """Standard deviation over rows of how far each is moved for its length, over its mean."""
    length: float
    """Logarithm of the ratio of rows' lengths, without its sign."""


@dataclass(frozen=True, slots=True)
class Picture:
    """How much a change of the pictures moves rows: lowest, median and highest of what was measured."""

    name: str
    error: tuple[float, float, float]
    uneven: tuple[float, float, float]
    length: float
    """The highest."""


PICTURES = (
    Picture("the scaler: bilinear or bicubic", (0.10, 0.36, 0.52), (0.23, 0.53, 0.77), 0.041),
    Picture("a mean pixel that is off by some grey levels", (0.18, 0.21, 0.32), (0.22, 0.35, 0.40), 0.017),
    Picture("a mean pixel whose channels are swapped", (0.29, 0.76, 1.2), (0.13, 0.25, 0.55), 0.021),
    Picture("channels in another order, BGR", (0.24, 0.90, 1.7), (0.46, 0.74, 1.3), 0.041),
    Picture("another geometry: centre crop, other size, squashed", (0.79, 1.1, 1.4), (0.16, 0.30, 0.48), 0.21),
    Picture("pixels in another range: mean or deviation left out or other", (1.5, 6.9, 17.0), (0.07, 0.2, 0.64), 1.2),
)
"""Median and middle 90 per cent of what `benchmarks/mistakes.py` measures: random choices of three or more of 8 to 12
real videos, either side first, in EfficientNet-Lite0 with its published weights, ResNet-152, ResNet-18 and MobileNetV3
with random ones, and the reference rows of the HowTo100M extractor, 2D and 3D. Crops in MobileNetV3 are left out, whose
random weights see little but the edges of a picture."""
SLACK = 1.5
"""By which what is found may lie farther from the median than what was measured."""


def diagnose(pairs: Pairs, counts: Sequence[tuple[int, int]], rate: float | None = None) -> list[Finding]:
    """Return what was found.

    `pairs`: the rows that both sides have, of each video; `counts`: how many rows each side has of it; `rate`: rows in
    a second, if it is known.
    """
    found, comparable = of_counts(counts)
    pairs = [(a, b) for a, b in pairs if len(a)]
    if not comparable or not pairs:
        return found
    if pairs[0][0].shape[1] != pairs[0][1].shape[1]:
        dims = " and ".join(str(rows.shape[1]) for rows in pairs[0])
        return [*found, Finding("network", "certain", f"rows of {dims} numbers: another network or layer")]
    if rounded := _rounding(pairs):
        return [*found, rounded]
    length, pairs = _lengths(pairs)
    factor, pairs = _factor(pairs)
    found += length + factor
    if (length or factor) and (rounded := _rounding(pairs)):
        return [*found, rounded]
    if (error := centred_error(pairs)) < SAME:
        but = " but for that" if length or factor else ""
        text = f"the same features{but}: the difference, {error:.2g} of their spread, is that of rounding or decoders"
        return [*found, Finding("same", "certain", text)]
    moved = _offset(pairs) or _shift(pairs, rate) or _other_network(pairs) or _picture(pairs)
    return [*found, moved]


def centred_error(pairs: Pairs) -> float:
    """Return |a - b| / |a - mean over rows of a|; NaN where all rows of A are the same."""
    spread = np.sqrt(sum(np.sum(centred**2) for centred, _ in lags.centred(pairs)))
    return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in pairs)) / spread) if spread else float("nan")


def moved(pairs: Pairs) -> Moved:
    """Return how the rows of two sides are moved from one another."""
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    lengths = [np.maximum(np.linalg.norm(side, axis=1), 1e-12) for side in (a, b)]
    each = np.linalg.norm(a - b, axis=1) / (lengths[0] + lengths[1])
    error = np.sqrt(centred_error(pairs) * centred_error([(b, a) for a, b in pairs]))
    longer = float(np.log(np.median(lengths[1] / lengths[0])))
    return Moved(float(error), float(each.std() / (each.mean() or 1.0)), abs(longer))


def of_counts(counts: Sequence[tuple[int, int]]) -> tuple[list[Finding], bool]:
    """Return what the numbers of rows show, and whether the k-th rows of both sides can be compared."""
    a, b = np.asarray(counts, np.float64).reshape(-1, 2).T
    off = b - a
    if not len(off) or not off.any():
        return [], True
    ratio = float(b.sum() / max(a.sum(), 1))
    near = np.abs(b - ratio * a) <= 1 + 0.1 * b
    if not 0.9 < ratio < 1.1 and near.mean() > 0.8:
        text = f"B has {ratio:.3g} times as many rows as A: another rate; rows with the same number are not compared"
        return [Finding("rate", "certain", text)], False
    more, less = int((off > 0).sum()), int((off < 0).sum())
    where = f"in {more + less} of {len(off)} videos (more in {more}, fewer in {less})"
    if np.abs(off).max() <= 1:
        text = f"B has one row more or fewer {where}: another rule for a video's end"
    else:
        text = f"B has up to {int(np.abs(off).max())} rows more or fewer {where}: other sampling, or other files"
    return [Finding("count", "certain", text)], True


def _rounding(pairs: Pairs) -> Finding | None:
    if all(np.array_equal(a, b) for a, b in pairs):
        return Finding("same", "certain", "the same numbers")
    # One step of float16 on either side; below 2**-14 its steps stay as they are.
    steps = (np.abs(a - b) <= 2**-10 * np.maximum(np.abs(a), np.abs(b)) + 2**-24 for a, b in pairs)
    if all(near.all() for near in steps):
        return Finding("float16", "certain", "no number differs by more than float16's rounding")
    return None


def _lengths(pairs: Pairs) -> tuple[list[Finding], Pairs]:
    """Say whether one side alone is L2-normalised; then return both so."""
    unit = [all(_is_unit(rows) for rows in side) for side in zip(*pairs, strict=True)]
    if unit[0] == unit[1]:
        return [], pairs
    one, other = ("A", "B") if unit[0] else ("B", "A")
    both = [(_unit(a), _unit(b)) for a, b in pairs]
    text = f"{one}'s rows are L2-normalised, {other}'s are not; with both normalised the error is"
    return [Finding("l2", "certain", f"{text} {centred_error(both):.3g}")], both


def _is_unit(rows: Array) -> bool:
    return bool((np.abs(np.linalg.norm(rows, axis=1) - 1) < UNIT).all())


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _factor(pairs: Pairs) -> tuple[list[Finding], Pairs]:
    factor = sum(np.sum(a * b) for a, b in pairs) / max(sum(np.sum(a * a) for a, _ in pairs), 1e-300)
    if factor <= 0 or abs(np.log(factor)) < SAME:
        return [], pairs
    scaled = [(a, b / factor) for a, b in pairs]
    if not centred_error(scaled) < SAME:
        return [], pairs
    return [Finding("factor", "certain", f"B's rows are A's times {factor:.4g}")], scaled


def _offset(pairs: Pairs) -> Finding | None:
    """Say whether one vector is added to all rows."""
    difference = np.concatenate([b - a for a, b in pairs])
    mean = difference.mean(0)
    share = len(difference) * float(mean @ mean) / float(np.sum(difference**2))
    left = centred_error([(a, b - mean) for a, b in pairs])
    if len(difference) < 4 or share < CONSTANT or not left < LEFT:
        return None
    text = (
        f"one and the same vector is added to every row ({100 * share:.3g} % of the difference; without it the error "
        f"is {left:.2g}): a mean that one side did not subtract, a mean pixel (swapped or left out) or one of features"
    )
    return Finding("offset", "likely", text)


def _shift(pairs: Pairs, rate: float | None) -> Finding | None:
    """Say whether B's rows are A's at other times."""
    if lags.alike(pairs) > MOMENTS:
        return None
    lag = lags.find(pairs)
    if lag is None:
        return Finding(
            "shift",
            "possible",
            f"each row of a video differs in another way (alike to {lags.alike(pairs):.2f}), which changed pictures do "
            "not do: noise, frames of other moments by less than the numbers can tell, or other videos",
        )
    agree = lag.explained > 0.3 and len(lag.agree) > 2 and np.mean(lag.agree) >= 0.8
    seconds = f" ({abs(lag.rows) / rate:.2g} s)" if rate else ""
    when = f"about {abs(lag.rows):.2g} rows{seconds} {'later' if lag.rows > 0 else 'earlier'}"
    text = f"B's rows are what A's would be {when}: frames were taken at another moment"
    half = " (at the start or the end of each interval instead of its middle)" if 0.25 < abs(lag.rows) < 0.75 else ""
    return Finding("shift", "certain" if agree or lag.left < 0.1 else "likely", text + half)


def _other_network(pairs: Pairs) -> Finding | None:
    """Say whether rows have nothing in common but, perhaps, which of them are alike."""
    some = lags.centred(pairs)
    ours, theirs = (np.concatenate(side) for side in zip(*some, strict=True))
    if len(ours) < 4 or abs(cosine := lags.cosine(ours, theirs)) > UNRELATED:
        return None
    alike = lags.cosine(*(np.concatenate([_alike(pair[side]) for pair in some]) for side in (0, 1)))
    cause = (
        "the same videos in another network or layer, or numbers in another order" if alike > 0.5 else "other videos"
    )
    text = f"nothing in common (centred cosine {cosine:.2f}); which rows are alike agrees to {alike:.2f}: {cause}"
    return Finding("network", "likely", f"{text}, or an input quite unlike (mean or deviation left out)")


def _alike(rows: Array) -> Array:
    """Return how alike each two rows are, less the mean of that."""
    alike = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    return np.asarray(alike - alike.mean() if len(alike) else alike)


def pictures(how: Moved) -> list[str]:
    """Return the changes of pictures that were measured to move rows so, the nearest first."""
    fits = {known.name: far for known in PICTURES if (far := _far(known, how)) is not None}
    return sorted(fits, key=lambda name: fits[name])


def _far(known: Picture, how: Moved) -> float | None:
    """Return how far what was found is from the median of what was measured; None if it is outside."""
    error = _off(np.log(how.error), *np.log(known.error))
    off = (error, _off(how.uneven, *known.uneven), how.length / known.length)
    return float(np.sum(np.square(off))) if max(off) <= SLACK else None


def _off(value: float, low: float, middle: float, high: float) -> float:
    """Return how far a value is from the middle, where the nearer end is at 1."""
    return float((value - middle) / (high - middle) if value > middle else (middle - value) / (middle - low))


def _picture(pairs: Pairs) -> Finding:
    how = moved(pairs)
    measured = f"by {how.error:.2g} of their spread, unevenly by {how.uneven:.2g}, their length by {how.length:.2g}"
    names = pictures(how)
    if not names:
        return Finding("unknown", "possible", f"rows are moved {measured}: no mistake that was measured does this")
    text = f"the pictures were made otherwise: rows are moved {measured}, as by {'; '.join(names)}"
    return Finding("picture", "possible", f"{text}. Rows alone cannot tell these apart, nor from JPEG or video range")
