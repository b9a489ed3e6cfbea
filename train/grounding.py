"""Grounding of a run: how its steps are compared, its results, and `train evaluate` for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from train import batches, methods
from train.config import Run
from train.loading import Loaded, Parts, made_from, opened
from train.moments import Grounding, best_constant, nms, recalls

NS, MS = (1, 5), (0.1, 0.3, 0.5, 0.7)
"""R@n IoU=m for these; the papers report some of them for each data set."""
SELECT = (1, 0.5)


def selection(run: Run, model: nn.Module, val: Loaded) -> float:
    """Return the number by which steps are compared: R@1 IoU=0.5."""
    return _judged(run, model, val).recalls[SELECT]


def results(run: Run, model: nn.Module, parts: Parts) -> dict[str, Any]:
    """Return the results on the test part, beside the best constant span of the training queries."""
    if parts.test is None:
        return {}
    found = {"model": _judged(run, model, parts.test), "constant": _constant(parts.train, parts.test)}
    return _told(parts.test, found)


def evaluate(path: Path, features: Path | None, part: str) -> dict[str, Any]:
    """Return the results of a run or checkpoint on a part of a split, of this or another feature file."""
    with opened(path, features, part) as found:
        judged = {"model": _judged(found.run, found.model, found.test)}
        told = _told(found.test, judged)
    return {**made_from(found.run), "checkpoint": str(path), "step": found.step, **told}


def _judged(run: Run, model: nn.Module, loaded: Loaded) -> Grounding:
    """Return how good the model's moments are, after non-maximum suppression; queries without features are misses."""
    corpus = loaded.corpus
    assert corpus.asked is not None
    kept = []
    for batch in _batches(run, loaded):
        spans, scores = methods.get(run.method).predict(model, batch, run.method_settings)
        kept.append(nms(spans, scores, run.method_settings.nms, max(NS))[0])
    return recalls(torch.cat(kept), corpus.asked.spans.to(kept[0]), NS, MS, corpus.lacking_captions)


def _batches(run: Run, loaded: Loaded, size: int = 64) -> Any:
    for some in torch.arange(len(loaded.corpus.captions)).split(size):
        yield batches.make(loaded.corpus, loaded.pieces, some, run.data, share=slice(None))


def _constant(train: Loaded, test: Loaded) -> Grounding:
    assert train.corpus.asked is not None
    assert test.corpus.asked is not None
    truth: Tensor = test.corpus.asked.spans.cpu()
    span = best_constant(train.corpus.asked.spans[:, 0].cpu()).to(truth)
    return recalls(span.expand(len(truth), max(NS), 2), truth, NS, MS, test.corpus.lacking_captions)


def _told(test: Loaded, found: dict[str, Grounding]) -> dict[str, Any]:
    corpus = test.corpus
    assert corpus.asked is not None
    counts = {"declared": corpus.declared, "dropped": corpus.asked.dropped, "clamped": corpus.asked.clamped}
    scores = {name: one.as_dict() for name, one in found.items()}
    return {"dataset": corpus.dataset, "part": corpus.part, "videos": len(corpus.clips), **counts, "moments": scores}


def show(found: dict[str, Any]) -> None:
    """Print the results as a table, recalls in per cent, and what was left out of the queries."""
    console = Console()
    table = Table(title=f"{found['dataset']}, {found['part']}, step {found['step']}: moments", title_justify="left")
    for column in ("", "among", *(f"IoU > {m:g}" for m in MS), "mIoU"):
        table.add_column(column, justify="right" if column not in ("", "among") else "left")
    for name, one in found["moments"].items():
        for n in NS if name == "model" else NS[:1]:
            cells = [f"{100 * one[f'R@{n} IoU={m:g}']:.1f}" for m in MS]
            table.add_row(name, f"first {n}", *cells, f"{100 * one['mIoU']:.1f}" if n == 1 else "")
    table.caption = "recall in per cent; constant: the span that most training queries agree with"
    table.caption_justify = "left"
    console.print(table)
    one = next(iter(found["moments"].values()))
    declared = f" of {found['declared']:,} that are declared" if found["declared"] else ""
    console.print(
        f"{one['queries']:,} queries{declared} to {found['videos']:,} videos; {one['missing']:,} without features are "
        f"misses; {found['dropped']:,} dropped (no span inside the video), {found['clamped']:,} ends clamped to it",
        highlight=False,
    )
