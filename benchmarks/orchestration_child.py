"""One size of `benchmarks/orchestration.py`, in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import told
from pipeline import dryrun, extraction, launch, plan
from pipeline.plan import Item
from pipeline.provenance import file_attrs
from pipeline.records import Clip, Manifest, Outcome, Video
from pipeline.shards import Extracted, Rows, write_shard
from pipeline.stages.extract import Extract, output_of, plan_of
from pipeline.where import Where

SECONDS, CHUNK = 1.2, 120.0
"""Seconds of a video and of a task: a hundred videos in a shard."""


def _work(stage: Extract, chunk: Sequence[Any]) -> list[Outcome]:
    """Write the shard of a chunk as a worker does, of videos that nobody has decoded: one row each."""
    heads = extraction.stream_heads(chunk[0].jobs, stage, "none")
    rows = {name: np.ones((1, head.dim), head.dtype) for name, head in heads.items()}
    done = [_done(item, rows) for item in chunk]
    write_shard(output_of(stage).shard(extraction._name(chunk, heads)), file_attrs(stage.dataset), heads, done)
    return [Outcome(one.video, one.status, one.reason, SECONDS) for one in done]


def _done(item: Item, rows: Mapping[str, Rows]) -> Extracted:
    """Return what became of a video: of one in a thousand, that it failed."""
    stat = item.path.stat()  # type: ignore[union-attr]
    columns = {"decoded": SECONDS, "frames": 1, "source_size": stat.st_size, "source_mtime": stat.st_mtime_ns}
    columns |= {"codec": "h264", "color": "untagged", "ffmpeg": "7.1"}
    if item.id.endswith("000"):
        return Extracted(item.id, columns, item.streams, {}, "failed", "no video stream: audio only")
    return Extracted(item.id, columns, item.streams, rows, "ok")


def manifest(videos: int, place: Path) -> Manifest:
    """Return N videos, a thousand in a folder, as HowTo100M's would be without captions."""
    folders = [place / f"{number:04}" for number in range(-(-videos // 1000))]
    ids = [f"v{number:09}" for number in range(videos)]
    found = (Video(id_, folders[n // 1000] / f"{id_}.mp4", SECONDS + n / 1e9) for n, id_ in enumerate(ids))
    return Manifest("files", tuple(found), tuple(Clip(id_, id_) for id_ in ids))


def make_files(found: Manifest) -> None:
    """Make the videos' files, of 1,000 bytes that take no room."""
    for video in found.videos:
        assert isinstance(video.path, Path)
        video.path.parent.mkdir(exist_ok=True)
        with video.path.open("wb") as file:
            file.truncate(1000)


def measure(videos: int) -> dict[str, Any]:
    seconds: dict[str, float] = {"work": 0.0}
    processor: dict[str, float] = {"work": 0.0}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        seconds[name], processor[name] = time.perf_counter() - wall, time.process_time() - cpu

    def work(self: Extract, chunk: Sequence[Any]) -> list[Outcome]:
        wall, cpu = time.perf_counter(), time.process_time()
        found = _work(self, chunk)
        seconds["work"] += time.perf_counter() - wall
        processor["work"] += time.process_time() - cpu
        return found

    before = told("VmHWM") / 1e6
    with tempfile.TemporaryDirectory() as place:
        make_files(manifest(videos, Path(place)))
        plan.load = lambda *_: manifest(videos, Path(place))  # type: ignore[assignment]
        dryrun._pace = lambda *_: 0.0  # type: ignore[assignment]
        Extract.work = work  # type: ignore[method-assign]
        stage = Extract(dataset="files", extractor=("colors",), out=Path(place) / "features.h5", chunk_seconds=CHUNK)
        with phase("dry"), redirect_stdout(StringIO()):
            dryrun.print_plan(stage, 1)
        with phase("run"), redirect_stdout(StringIO()):
            launch.launch(stage, Where(workers=0))
        plan_of.cache_clear()
        with phase("resume"):
            left = plan_of(stage).items
        assert not left, "a second run would do something again"
        seconds["run"], processor["run"] = (one["run"] - one["work"] for one in (seconds, processor))
        peak = told("VmHWM") / 1e6 - before
    return {"videos": videos, "seconds": seconds, "processor": processor, "peak_mb": peak}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
