"""What a training step of 2D-TAN costs beside the dense map: `python -m benchmarks.ground [--json]`.

Seconds and peak memory of a step (forward pass, loss, backward pass, Adam) at the original's settings for ActivityNet
Captions, against `ground_peer.py`, which computes the same scores on the whole N x N map. Each side runs in a process
of its own, in turn, `--rounds` times; ratios are medians over rounds. Seconds are wall clock; those of the processor
beside them do not count what else the machine is doing. Memory: on a GPU the most that was allocated; on a CPU the
resident peak beyond that of a process with the libraries alone. Features, sentences and spans are random; a sentence is
12 vectors of a frozen encoder, as the text side is the same for both. On a CPU batches are smaller and steps fewer.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks import children
from benchmarks.ground_peer import Dense
from train.batches import Batch
from train.candidates import neighbours
from train.config import Data, device_of
from train.methods import tan2d
from train.settings import Tan2d
from train.text import Encoder, Sentences

SIZES = {"cuda": {"batch": 32, "steps": 20, "warmup": 3}, "cpu": {"batch": 4, "steps": 2, "warmup": 1}}
SIDES = ("ours", "peer")
FASTER = 3.0
"""Target: a step's seconds, peer / ours; on a CPU."""
QUERIES = 37_417
"""Training queries of ActivityNet Captions: an epoch."""
ROW, WORDS, WORD = 500, 12, 512
"""Numbers of a row (C3D's), words of a sentence, numbers of a word."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process is to measure."""

    device: str
    threads: int
    clips: int
    kernel: int
    layers: int
    hidden: int
    bins: int
    batch: int
    steps: int
    warmup: int

    @property
    def settings(self) -> Tan2d:
        """Return our settings."""
        return Tan2d(clips=self.clips, kernel=self.kernel, layers=self.layers, hidden=self.hidden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=3)
    sizes = {"threads": 1, "clips": 64, "kernel": 9, "layers": 4, "hidden": 512, "bins": 256}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"default: {size}")
    for name in ("batch", "steps", "warmup"):
        defaults = ", ".join(f"{one[name]} on {kind}" for kind, one in SIZES.items())
        parser.add_argument(f"--{name}", type=int, help=defaults)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    chosen = vars(parser.parse_args())
    side, rounds, as_json = chosen.pop("side"), chosen.pop("rounds"), chosen.pop("json")
    if side:
        print(json.dumps(measured(side[0], Job(**json.loads(side[1])))))
        return
    kind = device_of(chosen["device"]).type
    given = {name: value for name, value in chosen.items() if value is not None}
    found = measure(Job(**{**SIZES[kind], **given}), kind, rounds)
    print(json.dumps(found, indent=2)) if as_json else show(found)


def measure(job: Job, kind: str, rounds: int) -> dict[str, Any]:
    """Return everything that is measured."""
    nothing = child("nothing", replace(job, clips=16, kernel=3, hidden=8, batch=1))
    runs = [{side: child(side, job) for side in SIDES} for _ in range(rounds)]
    base = nothing["peak"] if kind == "cpu" else 0
    return {
        "job": asdict(job),
        "kind": kind,
        "pairs": [len(neighbours(job.clips, job.kernel).source), (job.clips * job.kernel) ** 2],
        "sides": {side: summary([one[side] for one in runs], job, base) for side in SIDES},
        "faster": [one["peer"]["step"] / one["ours"]["step"] for one in runs],
        "faster, processor": [one["peer"]["processor"] / one["ours"]["processor"] for one in runs],
        "memory": [(one["ours"]["peak"] - base) / (one["peer"]["peak"] - base) for one in runs],
    }


def child(side: str, job: Job) -> dict[str, Any]:
    """Return what a side measures in a process of its own."""
    found = children.child("benchmarks.ground", "--side", side, json.dumps(asdict(job)))
    if "failed" in found:
        sys.exit(f"{side}: {found['failed']}; a smaller --batch or --hidden")
    return found


def measured(side: str, job: Job) -> dict[str, Any]:
    """Return seconds of a step, and the peak of this process's memory in bytes."""
    torch.set_num_threads(job.threads)
    device = device_of(job.device)
    batch, seconds = random_batch(job, device), []
    for prepare in {"ours": [ours], "peer": [peer], "nothing": [ours, peer]}[side]:
        torch.manual_seed(0)
        model, loss = prepare(job, batch)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        seconds = [step(loss, optimiser, device) for _ in range(job.warmup + job.steps)][job.warmup :]
    wall, processor = (statistics.median(one) for one in zip(*seconds, strict=True))
    cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"step": wall, "processor": processor, "peak": peak}


def random_batch(job: Job, device: torch.device) -> Batch:
    """Return a batch of videos of as many rows as there are bins."""
    draw = torch.Generator().manual_seed(0)
    video = torch.randn(job.batch, job.bins, ROW, generator=draw).to(device)
    spans = torch.rand(job.batch, 2, generator=draw).sort(dim=1).values.to(device)
    there = torch.ones(job.batch, WORDS, device=device)
    words = torch.randn(job.batch, WORDS, WORD, generator=draw).to(device)
    text, own = Sentences(there.long(), there, there.bool(), words), torch.arange(job.batch, device=device)
    return Batch(own, own, video, text, torch.ones_like(video[..., 0]).bool(), text, spans=spans)


def ours(job: Job, batch: Batch) -> tuple[nn.Module, Callable[[], Tensor]]:
    s, generator = job.settings, torch.Generator()
    text = Encoder(nn.Identity(), WORD, "mean")
    model = tan2d.Model(s, Data(features=Path()), ROW, text).to(batch.video.device)
    return model, lambda: tan2d.losses(model, batch, s, generator)["loss"]


def peer(job: Job, batch: Batch) -> tuple[nn.Module, Callable[[], Tensor]]:
    s, model = job.settings, Dense((ROW, WORD, job.hidden), job.clips, job.kernel, job.layers).to(batch.video.device)
    assert batch.text.features is not None
    assert batch.spans is not None
    known = batch.video, batch.text.features.mean(1), batch.spans, (s.t_min, s.t_max)
    return model, lambda: model.loss(*known)


def step(loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer, device: torch.device) -> tuple[float, float]:
    """Take a step; return its seconds by the clock and on the processor."""
    begun = time.perf_counter(), time.process_time()
    optimiser.zero_grad(set_to_none=True)
    loss().backward()
    optimiser.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def summary(runs: Sequence[dict[str, Any]], job: Job, base: float) -> dict[str, float]:
    """Return a side's medians over rounds; `base`: bytes of a process that does nothing."""
    middle = {name: statistics.median(one[name] for one in runs) for name in ("step", "processor")}
    peak = statistics.median(one["peak"] - base for one in runs)
    return {**middle, "epoch": middle["step"] * QUERIES / job.batch, "peak": peak}


def show(found: dict[str, Any]) -> None:
    """Print a table and the targets."""
    console, job, (pairs, every) = Console(width=120), found["job"], found["pairs"]
    console.print(
        f"2D-TAN, {found['kind']}, {job['threads']} threads, float32: N {job['clips']}, kernel {job['kernel']}, "
        f"{job['layers']} layers, hidden {job['hidden']}, batch {job['batch']} of {job['bins']} rows; "
        f"{job['warmup']} + {job['steps']} steps a round\n"
        f"pairs of cells in a layer: {pairs} of {every}, {every / pairs:.2f} times fewer"
    )
    table = Table(title="a step, medians of rounds", title_justify="left")
    for column in ("", "seconds", "on the processor", "hours an epoch", "peak GB"):
        table.add_column(column, justify="right" if column else "left")
    for side, one in found["sides"].items():
        seconds = f"{one['step']:.2f}", f"{one['processor']:.2f}", f"{one['epoch'] / 3600:.1f}"
        table.add_row(side, *seconds, f"{one['peak'] / 1e9:.2f}")
    console.print(table)
    faster, memory = statistics.median(found["faster"]), statistics.median(found["memory"])
    target = f"target >= {FASTER:g} on a CPU, {'met' if faster >= FASTER else 'NOT met'}"
    console.print(f"times faster, peer / ours: {faster:.2f} ({target}); by round {rounds_of(found['faster'])}")
    console.print(f"times faster on the processor: by round {rounds_of(found['faster, processor'])}")
    target = f"target <= 1, {'met' if memory <= 1 else 'NOT met'}"
    console.print(f"memory, ours / peer: {memory:.2f} ({target}); by round {rounds_of(found['memory'])}")


def rounds_of(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    main()
