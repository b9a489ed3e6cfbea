"""A run, from settings to results: `start`, `resume`, `evaluate`. A run is a folder: settings, checkpoints, metrics."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import BadFeatureFile, BadSetting, MissingWeights
from pipeline.store import Features
from train import checkpoint, curves, data, loop, methods, processes, text, weighting
from train.config import Run, device_of, read
from train.data import Corpus
from train.encoders import scale_of
from train.evening import NEED_BANK, Evened, How, even
from train.scratch import MADE
from train.settings import WEIGH_WORDS
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
    processes.share(run.fit.batch)
    if (folder / "settings.json").exists() and not force:
        raise BadSetting(f"--out {folder} holds a run already; `train resume {folder}`, another folder, or --force")
    with Features.open(run.data.features) as features:
        begun = _begun(run.fit.start_from)
        train, words = _first(run, features)
        weighed = features.weighed_over()
        if run.method in WEIGH_WORDS and weighed not in ("", run.parts[0]):
            log.warning("words were weighed over %s: run `pipeline run idf --split %s`", weighed, run.parts[0])
        if processes.rank() == 0:
            _make(folder)
            for name in FILES:  # only now: what was wrong with the input has been said
                (folder / name).unlink(missing_ok=True)
            (folder / "settings.json").write_text(run.as_json(), encoding="utf-8")
            if run.data.text_encoder in MADE:
                (folder / "tokenizer.json").write_text(words.tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
        processes.wait()
        return _train(run, folder, features, (train, words), begun)


def resume(folder: Path) -> dict[str, Any]:
    """Go on from the last checkpoint of a run, to its end; from its beginning, if there is none yet."""
    run = read(folder)
    with Features.open(run.data.features) as features:
        begun = (folder / "last.pt").exists()
        found = checkpoint.load(folder / "last.pt") if begun else _begun(run.fit.start_from)
        return _train(run, folder, features, _first(run, features, folder), found)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFeatureFile(f"cannot make --out {folder}: {error.strerror}; choose another folder") from error


def _begun(start_from: Path | None) -> dict[str, Any]:
    """Return the weights to begin with, as `learnt`; nothing for new ones."""
    return {"learnt": checkpoint.load(checkpoint.best(start_from))["model"]} if start_from else {}


def _first(run: Run, features: Features, folder: Path | None = None) -> tuple[Corpus, Text]:
    """Return the part to train on, and the text encoder, whose words may be those of that part."""
    corpus = _load(run, features, run.parts[0])
    start = run.fit.start_from
    return corpus, _text(run, corpus, folder or (start if start is None or start.is_dir() else start.parent))


def _text(run: Run, corpus: Corpus, folder: Path | None) -> Text:
    """Return the text encoder; one made from scratch with the words that the run in `folder` was trained on."""
    made = ""
    if folder and run.data.text_encoder in MADE:
        try:
            made = (folder / "tokenizer.json").read_text(encoding="utf-8")
        except OSError:
            raise MissingWeights(
                f"{folder} has no tokenizer.json: it is no run of --text-encoder {run.data.text_encoder}"
            ) from None
    return text.load(run.data.text_encoder, corpus, run.fit.seed, made, run.data.text_pool, run.data.glove)


def _load(run: Run, features: Features, part: str) -> Corpus:
    """Return a part of a split, with the weights of words where the method uses them."""
    most = {"yes": math.inf, "no": 0.0, "auto": _room(_device(run))}[run.data.resident]
    return data.load(features, part, run.data.streams, run.method in WEIGH_WORDS, most)


def _device(run: Run) -> torch.device:
    return processes.own(device_of(run.fit.device))


def _room(device: torch.device) -> float:
    """Return half of the memory that a device has free."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2


def _train(
    run: Run, folder: Path, features: Features, first: tuple[Corpus, Text], found: dict[str, Any]
) -> dict[str, Any]:
    corpus, words = first
    device = _device(run)
    # On CPUs sums of gradients would depend on which thread comes first; on GPUs it costs too much.
    torch.use_deterministic_algorithms(device.type == "cpu", warn_only=True)
    torch.manual_seed(run.fit.seed)
    model = _model(run, corpus.dim, words).to(device)
    corpus, held = data.hold_out(corpus, run.fit.seed, 0 if run.parts[1] else run.data.hold_out)
    train = _on(run, corpus, words, device)
    held = _load(run, features, run.parts[1]) if run.parts[1] else held
    val = None if held is None else _on(run, held, words, device)
    if "learnt" in found:
        loop.load_weights(model, found["learnt"])
    state = loop.begin(run, model)
    if "step" in found:
        state.restore(found)
    _tell(run, train, state)
    evaluate = None if val is None else lambda net: retrieval.selection(_scores(run, net, val), val.corpus)
    loop.fit(run, state, train.corpus, train.pieces, folder, evaluate)
    if (folder / "best.pt").exists():
        loop.load_weights(state.evaluated, checkpoint.load(folder / "best.pt", device)["model"])
    test = _on(run, _load(run, features, run.parts[2]), words, device) if run.parts[2] else None
    return _finish(run, folder, state, val, test)


def _finish(run: Run, folder: Path, state: loop.State, val: Loaded | None, test: Loaded | None) -> dict[str, Any]:
    """Evaluate, and write results and curves."""
    model = state.evaluated
    chosen = weighting.choose(_scores(run, model, val), val.corpus) if val else {}
    results: dict[str, Any] = {"step": state.best_step or state.step, "weights": chosen}
    if test is not None:
        results |= retrieval.evaluate(weighting.with_chosen(_scores(run, model, test), chosen), test.corpus)
    if processes.rank() == 0:
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
    found = checkpoint.load(checkpoint.best(path))
    run = replace(run, data=replace(run.data, features=features or run.data.features))
    device = _device(run)
    with Features.open(run.data.features) as opened:
        corpus = _load(run, opened, part or run.parts[2])
        words = _text(run, corpus, folder)
        model = _model(run, corpus.dim, words).to(device)
        loop.load_weights(model, found["model"])
        test = _on(run, corpus, words, device)
        chosen = _chosen(folder)
        scores = weighting.with_chosen(_scores(run, model, test, rerank), chosen)
        evened = None
        if evening.how != "none":
            bank = _load(run, opened, run.parts[0]) if evening.how in NEED_BANK else None
            drawn = None if bank is None else _on(run, _drawn(bank, evening.bank, run.fit.seed), words, device)
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
    run: Run, model: nn.Module, scores: dict[str, torch.Tensor], what: tuple[Loaded, Loaded | None], evening: Evening
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
    if processes.rank():
        return
    values = [rows.values for rows in corpus.streams if rows.values is not None]
    held = f"{sum(v.numel() * v.element_size() for v in values) / 1e6:.1f} MB of rows on {corpus.device}"
    log.info(
        "%s on %s: %d clips, %d captions, %s; %s; %.1f M parameters; step %d of %d",
        run.method, corpus.part, len(corpus.clips), len(corpus.captions),
        " + ".join(f"{rows.name} ({rows.dim})" for rows in corpus.streams),
        held if values else "rows stay in the file",
        sum(p.numel() for p in state.model.parameters() if p.requires_grad) / 1e6, state.step, run.fit.steps,
    )  # fmt: skip
    if corpus.lacking:
        log.warning(
            "%d clips of %s with %d captions have no rows in a stream and are left out, e.g. %s",
            len(corpus.lacking), corpus.part, corpus.lacking_captions, corpus.lacking[0],
        )  # fmt: skip
