"""A stage that sums numbers, for tests of the runner: some items raise, some kill their worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import MissingWeights
from pipeline.records import Outcome


@dataclass(frozen=True)
class Number:
    id: str
    seconds: float
    does: str = "ok"


@dataclass(frozen=True)
class Numbers:
    numbers: tuple[Number, ...]
    place: Path
    chunk_seconds: float = 10.0

    def items(self) -> Sequence[Number]:
        return self.numbers

    def work(self, chunk: Sequence[Number]) -> list[Outcome]:
        return [self._one(item) for item in chunk]

    def _one(self, item: Number) -> Outcome:
        runs = self.place / item.id
        runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
        if item.does == "raise":
            raise ValueError("odd")
        if item.does == "weights":
            raise MissingWeights("no weights")
        if item.does == "die" or (item.does == "die once" and len(runs.read_text()) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(item.id, "ok")

    def save(self, outcomes: Sequence[Outcome]) -> None:
        (self.place / "saved").write_text(" ".join(o.item for o in outcomes))


def times_run(place: Path, item: str) -> int:
    return len((place / item).read_text())
