"""The files of `store.py`: the same rows as a feature file, a flat array, HDF5 and .npy a video, and a pickle.

How many rows a video has, which span of it is a clip, and what is in them follow from the seed; numbers do not matter
here, so that videos take theirs from one pool.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.store import Job
from pipeline.layout import StreamHead, new_head
from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import Extracted, fold, write_shard
from pipeline.tables import write_tables

STREAM = "bench:random"
HEAD_OF_FILE = {"dataset": "benchmark", "created_by": "{}"}
POOL = 8192
Rows = NDArray[np.float16]


@dataclass(frozen=True)
class Plan:
    """Which rows each video has, and which of them its short clip has."""

    offsets: NDArray[np.int64]
    """(V + 1,) in a flat array of all rows."""
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    """(V,) [first, last) of a video's rows are its short clip's."""
    begin: NDArray[np.int64]
    """(V,) place in the pool of a video's first row."""

    def spans(self, kind: str, videos: NDArray[np.int64]) -> list[tuple[int, int, int]]:
        """Return (video, first row, last + 1) of clips."""
        count = np.diff(self.offsets)
        first, last = (0 * count, count) if kind == "whole" else (self.first, self.last)
        return list(zip(videos.tolist(), first[videos].tolist(), last[videos].tolist(), strict=True))


def plan_of(job: Job) -> Plan:
    """Return what is drawn by chance."""
    draw = np.random.default_rng(0)
    count = draw.integers(10, 61, job.videos)
    size = draw.integers(2, 9, job.videos)
    first = draw.integers(0, count - size + 1)
    offsets = np.concatenate([[0], np.cumsum(count)])
    return Plan(offsets, first, first + size, draw.integers(0, POOL - 60, job.videos))


def batches_of(job: Job) -> list[NDArray[np.int64]]:
    """Return the videos whose clips are in each batch."""
    draw = np.random.default_rng(1)
    return [draw.choice(job.videos, min(job.clips, job.videos), replace=False) for _ in range(job.batches)]


def each(job: Job, plan: Plan) -> Iterator[Rows]:
    """Yield the rows of each video."""
    pool = np.random.default_rng(2).standard_normal((POOL, job.dim), np.float32).astype(np.float16)
    for begin, count in zip(plan.begin.tolist(), np.diff(plan.offsets).tolist(), strict=True):
        yield pool[begin : begin + count]


def name(video: int) -> str:
    return f"v{video:07}"


def paths(job: Job, layout: str) -> list[Path]:
    """Return the files of a layout that these batches may touch."""
    if layout == "npy":
        used = np.unique(np.concatenate(batches_of(job))).tolist()
        return [job.place / "npy" / f"{name(video)}.npy" for video in used]
    if layout == "shards":
        return sorted((job.place / "shards").iterdir())
    suffix = {"features": "h5", "flat": "bin", "hdf5": "h5", "pickle": "pickle"}[layout]
    return [job.place / f"{layout}.{suffix}"]


def write(job: Job) -> dict[str, float]:
    """Write every layout; return how large they are and the seconds it took."""
    plan, seconds = plan_of(job), {}
    rows = int(plan.offsets[-1])
    found: dict[str, float] = {"rows": rows, "rows, mean": rows / job.videos, "raw": rows * job.dim * 2}
    for layout, how in {"features": _features, "flat": _flat, "hdf5": _hdf5, "npy": _npy, "pickle": _pickle}.items():
        begun = time.monotonic()
        how(job, plan)
        os.sync()
        seconds[layout] = time.monotonic() - begun
        if layout != "npy":
            found[f"{layout}, bytes"] = paths(job, layout)[0].stat().st_size
    return {**found, **{f"{layout}, written in s": taken for layout, taken in seconds.items()}}


def _features(job: Job, plan: Plan) -> None:
    """Write tables and shards, and fold them; a few shards stay."""
    names = [name(video) for video in range(job.videos)]
    first, last = plan.first.tolist(), plan.last.tolist()
    # A row of a video is one second; a span ends within its last row.
    clips = [Clip(f"{v}-span", v, a + 0.25, b - 0.75) for v, a, b in zip(names, first, last, strict=True)]
    clips = [*(Clip(v, v) for v in names), *clips]
    captions = tuple(Caption(clip.id, clip.id, "a") for clip in clips)
    parts = {"whole": names, "spans": [clip.id for clip in clips[len(names) :]]}
    splits = tuple(Part("bench", part, tuple(own), tuple(own)) for part, own in parts.items())
    manifest = Manifest("benchmark", tuple(Video(v, None) for v in names), tuple(clips), captions, splits)
    write_tables(job.place / "tables.h5", HEAD_OF_FILE, manifest)
    (job.place / "shards").mkdir()
    waiting: list[Extracted] = []
    for video, rows in zip(names, each(job, plan), strict=True):
        known = {"source_size": 1, "source_mtime": 1, "duration": float(len(rows)), "decoded": float(len(rows))}
        waiting.append(Extracted(video, known, (STREAM,), {STREAM: rows}, "ok"))
        if len(waiting) == job.shard or video == names[-1]:
            write_shard(job.place / "shards" / f"shard-{video}.h5", HEAD_OF_FILE, {STREAM: _head(job.dim)}, waiting)
            waiting = []
    files = [job.place / "tables.h5", *paths(job, "shards")]
    fold([read_part(file) for file in files], job.place / "features.h5", HEAD_OF_FILE)
    for path in paths(job, "shards")[job.folded :]:
        path.unlink()


def _head(dim: int) -> StreamHead:
    settings = {"chain": {"fps": 1.0}, "frames": 1, "weights": {"file": "", "sha256": "0" * 64}}
    return new_head(settings, {"torch": "none"}, dim, np.dtype(np.float16))


def _flat(job: Job, plan: Plan) -> None:
    with paths(job, "flat")[0].open("wb") as file:
        file.writelines(rows.data for rows in each(job, plan))


def _hdf5(job: Job, plan: Plan) -> None:
    with h5py.File(paths(job, "hdf5")[0], "w") as file:
        for video, rows in enumerate(each(job, plan)):
            file.create_dataset(name(video), data=rows)


def _npy(job: Job, plan: Plan) -> None:
    (job.place / "npy").mkdir()
    for video, rows in enumerate(each(job, plan)):
        np.save(job.place / "npy" / f"{name(video)}.npy", rows)


def _pickle(job: Job, plan: Plan) -> None:
    found = {name(video): rows for video, rows in enumerate(each(job, plan))}
    with paths(job, "pickle")[0].open("wb") as file:
        pickle.dump(found, file, protocol=pickle.HIGHEST_PROTOCOL)


def drop(files: Sequence[Path]) -> None:
    """Have the system forget the pages of files; it keeps those that are mapped, or not written yet."""
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def from_disk() -> int:
    """Return the bytes that this process has had read from a disk."""
    words = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(words["read_bytes"])
