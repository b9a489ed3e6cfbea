"""What is measured of a model in a planted world: recall, grounding, and what linear probes read off its features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from train import methods
from train.config import Run
from train.data import Corpus, video_tokens
from train.metrics import ranks, recall
from train.probing import Clips, Labelled, distance, equidistant, linear, order
from train.text import Pieces
from workflows.planted import truth


@dataclass(frozen=True)
class Trained:
    """A model with both parts of its world."""

    model: Any
    run: Run
    train: tuple[Corpus, Pieces]
    test: tuple[Corpus, Pieces]

    def scores(self, corpus: Corpus, pieces: Pieces, parts: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Return the levels of score that were trained, or those of `parts`, trained or not."""
        settings = self.run.method_settings
        chosen = replace(settings, parts=parts) if parts else settings
        found: dict[str, Tensor] = methods.get(self.run.method).scores(self.model, corpus, pieces, chosen)
        return found


def first(scores: Tensor, corpus: Corpus, k: int = 1) -> float:
    """Return R@k, text to video, in per cent."""
    return 100 * recall(ranks(scores, corpus.clip), k)


@torch.inference_mode()
def own_words(trained: Trained) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield, for each caption of the test: scores (words, rows) in its own clip, events of the words, of the rows."""
    corpus, pieces = trained.test
    found = truth(trained.run.data.features)
    rows, words = corpus.streams[0].count, pieces.offsets.diff() - 2  # but [CLS] and [SEP]: every word is one piece
    row_event = torch.from_numpy(found["row_event"][-int(rows.sum()) :]).split(rows.tolist())  # the test comes last
    word_event = torch.from_numpy(found["word_event"][-int(words.sum()) :]).split(words.tolist())
    for caption in range(len(corpus.texts)):
        clip = corpus.clip[caption]
        x = trained.model.video(*video_tokens(corpus, clip[None], trained.run.data.max_video_tokens))[0]
        y = trained.model.text(pieces.batch(torch.tensor([caption])))[0, 1:-1]
        if trained.run.method == "locvtp":
            x, y = functional.normalize(x, dim=1), functional.normalize(y, dim=1)
        yield y @ x.T, word_event[caption], row_event[int(clip)]


def grounding(trained: Trained) -> float:
    """Return the per cent of nouns and verbs whose best row, of their own clip, shows their event."""
    hits = [(shown[s.argmax(1)] == said)[said >= 0] for s, said, shown in own_words(trained)]
    return 100 * float(torch.cat(hits).double().mean())


def row_to_word(trained: Trained) -> float:
    """Return the per cent of rows whose best noun or verb, of their own caption, is one of their event."""
    hits = [said[said >= 0][s[said >= 0].argmax(0)] == shown for s, said, shown in own_words(trained)]
    return 100 * float(torch.cat(hits).double().mean())


@torch.inference_mode()
def rows_of(corpus: Corpus, encode: Any = None) -> Tensor:
    """Return (videos, 8, d) features of the clips' rows, raw or encoded."""
    x, mask = video_tokens(corpus, torch.arange(len(corpus.clips)), 8)
    return x if encode is None else encode(x, mask)


def probes(train: Tensor, test: Tensor) -> dict[str, float]:
    """Return per cent right of linear probes on frozen features (LocVTP, 4.8), trained on other videos.

    order: which of 5 equidistant rows (chance 20); distance: how far two of these are apart (40, the commonest); half:
    first or second half of all 8 rows (50).
    """
    both = {"train": train, "test": test}
    clips = [Clips(x[:, equidistant(8, 5)], [f"{side} {at}" for at in range(len(x))]) for side, x in both.items()]
    halves = [
        Labelled(
            x.flatten(0, 1), [at // 4 for at in range(8)] * len(x), [f"{side} {at // 8}" for at in range(8 * len(x))]
        )
        for side, x in both.items()
    ]
    found = {"order": order(*clips), "distance": distance(*clips), "half": linear(*halves)}
    return {name: 100 * one.accuracy for name, one in found.items()}
