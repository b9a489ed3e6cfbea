"""Both grounding heads on the same planted moments: `python -m benchmarks.heads --features FILE --split SPLIT`.

FILE is what `python -m workflows.synthetic` makes of real annotations. Each head trains the same steps of the same
queries with a tiny text encoder, `--rounds` times with another seed; seconds are the processor's, of a whole training
without its evaluation, as medians; recalls are means. Evaluations are timed apart.

    python -m workflows.synthetic charades_sta --root ANNOTATIONS --out charades.h5 --noise 3
    python -m benchmarks.heads --features charades.h5 --split charades_sta
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.store import Features
from train import loop, runs
from train.config import Data, Fit, Run, located, parts_of
from train.settings import Spans, Tan2d
from train.tasks import grounding

COLUMNS = ("R@1 IoU=0.5", "R@1 IoU=0.7", "R@5 IoU=0.5", "mIoU")


def measured(run: Run, folder: Path) -> dict[str, float]:
    """Return the seconds of training and of one evaluation, and the recalls, of a run."""
    seconds: dict[str, float] = {}

    def timed(name: str, inner: Any) -> Any:
        def call(*args: Any) -> Any:
            begun = time.process_time()
            out = inner(*args)
            seconds.setdefault(name, time.process_time() - begun)
            return out

        return call

    fit, judged = loop.fit, grounding._judged
    try:
        loop.fit, grounding._judged = timed("training", fit), timed("evaluation", judged)
        found = runs.start(run, folder)
    finally:
        loop.fit, grounding._judged = fit, judged
    return seconds | {name: found["numbers"][name] for name in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads", description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clips", type=int, default=16, help="2D-TAN's N; spans has as many video tokens as there are")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = {
        "features": chosen.features.name,
        "steps": chosen.steps,
        "heads": compared(chosen.features, chosen.split, (chosen.clips, chosen.steps, chosen.rounds)),
    }
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


def compared(features: Path, split: str, sizes: tuple[int, int, int]) -> dict[str, list[dict[str, float]]]:
    """Return what each head measures in each round; `sizes`: N of 2D-TAN, steps, rounds."""
    clips, steps, rounds = sizes
    heads = {"tan2d": Tan2d(clips=clips, kernel=5, layers=4, hidden=128, nms=0.45), "spans": Spans(dim=128, nms=0.45)}
    data = Data(
        features=features, split=split, text_encoder="tiny", max_video_tokens=64, max_text_tokens=40, long="bins"
    )
    with Features.open(features) as opened:
        parts = parts_of(data, opened.parts_of_splits())
    found: dict[str, list[dict[str, float]]] = {name: [] for name in heads}
    for seed in range(rounds):
        for name, settings in heads.items():
            fit = Fit(steps=steps, batch=32, lr=1e-3, warmup=0, weight_decay=0.0, evaluate_every=0, seed=seed)
            run = located(Run(replace(data), fit, name, settings, (parts[0], "", parts[2]), "grounding"))
            with tempfile.TemporaryDirectory() as place:
                found[name].append(measured(run, Path(place) / "run"))
    return found


def show(found: dict[str, Any]) -> None:
    """Print a table."""
    heads = found["heads"]
    title = f"{found['features']}, {found['steps']} steps of 32, {len(heads['spans'])} rounds"
    table = Table(title=title, title_justify="left")
    for column in ("", "training, s", "evaluation, s", *COLUMNS):
        table.add_column(column, justify="right")
    for name, rounds in heads.items():
        times = [f"{statistics.median(one[kind] for one in rounds):.1f}" for kind in ("training", "evaluation")]
        recalls = [f"{100 * statistics.fmean(one[column] for one in rounds):.1f}" for column in COLUMNS]
        table.add_row(name, *times, *recalls)
    Console().print(table)
    ratio = statistics.median(
        a["training"] / b["training"] for a, b in zip(heads["tan2d"], heads["spans"], strict=True)
    )
    print(f"2D-TAN's training takes {ratio:.2f} times as long as that of spans")


if __name__ == "__main__":
    main()
