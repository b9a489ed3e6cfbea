"""Retrieval of a run: how its steps are compared, its results, and `train evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import BadSetting
from pipeline.store import Features
from train import checkpoint, data, methods, ranking, weighting
from train.config import Run, check_rerank, read_json
from train.data import Corpus
from train.evening import NEED_BANK, USE_TEST_QUERIES, Evened, How, even
from train.loading import Loaded, Parts, corpus_of, device_for, made_from, on_device, opened


def selection(run: Run, model: nn.Module, val: Loaded) -> float:
    """Return the number by which steps are compared: `train/ranking.py` says which."""
    return ranking.selection(_scores(run, model, val, run.fit.rerank), val.corpus)


def results(run: Run, model: nn.Module, parts: Parts) -> dict[str, Any]:
    """Return the results on the test part, and the weights of the levels that the validation part chooses."""
    rerank = run.fit.rerank
    val, test = parts.val, parts.test
    chosen = weighting.choose(_scores(run, model, val, rerank), val.corpus) if val else {}
    found: dict[str, Any] = {"weights": chosen, "rerank": rerank}
    if test is not None:
        scores = weighting.with_chosen(_scores(run, model, test, rerank), chosen)
        found |= ranking.evaluate(_named(scores, rerank), test.corpus)
    return found


@dataclass(frozen=True)
class Evening:
    """How scores are evened out at test time; `train/evening.py` says what each is."""

    how: How = "none"
    bank: int = 16_384
    """Train captions, drawn by chance, and their clips."""
    iterations: int = 4
    """Sinkhorn's."""
    beta: float = 20.0
    """QB-Norm's, for cosines; other scores are first divided by the largest one of the bank."""


NO_EVENING = Evening()
NO_WEIGHTS: dict[str, float] = {}


def evaluate(
    path: Path,
    features: Path | None,
    part: str,
    rerank: int = 0,
    evening: Evening = NO_EVENING,
    weights: dict[str, float] = NO_WEIGHTS,
) -> dict[str, Any]:
    """Return the retrieval results of a run or checkpoint on a part of a split, of this or another feature file.

    `weights`: of levels, for a level more that is their sum; without them those that the run has chosen.
    """
    if rerank and evening.how != "none":
        raise BadSetting("--rerank leaves out scores that --normalise needs; give one of them")
    with opened(path, features) as found:
        run, model, test = found.run, found.model, found.part(part)
        check_rerank(run, rerank)
        weights = weights or _chosen(checkpoint.folder_of(path))
        scores = weighting.with_chosen(_scores(run, model, test, rerank), weights)
        evened, oracle = None, evening.how in USE_TEST_QUERIES
        if evening.how != "none":
            bank = _bank(found.trained, evening) if evening.how in NEED_BANK else None
            same = found.trained.data.features == run.data.features
            oracle |= bank is not None and same and not set(bank.captions).isdisjoint(test.corpus.captions)
            drawn = None if bank is None else on_device(run, bank, found.words, device_for(run))
            evened = _evened(run, model, scores, (test, drawn), evening)
    return {
        **made_from(run),
        "checkpoint": str(path),
        "step": found.step,
        "weights": weights,
        "rerank": rerank,
        **ranking.evaluate(_named(scores, rerank), test.corpus, evening.how, evened, oracle),
    }


def weights_of(words: str) -> dict[str, float]:
    """Return the weights that `early=1,token=0.1` names. Raises BadSetting."""
    try:
        return {name: float(value) for name, value in (part.split("=") for part in words.split(",") if part)}
    except ValueError:
        raise BadSetting(f"--weights {words}: expected LEVEL=NUMBER, several separated by commas") from None


def _named(scores: dict[str, Tensor], rerank: int) -> dict[str, Tensor]:
    """Return the scores with names that say if only the best were fused."""
    return {
        f"{name}, best {rerank}" if rerank and name not in ("early", "token") else name: one
        for name, one in scores.items()
    }


def _chosen(folder: Path) -> dict[str, float]:
    """Return the levels' weights that a run has chosen on its validation part; none if it has not."""
    path = folder / "results.json"
    found: dict[str, float] = read_json(path).get("weights", {}) if path.exists() else {}
    return found


def _bank(run: Run, evening: Evening) -> Corpus:
    """Return captions that the run was trained on, drawn by chance, and their clips."""
    with Features.open(run.data.features) as opened:
        corpus = corpus_of(run, opened, run.parts[0])
    order = torch.randperm(len(corpus.texts), generator=torch.Generator().manual_seed(run.fit.seed))
    return data.subset(corpus, order[: evening.bank].sort().values)


def _evened(
    run: Run, model: nn.Module, scores: dict[str, Tensor], what: tuple[Loaded, Loaded | None], evening: Evening
) -> dict[str, Evened]:
    """Return each level's scores evened out, by those of the bank where that is needed."""
    test, bank = what
    if bank is None:
        return {name: even(one, evening.how, None, evening.iterations, evening.beta) for name, one in scores.items()}
    texts = _scores(run, model, Loaded(test.corpus, bank.pieces))
    videos = _scores(run, model, Loaded(bank.corpus, test.pieces))
    scales = methods.get(run.method).scales(model, run.method_settings)
    found = {}
    for name in texts:
        both = texts[name], videos[name]
        scale = scales.get(name) or float(max(one.abs().max() for one in both))
        found[name] = even(scores[name], evening.how, both, evening.iterations, evening.beta / max(scale, 1e-9))
    return found


def _scores(run: Run, model: nn.Module, loaded: Loaded, rerank: int = 0) -> dict[str, Tensor]:
    found: dict[str, Tensor] = methods.get(run.method).scores(
        model, loaded.corpus, loaded.pieces, run.method_settings, rerank
    )
    return found


show = ranking.show
