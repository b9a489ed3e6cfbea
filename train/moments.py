"""Moments of a video: how well spans agree, which of them are kept, and how good the kept ones are.

A span is (start, end) as fractions of its video, start < end. The protocol is 2D-TAN's (Zhang et al., AAAI 2020):
scaled overlaps as targets (eq. 6), non-maximum suppression, R@n IoU=m. Spans are compared in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train.losses import wide

ROUNDING = 1e-6
"""Overlaps that are less apart are the same: single precision cannot tell them."""


def iou(a: Float[Tensor, "... 2"], b: Float[Tensor, "... 2"]) -> Float[Tensor, " ..."]:
    """Return intersection over union of spans, whose shapes are broadcast; 0 where neither has a length.

    >>> iou(torch.tensor([[0.0, 0.5], [0.5, 1.0]]), torch.tensor([0.25, 1.0])).tolist()
    [0.25, 0.6666666865348816]
    """
    both = (torch.minimum(a[..., 1], b[..., 1]) - torch.maximum(a[..., 0], b[..., 0])).clamp(min=0)
    any_of_them = (a[..., 1] - a[..., 0]).clamp(min=0) + (b[..., 1] - b[..., 0]).clamp(min=0) - both
    return both / torch.where(any_of_them > 0, any_of_them, 1)


def iou_map(spans: Float[Tensor, "queries 2"], n: int) -> Float[Tensor, "queries {n} {n}"]:
    """Return the overlap of each span with every candidate (a, b) = [a / n, (b + 1) / n]; 0 where a > b.

    >>> iou_map(torch.tensor([[0.0, 0.5]]), 2).tolist()
    [[[1.0, 0.5], [0.0, 0.0]]]
    """
    at = torch.arange(n, device=spans.device)
    candidates = torch.stack(torch.meshgrid(at, at + 1, indexing="ij"), dim=-1).to(spans) / n
    return iou(candidates, spans[:, None, None]).triu()


def targets(iou: Float[Tensor, " ..."], low: float, high: float) -> Float[Tensor, " ..."]:
    """Return scaled overlaps (eq. 6): 0 up to `low` (t_min), 1 from `high` (t_max), linear in between.

    >>> targets(torch.tensor([0.4, 0.5, 0.75, 1.0]), 0.5, 1.0).tolist()
    [0.0, 0.0, 0.5, 1.0]
    """
    return ((iou - low) / (high - low)).clamp(0, 1)


def nms(
    spans: Float[Tensor, "queries candidates 2"],
    scores: Float[Tensor, "queries candidates"],
    threshold: float,
    most: int,
) -> tuple[Float[Tensor, "queries {most} 2"], Float[Tensor, "queries {most}"]]:
    """Return each query's best spans and their scores, best first, at most `most` of them.

    A span is left out if its overlap with a better one that is kept is above `threshold`; of equal scores the candidate
    that comes first is the better one. Candidates that score -inf are never kept. Where fewer are left the rest is
    (0, 0), which agrees with nothing, at -inf. Raises PipelineError for scores that are NaN.

    >>> spans = torch.tensor([[[0.0, 0.5], [0.0, 0.6], [0.5, 1.0]]])
    >>> nms(spans, torch.tensor([[2.0, 1.0, 1.0]]), 0.5, 2)[0].tolist()
    [[[0.0, 0.5], [0.5, 1.0]]]
    """
    left = wide(scores).clone()
    if bool(left.isnan().any()):
        raise PipelineError("scores of moments are NaN; look for NaN in the features and in the weights")
    rows, kept, values = torch.arange(len(left), device=left.device), [], []
    for _ in range(most):
        best = left.argmax(1)  # the first of several
        value = left[rows, best]
        span = torch.where(value[:, None] > -math.inf, spans[rows, best], 0)
        left = left.masked_fill(_above(iou(spans.double(), span.double()[:, None]), threshold), -math.inf)
        left[rows, best] = -math.inf
        kept.append(span)
        values.append(value)
    return torch.stack(kept, dim=1), torch.stack(values, dim=1)


@dataclass(frozen=True, kw_only=True)
class Grounding:
    """Moments, evaluated: fractions of all queries."""

    queries: int
    """All there are, the missing ones too."""
    missing: int
    """Queries without a prediction: misses, with an overlap of 0."""
    recalls: dict[tuple[int, float], float]
    """By (n, m): queries with one of their first n moments at an overlap above m."""
    mean_iou: float
    """Mean overlap of the first moment."""

    def as_dict(self) -> dict[str, int | float]:
        """Return the values for JSON; recalls are called `R@n IoU=m`."""
        named = {f"R@{n} IoU={m:g}": value for (n, m), value in self.recalls.items()}
        return {"queries": self.queries, "missing": self.missing, **named, "mIoU": self.mean_iou}


def recalls(
    predicted: Float[Tensor, "queries kept 2"],
    truth: Float[Tensor, "queries *windows 2"],
    ns: Sequence[int],
    ms: Sequence[float],
    missing: int = 0,
) -> Grounding:
    """Evaluate moments that are sorted, the best first: R@n IoU=m, which needs an overlap *above* m, and mIoU.

    Where a query has several windows, a moment's overlap is that with the best of them.
    `missing`: queries that are not among the rows. Raises BadSetting for an n of more moments than were kept,
    BadDataset if there is no query.
    """
    queries = len(truth) + missing
    if max(ns, default=0) > predicted.shape[1]:
        raise BadSetting(f"recall among {max(ns)} moments, of which {predicted.shape[1]} were kept; keep more")
    if not queries:
        raise BadDataset("there is no query to evaluate; choose a part of the data set that has moments and features")
    windows = truth.double().view(len(truth), 1, -1, 2)
    overlaps = iou(predicted.double()[:, :, None], windows).amax(2)
    found = {(n, m): int(_above(overlaps[:, :n], m).any(1).sum()) / queries for n in ns for m in ms}
    return Grounding(queries=queries, missing=missing, recalls=found, mean_iou=float(overlaps[:, 0].sum()) / queries)


def best_constant(spans: Float[Tensor, "queries 2"], threshold: float = 0.5, steps: int = 50) -> Float64[Tensor, " 2"]:
    """Return the one span that agrees with most of these, overlap above `threshold`: a baseline that sees nothing.

    All spans between multiples of 1 / `steps` are tried; of equally good ones the first is taken, by start, then end.

    >>> best_constant(torch.tensor([[0.0, 0.5], [0.0, 0.4], [0.8, 1.0]]), steps=4).tolist()
    [0.0, 0.5]
    """
    tried = torch.combinations(torch.arange(steps + 1, dtype=torch.float64, device=spans.device)) / steps
    found = [_above(iou(some[:, None], spans.double()), threshold).sum(1) for some in tried.split(64)]
    return tried[torch.cat(found).argmax()]


def _above(overlaps: Float[Tensor, " ..."], threshold: float) -> Bool[Tensor, " ..."]:
    return overlaps - threshold > ROUNDING
