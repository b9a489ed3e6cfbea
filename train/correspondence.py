"""LocVTP's losses as pure functions (Cao et al., ECCV 2022), in the paper's symbols.

    targets = correspond(pairs, 3, "clip-topk", generator)             # eq. 2
    kept = rivals(pairs, targets, "mask", word_ids)
    offsets = valid_offsets(pairs.clip_mask, 4, generator)
    z = warp(warped(pairs.clips, offsets), offsets)                    # eq. 4
    of_coarse, of_fine, of_temporal = weights(step, steps)
    loss = (                                                           # eq. 6
        of_coarse * coarse(pairs)
        + of_fine * fine(pairs, targets, kept)
        + of_temporal * temporal(pairs, z, offsets, targets, kept)
    )

Similarity is the cosine, at a temperature. A loss is the mean over a video's clips (1/T), then over the videos; clips
and videos without anything to compare are left out, and the loss is 0 if that is all of them. The released code does
not do what the paper says; nothing here follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from train.losses import mean_tokens, product, wide

How = Literal["clip-topk", "word-topk", "2d-topk", "random"]
"""Who picks: each clip its words, each word its clips, the best of the whole map, or chance (Table 5a)."""
Mode = Literal["weighted", "warm-up", "multi-stage"]
"""What becomes of the coarse loss (Table 4a)."""


@dataclass(frozen=True)
class Pairs:
    """B videos with their sentences. Padding is False in a mask, and so are [CLS] and [SEP]; it must be finite."""

    clips: Float[Tensor, "pairs clips dim"]
    """v^t"""
    clip_mask: Bool[Tensor, "pairs clips"]
    words: Float[Tensor, "pairs words dim"]
    """q^s"""
    word_mask: Bool[Tensor, "pairs words"]


@dataclass(frozen=True)
class Targets:
    """What eq. 2 finds."""

    positives: Float[Tensor, "pairs clips dim"]
    """q_+^t: the average of the chosen words' features, 0 for a clip without any."""
    chosen: Bool[Tensor, "pairs clips words"]
    """Which words of its own sentence a clip goes with."""


def coarse(pairs: Pairs, tau: float = 0.07) -> Float[Tensor, ""]:
    """Return L_c (eq. 1): a video's average clip finds its sentence's average word among those of the batch.

    Video to text; with clips and words changed round in `pairs` it is text to video.
    """
    video = mean_tokens(wide(pairs.clips), pairs.clip_mask)[:, None]
    text = mean_tokens(wide(pairs.words), pairs.word_mask)
    watched, said = pairs.clip_mask.any(1), pairs.word_mask.any(1)
    others = ~torch.eye(len(said), dtype=torch.bool, device=said.device) & said
    return _contrast(video, (watched & said)[:, None], text[:, None], text, others[:, None], tau)


def correspond(pairs: Pairs, k: int, how: How, generator: torch.Generator) -> Targets:
    """Return each clip's words (eq. 2): labels that the features give themselves.

    "clip-topk": each clip its k nearest words. "word-topk": each word its k nearest clips, so that some clips may have
    no word. "2d-topk": the best k * T clip-word pairs of the video's T clips. "random": k words for each clip. Where
    there are fewer than k, all are taken. Gradients flow through the average, not through the choice.
    """
    allowed = pairs.clip_mask[:, :, None] & pairs.word_mask[:, None]
    with torch.no_grad():
        near = product(_unit(pairs.clips), _unit(pairs.words).mT)
    match how:
        case "clip-topk":
            chosen = _best(near, allowed, k)
        case "word-topk":
            chosen = _best(near.mT, allowed.mT, k).mT
        case "2d-topk":
            chosen = _best(near.flatten(1), allowed.flatten(1), k * pairs.clip_mask.sum(1, keepdim=True)).view_as(near)
        case "random":
            drawn = torch.rand(near.shape, generator=generator, device=generator.device).to(near.device)
            chosen = _best(drawn, allowed, k)
        case _:
            assert_never(how)
    return Targets(product(chosen.to(near.dtype), pairs.words) / chosen.sum(-1, keepdim=True).clamp(min=1), chosen)


def _best(scores: Tensor, allowed: Tensor, count: int | Tensor) -> Tensor:
    """Return where the `count` highest allowed scores of the last axis are; the first of equal ones."""
    order = scores.masked_fill(~allowed, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return (order.argsort(dim=-1) < count) & allowed


def rivals(
    pairs: Pairs,
    targets: Targets,
    own_words: Literal["mask", "keep"] = "mask",
    word_ids: Int[Tensor, "pairs words"] | None = None,
) -> Bool[Tensor, "pairs clips batch_words"]:
    """Return which of the batch's words stand in the denominators of eqs. 3 and 5 beside each clip's positive.

    The positive itself, which the paper leaves out, always stands there. `own_words`: "keep" has all words of the
    clip's own sentence as rivals, the chosen ones too, as the paper writes; "mask" has none of them, since those that
    were not chosen may describe the clip as well. `word_ids`: equal words have equal ids; a word of another sentence
    that equals a chosen one is then no rival. Without ids it is, as the paper writes.
    """
    videos, clips, words = targets.chosen.shape
    kept = pairs.word_mask.expand(videos, clips, videos, words)
    own = torch.eye(videos, dtype=torch.bool, device=kept.device)[:, None, :, None]
    if word_ids is not None:
        kept = kept & (own | ~_equal(word_ids, targets.chosen))
    if own_words == "mask":
        kept = kept & ~own
    return kept.flatten(2)


def _equal(word_ids: Tensor, chosen: Tensor) -> Tensor:
    """Return (B, T, B, S): is a word of the batch equal to one that the clip has chosen?"""
    known, place = torch.unique(word_ids, return_inverse=True)
    videos, clips, words = chosen.shape
    taken = torch.zeros(videos, clips, len(known), dtype=torch.int32, device=chosen.device)
    taken.scatter_add_(2, place[:, None].expand(videos, clips, words), chosen.int())
    return taken.bool()[:, :, place]


def fine(
    pairs: Pairs, targets: Targets, kept: Bool[Tensor, "pairs clips batch_words"], tau: float = 0.07
) -> Float[Tensor, ""]:
    """Return L_f (eq. 3): a clip finds the average of its words among all words of the batch that are `kept`.

    Clips without a word of their own are left out.
    """
    anchors = pairs.clip_mask & targets.chosen.any(-1)
    return _contrast(pairs.clips, anchors, targets.positives, pairs.words.flatten(0, 1), kept, tau)


def temporal(
    pairs: Pairs,
    z: Float[Tensor, "pairs clips dim"],
    offsets: Int[Tensor, "pairs clips"],
    targets: Targets,
    kept: Bool[Tensor, "pairs clips batch_words"],
    tau: float = 0.07,
) -> Float[Tensor, ""]:
    """Return L_t (eq. 5): eq. 3 with z^t, the clip as guessed from a neighbour, for v^t; its words stay those of t.

    `z`: what `Warp` makes of the clips at t + `offsets`. Clips with offset 0 have no neighbour, and are left out.
    """
    moved = replace(pairs, clips=z, clip_mask=pairs.clip_mask & (offsets != 0))
    return fine(moved, targets, kept, tau)


def temporal_intra(
    pairs: Pairs, z: Float[Tensor, "pairs clips dim"], offsets: Int[Tensor, "pairs clips"], tau: float = 0.07
) -> Float[Tensor, ""]:
    """Return the L_t of Table 5e: z^t finds the clip v^t itself among all clips of the batch, its neighbours too."""
    count = offsets.numel()
    others = ~torch.eye(count, dtype=torch.bool, device=z.device) & pairs.clip_mask.flatten()
    anchors = pairs.clip_mask & (offsets != 0)
    return _contrast(z, anchors, pairs.clips, pairs.clips.flatten(0, 1), others.view(*offsets.shape, count), tau)


def _contrast(anchors: Tensor, mask: Tensor, positives: Tensor, others: Tensor, kept: Tensor, tau: float) -> Tensor:
    """Return the mean of -log softmax of each anchor's positive among itself and those of the `others` that are `kept`.

    `anchors`, `positives`: (B, T, D). `mask`: (B, T). `others`: (N, D). `kept`: (B, T, N).
    """
    unit = _unit(anchors)
    positive = (unit * _unit(positives)).sum(-1, keepdim=True) / tau
    negative = (product(unit, _unit(others).T) / tau).masked_fill(~kept, -torch.inf)
    losses = (torch.cat([positive, negative], dim=-1).logsumexp(-1) - positive[..., 0]).masked_fill(~mask, 0)
    count = mask.sum(1)
    return (losses.sum(1) / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)


def _unit(x: Tensor) -> Tensor:
    """Return features of length 1, and 0 for 0: a dead one has no infinite gradient."""
    return functional.normalize(wide(x), dim=-1, eps=1e-6)


def valid_offsets(
    clip_mask: Bool[Tensor, "pairs clips"], delta_max: int, generator: torch.Generator
) -> Int[Tensor, "pairs clips"]:
    """Return delta of eq. 4 for each clip, even chances for -delta_max..delta_max but 0 and those that leave the video.

    Clamping to the video would give distances that are not so. 0 for padding, and in a video of one clip.
    """
    videos, clips = clip_mask.shape
    steps = torch.arange(1, delta_max + 1, device=clip_mask.device)
    deltas = torch.cat([-steps.flip(0), steps])
    there = torch.arange(clips, device=clip_mask.device)[:, None] + deltas
    inside = (there >= 0) & (there < clips) & clip_mask[:, there.clamp(0, clips - 1)] & clip_mask[:, :, None]
    drawn = torch.rand(videos, clips, len(deltas), generator=generator, device=generator.device).to(clip_mask.device)
    return deltas[drawn.masked_fill(~inside, -1).argmax(-1)] * inside.any(-1)


def warped(
    clips: Float[Tensor, "pairs clips dim"], offsets: Int[Tensor, "pairs clips"]
) -> Float[Tensor, "pairs clips dim"]:
    """Return v^{t + delta} for each t.

    >>> warped(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[2, -1, 0]])).flatten().tolist()
    [3.0, 1.0, 3.0]
    """
    there = torch.arange(offsets.shape[1], device=offsets.device) + offsets
    return clips.take_along_dim(there[:, :, None], dim=1)


class Warp(nn.Module):
    """The context warping head g (eq. 4): ReLU(W [v^{t + delta}, sgn delta, |delta|]), without a bias, as written.

    `direction`, `distance`: with sgn delta, with |delta| (Table 5c). |delta| is in clips; v as the encoder made it.
    """

    def __init__(self, dim: int, direction: bool = True, distance: bool = True) -> None:
        super().__init__()
        self.direction = direction
        self.distance = distance
        self.project = nn.Linear(dim + direction + distance, dim, bias=False)

    def forward(
        self, moved: Float[Tensor, "pairs clips dim"], offsets: Int[Tensor, "pairs clips"]
    ) -> Float[Tensor, "pairs clips dim"]:
        """Return z^t, the guess of clip t from its neighbour `moved` and where that is."""
        delta = offsets[:, :, None].to(moved.dtype)
        known = [moved, *[delta.sign()] * self.direction, *[delta.abs()] * self.distance]
        z: Tensor = self.project(torch.cat(known, dim=-1))
        return z.relu()


def weights(
    step: int,
    steps: int,
    mode: Mode = "weighted",
    start: float | None = None,
    base: tuple[float, float, float] = (0.5, 1.0, 1.0),
) -> tuple[float, float, float]:
    """Return (lambda_c, lambda_f, lambda_t) of eq. 6 at a step, 0 being the first.

    "weighted": `base`. "warm-up": lambda_c decays exponentially from 1; the paper names no rate, here it is 0.01 at the
    end. "multi-stage": L_c alone, then the others without it. `start`: the share of the steps in which lambda_f and
    lambda_t are still 0; by default none, and half for "multi-stage".

    >>> weights(0, 100), weights(50, 100, "warm-up"), weights(0, 100, start=0.4)
    ((0.5, 1.0, 1.0), (0.1, 1.0, 1.0), (0.5, 0.0, 0.0))
    >>> weights(49, 100, "multi-stage"), weights(50, 100, "multi-stage")
    ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0))
    """
    of_coarse, of_fine, of_temporal = base
    if start is None:
        start = 0.5 if mode == "multi-stage" else 0.0
    begun = step >= start * steps
    if mode == "warm-up":
        of_coarse = 0.01 ** (step / steps)
    elif mode == "multi-stage":
        of_coarse = 0.0 if begun else 1.0
    return (of_coarse, of_fine, of_temporal) if begun else (of_coarse, 0.0, 0.0)
