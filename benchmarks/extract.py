"""What extraction costs beside its floors and beside the common way: `python -m benchmarks.extract [--videos DIR …]`.

1. One decode for three extractors against three decodes: CPU seconds of ffmpeg and of our reading loop.
2. For each set of real videos, wall time of the whole command on W workers
   * against the sum of its floors on W processes of one thread: ffmpeg running the same filter graph to null, and the
     networks on frames that are in memory already;
   * against itself on one worker;
   * against `extract_peer.py`, a whole process that does as common extractors do: one video at a time, a decode for
     each network, all frames as one float32 array, an .npy a video. It has as many threads as there are workers.

Sides take turns, `--runs` times; ratios are medians over runs. Starting processes and making networks counts on both
sides, but not in the floors. That the rows of both are the same is measured too: the error is what is left of their
difference by what is left of the peer's rows when a video's mean is taken away; both are float32.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import extractors
from benchmarks.children import Watched, watched
from extractors.embed import network
from extractors.preprocess import to_input
from extractors.spec import Chain, Preset
from extractors.weights import find
from pipeline.decode import Decoding
from pipeline.ffmpeg import Branch, Job, program
from pipeline.ffmpeg import command as command_line
from pipeline.probe import probe
from pipeline.store import Features

NAMES = ("resnet152", "i3d_x101", "s3d_howto100m")
FOLDERS = ("activitynet", "kinetics", "msrvtt")  # 20 videos, 280 s
FLOORS, PEER, SAME = 1.15, 2.0, 1e-4
"""Targets: command / floors at most, common way / command at least, the error of rows less than."""
Size = tuple[int, int]
"""(width, height) of frames."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared/data/videos"
    parser.add_argument("--videos", type=Path, nargs="+", default=[shared / name for name in FOLDERS], help="sets")
    parser.add_argument("--networks", nargs="+", default=list(NAMES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    sets = {folder.name: sorted(folder.resolve().iterdir()) for folder in chosen.videos}
    presets = [extractors.preset(name) for name in chosen.networks]
    found = {
        "networks": [preset.name for preset in presets],
        "workers": chosen.workers,
        "runs": chosen.runs,
        "load before": os.getloadavg()[0],
        "decoding": decoding([file for files in sets.values() for file in files], presets, chosen.runs),
        "sets": {name: command(files, presets, chosen.runs, chosen.workers) for name, files in sets.items()},
        "load after": os.getloadavg()[0],
    }
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


def decoding(files: Sequence[Path], presets: Sequence[Preset], runs: int) -> dict[str, float]:
    chains = list(dict.fromkeys(preset.chain for preset in presets))
    one = [cpu(lambda: decode(files, chains)) for _ in range(runs)]
    several = [cpu(lambda: decode(files, *([chain] for chain in chains))) for _ in range(runs)]
    return {
        "chains": len(chains),
        "one decode, CPU s": statistics.median(one),
        "a decode for each, CPU s": statistics.median(several),
        "one / each": statistics.median(a / b for a, b in zip(one, several, strict=True)),
    }


def decode(files: Sequence[Path], *together: Sequence[Chain]) -> None:
    """Decode each file for some chains together, and then for others."""
    for chains in together:
        for file in files:
            for _ in Decoding(file, probe(file), chains):
                pass


def cpu(work: Callable[[], object]) -> float:
    def spent() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in used)

    before = spent()
    work()
    return spent() - before


def command(files: Sequence[Path], presets: Sequence[Preset], runs: int, workers: int) -> dict[str, Any]:
    """Return what is measured on one set of videos."""
    rows = {preset.name: rows_of(files, preset) for preset in presets}
    found = [a_run(files, presets, rows, workers) for _ in range(runs)]
    middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
    ratios = {
        "command / floors": [one["command"] / (one["floor ffmpeg"] + one["floor networks"]) for one in found],
        "one worker / command": [one["one worker"] / one["command"] for one in found],
        "common way / command": [one["common way"] / one["command"] for one in found],
        "common way / command, CPU": [one["common way, CPU s"] / one["command, CPU s"] for one in found],
    }
    return {
        "videos": len(files),
        "rows": sum(sum(sizes.values()) for sizes in rows.values()),
        **middle,
        **{name: statistics.median(values) for name, values in ratios.items()},
        "by run": ratios,
        "met": {
            f"command / floors, <= {FLOORS}": statistics.median(ratios["command / floors"]) <= FLOORS,
            f"common way / command, >= {PEER:g}": statistics.median(ratios["common way / command"]) >= PEER,
            f"largest error, < {SAME:g}": middle["largest error"] < SAME,
        },
    }


def a_run(
    files: Sequence[Path], presets: Sequence[Preset], rows: dict[str, Counter[Size]], workers: int
) -> dict[str, float]:
    """Return the wall seconds of every side, in turn, and the most memory of one of its processes."""
    todo = [(preset, size, count / workers) for preset in presets for size, count in rows[preset.name].items()]
    shares = [share for share in todo for _ in range(workers)]
    floors = {
        "floor ffmpeg": in_parallel(null, [(file, presets) for file in files], workers),
        "floor networks": in_parallel(forward, shares, workers),
    }
    with tempfile.TemporaryDirectory() as place:
        out, theirs = Path(place) / "features.h5", Path(place) / "peer"
        ours = whole(files, presets, workers, out)
        words = [json.dumps([str(file) for file in files]), json.dumps([preset.name for preset in presets])]
        # As many threads as there are workers: what torch takes by itself where nothing else runs.
        threads = {"OMP_NUM_THREADS": str(workers)}
        common = watched([sys.executable, "-m", "benchmarks.extract_peer", *words, str(theirs)], threads)
        alone = whole(files, presets, 1, Path(place) / "one.h5")
        return {
            **floors,
            "command": ours.seconds,
            "one worker": alone.seconds,
            "common way": common.seconds,
            "command, CPU s": ours.processor,
            "one worker, CPU s": alone.processor,
            "common way, CPU s": common.processor,
            "command, peak MB of a process": ours.peak / 1e6,
            "common way, peak MB": common.peak / 1e6,
            "largest error": max(error(out, theirs, preset, len(files)) for preset in presets),
        }


def rows_of(files: Sequence[Path], preset: Preset) -> Counter[Size]:
    """Return the rows that files make, by the size of their frames."""
    found = Counter[Size]()
    for file in files:
        frames = sum(1 for _ in Decoding(file, probe(file), [preset.chain]))
        found[size_of(file, preset)] += preset.rows(frames)
    return found


def size_of(file: Path, preset: Preset) -> Size:
    """Return the size of the frames that a preset takes from a file."""
    probed = probe(file)
    return preset.chain.frame_size(probed.width, probed.height)


def in_parallel(work: Callable[..., float], jobs: Sequence[tuple[object, ...]], workers: int) -> float:
    """Return the wall seconds that `jobs` need on `workers` processes, which are there already."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.5] * workers))
        begun = time.monotonic()
        inside = list(pool.map(one, [(work, job) for job in jobs]))
        # Networks time themselves: making them is no part of the floor.
        return sum(inside) / workers if work is forward else time.monotonic() - begun


def one(task: tuple[Callable[..., float], tuple[object, ...]]) -> float:
    return task[0](*task[1])


def null(file: Path, presets: Sequence[Preset]) -> float:
    """Return the seconds of the command's own ffmpeg on a file, its frames thrown away."""
    probed = probe(file)
    branches = [Branch(p.chain, probed.width, probed.height) for p in presets]
    fds = range(3, 4 + len(branches))
    words = command_line(program(), Job(file, probed, threads=1, stall=120.0), branches, list(fds))
    words = [os.devnull if word.startswith("pipe:") else word for word in words]
    begun = time.monotonic()
    subprocess.run([*words, "-y"], check=True, capture_output=True)
    return time.monotonic() - begun


def forward(preset: Preset, size: Size, rows: float) -> float:
    """Return the seconds that one process of one thread needs for `rows` rows of frames in memory, without padding."""
    torch.set_num_threads(1)
    net = network(preset, find(preset, "random"), "cpu")
    (width, height), batches = size, math.ceil(rows / preset.batch)
    frames = torch.randint(0, 256, (preset.batch, preset.frames, height, width, 3), dtype=torch.uint8)
    with torch.inference_mode():
        net(to_input(frames, preset))
        begun = time.monotonic()
        for _ in range(batches):
            net(to_input(frames, preset))
        return (time.monotonic() - begun) * rows / (batches * preset.batch)


def whole(files: Sequence[Path], presets: Sequence[Preset], workers: int, out: Path) -> Watched:
    """Return what the command takes."""
    table = listed(files, out.with_suffix(".csv"))
    words = ["run", "extract", "--dataset", "files", "--root", str(table), "--weights", "random"]
    words += ["--extractor", ",".join(preset.name for preset in presets)]
    words += ["--dtype", "float32", "--workers", str(workers), "--out", str(out)]
    return watched([sys.executable, "-m", "pipeline.cli", *words])


def listed(files: Sequence[Path], table: Path) -> Path:
    """Write the data set of these files, whose ids are their numbers; return its place."""
    table.write_text("video_id,path\n" + "".join(f"{i},{file}\n" for i, file in enumerate(files)))
    return table


def error(ours: Path, theirs: Path, preset: Preset, videos: int) -> float:
    """Return the largest centred relative error of a video's rows."""
    found = []
    with Features.open(ours) as features:
        for video in range(videos):
            streams = [features.rows(stream, str(video)) for stream, _ in preset.streams]
            a, b = np.load(theirs / preset.name / f"{video}.npy"), np.concatenate(streams, axis=1)
            if len(a) != len(b):
                return float("inf")
            if len(a) > 1:  # of one row nothing is left without its mean
                found.append(float(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(0))))
    return max(found, default=0.0)


def show(found: dict[str, Any]) -> None:
    """Print tables."""
    console, sets = Console(width=120), found["sets"]
    console.print(
        f"{', '.join(found['networks'])}; {found['workers']} workers, {found['runs']} runs; load of the machine "
        f"{found['load before']:.1f} before, {found['load after']:.1f} after",
        highlight=False,
    )
    for name, value in found["decoding"].items():
        console.print(f"{name}: {value:.2f}", highlight=False)
    table = Table(title="medians of runs; seconds by the clock", title_justify="left")
    for column in ("", *sets):
        table.add_column(column, justify="right" if column else "left")
    for name, value in next(iter(sets.values())).items():
        if isinstance(value, int | float):
            form = "{:.1e}" if "error" in name else "{:.2f}" if isinstance(value, float) else "{}"
            table.add_row(name, *(form.format(one[name]) for one in sets.values()))
    for name in next(iter(sets.values()))["met"]:
        table.add_row(name, *("met" if one["met"][name] else "NOT met" for one in sets.values()))
    console.print(table)
    for name, one in sets.items():
        for ratio, values in one["by run"].items():
            console.print(f"{name}: {ratio}, by run: {' '.join(f'{value:.2f}' for value in values)}", highlight=False)


if __name__ == "__main__":
    main()
