"""One extractor of `extract_each.py`, in a process of its own: `python -m benchmarks.extract_child JOB`.

JOB is JSON, [preset, files, runs]. Prints a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.extract import Size, listed, null, size_of
from extractors.embed import Batcher
from extractors.preprocess import to_input
from extractors.spec import ExtractorError
from pipeline import extraction
from pipeline.errors import BadVideo, PipelineError
from pipeline.output import Output
from pipeline.parts import read_part
from pipeline.plan import Item
from pipeline.stages.extract import Extract, plan_of
from pipeline.store import Features


def measured(name: str, files: Sequence[Path], runs: int) -> dict[str, Any]:
    """Return what is found of one extractor, or why there is nothing."""
    try:
        with tempfile.TemporaryDirectory() as place:
            return measure(name, files, runs, Path(place))
    except ImportError as error:
        return {"left out": f"it needs something that is not installed: {error}"}
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip() or f"exit status {error.returncode}"
        return {"failed": f"ffmpeg alone, its frames thrown away: {words.splitlines()[-1]}"}
    except (PipelineError, ExtractorError) as error:
        return {"failed": str(error)}


def measure(name: str, files: Sequence[Path], runs: int, place: Path) -> dict[str, Any]:
    """Return the rows that all files make together, and the seconds of every side in each round."""
    stage = Extract(
        dataset="files",
        root=str(listed(files, place / "files.csv")),
        extractor=(name,),
        out=place / "features",
        weights=("random",),
        device="cpu",
        dtype="float32",
    )
    items = plan_of(stage).items
    sizes = {item.id: size_of(_path(item), job.preset) for item in items for job in item.jobs}
    first = {sizes[item.id]: item for item in reversed(items)}
    work(stage, list(first.values()), place / "warm")  # the network is made here, and has seen every frame size
    rounds = [a_round(stage, items, sizes, place / str(number)) for number in range(runs)]
    rows, _ = rounds[0]
    (job,) = items[0].jobs
    return {
        "preset": job.preset.name,
        "rows": rows.total(),
        "rows of padding": sum(-count % job.preset.batch for count in rows.values()),
        "rounds": [seconds for _, seconds in rounds],
    }


def a_round(
    stage: Extract, items: Sequence[Item], sizes: Mapping[str, Size], out: Path
) -> tuple[Counter[Size], dict[str, float]]:
    """Return the rows by frame size, and the seconds of every side, in turn."""
    (job,) = items[0].jobs
    wall, found = work(stage, items, out)
    rows = Counter[Size]()
    for video, count in found.items():
        rows[sizes[video]] += count
    decode = sum(null(_path(item), [job.preset]) for item in items)
    batcher = extraction.batchers_for(items, stage, "cpu")[job.preset.name]
    bare, batched = (sum(both) for both in zip(*(forward(batcher, *one) for one in rows.items()), strict=True))
    return rows, {"wall": wall, "decode floor": decode, "network floor": bare, "Batcher": batched}


def work(stage: Extract, items: Sequence[Item], out: Path) -> tuple[float, dict[str, int]]:
    """Return the seconds that the work of one task takes, and the rows of each video in the shard that it writes."""
    (job,) = items[0].jobs
    begun = time.perf_counter()
    outcomes = extraction.extract(stage, items, Output(out))
    seconds = time.perf_counter() - begun
    for item, outcome in zip(items, outcomes, strict=True):
        if outcome.status == "failed":
            raise BadVideo(f"{item.path}: {outcome.reason}")
    with Features(read_part(file) for file in out.glob("*.h5")) as features:
        counts = features.stream(job.preset.name).count.tolist()
        return seconds, dict(zip(features.videos["id"].tolist(), counts, strict=True))


def forward(batcher: Batcher, size: Size, rows: int) -> tuple[float, float]:
    """Return the seconds of `rows` rows of one frame size: by the network on inputs that are ready, and by `batcher`.

    Both are of whole batches, as many as the rows fill, which take turns; what is over of the last one is taken off.
    """
    preset, net = batcher._preset, batcher._network
    shape = preset.batch, preset.frames, *reversed(size), 3
    frames = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    ready, batches = to_input(frames, preset), -(-rows // preset.batch)
    bare = batched = 0.0
    with torch.inference_mode():
        for _ in range(batches):
            bare += seconds_of(lambda: net(ready))
            batched += seconds_of(lambda: [batcher.add(number, one) for number, one in enumerate(frames)])
    share = rows / (batches * preset.batch)
    return share * bare, share * batched


def seconds_of(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def _path(item: Item) -> Path:
    assert isinstance(item.path, Path)
    return item.path


def main() -> None:
    torch.set_num_threads(1)
    name, files, runs = json.loads(sys.argv[1])
    print(json.dumps(measured(name, [Path(file) for file in files], runs)))


if __name__ == "__main__":
    main()
