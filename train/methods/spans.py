"""Grounding without candidates: every video token gives one span, and how good it is.

2D-TAN scores a map of N x N candidates and runs its layers over all of it. Here words and N video tokens go through
self-attention together. Each video token then points at the tokens with which its moment begins, before it, and ends,
after it, and says in one number whether it is in the moment and how well its span meets it. FCOS (Tian et al., ICCV
2019) does so for boxes, and UniVTG (Lin et al., ICCV 2023) for moments, with distances that are regressed; pointing
needs no sense of how far away a token is, and learnt several times faster on planted moments. DETR's learnt queries
would have to be matched with moments first: a token in the moment is as good a place to look from, and known.

    loss = quality + lambda overlap

A moment, as every span here, is (start, end) in fractions of its video. Of n tokens, token i is [i / n, (i + 1) / n].
In the moment are the tokens whose middle is, and the one that has the moment's own middle: there always is one. A span
is at least its own token, so that it needs no check, and no moment shorter than a token is met exactly; nor is one by
2D-TAN, whose candidates are whole tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from pipeline.errors import BadSetting
from train.batches import Batch
from train.config import Data
from train.encoders import HEAD, Stack
from train.losses import wide
from train.moments import iou
from train.packing import Packing
from train.settings import Spans
from train.text import Encoder


class Model(nn.Module):
    """Words and video tokens to a span of each video token, and its quality."""

    def __init__(self, settings: Spans, data: Data, in_dim: int, text: Encoder) -> None:
        """Raises BadSetting."""
        super().__init__()
        dim = settings.dim
        if dim < 1 or dim % max(1, dim // HEAD):
            raise BadSetting(f"--dim {dim}: expected a multiple of {HEAD}")
        self.text = text
        self.words = nn.Sequential(nn.Linear(text.dim, dim), nn.LayerNorm(dim))
        self.video = nn.Sequential(nn.Linear(in_dim, dim), nn.LayerNorm(dim))
        self.positions = nn.Embedding(data.max_video_tokens, dim)
        self.stack = Stack(dim, settings.layers, settings.dropout)
        # An edge is what differs from the token beside it; attention is slow to learn that.
        self.beside = nn.Conv1d(dim, dim, 3, padding=1)
        self.read = nn.Linear(dim, 1 + 4 * HEAD)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (k, L) logits of the quality and (k, L, 2) spans; what padding has means nothing."""
        mask = batch.video_mask[batch.own]
        tokens = self._with_neighbours(self._fused(batch, mask))
        logits, *pointers = self.read(tokens).split((1, *4 * [HEAD]), dim=2)
        queries, keys = torch.stack(pointers[:2]), torch.stack(pointers[2:])
        return wide(logits[:, :, 0]), spans_of(queries @ keys.mT / HEAD**0.5, mask)

    def _fused(self, batch: Batch, mask: Tensor) -> Tensor:
        """Return the video tokens (k, L, d) after attention over words and video; 0 for padding."""
        words = self.words(self.text(batch.text))
        video = self.video(batch.video) + self.positions.weight[: mask.shape[1]]
        packing = Packing.of(torch.cat([batch.text.mask, mask], dim=1))
        fused = self.stack(packing.pack(torch.cat([words, video], dim=1)), packing)
        return packing.unpack(fused)[:, words.shape[1] :]

    def _with_neighbours(self, tokens: Tensor) -> Tensor:
        """Return tokens (k, L, d) that know the ones beside them; beyond the ends of a video, as in padding, is 0."""
        out: Tensor = tokens + functional.gelu(self.beside(tokens.mT)).mT
        return out


def spans_of(
    scores: Float[Tensor, "2 videos tokens tokens"], mask: Bool[Tensor, "videos tokens"]
) -> Float[Tensor, "videos tokens 2"]:
    """Return the span of each token i: the average start of the tokens j <= i, and the average end of those j >= i.

    They are averaged by the softmax of the first and the second scores (i, j). Hence 0 <= start < end <= 1.

    >>> spans_of(torch.zeros(2, 1, 2, 2), torch.ones(1, 2, dtype=torch.bool)).tolist()
    [[[0.0, 0.75], [0.25, 1.0]]]
    """
    place = torch.arange(mask.shape[1], device=mask.device)
    before = place <= place[:, None]
    # Padding has nothing after it but itself.
    reach = torch.stack([before, before.mT])[:, None] & (mask[:, None] | (place == place[:, None]))
    weights = wide(scores).masked_fill(~reach, -torch.inf).softmax(3)
    edges = torch.stack([place, place + 1])[:, None] / _count(mask).to(weights)
    return (weights * edges[:, :, None]).sum(3).movedim(0, 2)


def inside(spans: Float[Tensor, "videos 2"], mask: Bool[Tensor, "videos tokens"]) -> Bool[Tensor, "videos tokens"]:
    """Return which tokens are in the moment: their middle is, or they have the moment's middle.

    >>> inside(torch.tensor([[0.2, 0.7], [0.3, 0.4]]), torch.ones(2, 4, dtype=torch.bool)).int().tolist()
    [[0, 1, 1, 0], [0, 1, 0, 0]]
    """
    count, place = _count(mask), torch.arange(mask.shape[1], device=mask.device)
    middle = (place + 0.5) / count
    own = (spans.mean(1, keepdim=True) * count).long().minimum(count - 1)
    return ((spans[:, :1] <= middle) & (middle <= spans[:, 1:]) | (place == own)) & mask


def overlap(a: Float[Tensor, "... 2"], b: Float[Tensor, "... 2"]) -> Float[Tensor, " ..."]:
    """Return the generalised IoU of spans (Rezatofighi et al., CVPR 2019): their IoU; below 0, how far apart they are.

    In one dimension spans that meet fill the smallest span over both, so that a single ratio is either. Shapes are
    broadcast; one of the spans must have a length.

    >>> overlap(torch.tensor([[0.0, 0.5], [0.0, 0.25]]), torch.tensor([[0.25, 1.0], [0.5, 1.0]])).tolist()
    [0.25, -0.25]
    """
    (a_start, a_end), (b_start, b_end) = a.unbind(-1), b.unbind(-1)
    return (a_end.minimum(b_end) - a_start.maximum(b_start)) / (a_end.maximum(b_end) - a_start.minimum(b_start))


def mean_inside(x: Float[Tensor, "videos tokens"], there: Bool[Tensor, "videos tokens"]) -> Float[Tensor, ""]:
    """Return the mean over moments of the sum over tokens by the number of those `there`: short moments count as much.

    >>> mean_inside(torch.tensor([[2.0, 4.0], [1.0, 0.0]]), torch.tensor([[True, True], [True, False]])).item()
    2.0
    """
    return (x.sum(1) / there.sum(1).clamp(min=1)).mean()


def overlap_loss(
    spans: Float[Tensor, "videos tokens 2"], truth: Float[Tensor, "videos 2"], there: Bool[Tensor, "videos tokens"]
) -> Float[Tensor, ""]:
    """Return 1 - generalised IoU of a moment and the spans of the tokens in it, mean over these, then over moments."""
    return mean_inside((1 - overlap(spans, truth[:, None])) * there, there)


def quality_loss(
    logits: Float[Tensor, "videos tokens"],
    quality: Float[Tensor, "videos tokens"],
    mask: Bool[Tensor, "videos tokens"],
    there: Bool[Tensor, "videos tokens"],
) -> Float[Tensor, ""]:
    """Return the cross-entropy of sigmoid(logits) and quality in [0, 1], of all tokens by the number of those `there`.

    The quality of a token in the moment is the IoU of its span; of others it is 0 (Li et al., Generalized Focal Loss,
    NeurIPS 2020, without its focus: there are tens of tokens here, not thousands).
    """
    return mean_inside(functional.binary_cross_entropy_with_logits(logits, quality, reduction="none") * mask, there)


def losses(model: Model, batch: Batch, settings: Spans, generator: torch.Generator) -> dict[str, Tensor]:  # noqa: ARG001
    """Return `quality`, `overlap` and their weighted sum `loss`, means over the captions."""
    assert batch.spans is not None
    logits, spans = model(batch)
    mask, truth = batch.video_mask[batch.own], batch.spans[batch.own].to(spans)
    there = inside(truth, mask)
    met = iou(spans.detach(), truth[:, None]) * there
    found = {"quality": quality_loss(logits, met, mask, there), "overlap": overlap_loss(spans, truth, there)}
    return {"loss": found["quality"] + settings.overlap_weight * found["overlap"], **found}


@torch.inference_mode()
def predict(model: Model, batch: Batch, settings: Spans) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Return (k, L, 2) spans, 0 <= start < end <= 1, and (k, L) scores, logits; -inf for padding."""
    model.eval()
    logits, spans = model(batch)
    mask = batch.video_mask[batch.own]
    anything = spans.new_tensor([0.0, 1.0])
    return torch.where(mask[:, :, None], spans.clamp(0, 1), anything), logits.masked_fill(~mask, -torch.inf)


def _count(mask: Bool[Tensor, "videos tokens"]) -> Tensor:
    """Return (videos, 1) how many tokens each has; 1 where there is none, to divide by."""
    return mask.sum(1, keepdim=True).clamp(min=1)
