"""Retrieval of a run: how its steps are compared, its results, and `train evaluate`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.store import Features
from train import checkpoint, data, loop, methods, weighting
from train.config import Run, read
from train.data import Corpus
from train.encoders import scale_of
from train.evening import NEED_BANK, Evened, How, even
from train.loading import Loaded, corpus_of, device_for, model_of, on_device, words_of
from train.tasks import retrieval


def selection(run: Run, model: nn.Module, val: Loaded) -> float:
    """Return the number by which steps are compared: `train/tasks/retrieval.py` says which."""
    return retrieval.selection(_scores(run, model, val), val.corpus)


def results(run: Run, model: nn.Module, val: Loaded | None, test: Loaded | None) -> dict[str, Any]:
    """Return the results on the test part, and the weights of the levels that the validation part chooses."""
    chosen = weighting.choose(_scores(run, model, val), val.corpus) if val else {}
    found: dict[str, Any] = {"weights": chosen}
    if test is not None:
        found |= retrieval.evaluate(weighting.with_chosen(_scores(run, model, test), chosen), test.corpus)
    return found


@dataclass(frozen=True)
class Evening:
    """How scores are evened out at test time; `train/evening.py` says what each is."""

    how: How = "none"
    bank: int = 16_384
    """Train captions, drawn by chance, and their clips."""
    iterations: int = 4
    beta: float = 20.0
    """QB-Norm's, for cosines."""


NO_EVENING = Evening()


def evaluate(
    path: Path, features: Path | None, part: str, rerank: int = 0, evening: Evening = NO_EVENING
) -> dict[str, Any]:
    """Return the retrieval results of a run or checkpoint on a part of a split, of this or another feature file."""
    folder = path if path.is_dir() else path.parent
    trained = read(folder)
    found = checkpoint.load(checkpoint.best(path))
    run = replace(trained, data=replace(trained.data, features=features or trained.data.features))
    device = device_for(run)
    with Features.open(run.data.features) as opened:
        corpus = corpus_of(run, opened, part or run.parts[2])
        words = words_of(run, corpus, folder)
        model = model_of(run, corpus.dim, words).to(device)
        loop.load_weights(model, found["model"])
        test = on_device(run, corpus, words, device)
        chosen = _chosen(folder)
        scores = weighting.with_chosen(_scores(run, model, test, rerank), chosen)
    evened = None
    if evening.how != "none":
        with Features.open(trained.data.features) as opened:
            bank = corpus_of(run, opened, run.parts[0]) if evening.how in NEED_BANK else None
            drawn = None if bank is None else on_device(run, _drawn(bank, evening.bank, run.fit.seed), words, device)
            evened = _evened(run, model, scores, (test, drawn), evening)
    return {"step": found["step"], "weights": chosen, **retrieval.evaluate(scores, test.corpus, evening.how, evened)}


def _chosen(folder: Path) -> dict[str, float]:
    """Return the levels' weights that a run has chosen on its validation part; none if it has not."""
    path = folder / "results.json"
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")).get("weights", {}) if path.exists() else {}
    return found


def _drawn(corpus: Corpus, size: int, seed: int) -> Corpus:
    order = torch.randperm(len(corpus.texts), generator=torch.Generator().manual_seed(seed))
    return data.subset(corpus, order[:size].sort().values)


def _evened(
    run: Run, model: nn.Module, scores: dict[str, Tensor], what: tuple[Loaded, Loaded | None], evening: Evening
) -> dict[str, Evened]:
    """Return each level's scores evened out, by those of the bank where that is needed."""
    test, bank = what
    texts = videos = None
    if bank is not None:
        texts = _scores(run, model, Loaded(test.corpus, bank.pieces))
        videos = _scores(run, model, Loaded(bank.corpus, test.pieces))
        scores = {name: one for name, one in scores.items() if name in texts}
    scale = getattr(model, "scale", None)
    beta = evening.beta / float(scale_of(scale.detach())) if scale is not None else evening.beta
    return {
        name: even(
            one, evening.how, (texts[name], videos[name]) if texts and videos else None, evening.iterations, beta
        )
        for name, one in scores.items()
    }


def _scores(run: Run, model: nn.Module, loaded: Loaded, rerank: int = 0) -> dict[str, Tensor]:
    found: dict[str, Tensor] = methods.get(run.method).scores(
        model, loaded.corpus, loaded.pieces, run.method_settings, rerank
    )
    return found
