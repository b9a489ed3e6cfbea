"""What reading random clips costs in this and other layouts: `python -m benchmarks.store [--rounds 5] [--json]`.

1. Random batches of clips, whole videos and short spans, out of a feature file, against a plain `np.memmap` of one flat
   array, one HDF5 data set a video, one .npy a video, and a pickled dict. Same numbers, same batches in the same order.
   What is wanted of a batch are its rows, one after the other, in memory; and the same as what a model takes: float32,
   padded. The trainer's way refuses rows that are not finite; the others do not look.
2. Bytes a second of `pipeline.shards.fold`, which also verifies what it wrote, against copying the same shards.

Every side runs in a process of its own, in turn, `--rounds` times; ratios are medians over rounds. A process reads its
batches three times: `cold`, after the files' pages were dropped from the system's cache (posix_fadvise; how much then
came from the disk is in the table; a machine under this one may still cache), `first`, in cache and opened anew, so
that each page is new to this process, and `again`. Seconds are wall clock, in `again` also those of the processor,
which do not count what else the machine is doing. Memory is the resident peak beyond that of a process with the
libraries alone; pages of a mapped file count, though the system can take them back.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.children import child

ROWS = {
    "ours, as in training": "trainer",
    "ours, read_rows alone": "read_rows",
    "np.memmap": "memmap",
    "np.memmap, one index": "memmap_index",
    "HDF5 data set a video": "hdf5",
    "the same, opened for each": "hdf5_opened",
    "npy a video": "npy",
    "pickle of a dict": "pickle",
}
"""Sides that return rows, and their names in `store_child.py`."""
TOKENS = {"ours, float32 padded": "trainer_tokens", "np.memmap, float32 padded": "memmap_tokens"}
"""Sides that return what a model takes."""
PASSES = ("cold", "first", "again")
BAR, HDF5 = "np.memmap", "HDF5 data set a video"
OF_MEMMAP, OF_HDF5 = 0.8, 10.0
"""Targets: our rate in training, by that of np.memmap, and by that of one HDF5 data set a video."""
ON_DISK = 5.5
"""Bytes on the disk at once, by those of the rows: five layouts, some shards, what the file system adds."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is measured, and where the files are."""

    place: Path
    videos: int
    dim: int
    batches: int
    clips: int = 128
    shard: int = 1000
    """Videos in a shard."""
    folded: int = 4
    """Shards that are folded and copied, at most."""

    @property
    def raw(self) -> int:
        """Return the bytes of all rows, about."""
        return self.videos * 35 * self.dim * 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=20_000, help="of 10 to 60 rows")
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--batches", type=int, default=20, help="in a pass, of 128 clips each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--place", type=Path, help="folder for the files; default: that for temporary files")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.place) as place:
        job = Job(place=Path(place), videos=chosen.videos, dim=chosen.dim, batches=chosen.batches)
        wanted, free = ON_DISK * job.raw, shutil.disk_usage(place).free
        if free < 1.1 * wanted:
            sys.exit(
                f"--videos {job.videos} --dim {job.dim}: {wanted / 1e9:.1f} GB of files, but {place} has "
                f"{free / 1e9:.1f} GB; fewer --videos, or another --place"
            )
        found = measure(job, chosen.rounds)
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


def measure(job: Job, rounds: int) -> dict[str, Any]:
    """Return everything that is measured."""
    files = side("files", job)
    folds = [side("fold", job) for _ in range(rounds)]
    nothing = side("nothing", job)
    read = {kind: reading(job, kind, rounds, nothing) for kind in ("whole", "spans")}
    return {
        "job": {name: value for name, value in asdict(job).items() if name != "place"},
        "rounds": rounds,
        "files": files,
        "read": read,
        "fold": {name: statistics.median(one[name] for one in folds) for name in folds[0]},
        "met": {f"{kind}, {words}": met for kind in read for words, met in targets(read[kind]).items()},
    }


def side(name: str, job: Job, kind: str = "") -> dict[str, Any]:
    """Return what one side measures in a process of its own."""
    words = json.dumps({**asdict(job), "place": str(job.place)})
    return child("benchmarks.store_child", name, words, kind)


def reading(job: Job, kind: str, rounds: int, nothing: dict[str, Any]) -> dict[str, Any]:
    """Return each side's medians over rounds for clips of one kind."""
    sides = {**ROWS, **TOKENS}
    runs = [{name: side(inner, job, kind) for name, inner in sides.items()} for _ in range(rounds)]
    for one in runs:
        content = {one[name]["crc32"] for name in ROWS if "failed" not in one[name]}
        assert len(content) == 1, f"sides do not return the same rows: {content}"
    return {name: summary(name, runs, nothing) for name in sides}


def summary(name: str, runs: Sequence[dict[str, Any]], nothing: dict[str, Any]) -> dict[str, Any]:
    """Return a side's medians over rounds."""
    own = [one[name] for one in runs]
    if failed := [one["failed"] for one in own if "failed" in one]:
        return {"failed": failed[0]}
    bars = {BAR: BAR, HDF5: HDF5} if name in ROWS else {BAR: list(TOKENS)[1]}
    ratios = {
        bar: {
            part: [one[of][part] / mine[part] for one, mine in zip(runs, own, strict=True)]
            for part in (*PASSES, "again, processor")
        }
        for bar, of in bars.items()
    }
    middle = {part: statistics.median(one[part] for one in own) for part in own[0] if part != "crc32"}
    memory = {"peak": middle["peak"] - nothing["peak"], "own": middle["own"] - nothing["own"]}
    return {
        **middle,
        **memory,
        "times as fast": {bar: {k: statistics.median(v) for k, v in found.items()} for bar, found in ratios.items()},
        "by round": {bar: found["again"] for bar, found in ratios.items()},
    }


def targets(read: dict[str, Any]) -> dict[str, bool]:
    """Return which targets are met."""
    ours = read["ours, as in training"]["times as fast"]
    return {
        **{f"{part}: of np.memmap, >= {OF_MEMMAP}": ours[BAR][part] >= OF_MEMMAP for part in PASSES},
        **{f"{part}: of {HDF5}, >= {OF_HDF5:g}": ours[HDF5][part] >= OF_HDF5 for part in PASSES},
    }


def show(found: dict[str, Any]) -> None:
    """Print tables."""
    console, job, files = Console(width=170), found["job"], found["files"]
    console.print(
        f"{job['videos']:,} videos of {files['rows, mean']:.1f} x {job['dim']} float16, {files['raw'] / 1e9:.2f} GB; "
        f"batches of {job['clips']} clips, {job['batches']} in a pass, {found['rounds']} rounds"
    )
    for kind, read in found["read"].items():
        console.print(reading_table(kind, read))
    for words, met in found["met"].items():
        console.print(f"{words}: {'met' if met else 'NOT met'}", highlight=False)
    console.print(fold_table(found["fold"]))


def reading_table(kind: str, read: dict[str, Any]) -> Table:
    """Return milliseconds a batch and, after a slash, how many times as fast as np.memmap that is; memory."""
    size = next(one["megabytes"] for one in read.values() if "failed" not in one)
    words = "whole videos" if kind == "whole" else "spans of 2 to 8 rows"
    table = Table(title=f"clips are {words}, {size:.1f} MB a batch: ms / x np.memmap", title_justify="left")
    columns = ("", *PASSES, "CPU", "again by round", "x HDF5", "disk", "open, s", "peak MB", "own MB")
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, one in read.items():
        table.add_row(name, *([one["failed"]] if "failed" in one else cells(one)))
    return table


def cells(one: dict[str, Any]) -> list[str]:
    """Return a side's cells."""
    fast = one["times as fast"]
    passes = [f"{1e3 * one[part]:.2f} / {fast[BAR][part]:.2f}" for part in PASSES]
    processor = f"{1e3 * one['again, processor']:.2f} / {fast[BAR]['again, processor']:.2f}"
    rounds = " ".join(f"{ratio:.2f}" for ratio in one["by round"][BAR])
    hdf5 = " ".join(f"{fast[HDF5][part]:.1f}" for part in PASSES) if HDF5 in fast else ""
    memory = [f"{one[name] / 1e6:.0f}" for name in ("peak", "own")]
    return [*passes, processor, rounds, hdf5, f"{one['from disk']:.1f}", f"{one['open']:.2f}", *memory]


def fold_table(fold: dict[str, float]) -> Table:
    """Return bytes a second of folding and copying."""
    size = fold["bytes"]
    table = Table(title=f"folding {fold['shards']:.0f} shards, {size / 1e6:.0f} MB, all in cache", title_justify="left")
    for column in ("", "seconds", "MB/s", "fold / it"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds in fold.items():
        if name not in ("bytes", "shards"):
            rate = f"{size / seconds / 1e6:.0f}"
            table.add_row(name, f"{seconds:.2f}", rate, f"{seconds / fold['fold']:.2f}")
    return table


if __name__ == "__main__":
    main()
