"""Progress for people: one bar on a terminal, a line a minute elsewhere. Logs go to stderr, results to stdout."""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pipeline.records import Outcome

log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """Counts outcomes and shows them: done, failed, rate, time left."""

    def __init__(self, total: int, unit: str = "videos") -> None:
        self._total, self._unit = total, unit
        self._counts: Counter[str] = Counter()
        self._begun = self._said = time.monotonic()
        console = Console(stderr=True)
        self._bar: Bar | None = None
        if console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[failed]} failed · {task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(unit, total=total, failed=0, rate="")

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar:
            self._bar.stop()

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        self._counts[outcome.status] += 1
        done, now = self._counts.total(), time.monotonic()
        rate = done / max(now - self._begun, 1e-9)
        if self._bar:
            shown = f"{rate:.1f} {self._unit}/s" if rate >= 1 else f"{60 * rate:.1f} {self._unit}/min"
            self._bar.update(self._task, completed=done, failed=self._counts["failed"], rate=shown)
        elif now - self._said >= EVERY or done == self._total:
            self._said = now
            left = timedelta(seconds=round((self._total - done) / rate))
            log.info(
                "%d of %d %s done, %d failed, %.2f a second, %s left",
                done, self._total, self._unit, self._counts["failed"], rate, left,
            )  # fmt: skip
