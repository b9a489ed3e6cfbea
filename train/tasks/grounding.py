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
from train.loading import Loaded, Parts, made_from, opened, untrained
from train.moments import Grounding, best_constant, nms, recalls
from train.pictures import Album, Query, timeline

NS, MS = (1, 5), (0.1, 0.3, 0.5, 0.7)
"""R@n IoU=m for these; the papers report some of them for each data set."""
SELECT = (1, 0.5)


def selection(run: Run, model: nn.Module, val: Loaded) -> float:
    """Return the number by which steps are compared: R@1 IoU=0.5."""
    return _judged(run, model, val).recalls[SELECT]


def results(run: Run, model: nn.Module, parts: Parts) -> dict[str, Any]:
    """Return the results on the test part, beside the same network untrained and the best constant span."""
    if parts.test is None:
        return {}
    found = {
        "model": _judged(run, model, parts.test),
        "untrained": _judged(run, untrained(run, parts.train.corpus, parts.words), parts.test),
        "constant": _constant(parts.train, parts.test),
    }
    return {**_told(parts.test, found), "trained_on": _counts(parts.train)}


def evaluate(path: Path, features: Path | None, part: str, album: Album | None = None) -> dict[str, Any]:
    """Return the results of a run or checkpoint on a part of a split, of this or another feature file.

    `album`: for timelines of some queries.
    """
    with opened(path, features) as found:
        test = found.part(part)
        told = _told(test, {"model": _judged(found.run, found.model, test)})
        if album:
            _draw(album.file("moments"), found.run, found.model, test)
    return {**made_from(found.run), "checkpoint": str(path), "step": found.step, **told}


def _draw(path: Path, run: Run, model: nn.Module, loaded: Loaded, count: int = 8, best: int = 3) -> None:
    """Draw the best moments of some queries, equally far apart in the part, beside the truth."""
    corpus = loaded.corpus
    assert corpus.asked is not None
    some = torch.linspace(0, len(corpus.captions) - 1, min(count, len(corpus.captions))).long()
    batch = batches.make(corpus, loaded.pieces, some, run.data, share=slice(None))
    spans, scores = methods.get(run.method).predict(model, batch, run.method_settings)
    spans, scores = (one.cpu() for one in nms(spans, scores, run.method_settings.nms, best))
    queries = []
    for at, caption in enumerate(some.tolist()):
        seconds = float(corpus.asked.seconds[corpus.clip[caption]])
        found = [
            (a * seconds, b * seconds, s)
            for (a, b), s in zip(spans[at].tolist(), scores[at].sigmoid().tolist(), strict=True)
        ]
        truth = {(a * seconds, b * seconds) for a, b in corpus.asked.spans[caption].tolist()}
        queries.append(Query(corpus.texts[caption], seconds, sorted(truth), found))
    timeline(path, queries, f"{corpus.dataset}, {corpus.part}")


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


def _counts(loaded: Loaded) -> dict[str, Any]:
    corpus = loaded.corpus
    assert corpus.asked is not None
    missing = corpus.lacking_captions
    return {
        "part": corpus.part,
        "queries": len(corpus.captions) + missing,
        "missing": missing,
        "videos": len(corpus.clips),
        "declared": corpus.declared,
        "papers": corpus.papers,
        "dropped": corpus.asked.dropped,
        "clamped": corpus.asked.clamped,
    }


def _told(test: Loaded, found: dict[str, Grounding]) -> dict[str, Any]:
    scores = {name: one.as_dict() for name, one in found.items()}
    numbers = {name: value for name, value in scores["model"].items() if isinstance(value, float)}
    return {"dataset": test.corpus.dataset, **_counts(test), "moments": scores, "numbers": numbers}


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
    for one in (found.get("trained_on"), found):
        if one:
            console.print(_said(one, trained=one is not found), highlight=False)


def _said(one: dict[str, Any], trained: bool) -> str:
    """Return what became of a part's queries, and why they are not as many as its authors say."""
    declared = one["declared"]
    other = (declared or 0) - one["queries"] - one["dropped"]
    words = f" of {declared:,} that its authors count" if declared else ""
    if declared and other:
        words += f" ({abs(other):,} {'fewer' if other > 0 else 'more'} in the annotations than that)"
    if one["papers"]:
        words += " (papers: {:,}; {})".format(*one["papers"])
    return (
        f"{one['part']}: {one['queries']:,} queries{words} to {one['videos']:,} videos; {one['missing']:,} without "
        f"features are {'left out' if trained else 'misses'}; {one['dropped']:,} dropped (no span inside the video), "
        f"{one['clamped']:,} ends clamped to it"
    )
