"""What orchestrating costs, with a million videos and no work: `python -m benchmarks.orchestration [--json]`.

A simulated data set of N videos, files of 1,000 bytes, so that only the pipeline's own work is left: planning, chunks,
outcomes, ledger, and the fold of a feature file in which nothing was extracted. The stand-in for a worker writes shards
of a hundred videos with one row each, in the same process; its time is told apart. Every size runs in a process of its
own; growth is the exponent of time and memory from one size to the next.

    dry      what a dry run does: what is left to do, and what it would give; without its trial of networks, 5 to 10 s
    run      the same plan, chunks handed out and taken back, outcomes counted, shards folded into one file
    resume   what is left to do, of the output that `run` has made
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

SIZES = (10_000, 100_000, 1_000_000)
TARGETS = {"ms a video": 1.0, "peak MB": 1000.0, "dry, s": 30.0}
"""At most, for a million videos."""


@dataclass(frozen=True)
class Measured:
    """One size."""

    videos: int
    seconds: dict[str, float]
    """Wall clock by phase."""
    processor: dict[str, float]
    peak_mb: float
    """Resident peak of the process beyond what it had after its imports."""

    @property
    def own(self) -> float:
        """Return the client's processor time in all phases, without that of the stand-in for a worker."""
        return sum(spent for phase, spent in self.processor.items() if phase != "work")

    @property
    def ms_a_video(self) -> float:
        """Return the client's processor time for each video."""
        return 1e3 * self.processor["run"] / self.videos


def _in_child(videos: int) -> Measured:
    words = [sys.executable, "-m", "benchmarks.orchestration_child", str(videos)]
    out = subprocess.run(words, check=True, capture_output=True, text=True)
    return Measured(**json.loads(out.stdout.splitlines()[-1]))


def exponent(one: tuple[float, float], two: tuple[float, float]) -> float:
    """Return p of cost ~ size^p between two (size, cost)."""
    return math.log(two[1] / one[1]) / math.log(two[0] / one[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.orchestration", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = [_in_child(size) for size in chosen.sizes]
    growth = {
        "time": [exponent((a.videos, a.own), (b.videos, b.own)) for a, b in itertools.pairwise(found)],
        "memory": [exponent((a.videos, a.peak_mb), (b.videos, b.peak_mb)) for a, b in itertools.pairwise(found)],
    }
    if chosen.json:
        print(json.dumps({"sizes": [asdict(one) | {"ms_a_video": one.ms_a_video} for one in found], "growth": growth}))
        return
    table = Table(title="orchestration without work", title_justify="left")
    for column in ("videos", *(f"{phase}, s" for phase in found[0].seconds), "ms a video", "peak MB"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            f"{one.videos:,}", *(f"{one.seconds[phase]:.1f}" for phase in found[0].seconds),
            f"{one.ms_a_video:.3f}", f"{one.peak_mb:.0f}",
        )  # fmt: skip
    Console().print(table)
    for name, values in growth.items():
        if values:
            print(f"{name} grows with the exponent {', '.join(f'{value:.2f}' for value in values)}")
    for line in verdicts(found[-1]):
        print(line)


def verdicts(one: Measured) -> list[str]:
    """Return whether the targets are met, of a million videos only."""
    if one.videos < SIZES[-1]:
        return []
    measured = {"ms a video": one.ms_a_video, "peak MB": one.peak_mb, "dry, s": one.seconds["dry"]}
    return [f"{name} <= {most:g}: {'met' if measured[name] <= most else 'NOT met'}" for name, most in TARGETS.items()]


if __name__ == "__main__":
    main()
