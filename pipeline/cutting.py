"""A video's sampled frames to the rows of one preset: which frames each row sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from extractors.spec import Preset

Frames = NDArray[np.uint8]


class Cutter:
    """Collects frames until they make a row of one preset; holds at most `preset.frames` of them."""

    def __init__(self, preset: Preset) -> None:
        self._preset = preset
        self._row = 0
        self._taken = 0
        self._last: deque[Frames] = deque(maxlen=preset.frames)

    def add(self, frame: Frames) -> Iterator[tuple[str, int, Frames]]:
        """Take a frame; yield (preset, row number, frames) of the row that it completes, if it does."""
        self._last.append(frame)
        self._taken += 1
        if self._taken == self._begin(self._row) + self._preset.frames:
            yield self._next(0)

    def end(self) -> Iterator[tuple[str, int, Frames]]:
        """Yield the rows that lack frames: one for each that has begun, as the preset's `tail` says."""
        last = self._preset.tail == "last" and self._row > 0
        while self._row < self._preset.rows(self._taken):
            yield self._next(0 if last else self._begin(self._row) - self._taken)

    def _begin(self, row: int) -> int:
        return row * self._preset.step

    def _next(self, begin: int) -> tuple[str, int, Frames]:
        """Return the next row, of the frames from `begin` on, which counts back from the end where it is negative."""
        row = self._preset.name, self._row, np.stack(list(self._last)[begin:])
        self._row += 1
        return row
