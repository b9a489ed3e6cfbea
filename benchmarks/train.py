"""What a training step of TACo costs beside a peer's: `python -m benchmarks.train [--full] [--json]`.

1. Seconds and peak memory of a step with all three losses, against `train_peer.py` (all pairs of a batch fused, padded,
   loader processes) and against the same peer when it fuses only the pairs of a cascade.
2. The share of a step of `train.loop.fit` outside the model: batches, index arithmetic, sampling, logging.
3. A batch put together on the device against a plain copy of as many bytes.

Each side runs in a process of its own, in turn, `--rounds` times; ratios are medians over rounds. Memory: on a GPU the
most that was allocated; on a CPU the resident peak beyond that of a process with the libraries alone (the peer's loader
processes are not counted). On a CPU sizes are smaller. Weights are random, files in the page cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import children

SIZES = {
    "cuda": {"batch": 128, "hidden": 768, "layers": 12, "negatives": 8, "workers": 16, "steps": 30, "warmup": 5},
    "cpu": {"batch": 32, "hidden": 256, "layers": 4, "negatives": 4, "workers": 1, "steps": 10, "warmup": 1},
}
"""BERT-base and TACo's batch on a GPU; loader processes as in UniVL's commands there, and as its default on a CPU."""
SIDES = ("ours", "peer", "peer, cascade")
STEP, OUTSIDE = 0.25, 0.03
"""Targets: a step's seconds, ours / peer; share of a step outside the model."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process is to measure, and where the files are."""

    place: Path
    device: str
    threads: int
    full: bool
    batch: int = 0
    hidden: int = 0
    layers: int = 0
    negatives: int = 0
    workers: int = 0
    steps: int = 0
    warmup: int = 0
    autocast: bool = False
    videos: int = 0
    video_tokens: int = 48
    text_tokens: int = 30

    @property
    def features(self) -> Path:
        """Return our feature file."""
        return self.place / "features.h5"

    @property
    def encoder(self) -> Path:
        """Return the text encoder's folder."""
        return self.place / "encoder"

    @property
    def arrays(self) -> Path:
        """Return the folder with one .npy a video."""
        return self.place / "arrays"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="every clip has 48 tokens, every caption 30")
    for name in ("batch", "hidden", "layers", "negatives", "workers", "steps", "warmup"):
        defaults = ", ".join(f"{sizes[name]} on {kind}" for kind, sizes in SIZES.items())
        parser.add_argument(f"--{name}", type=int, help=defaults)
    parser.add_argument("--autocast", action=argparse.BooleanOptionalAction, help="bfloat16; default on a GPU only")
    parser.add_argument("--json", action="store_true")
    chosen = vars(parser.parse_args())
    rounds, as_json = chosen.pop("rounds"), chosen.pop("json")
    given = {name: value for name, value in chosen.items() if value is not None}
    with tempfile.TemporaryDirectory() as place:
        found = measure(Job(place=Path(place), **given), given, rounds)
    print(json.dumps(found, indent=2)) if as_json else show(found)


def measure(job: Job, given: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return everything that is measured."""
    nothing = child("nothing", job)
    job = replace(job, **{**SIZES[nothing["kind"]], "autocast": nothing["kind"] == "cuda", **given})
    job = replace(job, videos=16 * job.batch)
    fewer = replace(job, steps=max(3, job.steps // 3))  # the peer's are long
    lengths = child("files", job)
    runs = [{side: child(side, job if side == "ours" else fewer) for side in SIDES} for _ in range(rounds)]
    loading = child("loading", job)
    base = nothing["peak"] if nothing["kind"] == "cpu" else 0
    sides = {side: summary([one[side] for one in runs], [one["ours"] for one in runs], base) for side in SIDES}
    return {
        "job": {name: value for name, value in asdict(job).items() if name != "place"},
        "kind": nothing["kind"],
        "lengths": {name: value for name, value in lengths.items() if name != "peak"},
        "sides": sides,
        "loading": {name: value for name, value in loading.items() if name != "peak"},
        "met": {
            f"a step, ours / peer, < {STEP}": sides["peer"].get("step ratio", 1) < STEP,
            f"outside the model, < {OUTSIDE}": sides["ours"].get("outside", 1) < OUTSIDE,
        },
    }


def child(side: str, job: Job) -> dict[str, Any]:
    """Return what a side measures in a process of its own; this one stays small, as a child inherits its peak."""
    return children.child("benchmarks.train_child", side, json.dumps({**asdict(job), "place": str(job.place)}))


def summary(runs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]], base: float) -> dict[str, Any]:
    """Return a side's medians over rounds; `base`: bytes of a process that does nothing."""
    failed = [one["failed"] for one in (*runs, *ours) if "failed" in one]
    if failed:
        return {"failed": failed[0]}
    both = list(zip(ours, runs, strict=True))
    ratios = [mine["step"] / one["step"] for mine, one in both]
    memory = [(mine["peak"] - base) / (one["peak"] - base) for mine, one in both]
    middle = {name: statistics.median(one[name] for one in runs) for name in ("step", "outside", "pairs")}
    peak = statistics.median(one["peak"] - base for one in runs)
    steps = {"step ratio": statistics.median(ratios), "step ratios": ratios}
    return {**middle, "peak": peak, **steps, "memory ratio": statistics.median(memory)}


def show(found: dict[str, Any]) -> None:
    """Print tables."""
    console, job, lengths = Console(width=150), found["job"], found["lengths"]
    most, kind = job["video_tokens"] + job["text_tokens"], "bfloat16" if job["autocast"] else "float32"
    rows, words = lengths["video tokens, mean"], lengths["words, mean"]
    drawn = "every clip and caption as long as can be" if job["full"] else "clips 10-30 s at 1 row a second, 9±4 words"
    console.print(
        f"TACo, {found['kind']}, {job['threads']} threads, {kind}: batch {job['batch']}, K' {job['negatives']}, "
        f"text encoder of {job['layers']} layers and {job['hidden']} numbers, {job['workers']} loader processes\n"
        f"{drawn}: {rows:.1f} video tokens, {words:.1f} words of one piece, that is {(rows + words + 2) / most:.0%} "
        f"of {job['video_tokens']} + {job['text_tokens']}; rows float16, 2048 + 1024"
    )
    console.print(steps_table(found["sides"]))
    if "failed" not in found["sides"]["ours"]:
        console.print(shares_table(found["sides"]["ours"], found["loading"]))


def steps_table(sides: dict[str, dict[str, Any]]) -> Table:
    """Return seconds and memory of a step, side by side."""
    table = Table(title="a step: ratios are ours / that side, medians of rounds", title_justify="left")
    for column in ("", "seconds", "ratio", "by round", "target", "outside model", "peak GB", "ratio", "pairs fused"):
        table.add_column(column, justify="right" if column else "left")
    for side, one in sides.items():
        if "failed" in one:
            table.add_row(side, one["failed"])
            continue
        rounds = " ".join(f"{ratio:.3f}" for ratio in one["step ratios"])
        target = verdict(one["step ratio"], STEP, "< {:.2f}") if side == "peer" else ""
        words = (f"{one['step']:.3f}", f"{one['step ratio']:.3f}", rounds, target, f"{one['outside']:.1%}")
        table.add_row(side, *words, f"{one['peak'] / 1e9:.2f}", f"{one['memory ratio']:.2f}", f"{one['pairs']:.0f}")
    return table


def shares_table(ours: dict[str, Any], loading: dict[str, Any]) -> Table:
    """Return what our step spends outside the model, and what loading costs."""
    table = Table(title="outside the model, and loading a batch", title_justify="left")
    for column in ("", "value", "ours / it", "target"):
        table.add_column(column, justify="left" if column in ("", "target") else "right")
    table.add_row("loop.fit outside the model", f"{ours['outside']:.2%}", "", verdict(ours["outside"], OUTSIDE))
    table.add_row("a batch's video, float32", f"{loading['megabytes']:.1f} MB")
    table.add_row("ours: its captions drawn", f"{1000 * loading['order']:.2f} ms")
    table.add_row("ours: put together", f"{1000 * loading['make']:.2f} ms")
    others = {
        "convert": "copy float16 to float32",
        "convert, new": "the same, to new memory",
        "memcpy": "copy float32",
        "peer": "peer's samples, in one process",
    }
    for name, words in others.items():
        table.add_row(words, f"{1000 * loading[name]:.2f} ms", f"{loading['make'] / loading[name]:.2f}")
    return table


def verdict(value: float, target: float, words: str = "< {:.0%}") -> str:
    """Return the target and whether it is met."""
    return f"{words.format(target)} {'met' if value < target else 'NOT met'}"


if __name__ == "__main__":
    main()
