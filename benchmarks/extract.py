"""What extraction costs beside its floors, on real videos: `python -m benchmarks.extract [--videos DIR] [--runs N]`.

1. One decode for three extractors against three decodes: CPU seconds of ffmpeg and of our reading loop.
2. Wall time of the whole command on W workers against the sum of its floors on W processes of one thread: ffmpeg
   running the same filter graph to null, and the networks on frames that are in memory already.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

import extractors
from extractors.embed import network
from extractors.preprocess import to_input
from extractors.spec import Chain, Preset
from extractors.weights import find
from pipeline.decode import Decoding
from pipeline.ffmpeg import Branch, Job, program
from pipeline.ffmpeg import command as command_line
from pipeline.probe import probe

NAMES = ("resnet152", "i3d_x101", "s3d_howto100m")
FOLDERS = ("activitynet", "kinetics", "msrvtt")  # 20 videos, 280 s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared/data/videos"
    parser.add_argument("--videos", type=Path, nargs="+", default=[shared / name for name in FOLDERS])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    files = sorted(f for folder in chosen.videos for f in folder.resolve().iterdir())
    presets = [extractors.preset(name) for name in NAMES]
    found = {**decoding(files, presets, chosen.runs), **command(files, presets, chosen.runs, chosen.workers)}
    print(json.dumps(found, indent=2) if chosen.json else table(found))


def decoding(files: Sequence[Path], presets: Sequence[Preset], runs: int) -> dict[str, float]:
    chains = [preset.chain for preset in presets]
    one = [cpu(lambda: decode(files, chains)) for _ in range(runs)]
    three = [cpu(lambda: [decode(files, [chain]) for chain in chains]) for _ in range(runs)]
    return {
        "one decode, CPU s": statistics.median(one),
        "three decodes, CPU s": statistics.median(three),
        "one / three": statistics.median(a / b for a, b in zip(one, three, strict=True)),
    }


def decode(files: Sequence[Path], chains: Sequence[Chain]) -> None:
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


def command(files: Sequence[Path], presets: Sequence[Preset], runs: int, workers: int) -> dict[str, float]:
    rows = {preset.name: rows_of(files, preset) for preset in presets}
    walls, ffmpeg, networks = [], [], []
    for _ in range(runs):
        ffmpeg.append(in_parallel(null, [(file, presets) for file in files], workers))
        shares = [(preset, round(rows[preset.name] / workers)) for preset in presets for _ in range(workers)]
        networks.append(in_parallel(forward, shares, workers))
        walls.append(whole(files, workers))
    floor = [a + b for a, b in zip(ffmpeg, networks, strict=True)]
    return {
        "videos": len(files),
        "workers": workers,
        "rows": sum(rows.values()),
        "command, wall s": statistics.median(walls),
        "floor ffmpeg, wall s": statistics.median(ffmpeg),
        "floor networks, wall s": statistics.median(networks),
        "command / floors": statistics.median(a / b for a, b in zip(walls, floor, strict=True)),
    }


def rows_of(files: Sequence[Path], preset: Preset) -> int:
    return sum(preset.rows(sum(1 for _ in Decoding(file, probe(file), [preset.chain]))) for file in files)


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
    """Run the command's own ffmpeg on a file, its frames thrown away."""
    probed = probe(file)
    branches = [Branch(p.chain, probed.width, probed.height) for p in presets]
    fds = range(3, 4 + len(branches))
    words = command_line(program(), Job(file, probed, threads=1, stall=120.0), branches, list(fds))
    words = [os.devnull if word.startswith("pipe:") else word for word in words]
    subprocess.run([*words, "-y"], check=True, capture_output=True)
    return 0.0


def forward(preset: Preset, rows: int) -> float:
    """Return the seconds that one process, on one thread, needs for `rows` rows of frames in memory."""
    torch.set_num_threads(1)
    net = network(preset, find(preset, "random"), "cpu")
    width, height = preset.chain.frame_size(320, 240)
    frames = torch.randint(0, 256, (preset.batch, preset.frames, height, width, 3), dtype=torch.uint8)
    with torch.inference_mode():
        net(to_input(frames, preset))
        begun = time.monotonic()
        for _ in range(-(-rows // preset.batch)):
            net(to_input(frames, preset))
        return time.monotonic() - begun


def whole(files: Sequence[Path], workers: int) -> float:
    with tempfile.TemporaryDirectory() as place:
        table = Path(place) / "videos.csv"
        table.write_text("video_id,path\n" + "".join(f"{i},{file}\n" for i, file in enumerate(files)))
        words = ["run", "extract", "--dataset", "files", "--root", str(table), "--weights", "random"]
        words += ["--dtype", "float32", "--workers", str(workers), "--out", f"{place}/features.h5"]
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "pipeline.cli", *words], check=True, capture_output=True)
        return time.monotonic() - begun


def table(found: dict[str, float]) -> str:
    width = max(map(len, found))
    return "\n".join(f"{name:<{width}}  {value:8.2f}" for name, value in found.items())


if __name__ == "__main__":
    main()
