"""What extraction costs beside its floors, by extractor: `python -m benchmarks.extract_each [--videos DIR …]`.

For the default preset of each extractor, on one thread, with random weights:

1. wall time of the work of a task (`pipeline.extraction.extract`: videos in, a shard out), its network made and warm,
   against the sum of its floors: ffmpeg running the same filter graph to null, one file after the other, and the bare
   network, on inputs that are ready, for the rows of the shard, at their frame sizes. ffmpeg is a process of its own,
   so that with two processors the wall time can be less than the sum. What it is of the larger floor is told too;
2. rows by our own path from frames in memory (`extractors.embed.Batcher`) against the bare network, same shapes.

Each extractor has a process of its own; sides take turns, `--runs` times; ratios are medians over runs. Batches are
filled with black where rows are over: that is in the wall time and in no floor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import extractors
from benchmarks.children import child
from benchmarks.extract import FLOORS, FOLDERS, NAMES
from extractors.spec import ExtractorError
from pipeline.errors import BadVideo
from pipeline.probe import probe

MODELS = {"timm": "timm:tf_efficientnet_lite0"}
"""What is taken of extractors that have no default preset."""
BARE = 1.10
"""Target: Batcher / bare network at most; required of `NAMES` only. That of the wall time is `FLOORS`."""
OF_FLOORS, OF_LARGER, OF_BARE = "wall / floors", "wall / larger floor", "Batcher / bare"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared/data/videos"
    parser.add_argument("--videos", type=Path, nargs="+", default=[shared / name for name in FOLDERS], help="sets")
    parser.add_argument("--extractors", nargs="+", default=extractors.names(), help="NAME or NAME:PRESET")
    parser.add_argument("--seconds", type=float, default=30, help="of video: whole files until there are so many")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    try:
        presets = [preset_of(name) for name in chosen.extractors]
        videos = taken(chosen.videos, chosen.seconds)
    except (ExtractorError, BadVideo, OSError) as error:
        parser.error(str(error))
    os.environ["OMP_NUM_THREADS"] = "1"  # the children's
    found = {
        "videos": len(videos),
        "seconds": sum(videos.values()),
        "runs": chosen.runs,
        "load before": os.getloadavg()[0],
        "extractors": {preset: each(preset, list(videos), chosen.runs) for preset in presets},
        "load after": os.getloadavg()[0],
    }
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


def preset_of(name: str) -> str:
    """Return the full name of what is measured for `name`. Raises ExtractorError where there is no such thing.

    >>> preset_of("resnet152"), preset_of("colors:i3d_x101")
    ('resnet152:howto100m', 'colors:i3d_x101')
    """
    full = MODELS.get(name, name)
    with suppress(ImportError):  # the child will tell
        return extractors.preset(full).name
    return full


def taken(folders: Sequence[Path], seconds: float) -> dict[Path, float]:
    """Return files, in order, until they last `seconds` together, with the seconds that each says it lasts."""
    found: dict[Path, float] = {}
    for file in (file for folder in folders for file in sorted(folder.resolve().iterdir())):
        if sum(found.values()) >= seconds:
            break
        try:
            found[file] = probe(file).duration or 0.0
        except BadVideo as error:
            raise BadVideo(f"{file}: {error}") from None
    if not found:
        raise BadVideo(f"no video in {', '.join(map(str, folders))} for {seconds:g} s")
    return found


def each(preset: str, files: Sequence[Path], runs: int) -> dict[str, Any]:
    """Return what is measured of one preset, or why there is nothing."""
    found = child("benchmarks.extract_child", json.dumps([preset, [str(file) for file in files], runs]))
    return summary(found) if "rounds" in found else found


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Return medians over rounds, and which targets are met."""
    rounds: list[dict[str, float]] = found.pop("rounds")
    floors = [(one["decode floor"], one["network floor"]) for one in rounds]
    ratios = {
        OF_FLOORS: [one["wall"] / sum(both) for one, both in zip(rounds, floors, strict=True)],
        OF_LARGER: [one["wall"] / max(both) for one, both in zip(rounds, floors, strict=True)],
        OF_BARE: [one["Batcher"] / one["network floor"] for one in rounds],
    }
    middle = {name: statistics.median(values) for name, values in ratios.items()}
    required = {OF_FLOORS: FLOORS} | ({OF_BARE: BARE} if found["preset"].partition(":")[0] in NAMES else {})
    return {
        **found,
        **{name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
        **middle,
        "by run": ratios,
        "met": {f"{name}, <= {most}": middle[name] <= most for name, most in required.items()},
    }


def show(found: dict[str, Any]) -> None:
    """Print a table."""
    console = Console(width=170)
    console.print(
        f"{found['videos']} videos, {found['seconds']:.0f} s; 1 worker, 1 thread, {found['runs']} runs; load of the "
        f"machine {found['load before']:.1f} before, {found['load after']:.1f} after",
        highlight=False,
    )
    table = Table(title="medians of runs; seconds by the clock", title_justify="left")
    floors = ("decode floor", "network floor", "wall")
    for column in ("", "rows + black", *floors, OF_LARGER, f"{OF_FLOORS}, <= {FLOORS}", f"{OF_BARE}, <= {BARE}"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, one in found["extractors"].items():
        if "rows" in one:
            numbers = [f"{one[number]:.2f}" for number in (*floors, OF_LARGER)]
            rows = f"{one['rows']} + {one['rows of padding']}"
            table.add_row(name, rows, *numbers, *(judged(one, ratio) for ratio in (OF_FLOORS, OF_BARE)))
    console.print(table)
    for name, one in found["extractors"].items():
        for what in ("left out", "failed"):
            if what in one:
                console.print(f"{name}: {what}: {one[what]}", highlight=False, markup=False)


def judged(one: dict[str, Any], ratio: str) -> str:
    """Return a ratio, by run in brackets, and whether it is met where it is required."""
    verdict = "".join(" met" if met else " NOT met" for words, met in one["met"].items() if words.startswith(ratio))
    return f"{one[ratio]:.2f} ({' '.join(f'{value:.2f}' for value in one['by run'][ratio])}){verdict}"


if __name__ == "__main__":
    main()
