"""One measurement of `store.py`, in a process of its own: `python -m benchmarks.store_child SIDE JOB [KIND]`.

Sides: `nothing` (libraries alone), `files`, `fold`, or a layout and a way to read it. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks import store_files
from benchmarks.children import told
from benchmarks.store import Job
from benchmarks.store_files import HEAD_OF_FILE, STREAM, Plan, drop, from_disk, name, paths, plan_of
from pipeline.parts import read_part
from pipeline.shards import fold, verify_file
from pipeline.store import Features
from train import data


@dataclass(frozen=True)
class Batch:
    """Which clips are read."""

    clips: Tensor
    """(K,) as training names them."""
    spans: Sequence[tuple[int, int, int]]
    """(video, first row, last + 1) of each."""

    @property
    def rows(self) -> int:
        return sum(last - first for _, first, last in self.spans)


Read = Callable[[Batch], Any]


@dataclass(frozen=True)
class Opening:
    """What a side is to read."""

    job: Job
    plan: Plan
    kind: str


@contextmanager
def trainer(opening: Opening) -> Iterator[Read]:
    """Read as training does where rows stay in the file."""
    with corpus_of(opening) as corpus:
        yield lambda batch: corpus.streams[0].of(batch.clips).values


@contextmanager
def trainer_tokens(opening: Opening) -> Iterator[Read]:
    with corpus_of(opening) as corpus:
        yield lambda batch: data.video_tokens(corpus, batch.clips, most=60)


@contextmanager
def corpus_of(opening: Opening) -> Iterator[data.Corpus]:
    with Features.open(opening.job.place / "features.h5") as features:
        yield data.load(features, f"bench/{opening.kind}", words=False, resident=0)


@contextmanager
def read_rows(opening: Opening) -> Iterator[Read]:
    with Features.open(opening.job.place / "features.h5") as features:

        def read(batch: Batch) -> NDArray[np.float16]:
            out, at = np.empty((batch.rows, opening.job.dim), np.float16), 0
            for video, first, last in batch.spans:
                features.read_rows(STREAM, video, first, out[at : at + last - first])
                at += last - first
            return out

        yield read


def flat_of(opening: Opening) -> NDArray[np.float16]:
    shape = int(opening.plan.offsets[-1]), opening.job.dim
    return np.memmap(paths(opening.job, "flat")[0], np.float16, "r", shape=shape)


@contextmanager
def memmap(opening: Opening) -> Iterator[Read]:
    flat, begin = flat_of(opening), opening.plan.offsets.tolist()
    yield lambda batch: np.concatenate([flat[begin[v] + a : begin[v] + b] for v, a, b in batch.spans])


@contextmanager
def memmap_index(opening: Opening) -> Iterator[Read]:
    flat, begin = flat_of(opening), opening.plan.offsets.tolist()
    yield lambda batch: flat[np.concatenate([np.arange(begin[v] + a, begin[v] + b) for v, a, b in batch.spans])]


@contextmanager
def memmap_tokens(opening: Opening) -> Iterator[Read]:
    """Read what `trainer_tokens` reads, as it is commonly written."""
    flat, begin = flat_of(opening), opening.plan.offsets.tolist()

    def read(batch: Batch) -> tuple[Tensor, Tensor]:
        rows = [torch.from_numpy(flat[begin[v] + a : begin[v] + b].astype(np.float32)) for v, a, b in batch.spans]
        sizes = torch.tensor([len(one) for one in rows])
        return pad_sequence(rows, batch_first=True), torch.arange(int(sizes.max())) < sizes[:, None]

    yield read


@contextmanager
def hdf5(opening: Opening) -> Iterator[Read]:
    with h5py.File(paths(opening.job, "hdf5")[0], "r") as file:
        yield lambda batch: np.concatenate([file[name(v)][a:b] for v, a, b in batch.spans])


@contextmanager
def hdf5_opened(opening: Opening) -> Iterator[Read]:
    path = paths(opening.job, "hdf5")[0]

    def item(video: int, first: int, last: int) -> NDArray[np.float16]:
        with h5py.File(path, "r") as file:
            rows: NDArray[np.float16] = file[name(video)][first:last]
            return rows

    yield lambda batch: np.concatenate([item(*span) for span in batch.spans])


@contextmanager
def npy(opening: Opening) -> Iterator[Read]:
    folder = opening.job.place / "npy"
    yield lambda batch: np.concatenate([np.load(folder / f"{name(v)}.npy")[a:b] for v, a, b in batch.spans])


@contextmanager
def unpickled(opening: Opening) -> Iterator[Read]:
    with paths(opening.job, "pickle")[0].open("rb") as file:
        held = pickle.load(file)
    yield lambda batch: np.concatenate([held[name(v)][a:b] for v, a, b in batch.spans])


SIDES = {
    "trainer": (trainer, "features"),
    "trainer_tokens": (trainer_tokens, "features"),
    "read_rows": (read_rows, "features"),
    "memmap": (memmap, "flat"),
    "memmap_index": (memmap_index, "flat"),
    "memmap_tokens": (memmap_tokens, "flat"),
    "hdf5": (hdf5, "hdf5"),
    "hdf5_opened": (hdf5_opened, "hdf5"),
    "npy": (npy, "npy"),
    "pickle": (unpickled, "pickle"),
}
"""How each side is opened, and which layout it reads."""


def reading(side: str, opening: Opening) -> dict[str, float]:
    """Return seconds a batch, cold, in cache and again; what came from the disk for each byte; seconds to open."""
    opened, layout = SIDES[side]
    chosen = store_files.batches_of(opening.job)
    batches = [Batch(torch.from_numpy(some), opening.plan.spans(opening.kind, some)) for some in chosen]
    size = sum(batch.rows for batch in batches) * opening.job.dim * 2
    drop(paths(opening.job, layout))
    begun, before = time.perf_counter(), from_disk()
    with opened(opening) as read:
        cold_open = time.perf_counter() - begun
        if layout == "pickle":
            size = paths(opening.job, layout)[0].stat().st_size
        else:
            before = from_disk()
        cold, _ = timed(read, batches, statistics.fmean)
        disk = (from_disk() - before) / size
    begun = time.perf_counter()
    with opened(opening) as read:
        found = {"open": time.perf_counter() - begun, "open, cold": cold_open, "cold": cold, "from disk": disk}
        found["first"], found["first, processor"] = timed(read, batches)
        found["again"], found["again, processor"] = timed(read, batches)
        found["peak"], found["own"] = told("VmHWM"), told("RssAnon")
        rows = read(batches[0])
        # What a model takes has padding, and is not compared.
        found["crc32"] = 0 if isinstance(rows, tuple) else zlib.crc32(np.asarray(rows).data)
    return {**found, "megabytes": batches[0].rows * opening.job.dim * 2 / 1e6}


def timed(
    read: Read, batches: Sequence[Batch], middle: Callable[[Sequence[float]], float] = statistics.median
) -> tuple[float, float]:
    """Return the seconds of a batch by the clock and on the processor."""
    seconds = []
    for batch in batches:
        begun = time.perf_counter(), time.process_time()
        read(batch)
        seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    wall, processor = (middle(one) for one in zip(*seconds, strict=True))
    return wall, processor


def folding(job: Job) -> dict[str, float]:
    """Return seconds to fold some shards, and to copy them, all of it on the disk at the end."""
    shards = paths(job, "shards")
    size = sum(path.stat().st_size for path in shards)
    target, copies = job.place / "folded.h5", job.place / "copies"
    for path in shards:
        path.read_bytes()  # in cache
    parts = [read_part(path) for path in shards]
    found = {"fold": _seconds(lambda: fold(parts, target, HEAD_OF_FILE))}
    found["of that: verifying"] = _seconds(lambda: verify_file(target))
    target.unlink()
    ways: dict[str, Callable[[], Any]] = {
        "cp": lambda: subprocess.run(["cp", *shards, copies], check=True),
        "shutil.copyfile": lambda: [shutil.copyfile(path, copies / path.name) for path in shards],
    }
    for words, way in ways.items():
        copies.mkdir()
        found[words] = _seconds(way)
        found[f"{words}, fsync"] = found[words] + _seconds(lambda: _fsync(*copies.iterdir()))
        shutil.rmtree(copies)
    return {**found, "bytes": size, "shards": len(shards)}


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _fsync(*files: Path) -> None:
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def main() -> None:
    side, words, kind = sys.argv[1:]
    job = Job(**json.loads(words))
    job = replace(job, place=Path(job.place))
    torch.set_num_threads(1)
    if side == "nothing":
        print(json.dumps({"peak": told("VmHWM"), "own": told("RssAnon")}))
    elif side in ("files", "fold"):
        print(json.dumps(store_files.write(job) if side == "files" else folding(job)))
    else:
        print(json.dumps(reading(side, Opening(job, plan_of(job), kind))))


if __name__ == "__main__":
    main()
