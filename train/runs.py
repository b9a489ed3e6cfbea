"""A run, from settings to results: `start` and `resume`. A run is a folder: settings, checkpoints, metrics."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.store import Features
from train import checkpoint, curves, data, loop, processes, seen, tasks
from train.config import Run, read
from train.data import Corpus
from train.loading import Loaded, Parts, corpus_of, device_for, made_from, model_of, on_device, words_of
from train.scratch import MADE
from train.settings import WEIGH_WORDS
from train.text import Text

log = logging.getLogger(__name__)


FILES = ("last.pt", "best.pt", "metrics.jsonl", "results.json", "curves.svg", "tokenizer.json", "settings.json")
"""What a run leaves in its folder."""


def start(run: Run, folder: Path, force: bool = False) -> dict[str, Any]:
    """Train from the beginning, evaluate, and return the results. `force`: in the place of a run that is there."""
    processes.share(run.fit.batch)
    if (folder / "settings.json").exists() and not force:
        raise BadSetting(f"--out {folder} holds a run already; `train resume {folder}`, another folder, or --force")
    with Features.open(run.data.features) as features:
        begun = _begun(run.fit.start_from)
        streams = tuple(dict.fromkeys(run.data.streams)) or tuple(features.streams)
        run = replace(run, data=replace(run.data, streams=streams))
        train, words = _first(run, features)
        run = replace(run, seen=seen.seen(features, streams, run.parts))
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
        if run.fit.warmup >= run.fit.steps:
            log.warning("--warmup %d: the rate never reaches --lr in %d steps", run.fit.warmup, run.fit.steps)
        return _train(run, folder, features, (train, words), begun)


def resume(folder: Path) -> dict[str, Any]:
    """Go on from the last checkpoint of a run, to its end; from its beginning, if there is none yet."""
    run = read(folder)
    with Features.open(run.data.features) as features:
        seen.check_same(run.seen, features, run.data.streams, run.parts)
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
    corpus = corpus_of(run, features, run.parts[0])
    start = run.fit.start_from
    return corpus, words_of(run, corpus.texts, folder or (start if start is None or start.is_dir() else start.parent))


def _train(
    run: Run, folder: Path, features: Features, first: tuple[Corpus, Text], found: dict[str, Any]
) -> dict[str, Any]:
    corpus, words = first
    device = device_for(run)
    # On CPUs sums of gradients would depend on which thread comes first; on GPUs it costs too much.
    torch.use_deterministic_algorithms(device.type == "cpu", warn_only=True)
    torch.manual_seed(run.fit.seed)
    model = model_of(run, corpus.dim, words).to(device)
    corpus, held = data.hold_out(corpus, run.fit.seed, 0 if run.parts[1] else run.data.hold_out)
    train = on_device(run, corpus, words, device)
    held = corpus_of(run, features, run.parts[1]) if run.parts[1] else held
    val = None if held is None else on_device(run, held, words, device)
    if "learnt" in found:
        loop.load_weights(model, found["learnt"])
    state = loop.begin(run, model)
    if "step" in found:
        state.restore(found)
    _tell(run, train, state)

    def value(net: nn.Module) -> float:
        assert val is not None
        return float(tasks.get(run.task).selection(run, net, val))

    loop.fit(run, state, train.corpus, train.pieces, folder, value if val else None)
    if (folder / "best.pt").exists():
        loop.load_weights(state.evaluated, checkpoint.load(folder / "best.pt", device)["model"])
    test = on_device(run, corpus_of(run, features, run.parts[2]), words, device) if run.parts[2] else val
    judged = tasks.get(run.task).results(run, state.evaluated, Parts(train, val, test, words))
    results = {**made_from(run), "step": state.best_step or state.step, **judged}
    if processes.rank() == 0:
        curves.draw(folder)
        (folder / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    return results


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
