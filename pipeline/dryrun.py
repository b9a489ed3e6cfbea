"""`pipeline run extract --dry-run`: what a run would do, how much it would write, and about how long it would take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from pipeline.cutting import Frames
from pipeline.decode import DecoderKilled
from pipeline.devices import mine, resolve
from pipeline.errors import BadVideo
from pipeline.extraction import batchers_for, cut
from pipeline.launch import default_workers
from pipeline.plan import Item, Plan, rows_of
from pipeline.probe import probe
from pipeline.records import Remote
from pipeline.remote import local
from pipeline.stages.extract import Extract, plan_of

PROBED = 256
"""Videos whose headers are read; the hours of the others are inferred from their bytes."""
BUDGET = 20.0
"""Seconds that are spent on extracting, to guess the time of the whole."""


@dataclass(frozen=True)
class Measured:
    """Videos that were tried, and what they say of the others."""

    items: tuple[Item, ...]
    """All items, with seconds from their headers or from their size."""
    unreadable: int


def print_plan(stage: Extract, workers: int | None) -> int:
    """Print what `stage` would do. Returns the exit code."""
    plan = plan_of(stage)
    print(
        f"{stage.out}: {len(plan.items)} to extract, {len(plan.done)} done before, {len(plan.missing)} without a file"
    )
    if not plan.items:
        return 0
    measured = _measure(plan.items)
    hours = sum(item.seconds for item in measured.items) / 3600
    unreadable = (
        f"; {measured.unreadable} of {min(PROBED, len(plan.items))} tried cannot be read" if measured.unreadable else ""
    )
    print(f"video: {hours:.2f} hours{unreadable}")
    total = _print_rows(plan, measured.items, stage.dtype)
    print(f"bytes to write: {total / 2**20:.1f} MiB, and as much again while shards are folded")
    count = max(1, default_workers(resolve(stage.device).startswith("cuda")) if workers is None else workers)
    pace = _pace(stage, measured.items)
    if pace:
        print(f"time: about {_clock(hours * 3600 * pace / count)} on {count} workers "
              f"({pace:.2f} s of work for a second of video, measured here)")  # fmt: skip
    return 0


def _print_rows(plan: Plan, items: Sequence[Item], dtype: str) -> int:
    dims = {name: dim for job in plan.jobs for name, dim in job.preset.streams}
    total = 0
    for name, rows in rows_of(items, plan.jobs).items():
        size = rows * dims[name] * np.dtype(dtype).itemsize
        total += size
        print(f"stream {name}: {rows} rows x {dims[name]}, {size / 2**20:.1f} MiB")
    return total


def _measure(items: Sequence[Item]) -> Measured:
    """Read the headers of up to PROBED videos, evenly chosen; infer the rest from bytes per second of these."""
    step = max(1, len(items) // PROBED)
    tried = items[::step][:PROBED]
    with ThreadPoolExecutor(8) as pool:
        seconds = dict(zip((item.id for item in tried), pool.map(_seconds, tried), strict=True))
    known = [item for item in tried if seconds[item.id] > 0]
    rate = sum(_size(i) for i in known) / max(sum(seconds[i.id] for i in known), 1e-9)
    return Measured(
        tuple(replace(i, seconds=_of(seconds.get(i.id), i, rate)) for i in items), unreadable=len(tried) - len(known)
    )


def _of(probed: float | None, item: Item, rate: float) -> float:
    if probed is not None or isinstance(item.path, Remote):
        return item.seconds if probed is None else probed
    return _size(item) / max(rate, 1.0)


def _size(item: Item) -> int:
    return 0 if isinstance(item.path, Remote) else item.path.stat().st_size


def _seconds(item: Item) -> float:
    if isinstance(item.path, Remote):
        return item.seconds
    try:
        return probe(item.path).duration or item.seconds
    except BadVideo:
        return 0.0


def _pace(stage: Extract, items: Sequence[Item]) -> float:
    """Return seconds of one worker's work for a second of video, from a short extraction of middling videos."""
    import torch

    torch.set_num_threads(1)  # as in a worker
    readable = sorted((item for item in items if item.seconds > 0), key=lambda item: item.seconds)
    batchers = batchers_for(readable, stage, mine(stage.device))
    begun, done = time.monotonic(), 0.0
    for item in readable[len(readable) // 2 :]:
        first = item.jobs[0].preset
        with suppress(BadVideo, DecoderKilled):
            for preset, row, frames in takewhile(lambda _: time.monotonic() - begun < BUDGET, _cut(item)):
                batchers[preset].add((item.id, row), frames)
                done += 1 / first.rows_per_second if preset == first.name else 0.0
        if time.monotonic() - begun >= BUDGET / 4:
            break
    for batcher in batchers.values():
        batcher.flush()
    return (time.monotonic() - begun) / done if done else 0.0


def _cut(item: Item) -> Iterator[tuple[str, int, Frames]]:
    with local(item.path) as (path, _):
        yield from cut(item, path, probe(path))


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
