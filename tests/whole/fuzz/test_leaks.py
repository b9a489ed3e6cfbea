"""Hundreds of videos, whole and damaged: memory, open files, threads and processes stay what they were."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pipeline.stages.extract import Extract, output_of
from tests.unit.fakeffmpeg import children
from tests.whole.frames import program
from tests.whole.fuzz import damage, media
from tests.whole.fuzz.watched import memory

pytestmark = pytest.mark.slow

VIDEOS = 300
FIRST = 60
"""Videos before the first look: what they leave behind is kept on purpose."""
MEGABYTES = 6.0
"""By which memory may grow over the others: 20 kB for each."""
LONG = 60.0
"""Likewise over one video of twenty minutes."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Extract:
    """A run over small videos, of which every third is damaged and every tenth is none."""
    place = tmp_path_factory.mktemp("leaks")
    seeds = media.make(place)
    kinds = list(damage.KINDS.values())
    rows = ["video_id,path"]
    for number in range(FIRST + VIDEOS):
        draw, seed = Random(f"leak {number}"), seeds[number % len(seeds)]
        data = b"no video" if number % 10 == 9 else seed.data
        data = kinds[number % len(kinds)](data, draw) if number % 3 == 0 else data
        (place / f"v{number}{seed.suffix}").write_bytes(data)
        rows.append(f"v{number},v{number}{seed.suffix}")
    (place / "videos.csv").write_text("\n".join(rows) + "\n")
    return Extract(
        dataset="files", root=str(place / "videos.csv"), extractor=("colors",), out=place / "f.h5", device="cpu",
    )  # fmt: skip


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    megabytes: float
    files: int
    threads: int
    children: list[int]


def held() -> Held:
    gc.collect()
    return Held(memory("VmRSS"), len(os.listdir("/proc/self/fd")), threading.active_count(), children())  # noqa: PTH208


def run(stage: Extract, after_each: Callable[[], object]) -> tuple[Held, Held]:
    """Extract all videos one by one; return what the process holds after the first ones and at the end."""
    items: list[Any] = list(stage.items())
    assert len(items) == FIRST + VIDEOS
    ends = set()
    for number, item in enumerate(items):
        if number == FIRST:
            before = held()
        ends.add(stage.work([item])[0].status)
        after_each()
        for shard in output_of(stage).folder.glob("shard-*.h5"):
            shard.unlink()
    assert ends == {"ok", "partial", "failed"}
    return before, held()


def test_nothing_grows(stage: Extract) -> None:
    before, after = run(stage, lambda: None)
    print(f"{VIDEOS} videos: {after.megabytes - before.megabytes:+.1f} MB")
    assert after.megabytes - before.megabytes < MEGABYTES
    assert replace(after, megabytes=0.0) == replace(before, megabytes=0.0)


def test_a_leak_would_be_seen(stage: Extract) -> None:
    """One of 50 kB and a file for each video."""
    kept: list[Any] = []
    before, after = run(stage, lambda: kept.append((np.ones(6_250), os.open("/dev/null", os.O_RDONLY))))
    for _, file in kept:
        os.close(file)
    assert after.megabytes - before.megabytes > MEGABYTES
    assert after.files - before.files == VIDEOS


def test_a_long_video_takes_what_its_rows_take(tmp_path: Path) -> None:
    """Twenty minutes of slides: 1,200 and 1,800 rows, half a megabyte."""
    slides = ("-vf", "setpts=N*120/TB", "-fps_mode", "passthrough", "-c:v", "ffv1")
    program("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", *slides, "-y", tmp_path / "a.mkv")
    both = ("colors:resnet152", "colors:i3d_x101")
    stage = Extract(dataset="files", root=str(tmp_path / "*.mkv"), extractor=both, out=tmp_path / "f.h5", device="cpu")
    items = stage.items()
    program("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=20", "-c:v", "ffv1", "-y", tmp_path / "b.mkv")
    stage.work([replace(items[0], id="b", path=tmp_path / "b.mkv")])
    before = held().megabytes
    (outcome,) = stage.work(items)
    assert outcome.seconds > 1_000
    assert held().megabytes - before < LONG
