"""A run, from settings to results: `start`, `resume`, `evaluate`. A run is a folder: settings, checkpoints, metrics."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import BadFeatureFile, BadSetting, MissingWeights
from pipeline.store import Features
from train import checkpoint, curves, data, loop, methods, text
from train.config import WEIGH_WORDS, Data, Run, device_of, read
from train.data import Corpus
from train.encoders import scale_of
from train.evening import NEED_BANK, Evened, How, even
from train.tasks import retrieval
from train.text import Pieces, Text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """A part of a split, on the device, as a model wants it."""

    corpus: Corpus
    pieces: Pieces


FILES = ("last.pt", "best.pt", "metrics.jsonl", "results.json", "curves.svg", "tokenizer.json", "settings.json")
"""What a run leaves in its folder."""


def start(run: Run, folder: Path, force: bool = False) -> dict[str, Any]:
    """Train from the beginning, evaluate, and return the results. `force`: in the place of a run that is there."""
    if (folder / "settings.json").exists() and not force:
        raise BadSetting(f"--out {folder} holds a run already; `train resume {folder}`, another folder, or --force")
    with Features.open(run.data.features) as features:
        train, words = _first(run, features)
        weighed = features.weighed_over()
        if run.method in WEIGH_WORDS and weighed not in ("", run.parts[0]):
            log.warning("words were weighed over %s: run `pipeline run idf --split %s`", weighed, run.parts[0])
        _make(folder)
        for name in FILES:  # only now: what was wrong with the input has been said
            (folder / name).unlink(missing_ok=True)
        (folder / "settings.json").write_text(run.as_json(), encoding="utf-8")
        if run.data.text_encoder == text.TINY:
            (folder / "tokenizer.json").write_text(words.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
        return _train(run, folder, features, (train, words), {})


def resume(folder: Path) -> dict[str, Any]:
    """Go on from the last checkpoint of a run, to its end; from its beginning, if there is none yet."""
    run = read(folder)
    with Features.open(run.data.features) as features:
        found = checkpoint.load(folder / "last.pt") if (folder / "last.pt").exists() else {}
        return _train(run, folder, features, _first(run, features, folder), found)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFeatureFile(f"cannot make --out {folder}: {error.strerror}; choose another folder") from error


def _first(run: Run, features: Features, folder: Path | None = None) -> tuple[Corpus, Text]:
    """Return the part to train on, and the text encoder, whose words may be those of that part."""
    corpus = _load(run, features, run.parts[0])
    made = (folder / "tokenizer.json").read_text(encoding="utf-8") if folder and _is_tiny(run.data) else ""
    return corpus, text.load(run.data.text_encoder, corpus, run.fit.seed, made)


def _load(run: Run, features: Features, part: str) -> Corpus:
    """Return a part of a split, with the weights of words where the method uses them."""
    return data.load(features, part, run.data.streams, words=run.method in WEIGH_WORDS)


def _is_tiny(settings: Data) -> bool:
    return settings.text_encoder == text.TINY


def _train(
    run: Run, folder: Path, features: Features, first: tuple[Corpus, Text], found: dict[str, Any]
) -> dict[str, Any]:
    corpus, words = first
    device = device_of(run.fit.device)
    # On CPUs sums of gradients would depend on which thread comes first; on GPUs it costs too much.
    torch.use_deterministic_algorithms(device.type == "cpu", warn_only=True)
    torch.manual_seed(run.fit.seed)
    model = _model(run, corpus.dim, words).to(device)
    train = _on(run, corpus, words, device)
    val = _on(run, _load(run, features, run.parts[1]), words, device) if run.parts[1] else None
    state = loop.begin(run, model)
    if found:
        state.restore(found)
    _tell(run, train, state)
    evaluate = None if val is None else lambda net: retrieval.selection(_scores(run, net, val), val.corpus)
    loop.fit(run, state, train.corpus, train.pieces, folder, evaluate)
    if (folder / "best.pt").exists():
        state.load_weights(checkpoint.load(folder / "best.pt")["model"])
    results: dict[str, Any] = {"step": state.best_step or state.step}
    if run.parts[2]:
        test = _on(run, _load(run, features, run.parts[2]), words, device)
        results |= retrieval.evaluate(_scores(run, state.model, test), test.corpus)
    curves.draw(folder)
    (folder / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    return results


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
    run = read(folder)
    weights = path if path.is_file() else next((p for n in ("best.pt", "last.pt") if (p := folder / n).exists()), None)
    if weights is None:
        raise MissingWeights(f"{path}: no checkpoint yet; `train resume {folder}` goes on until there is one")
    run = replace(run, data=replace(run.data, features=features or run.data.features))
    device = device_of(run.fit.device)
    with Features.open(run.data.features) as opened:
        corpus = _load(run, opened, part or run.parts[2])
        bank = _load(run, opened, run.parts[0]) if evening.how in NEED_BANK else None
    made = (folder / "tokenizer.json").read_text(encoding="utf-8") if _is_tiny(run.data) else ""
    words = text.load(run.data.text_encoder, corpus, run.fit.seed, made)
    found = checkpoint.load(weights)
    model = _model(run, corpus.dim, words).to(device)
    state = loop.begin(run, model)
    state.load_weights(found["model"])
    test = _on(run, corpus, words, device)
    scores = _scores(run, model, test, rerank)
    evened = None
    if evening.how != "none":
        drawn = None if bank is None else _on(run, _drawn(bank, evening.bank, run.fit.seed), words, device)
        evened = _evened(run, model, scores, (test, drawn), evening)
    return {"step": found["step"], **retrieval.evaluate(scores, test.corpus, evening.how, evened)}


def _drawn(corpus: Corpus, size: int, seed: int) -> Corpus:
    order = torch.randperm(len(corpus.texts), generator=torch.Generator().manual_seed(seed))
    return data.subset(corpus, order[:size].sort().values)


def _evened(
    run: Run, model: nn.Module, scores: dict[str, torch.Tensor], what: tuple[Loaded, Loaded | None], evening: Evening
) -> dict[str, Evened]:
    """Return each level's scores evened out, by those of the bank where that is needed."""
    test, bank = what
    texts = videos = None
    if bank is not None:
        texts = _scores(run, model, Loaded(test.corpus, bank.pieces))
        videos = _scores(run, model, Loaded(bank.corpus, test.pieces))
    scale = getattr(model, "scale", None)
    beta = evening.beta / float(scale_of(scale.detach())) if scale is not None else evening.beta
    return {
        name: even(
            one, evening.how, (texts[name], videos[name]) if texts and videos else None, evening.iterations, beta
        )
        for name, one in scores.items()
    }


def _model(run: Run, in_dim: int, words: Text) -> nn.Module:
    model: nn.Module = methods.get(run.method).Model(run.method_settings, run.data, in_dim, words.encoder)
    if run.data.freeze_text:
        words.encoder.requires_grad_(False)
    return model


def _on(run: Run, corpus: Corpus, words: Text, device: torch.device) -> Loaded:
    """Return a part on the device; with a frozen encoder its token features are computed here, once."""
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, run.data.max_text_tokens, run.data.idf_norm)
    found = found.to(device)
    if run.data.freeze_text:
        found = replace(found, features=text.freeze(words.encoder.to(device), found))
    return Loaded(corpus.to(device), found)


def _scores(run: Run, model: nn.Module, loaded: Loaded, rerank: int = 0) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = methods.get(run.method).scores(
        model, loaded.corpus, loaded.pieces, run.method_settings, rerank
    )
    return found


def _tell(run: Run, train: Loaded, state: loop.State) -> None:
    corpus = train.corpus
    held = sum(rows.values.numel() * rows.values.element_size() for rows in corpus.streams)
    log.info(
        "%s on %s: %d clips, %d captions, %s; %.1f MB of rows on %s; %.1f M parameters; step %d of %d",
        run.method, corpus.part, len(corpus.clips), len(corpus.captions),
        " + ".join(f"{rows.name} ({rows.values.shape[1]})" for rows in corpus.streams), held / 1e6, corpus.device,
        sum(p.numel() for p in state.model.parameters() if p.requires_grad) / 1e6, state.step, run.fit.steps,
    )  # fmt: skip
    if corpus.lacking:
        log.warning(
            "%d clips of %s with %d captions have no rows in a stream and are left out, e.g. %s",
            len(corpus.lacking), corpus.part, corpus.lacking_captions, corpus.lacking[0],
        )  # fmt: skip
