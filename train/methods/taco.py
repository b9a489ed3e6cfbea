"""TACo: token-aware cascade contrastive learning (Yang, Bisk and Gao, ICCV 2021).

    min  L1 + lambda_t L2 + L3                                                     (eq. 6)

L1 contrasts the average video token with the caption's [CLS] (eq. 3), L2 each noun and verb with the video token that
is most like it (eq. 4, weighted by idf, eq. 7), L3 fused pairs (eq. 5), of which only the hardest negatives by L1's and
L2's scores are fused: the cascade (3.3). Where the paper is silent, the choices are flags (docs/decisions/0008).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.errors import BadSetting
from train.batches import Batch, all_clips, all_texts
from train.config import Data
from train.data import Corpus, lengths
from train.encoders import Fusion, VideoEncoder, scale_of
from train.losses import (
    among_best,
    at_random,
    cascade_scores,
    fusion_nce,
    hardest,
    mean_tokens,
    nce,
    product,
    token_nce,
    unique_pairs,
    wide,
    word_scores,
)
from train.normalisation import biases
from train.processes import gathered, size
from train.settings import Taco
from train.text import Encoder, Pieces, Sentences


class Model(nn.Module):
    """Video encoder, text encoder, and fusion if there is a loss for it."""

    def __init__(self, settings: Taco, data: Data, in_dim: int, text: Encoder) -> None:
        super().__init__()
        s, dim, most = settings, text.dim, (data.max_text_tokens, data.max_video_tokens)
        if size() > 1 and {"L2", "L3"} & set(s.normalise):
            raise BadSetting("--normalise L2 and L3 need all scores of a batch in one process; use L1, or one process")
        self.data, self.text = data, text
        self.video = VideoEncoder(in_dim, dim, s.video_layers, most[1], s.dropout)
        self.fusion = Fusion(dim, s.fusion_layers, most, s.dropout) if "L3" in s.parts else None
        # The length of un-normalised tokens is the network's own scale.
        self.scale = nn.Parameter(torch.tensor(1 / s.tau).log()) if s.norm == "l2" else None

    def texts(self, sentences: Sentences) -> Tensor:
        """Return (B, d) what stands for each caption."""
        return self.text.whole(self.text(sentences), sentences.mask)


@dataclass(frozen=True)
class _Encoded:
    """Clips or captions after their encoder: tokens, which there are, and one vector for the whole."""

    tokens: Tensor
    mask: Tensor
    whole: Tensor

    def of(self, places: Tensor) -> _Encoded:
        """Return some of them; themselves if it is all of them, in their order."""
        if len(places) == len(self.whole):
            return self
        return _Encoded(self.tokens[places], self.mask[places], self.whole[places])


@dataclass(frozen=True)
class _Words:
    """The words of interest of captions."""

    tokens: Tensor
    """(M, d)"""
    owner: Tensor
    """(M,) place of a word's caption."""
    weights: Tensor
    """(M,)"""

    @classmethod
    def of(cls, weights: Tensor, tokens: Tensor) -> _Words:
        """Return those that have a weight (B, S) among the tokens (B, S, d)."""
        owner, piece = torch.nonzero(weights, as_tuple=True)
        return cls(tokens[owner, piece], owner, weights[owner, piece])


def losses(model: Model, batch: Batch, settings: Taco, generator: torch.Generator) -> dict[str, Tensor]:
    """Return L1, L2, L3 and their weighted sum `loss` (eq. 6) of a batch of K pairs.

    Where several processes train together these are the means over this process's captions and clips, contrasted with
    those of all processes; the losses of the batch are the means over the processes.
    """
    s, own = settings, batch.own
    video, text = _gathered(model, batch)
    my_video, my_text = video.of(own), text.of(own)
    # Rows for this process's captions, columns for its clips: both are the whole matrix where it is alone.
    rows = _scaled(model, s, my_text.whole, video.whole)
    columns = rows if len(own) == len(video.whole) else _scaled(model, s, text.whole, my_video.whole)
    words = _Words.of(batch.texts.weights[own] * ("L2" in s.parts), my_text.tokens)
    found_words = _scaled_words(model, s, words.tokens, video)
    found: dict[str, Tensor] = {}
    if "L1" in s.parts:
        to_video, to_text = _biased(model, s, (rows, columns), (text, video))
        found["L1"] = _both(s, nce(to_video, own).mean(), nce(to_text.T, own).mean())
    if "L2" in s.parts:
        evened = found_words + biases(found_words, s.iterations, s.detach)[1] if "L2" in s.normalise else found_words
        found["L2"] = token_nce(evened, own[words.owner], words.weights, len(own))
    if "L3" in s.parts:
        sentence = "L1" in s.parts  # the cascade picks by what is trained
        early = cascade_scores(rows.detach() * sentence, found_words.detach(), words.owner, words.weights, s.aggregate)
        across = early
        if columns is not rows:
            across = _early_columns(model, s, batch, (text, my_video), columns * sentence)
        picks = _picks((early, across), own, s, generator if _by_chance(s, *batch.step) else None)
        found["L3"] = _fused(model, s, text, video, picks, own)
    total = sum(part * (s.token_weight if name == "L2" else 1.0) for name, part in found.items())
    return {"loss": torch.as_tensor(total), **found}


def _gathered(model: Model, batch: Batch) -> tuple[_Encoded, _Encoded]:
    """Return all clips and captions of the batch, each encoded by one process."""
    video, tokens = _videos(model, batch.video, batch.video_mask[batch.own]), model.text(batch.text)
    return (
        _Encoded(gathered(video.tokens), batch.video_mask, gathered(video.whole)),
        _Encoded(gathered(tokens), batch.texts.mask, gathered(model.text.whole(tokens, batch.text.mask))),
    )


def _videos(model: Model, x: Tensor, mask: Tensor) -> _Encoded:
    tokens = model.video(x, mask)
    return _Encoded(tokens, mask, mean_tokens(tokens, mask))


def _both(s: Taco, to_video: Tensor, to_text: Tensor) -> Tensor:
    return (to_video + to_text) / 2 if s.directions == "both" else to_video


def _scaled(model: Model, s: Taco, text: Tensor, video: Tensor) -> Tensor:
    """Return the sentence scores (texts, videos) of eq. 3, over tau."""
    if model.scale is None:
        return product(text, video.T) / s.tau
    cosines = product(nn.functional.normalize(wide(text), dim=1), nn.functional.normalize(wide(video), dim=1).T)
    return cosines * scale_of(model.scale)


def _scaled_words(model: Model, s: Taco, words: Tensor, video: _Encoded) -> Tensor:
    """Return the word scores (words, videos) of eq. 4, over tau."""
    if model.scale is None:
        return word_scores(words, video.tokens, video.mask) / s.tau
    normal = nn.functional.normalize(wide(words), dim=1), nn.functional.normalize(wide(video.tokens), dim=2)
    return word_scores(*normal, video.mask) * scale_of(model.scale)


def _biased(
    model: Model, s: Taco, scores: tuple[Tensor, Tensor], both: tuple[_Encoded, _Encoded]
) -> tuple[Tensor, Tensor]:
    """Return the sentence scores of both directions, with NCL's biases if these are asked for."""
    if "L1" not in s.normalise:
        return scores
    rows, columns = scores
    text, video = both
    a, b = biases(rows if columns is rows else _scaled(model, s, text.whole, video.whole), s.iterations, s.detach)
    return rows + b, columns + a[:, None]


@torch.no_grad()
def _early_columns(model: Model, s: Taco, batch: Batch, both: tuple[_Encoded, _Encoded], columns: Tensor) -> Tensor:
    """Return the cascade's scores (all captions, this process's clips)."""
    text, video = both
    words = _Words.of(batch.texts.weights * ("L2" in s.parts), text.tokens)
    found = _scaled_words(model, s, words.tokens, video)
    return cascade_scores(columns, found, words.owner, words.weights, s.aggregate)


def _by_chance(s: Taco, step: int, steps: int) -> bool:
    """Return whether negatives are drawn at a step.

    L3 by itself has no scores to pick hard ones by: those of a model that nobody trains would pick the same few always.
    """
    return s.cascade == "random" or (s.cascade == "hard" and (s.parts == ("L3",) or step < s.start * steps))


def _picks(early: tuple[Tensor, Tensor], own: Tensor, s: Taco, drawn: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return the videos that each text, and the texts that each video is fused with; its own one first.

    `drawn`: by it, not by the scores.
    """
    texts, videos = early[0], early[1].T
    k = texts.shape[1] if s.cascade == "all" else s.negatives
    if drawn is not None:
        return at_random(texts, own, k, drawn), at_random(videos, own, k, drawn)
    return hardest(texts, own, k), hardest(videos, own, k)


def _fused(model: Model, s: Taco, text: _Encoded, video: _Encoded, picks: tuple[Tensor, Tensor], own: Tensor) -> Tensor:
    """Return L3 over the different pairs among the picks."""
    texts = picks[1] if s.directions == "both" else picks[1][:, :1]
    pairs, to_video, to_text = unique_pairs(picks[0], texts, own, len(video.whole))
    logits = _logits(model, text, video, pairs, s.fusion_chunk)
    if "L3" not in s.normalise:
        return _both(s, fusion_nce(logits, to_video), fusion_nce(logits, to_text))
    known = logits.new_full((len(text.whole), len(video.whole)), -torch.inf).index_put(tuple(pairs.T), wide(logits))
    a, b = biases(known, s.iterations, s.detach)
    of_text, of_video = pairs.T
    return _both(s, fusion_nce(logits + b[of_video], to_video), fusion_nce(logits + a[of_text], to_text))


def _logits(model: Model, text: _Encoded, video: _Encoded, pairs: Tensor, chunk: int) -> Tensor:
    """Return w . z^cls of (text, video) pairs, a chunk at a time."""
    assert model.fusion is not None
    return model.fusion.in_chunks((text.tokens, text.mask), (video.tokens, video.mask), pairs, chunk)


def alike(model: Model, tokens: Tensor, texts: Tensor, settings: Taco) -> Tensor:
    """Return (tokens, texts) how like a video's single tokens (T, d) are to texts: eq. 3 for a video of one token."""
    return _scaled(model, settings, tokens, texts)


def scales(model: Model, settings: Taco) -> dict[str, float]:  # noqa: ARG001
    """Return what cosines are multiplied by in the levels of score that are cosines."""
    return {} if model.scale is None else dict.fromkeys(("early", "token"), float(scale_of(model.scale.detach())))


@torch.inference_mode()
def scores(
    model: Model, corpus: Corpus, pieces: Pieces, settings: Taco, rerank: int = 0, batch: int = 256
) -> dict[str, Tensor]:
    """Return score matrices (captions, clips) by level: `early`, `token`, `later`, and `fused`, their weighted sum.

    Levels that were not trained are left out.

    `rerank`: only the best M clips of each caption, and captions of each clip, by the first two are fused; the others
    come behind them in the order of the first two, and the levels are called so. 0 fuses all pairs.
    """
    model.eval()
    s = settings
    videos = _all_videos(model, corpus, batch)
    rows = [_score_rows(model, s, sentences, videos) for _, sentences in all_texts(pieces, batch)]
    levels = {"L1": ("early", 1.0), "L2": ("token", s.token_weight)}
    trained = {name: weight for part, (name, weight) in levels.items() if part in s.parts}
    found = {name: torch.cat([row[name] for row in rows]) for name in trained}
    fused = sum((weight * found[name] for name, weight in trained.items()), torch.zeros(()))
    if "L3" in s.parts:
        before = fused if trained else torch.cat([row["early"] for row in rows])  # of L3 alone, where all are fused
        found["later"] = _later(model, pieces, videos, before, rerank)
        fused = fused + found["later"]
    return {**found, "fused": fused}


def _all_videos(model: Model, corpus: Corpus, batch: int) -> _Encoded:
    """Encode all clips; those of like length together."""
    size = min(int(lengths(corpus).max()), model.data.max_video_tokens)
    dim = model.text.dim
    tokens = torch.zeros(len(corpus.clips), size, dim, device=corpus.device)
    mask = torch.zeros(len(corpus.clips), size, dtype=torch.bool, device=corpus.device)
    for some, x, there in all_clips(corpus, model.data, batch):
        found = _videos(model, x, there)
        length = found.mask.shape[1]
        tokens[some, :length], mask[some, :length] = found.tokens.float(), found.mask
    return _Encoded(tokens, mask, mean_tokens(tokens, mask))


def _score_rows(model: Model, s: Taco, sentences: Sentences, videos: _Encoded) -> dict[str, Tensor]:
    tokens = model.text(sentences)
    words = _Words.of(sentences.weights, tokens)
    found = _scaled_words(model, s, words.tokens, videos)
    nothing = torch.zeros(len(tokens), len(videos.whole), device=found.device)
    token = cascade_scores(nothing, found, words.owner, words.weights, s.aggregate)
    whole = model.text.whole(tokens, sentences.mask)
    return {"early": _scaled(model, s, whole, videos.whole), "token": token}


def _later(model: Model, pieces: Pieces, videos: _Encoded, before: Tensor, rerank: int, chunk: int = 2048) -> Tensor:
    """Return the fusion's scores of all pairs; or of each caption's and each clip's best `rerank`, others far below."""
    chosen = torch.ones_like(before, dtype=torch.bool)
    if rerank:
        chosen = among_best(before, rerank) | among_best(before.T, rerank).T
    out = before.new_full(before.shape, -torch.inf, dtype=torch.float32)
    for some, sentences in all_texts(pieces, 64):
        tokens = model.text(sentences)
        text = _Encoded(tokens, sentences.mask, tokens[:, 0])
        pairs = chosen[some].nonzero()
        out[some[pairs[:, 0]], pairs[:, 1]] = _logits(model, text, videos, pairs, chunk).float()
    # Behind all that were fused, in the order of the scores before; a pair that is no number stays so, and is told of.
    lowest, (least, most) = out[chosen].min(), before.aminmax()
    return torch.where(chosen, out, lowest - 1 - (most - before) / (most - least).clamp(min=1e-9))
