"""Seconds and rows: the one rule by which spans of video become row numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_range(start: float, end: float | None, rate: float, rows: int) -> tuple[int, int]:
    """Return (first, last + 1) of the rows that a span of seconds touches; `end` None is the end of the video.

    >>> row_range(2.0, 4.0, rate=1.5, rows=100)
    (3, 7)
    >>> row_range(50.0, 60.0, rate=1.0, rows=10)
    (9, 10)
    """
    first, last = row_ranges(np.array([start]), np.array([np.nan if end is None else end]), rate, np.array([rows]))
    return int(first[0]), int(last[0])


def row_ranges(
    start: NDArray[np.floating[Any]], end: NDArray[np.floating[Any]], rate: float, rows: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (first, last + 1) of the rows that each span of seconds touches; `end` NaN is the end of the video.

    `int(start * rate)` to `int(end * rate) + 1`, clamped to the video, never empty when it has rows; the rule of the
    published consumers (HowTo100M, UniVL, MMPT).
    """
    first = np.clip(np.trunc(start * rate), 0, np.maximum(rows - 1, 0)).astype(np.int64)
    last = np.trunc(np.where(np.isnan(end), rows, end * rate)) + 1
    return first, np.minimum(np.maximum(last.astype(np.int64), first + 1), rows)
