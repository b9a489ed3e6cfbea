"""Overlapping windows over a video's seconds, for networks that see a limited span, and the average of what they say.

Source: the sliding windows of VideoCLIP's evaluations (Xu et al., EMNLP 2021): 32 s, every 16 s for CrossTask and every
8 s for COIN. A window begins at each multiple of the stride, until one reaches the end; that one is cut off there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float64

from pipeline.errors import BadSetting

Span = tuple[int, int]
"""Seconds [first, last + 1)."""


def windows(seconds: int, size: int, stride: int) -> list[Span]:
    """Return the windows that cover [0, seconds); none for a video without a second.

    Raises BadSetting for windows that would leave seconds out, or that do not move.

    >>> windows(10, size=4, stride=3)
    [(0, 4), (3, 7), (6, 10)]
    """
    if not 1 <= stride <= size:
        raise BadSetting(f"windows of {size} s every {stride} s: the stride must be 1 or more, and the size or less")
    if not seconds:
        return []
    count = 1 + max(0, -((size - seconds) // stride))
    return [(first, min(first + size, seconds)) for first in range(0, count * stride, stride)]


def average(
    parts: Sequence[Float[np.ndarray, "_ classes"]], spans: Sequence[Span]
) -> Float64[np.ndarray, "seconds classes"]:
    """Return for each second the mean of its logits in all windows that hold it.

    Logits are averaged, not what a softmax makes of them. `parts`: a window's logits, a row for each of its seconds.
    A network that looks at single rows says the same in every window, and averaging then changes nothing.
    Raises BadSetting if the spans are not those of `windows`: in order of time, without a gap, one at least.
    """
    ends = [0, *(last for _, last in spans)]
    if not spans or any(first > before for (first, _), before in zip(spans, ends[:-1], strict=True)):
        raise BadSetting(f"windows {list(spans)!s:.60} leave seconds out; use those that `windows` returns")
    total = np.zeros((ends[-1], parts[0].shape[1]))
    count = np.zeros((ends[-1], 1))
    for part, (first, last) in zip(parts, spans, strict=True):
        total[first:last] += part
        count[first:last] += 1
    return total / count
