"""Every benchmark in small settings: `make bench`, or `python -m benchmarks.run [--only store,train] [--out FILE]`.

Each runs as it does alone, `python -m benchmarks.NAME --json …`; its tables are printed when it is done, and all that
was measured goes into one JSON file. Small settings show that a benchmark works and about where it stands; what it is
known for is measured with its own defaults. One whose data are not here is left out, and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import printing

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared/data"


@dataclass(frozen=True)
class Small:
    """A benchmark in small settings; in its words, {place} is a folder for files and {data} that of the shared data."""

    words: str
    data: tuple[str, ...] = ()
    """What it needs of the shared data."""
    before: str = ""
    """A module that makes its files, and its words."""
    shown_by: str = ""
    """Module with its `show`, if that is not its own."""


SMALL: dict[str, Small] = {
    "extract": Small(
        "--videos {data}/videos/hmdb51 {data}/videos/ucf101 --networks resnet152 --runs 1",
        data=("videos/hmdb51", "videos/ucf101"),
    ),
    "extract_each": Small(
        "--videos {data}/videos/hmdb51 --extractors timm --seconds 5 --runs 1", data=("videos/hmdb51",)
    ),
    "orchestration": Small("--sizes 1000 10000"),
    "store": Small("--videos 2000 --dim 512 --batches 8 --rounds 2"),
    "captions": Small("--only merge --videos 2000 --runs 1"),
    "train": Small("--rounds 1 --threads 1 --batch 8 --hidden 64 --layers 2 --negatives 2 --steps 4 --warmup 1"),
    "ground": Small("--rounds 1 --clips 16 --kernel 5 --hidden 64 --bins 64 --batch 2 --steps 2"),
    "heads": Small(
        "--features {place}/charades.h5 --split charades_sta --steps 20 --rounds 1",
        data=("charades_sta",),
        before="workflows.synthetic charades_sta --root {data}/charades_sta --out {place}/charades.h5 "
        "--videos 60 --dim 64 --noise 3",
    ),
    "planted": Small("--worlds D --seeds 1", shown_by="planted_bench"),
}
"""By the module's name, in the order in which they run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SMALL), help=f"some of them: {', '.join(SMALL)}")
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"))
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    if odd := [name for name in names if name not in SMALL]:
        parser.error(f"--only {chosen.only}: {', '.join(odd)} is none of {', '.join(SMALL)}")
    console, found = Console(), dict[str, Any]()
    for name in names:
        console.rule(name)
        found[name] = measured(name, SMALL[name])
        printed(name, found[name])
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=2))
    console.rule(f"all of it is in {chosen.out}")
    if failed := [name for name in names if "failed" in found[name]]:
        sys.exit(f"failed: {', '.join(failed)}")


def measured(name: str, small: Small) -> dict[str, Any]:
    """Return what a benchmark finds, or why there is nothing; and how long it took, on how busy a machine."""
    if lacking := [data for data in small.data if not (SHARED / data).exists()]:
        return {"left out": f"the shared data lack {', '.join(lacking)}"}
    begun, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        for words in filter(None, (small.before, f"benchmarks.{name} --json {small.words}")):
            done = python([word.format(place=place, data=SHARED) for word in words.split()])
            if done.returncode:
                return {"failed": done.stderr.strip()}
    about = {"seconds": time.monotonic() - begun, "load before": load, "words": small.words}
    return {**about, "found": json.loads(done.stdout)}


def python(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=ROOT)


def printed(name: str, found: dict[str, Any]) -> None:
    """Print a benchmark's own tables, or its figures where it has no `show`."""
    if "found" not in found:
        printing.show(found)
        return
    module = import_module(f"benchmarks.{SMALL[name].shown_by or name}")
    show: Callable[[dict[str, Any]], None] = getattr(module, "show", printing.show)
    show(found["found"])
    print(f"{found['seconds']:.0f} s; load of the machine before: {found['load before']:.1f}")


if __name__ == "__main__":
    main()
