"""From a run's settings to what a model sees: parts of splits on the device, text encoder, model."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import MissingWeights
from pipeline.store import Features
from train import checkpoint, data, loop, methods, processes, text
from train.config import Run, device_of, parts_of, read
from train.data import Corpus
from train.scratch import MADE
from train.seen import check_streams
from train.settings import WEIGH_WORDS
from train.text import Pieces, Text

MEMORY = Path("/proc/meminfo")
"""What Linux counts as available: free memory, and what its cache of files would give back."""


@dataclass(frozen=True)
class Loaded:
    """A part of a split, on the device, as a model wants it."""

    corpus: Corpus
    pieces: Pieces


@dataclass(frozen=True)
class Parts:
    """The parts of a split that a run is about."""

    train: Loaded
    val: Loaded | None
    test: Loaded | None
    words: Text


def corpus_of(run: Run, features: Features, part: str) -> Corpus:
    """Return a part of a split, with the weights of words where the method uses them."""
    most = {"yes": math.inf, "no": 0.0, "auto": room(device_for(run))}[run.data.resident]
    return data.load(features, part, run.data.streams, run.method in WEIGH_WORDS, most, run.task == "grounding")


def device_for(run: Run) -> torch.device:
    """Return the device that this process trains a run on."""
    return processes.own(device_of(run.fit.device))


def room(device: torch.device) -> float:
    """Return half of the memory that a device has free."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2
    found = re.search(r"MemAvailable:\s+(\d+) kB", MEMORY.read_text()) if MEMORY.exists() else None
    free = int(found[1]) * 1024 if found else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free / 2


def words_of(run: Run, texts: Sequence[str], folder: Path | None) -> Text:
    """Return the text encoder; one made from scratch has the words of the run in `folder`, without one of `texts`."""
    made = ""
    if folder and run.data.text_encoder in MADE:
        try:
            made = (folder / "tokenizer.json").read_text(encoding="utf-8")
        except OSError:
            raise MissingWeights(
                f"{folder} has no tokenizer.json: it is no run of --text-encoder {run.data.text_encoder}"
            ) from None
    return _text(run, texts, made)


def _text(run: Run, texts: Sequence[str], made: str) -> Text:
    """Return the text encoder; `made`: the tokenizer of one made from scratch."""
    return text.load(run.data.text_encoder, texts, run.fit.seed, made, run.data.text_pool, run.data.glove)


def model_of(run: Run, in_dim: int, words: Text) -> nn.Module:
    """Return the method's model, new; `in_dim`: numbers of a video token."""
    model: nn.Module = methods.get(run.method).Model(run.method_settings, run.data, in_dim, words.encoder)
    if run.data.freeze_text:
        words.encoder.requires_grad_(False)
    return model


def untrained(run: Run, corpus: Corpus, words: Text) -> nn.Module:
    """Return the model as a run on this training part begins, with a text encoder that has the words of `words`."""
    torch.manual_seed(run.fit.seed)
    own = words.tokenizer.backend_tokenizer.to_str() if run.data.text_encoder in MADE else ""
    made = model_of(run, corpus.dim, _text(run, corpus.texts, own)).to(corpus.device)
    if run.fit.start_from:
        loop.load_weights(made, checkpoint.load(checkpoint.best(run.fit.start_from), corpus.device)["model"])
    return made.eval()


def on_device(run: Run, corpus: Corpus, words: Text, device: torch.device) -> Loaded:
    """Return a part on the device; with a frozen encoder its token features are computed here, once."""
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, run.data.max_text_tokens, run.data.idf_norm)
    found = found.to(device)
    if run.data.freeze_text:
        found = replace(found, features=text.freeze(words.encoder.to(device), found))
    return Loaded(corpus.to(device), found)


def made_from(run: Run) -> dict[str, Any]:
    """Return what results say of where they come from."""
    return {"task": run.task, "method": run.method, "features": str(run.data.features), "seen": run.seen}


def part_to_test(run: Run, opened: Features) -> str:
    """Return the part to evaluate on where none is named: the run's, else that of the only split there is."""
    there = opened.parts_of_splits()
    if run.parts[2] in (*there, "all"):
        return run.parts[2]
    anew = replace(run.data, split="", val="", test="")
    return parts_of(anew, there, opened.weighed_over().split("/")[0])[2]


@dataclass(frozen=True)
class Trained:
    """A checkpoint, and the feature file that it is evaluated on."""

    trained: Run
    """The run as it was trained."""
    run: Run
    """The same on the feature file that it is evaluated on."""
    step: int
    words: Text
    model: nn.Module
    features: Features

    def part(self, name: str = "") -> Loaded:
        """Return a part of a split, by default the one that is evaluated, as the model wants it."""
        corpus = corpus_of(self.run, self.features, name or part_to_test(self.run, self.features))
        return on_device(self.run, corpus, self.words, device_for(self.run))


@contextmanager
def opened(path: Path, features: Path | None) -> Iterator[Trained]:
    """Load a run's best checkpoint, or the one in a file, and open its own or another feature file."""
    folder = checkpoint.folder_of(path)
    trained, found = read(folder), checkpoint.load(checkpoint.best(path))
    run = replace(trained, data=replace(trained.data, features=features or trained.data.features))
    device = device_for(run)
    with Features.open(run.data.features) as there:
        check_streams(trained.seen, there, run.data.streams)
        words = words_of(run, (), folder)
        model = model_of(run, sum(there.stream(name).dim for name in run.data.streams), words).to(device)
        loop.load_weights(model, found["model"])
        yield Trained(trained, run, found["step"], words, model.eval(), there)
