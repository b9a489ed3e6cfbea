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
from torch.utils.checkpoint import checkpoint

from train.batches import Batch, all_clips, all_texts
from train.config import Data, Taco
from train.data import Corpus, lengths
from train.encoders import Fusion, VideoEncoder, pooled, scale_of
from train.losses import (
    at_random,
    cascade_scores,
    fusion_nce,
    hardest,
    mean_tokens,
    nce,
    token_nce,
    unique_pairs,
    wide,
    word_scores,
)
from train.text import Encoder, Pieces, Sentences


class Model(nn.Module):
    """Video encoder, text encoder, fusion."""

    def __init__(self, settings: Taco, data: Data, in_dim: int, text: Encoder) -> None:
        super().__init__()
        s, dim, most = settings, text.dim, data.max_video_tokens
        self.data, self.text = data, text
        self.video = VideoEncoder(in_dim, dim, s.video_layers, most, s.dropout)
        self.fusion = Fusion(dim, s.fusion_layers, data.max_text_tokens + most, s.dropout)
        # The length of un-normalised tokens is the network's own scale.
        self.scale = nn.Parameter(torch.tensor(1 / s.tau).log()) if s.norm == "l2" else None


@dataclass(frozen=True)
class _Encoded:
    """Clips or captions after their encoder: tokens, which there are, and one vector for the whole."""

    tokens: Tensor
    mask: Tensor
    whole: Tensor


def losses(model: Model, batch: Batch, settings: Taco, generator: torch.Generator) -> dict[str, Tensor]:
    """Return L1, L2, L3 and their weighted sum `loss` (eq. 6) of a batch of K pairs."""
    s = settings
    video, text = _videos(model, batch.video, batch.video_mask), _texts(model, batch)
    own = torch.arange(len(text.whole), device=text.whole.device)
    sentence = _scaled(model, s, text.whole, video.whole)
    owner, piece = torch.nonzero(batch.text.weights * text.mask, as_tuple=True)
    weights = batch.text.weights[owner, piece]
    words = _scaled_words(model, s, text.tokens[owner, piece], video)
    found: dict[str, Tensor] = {}
    if "L1" in s.parts:
        found["L1"] = _both(s, nce(sentence, own).mean(), nce(sentence.T, own).mean())
    if "L2" in s.parts:
        found["L2"] = token_nce(words, owner, weights, len(own))
    if "L3" in s.parts:
        early = cascade_scores(sentence.detach(), words.detach(), owner, weights, s.aggregate)
        found["L3"] = _fused(model, s, text, video, _picks(early, own, s, generator))
    total = sum(part * (s.token_weight if name == "L2" else 1.0) for name, part in found.items())
    return {"loss": torch.as_tensor(total), **found}


def _videos(model: Model, x: Tensor, mask: Tensor) -> _Encoded:
    tokens = model.video(x, mask)
    return _Encoded(tokens, mask, mean_tokens(tokens, mask))


def _texts(model: Model, batch: Batch) -> _Encoded:
    tokens = model.text(batch.text)
    return _Encoded(tokens, batch.text.mask, pooled(tokens, batch.text.mask, model.data.text_pool))


def _both(s: Taco, to_video: Tensor, to_text: Tensor) -> Tensor:
    return (to_video + to_text) / 2 if s.directions == "both" else to_video


def _scaled(model: Model, s: Taco, text: Tensor, video: Tensor) -> Tensor:
    """Return the sentence scores (texts, videos) of eq. 3, over tau."""
    if model.scale is None:
        return wide(text) @ wide(video).T / s.tau
    cosines = nn.functional.normalize(wide(text), dim=1) @ nn.functional.normalize(wide(video), dim=1).T
    return cosines * scale_of(model.scale)


def _scaled_words(model: Model, s: Taco, words: Tensor, video: _Encoded) -> Tensor:
    """Return the word scores (words, videos) of eq. 4, over tau."""
    if model.scale is None:
        return word_scores(words, video.tokens, video.mask) / s.tau
    normal = nn.functional.normalize(words, dim=1), nn.functional.normalize(video.tokens, dim=2)
    return word_scores(*normal, video.mask) * scale_of(model.scale)


def _picks(early: Tensor, own: Tensor, s: Taco, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the videos that each text, and the texts that each video is fused with; its own one first."""
    if s.cascade == "random":
        return at_random(early, own, s.negatives, generator), at_random(early.T, own, s.negatives, generator)
    k = len(own) if s.cascade == "all" else s.negatives
    return hardest(early, own, k), hardest(early.T, own, k)


def _fused(model: Model, s: Taco, text: _Encoded, video: _Encoded, picks: tuple[Tensor, Tensor]) -> Tensor:
    """Return L3 over the different pairs among the picks."""
    both = s.directions == "both"
    texts = picks[1] if both else picks[1][:, :1]
    pairs, to_video, to_text = unique_pairs(picks[0], texts, picks[1][:, 0], len(video.whole))
    logits = _logits(model, text, video, pairs, s.fusion_chunk)
    return _both(s, fusion_nce(logits, to_video), fusion_nce(logits, to_text))


def _logits(model: Model, text: _Encoded, video: _Encoded, pairs: Tensor, chunk: int) -> Tensor:
    """Return w . z^cls of (text, video) pairs, a chunk at a time."""

    def fuse(some: Tensor) -> Tensor:
        t, v = some.unbind(1)
        out: Tensor = model.fusion(text.tokens[t], text.mask[t], video.tokens[v], video.mask[v])
        return out

    if not chunk or len(pairs) <= chunk:
        return fuse(pairs)
    again = torch.is_grad_enabled()
    parts = [checkpoint(fuse, some, use_reentrant=False) if again else fuse(some) for some in pairs.split(chunk)]
    return torch.cat(parts)


@torch.inference_mode()
def scores(
    model: Model, corpus: Corpus, pieces: Pieces, settings: Taco, rerank: int = 0, batch: int = 256
) -> dict[str, Tensor]:
    """Return score matrices (captions, clips) by level: `early`, `token`, `later`, and `fused`, their weighted sum.

    Levels that were not trained are left out.

    `rerank`: only the best M clips of each caption by the first two are fused; the others' later score is the lowest
    there is. 0 fuses all pairs.
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
        before = fused if trained else torch.cat([row["early"] for row in rows])  # whatever it says: all are fused
        found["later"] = _later(model, (corpus, pieces, videos), before, rerank)
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
    owner, piece = torch.nonzero(sentences.weights * sentences.mask, as_tuple=True)
    words = _scaled_words(model, s, tokens[owner, piece], videos)
    nothing = torch.zeros(len(tokens), len(videos.whole), device=words.device)
    token = cascade_scores(nothing, words, owner, sentences.weights[owner, piece], s.aggregate)
    whole = pooled(tokens, sentences.mask, model.data.text_pool)
    return {"early": _scaled(model, s, whole, videos.whole), "token": token}


def _later(
    model: Model, what: tuple[Corpus, Pieces, _Encoded], before: Tensor, rerank: int, chunk: int = 2048
) -> Tensor:
    """Return the fusion's scores of all pairs, or of the best `rerank` clips of each caption."""
    corpus, pieces, videos = what
    most = min(rerank or len(corpus.clips), len(corpus.clips))
    out = torch.full_like(before, torch.nan)
    for some, sentences in all_texts(pieces, 64):
        tokens = model.text(sentences)
        text = _Encoded(tokens, sentences.mask, tokens[:, 0])
        picks = before[some].topk(most, dim=1).indices
        pairs = torch.stack([torch.arange(len(some), device=some.device).repeat_interleave(most), picks.flatten()], 1)
        out[some[:, None], picks] = _logits(model, text, videos, pairs, chunk).view(picks.shape).float()
    return out.nan_to_num(nan=float(out.nan_to_num(nan=torch.inf).min())) if most < len(corpus.clips) else out
