"""LocVTP: fine-grained and temporally aware alignment (Cao et al., ECCV 2022), on cached clip features.

    lambda_c L_c + lambda_f L_f + lambda_t L_t                                     (eq. 6)

L_c contrasts averages of clips and words (eq. 1), L_f each clip with the words that it finds for itself (eqs. 2, 3),
L_t a clip as guessed from a neighbour by a warping head with the same words (eqs. 4, 5). The released code does not
implement the paper: this is from the equations (`train/correspondence.py`). Retrieval scores are cosines of averages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from train.batches import Batch, all_clips, all_texts
from train.config import Data
from train.correspondence import (
    Pairs,
    Warp,
    coarse,
    correspond,
    fine,
    rivals,
    temporal,
    temporal_intra,
    valid_offsets,
    warped,
    weights,
)
from train.data import Corpus
from train.encoders import VideoEncoder
from train.losses import mean_tokens, wide
from train.processes import gathered
from train.settings import Locvtp
from train.text import Encoder, Pieces, Sentences


class Model(nn.Module):
    """Video encoder, by default clip by clip and so without positions; text encoder; warping head."""

    def __init__(self, settings: Locvtp, data: Data, in_dim: int, text: Encoder) -> None:
        super().__init__()
        s = settings
        self.data, self.text = data, text
        self.video = VideoEncoder(in_dim, text.dim, s.clip_layers, data.max_video_tokens, s.dropout)
        self.warp = Warp(text.dim, s.direction, s.distance)

    def texts(self, sentences: Sentences) -> Tensor:
        """Return (B, d) average words, of length 1."""
        return _mean(self.text(sentences), _words(sentences))


def _words(sentences: Sentences) -> Tensor:
    """Return which pieces are words: not the first and the last of a caption, which are [CLS] and [SEP]."""
    last = sentences.mask.sum(1, keepdim=True) - 1
    at = torch.arange(sentences.mask.shape[1], device=last.device)
    return sentences.mask & (at > 0) & (at < last)


def losses(model: Model, batch: Batch, settings: Locvtp, generator: torch.Generator) -> dict[str, Tensor]:
    """Return L_c, L_f, L_t and their weighted sum `loss` (eq. 6) of a batch of K pairs."""
    s = settings
    clips = gathered(model.video(batch.video, batch.video_mask[batch.own]))
    words = gathered(model.text(batch.text))
    pairs = Pairs(clips, batch.video_mask, words, _words(batch.texts))
    other = replace(pairs, clips=words, clip_mask=pairs.word_mask, words=clips, word_mask=pairs.clip_mask)
    of_coarse, of_fine, of_temporal = weights(*batch.step, s.mode, s.start or None, (s.coarse, s.fine, s.temporal))
    found = {"L_c": coarse(pairs, s.tau)}
    if s.symmetric:
        found["L_c"] = (found["L_c"] + coarse(other, s.tau)) / 2
    total = of_coarse * found["L_c"]
    if of_fine or of_temporal:
        targets = correspond(pairs, s.top_k, s.correspondence, generator)
        kept = rivals(pairs, targets, s.own_words, batch.texts.ids if s.same_words == "mask" else None)
        found["L_f"] = fine(pairs, targets, kept, s.tau)
        offsets = valid_offsets(pairs.clip_mask, s.delta_max, generator)
        z = model.warp(warped(clips, offsets), offsets)
        intra = s.modality == "intra"
        found["L_t"] = (
            temporal_intra(pairs, z, offsets, s.tau) if intra else temporal(pairs, z, offsets, targets, kept, s.tau)
        )
        total = total + of_fine * found["L_f"] + of_temporal * found["L_t"]
    return {"loss": total, **found}


def alike(model: Model, tokens: Tensor, texts: Tensor, settings: Locvtp) -> Tensor:  # noqa: ARG001
    """Return (tokens, texts) how like a video's single tokens (T, d) are to texts: cosines over tau."""
    return nn.functional.normalize(wide(tokens), dim=1) @ texts.T / settings.tau


@dataclass(frozen=True)
class Seen:
    """What the losses see of a batch (Figures 5b and 5c)."""

    similarity: Tensor
    """(B, T, S) cosines of clips and words."""
    chosen: Tensor
    """(B, T, S) which words a clip goes with."""
    words: Tensor
    """(B, S) which pieces are words."""
    to_words: dict[str, Tensor]
    """Cosines with their words of reference clips v^t, of biased ones v^{t + delta}, and of projected ones z^t; NaN
    where there is none. (B, T) each."""


@torch.inference_mode()
def seen(model: Model, batch: Batch, settings: Locvtp, generator: torch.Generator) -> Seen:
    """Return which words clips go with, and how like them clips are before and after warping."""
    clips, words = model.video(batch.video, batch.video_mask[batch.own]), model.text(batch.text)
    pairs = Pairs(clips, batch.video_mask, words, _words(batch.texts))
    targets = correspond(pairs, settings.top_k, settings.correspondence, generator)
    offsets = valid_offsets(pairs.clip_mask, settings.delta_max, generator)
    moved = warped(clips, offsets)
    three = {"reference": clips, "biased": moved, "projected": model.warp(moved, offsets)}
    there = (offsets != 0) & targets.chosen.any(2)
    cosine = nn.functional.cosine_similarity
    unit = nn.functional.normalize(wide(clips), dim=2), nn.functional.normalize(wide(words), dim=2)
    return Seen(
        unit[0] @ unit[1].mT,
        targets.chosen,
        pairs.word_mask,
        {name: cosine(x, targets.positives, dim=2).masked_fill(~there, torch.nan) for name, x in three.items()},
    )


def scales(model: Model, settings: Locvtp) -> dict[str, float]:  # noqa: ARG001
    """Return what cosines are multiplied by in the levels of score that are cosines."""
    return {"coarse": 1 / settings.tau}


@torch.inference_mode()
def scores(model: Model, corpus: Corpus, pieces: Pieces, settings: Locvtp, rerank: int = 0) -> dict[str, Tensor]:  # noqa: ARG001
    """Return the score matrix (captions, clips): cosines of average clips and average words, over tau."""
    model.eval()
    videos = torch.zeros(len(corpus.clips), model.text.dim, device=corpus.device)
    for some, x, mask in all_clips(corpus, model.data):
        videos[some] = _mean(model.video(x, mask), mask)
    texts = torch.cat([model.texts(found) for _, found in all_texts(pieces)])
    return {"coarse": texts @ videos.T / settings.tau}


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return nn.functional.normalize(wide(mean_tokens(x, mask)), dim=1)
