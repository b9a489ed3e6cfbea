"""`pipeline run extract --dry-run`: what a run would do, how much it would write, and about how long it would take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from extractors.spec import Preset
from pipeline.cutting import Frames
from pipeline.decode import DecoderKilled
from pipeline.devices import mine, resolve
from pipeline.errors import BadVideo
from pipeline.extraction import batchers_for, cut
from pipeline.launch import default_workers
from pipeline.plan import Item, Plan
from pipeline.probe import probe
from pipeline.records import Remote
from pipeline.remote import local
from pipeline.stages.extract import Extract, plan_of

PROBED = 256
"""Videos whose headers are read; those of the others are inferred from these."""
BUDGET = 10.0
"""Seconds that are spent on extracting, to guess the time of the whole."""


@dataclass(frozen=True)
class Guess:
    """What the videos that were tried say of all others."""

    tried: dict[str, float]
    """Seconds by the header, by id; 0 for a video that cannot be read."""
    scale: float
    """Seconds by the header for each that was guessed, from annotations or from bytes."""

    def seconds(self, item: Item) -> float:
        """Return how long an item is."""
        guessed = item.seconds if isinstance(item.file, Remote) else item.seconds * self.scale
        return self.tried.get(item.id, guessed)


def print_plan(stage: Extract, workers: int | None) -> int:
    """Print what `stage` would do. Returns the exit code."""
    plan_of.cache_clear()  # of an earlier run in this process
    plan = plan_of(stage)
    print(
        f"{stage.out}: {len(plan.items)} to extract, {len(plan.done)} done before, {len(plan.missing)} without a file"
    )
    if not plan.items:
        return 0
    guess = _try(plan.items)
    seconds = np.fromiter(map(guess.seconds, plan.items), np.float64, len(plan.items))
    unreadable = sum(not found for found in guess.tried.values())
    said = f"; {unreadable} of {len(guess.tried)} tried cannot be read" if unreadable else ""
    print(f"video: {seconds.sum() / 3600:.2f} hours{said}")
    total = _print_rows(plan, seconds, stage.dtype)
    print(f"bytes to write: {total / 2**20:.1f} MiB, and as much again while shards are folded")
    count = max(1, default_workers(resolve(stage.device).startswith("cuda")) if workers is None else workers)
    pace = _pace(stage, plan, seconds)
    if pace:
        print(f"time: about {_clock(seconds.sum() * pace / count)} on {count} workers "
              f"({pace:.2f} s of work for a second of video, measured here)")  # fmt: skip
    return 0


def _print_rows(plan: Plan, seconds: NDArray[np.float64], dtype: str) -> int:
    total = 0
    for job in plan.jobs:
        lacking = np.fromiter((job in item.jobs for item in plan.items), np.bool_, len(plan.items))
        rows = _rows(job.preset, seconds[lacking])
        for name, dim in job.preset.streams:
            size = rows * dim * np.dtype(dtype).itemsize
            total += size
            print(f"stream {name}: {rows} rows x {dim}, {size / 2**20:.1f} MiB")
    return total


def _rows(preset: Preset, seconds: NDArray[np.float64]) -> int:
    """Return how many rows videos of these seconds make; those that cannot be read make none."""
    frames = np.maximum(1, np.floor(seconds[seconds > 0] * preset.chain.fps + 0.5)).astype(np.int64)
    lengths, times = np.unique(frames, return_counts=True)
    return sum(preset.rows(many) * often for many, often in zip(lengths.tolist(), times.tolist(), strict=True))


def _try(items: Sequence[Item]) -> Guess:
    """Read the headers of up to PROBED videos, evenly chosen."""
    some = items[:: max(1, len(items) // PROBED)][:PROBED]
    with ThreadPoolExecutor(8) as pool:
        tried = dict(zip((item.id for item in some), pool.map(_seconds, some), strict=True))
    here = [item for item in some if tried[item.id] > 0 and not isinstance(item.file, Remote)]
    guessed, found = sum(item.seconds for item in here), sum(tried[item.id] for item in here)
    return Guess(tried, found / guessed if guessed else 1.0)


def _seconds(item: Item) -> float:
    if isinstance(item.path, Remote):
        return item.seconds
    try:
        return probe(item.path).duration or item.seconds
    except BadVideo:
        return 0.0


def _pace(stage: Extract, plan: Plan, seconds: NDArray[np.float64]) -> float:
    """Return seconds of one worker's work for a second of video, from a short extraction of middling videos."""
    import torch

    torch.set_num_threads(1)  # as in a worker
    readable = [place for place in np.argsort(seconds, kind="stable").tolist() if seconds[place] > 0]
    kinds = {id(item.jobs): item for item in (plan.items[place] for place in readable)}  # to hash a job takes long
    batchers = batchers_for(list(kinds.values()), stage, mine(stage.device))
    begun, done = time.monotonic(), 0.0
    for item in (plan.items[place] for place in readable[len(readable) // 2 :]):
        first = item.jobs[0].preset
        with suppress(BadVideo, DecoderKilled):
            for preset, row, frames in takewhile(lambda _: time.monotonic() - begun < BUDGET, _cut(item)):
                batchers[preset].add((item.id, row), frames)
                done += 1 / first.rows_per_second if preset == first.name else 0.0
        if time.monotonic() - begun >= BUDGET / 2:
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
