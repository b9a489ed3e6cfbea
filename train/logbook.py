"""What a run says of itself while it trains: `metrics.jsonl`, events for TensorBoard, a line or a bar for people."""

from __future__ import annotations

import json
import logging
import resource
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.errors import BadSetting
from train import processes

log = logging.getLogger(__name__)

EVERY = 10
"""Steps between two lines of `metrics.jsonl`."""
SECONDS = 30.0
"""Between two lines where there is no terminal."""


class Logbook:
    """Notes each step; where several processes train together, the first one writes for all."""

    def __init__(self, folder: Path, step: int, steps: int, events: bool = False) -> None:
        self.path, self.writes = folder / "metrics.jsonl", processes.rank() == 0
        self.begun, self.pairs = time.monotonic(), 0
        self.said = self.begun
        self._open = ExitStack()
        self._bar: Progress | None = None
        self._events = _events(folder, step) if events and self.writes else None
        if not self.writes:
            return
        kept = [entry for entry in entries(self.path) if entry["step"] <= step]  # a run goes on at its checkpoint
        self.path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
        console = Console(stderr=True)
        if console.is_terminal:
            shown = TextColumn("{task.fields[said]}"), TextColumn("left"), TimeRemainingColumn()
            self._bar = Progress(BarColumn(24), MofNCompleteColumn(), *shown, console=console)
            self._task = self._bar.add_task("steps", total=steps, completed=step, said="")

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._open.enter_context(self._bar)
        if self._events:
            self._open.callback(self._events.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._open.close()

    def add(self, step: int, parts: dict[str, torch.Tensor], pairs: int) -> None:
        """Note the losses of a step."""
        self.pairs += pairs
        if step % EVERY:
            if self._bar:
                self._bar.update(self._task, completed=step)
            return
        values = {name: float(processes.mean(part.detach())) for name, part in parts.items()}
        if not self.writes:
            return
        rate = self.pairs / (time.monotonic() - self.begun)
        self.write({"step": step, **values, "pairs_per_second": round(rate, 1)})
        losses = " ".join(f"{name} {value:.3f}" for name, value in values.items())
        self._say(step, f"{losses} · {rate:,.0f} pairs/s · {_memory()}")

    def write(self, entry: dict[str, Any]) -> None:
        """Add a line to `metrics.jsonl`, and its numbers to the events."""
        if not self.writes:
            return
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        if self._events:
            for name, value in entry.items():
                if name != "step":
                    self._events.add_scalar(name, value, entry["step"])

    def _say(self, step: int, words: str) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step, said=words)
        elif time.monotonic() - self.said > SECONDS:
            self.said = time.monotonic()
            log.info("step %d: %s", step, words)


def _events(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadSetting(
            "--tensorboard: TensorBoard is not installed; run `pip install 'video-text-features[tensorboard]'`"
        ) from None
    return SummaryWriter(str(folder), purge_step=step)


def _memory() -> str:
    """Return how much memory has been held at most: the GPU's, else the process's."""
    if torch.cuda.is_initialized():
        return f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB on the GPU"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB"


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a `metrics.jsonl`; a torn last one is passed over."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
