"""Retrieval, evaluated: ranks with their ties, recall, median and mean rank, in both directions, and over seeds.

A score matrix is (texts, videos); `positive[i]` is the column of text i's own video. A rank is 1 + the better items +
half of those that tie (McSherry and Najork, ECIR 2008): each query has one rank, however its scores were rounded. What
cannot be found is a miss, what cannot be compared is an error.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from rich.table import Table
from torch import Tensor

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train.losses import wide

How = Literal["average", "optimistic", "pessimistic"]
"""Where a query's item stands among the items of the same score: in their middle, first, last."""
Convention = Literal["each_caption", "best_caption", "group_max"]
"""What is a query and what is ranked: see `text_to_video` (the first) and `video_to_text`."""

KS = (1, 5, 10, 50)
TIES = {"optimistic": 0.0, "average": 0.5, "pessimistic": 1.0}
CHUNK = 1 << 22
"""Scores that are compared at once: some 100 MB beside the matrix, whatever its size."""


def ranks(
    scores: Float[Tensor, "queries items"], positive: Int[Tensor, " queries"], how: How = "average"
) -> Float64[Tensor, " queries"]:
    """Return the rank of each query's item, from 1, on the CPU; infinity where `positive` is -1: not in the gallery.

    Scores are compared in float32, or in float64 if they are in it. Items of other queries may score -inf.
    Raises PipelineError for NaN anywhere, and for a query's own item at plus or minus infinity.

    >>> ranks(torch.tensor([[0.2, 0.9, 0.2], [0.1, 0.5, 0.4]]), torch.tensor([0, 1])).tolist()
    [2.5, 1.0]
    """
    above, ties = _counts(scores, _own_scores(scores, positive, side=0))
    return 1 + above + TIES[how] * ties


def recall(ranks: Float[Tensor, " queries"], k: int) -> float:
    """Return the fraction of queries whose item is among the first k: rank <= k."""
    return float((ranks <= k).double().mean())


def median_rank(ranks: Float[Tensor, " queries"], gallery: int) -> float:
    """Return the median, x.5 between two middle ranks; an infinite rank counts as `gallery` + 1.

    `gallery` is the declared size: leaving misses out would flatter, and infinite means could not be compared.

    >>> median_rank(torch.tensor([1.0, 2.0, 5.0, math.inf]), gallery=10)
    3.5
    """
    return float(np.median(_finite(ranks, gallery)))


def mean_rank(ranks: Float[Tensor, " queries"], gallery: int) -> float:
    """Return the mean; an infinite rank counts as `gallery` + 1, as in the median."""
    return float(np.mean(_finite(ranks, gallery)))


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """One direction, evaluated. Recalls are fractions by k; ties count half, but in `optimistic` and `pessimistic`."""

    direction: Literal["t2v", "v2t"]
    convention: Convention
    queries: int
    """All there are, the missing ones too: what recalls are fractions of."""
    missing: int
    """Queries without features, or whose item is not in the gallery: misses."""
    gallery: int
    """Items that were ranked: videos, captions (`best_caption`) or videos' captions (`group_max`)."""
    expected: int | None
    """Items that the data set declares, if it does."""
    uses_test_queries: bool
    """Whether a query's scores depend on the other queries of the test."""
    recalls: dict[int, float]
    optimistic: dict[int, float]
    pessimistic: dict[int, float]
    median: float
    mean: float

    @property
    def note(self) -> str:
        """What a reader must know of the gallery, or ''."""
        if self.expected is None or self.gallery == self.expected:
            return ""
        return f"a gallery of {self.gallery}, {self.expected} are declared"

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON; recalls are called R@k."""
        names = ("direction", "convention", "queries", "missing", "gallery", "expected", "note", "uses_test_queries")
        found = {name: getattr(self, name) for name in names}
        found |= {**_named(self.recalls), "MdR": self.median, "MnR": self.mean}
        return found | {"optimistic": _named(self.optimistic), "pessimistic": _named(self.pessimistic)}


def text_to_video(
    scores: Float[Tensor, "texts videos"],
    positive: Int[Tensor, " texts"],
    *,
    expected: int | None = None,
    missing: int = 0,
    uses_test_queries: bool = False,
) -> Retrieval:
    """Evaluate with each caption as a query and all videos as the gallery.

    `positive` is -1 for a caption whose video has no features; `missing` is the number of such captions that are not
    among the rows at all: both are misses. `expected` is the gallery that the data set declares.
    Raises what `ranks` raises, and BadDataset if there is no query.
    """
    counts = _counts(scores, _own_scores(scores, positive, side=0))
    return _retrieval("each_caption", counts, (scores.shape[1], expected), missing, uses_test_queries)


def video_to_text(
    scores: Float[Tensor, "texts videos"],
    positive: Int[Tensor, " texts"],
    how: Literal["best_caption", "group_max"],
    *,
    expected: int | None = None,
    missing: int = 0,
    uses_test_queries: bool = False,
) -> Retrieval:
    """Evaluate with each video as a query; its captions are the texts whose `positive` is its column.

    "best_caption": the rank of its best caption among all captions (CE, QB-Norm), where it can tie with its own others.
    "group_max": a video's captions together score as the best of them, and are ranked among all videos' (CLIP4Clip).
    The two are the same where each video has one caption, and cannot be compared elsewhere.

    Captions of no column (-1) are ranked in "best_caption" and are no group in "group_max". A video without captions is
    a miss; so are `missing` others, that have no column. `expected` is the declared number of captions, or of videos.
    Raises what `ranks` raises, and BadDataset if there is no query.
    """
    group = {"best_caption": None, "group_max": positive}[how]
    counts = _counts(scores.T, _own_scores(scores, positive, side=1), group)
    size = len(scores) if group is None else int(counts[0].isfinite().sum())
    return _retrieval(how, counts, (size, expected), missing, uses_test_queries)


def table(results: Sequence[Retrieval], names: Sequence[str] = ()) -> Table:
    """Return a table, a row for each result; recalls in per cent, with their bounds where ties leave a choice.

    `names`: what each result is of; without them there is no such column.
    """
    found = Table(title="retrieval", title_justify="left")
    for column in ("",) * bool(names) + ("direction", "convention", "test queries"):
        found.add_column(column)
    for column in (*(f"R@{k}" for k in KS), "MdR", "MnR", "queries", "missing", "gallery"):
        found.add_column(column, justify="right")
    for name, result in zip(names or [""] * len(results), results, strict=True):
        found.add_row(*(name,) * bool(names), *_cells(result))
    return found


@dataclass(frozen=True)
class Spread:
    """A number over seeds; `sd` is the sample's (n - 1), NaN for one seed, which tells nothing of it."""

    mean: float
    sd: float
    seeds: int


@dataclass(frozen=True)
class Paired:
    """Differences seed by seed, a - b, and how many are above 0."""

    differences: tuple[float, ...]
    mean: float
    sd: float
    positive: int


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation over seeds. Raises BadSetting if there is no value.

    >>> spread([10.0, 12.0, 14.0])
    Spread(mean=12.0, sd=2.0, seeds=3)
    """
    if not values:
        raise BadSetting("no value to average; give one for each seed")
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan, len(values))


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Return the differences a - b of runs that share a seed, in one order of seeds. Raises BadSetting.

    >>> paired([14.0, 13.0, 10.0], [12.0, 12.0, 10.0])
    Paired(differences=(2.0, 1.0, 0.0), mean=1.0, sd=1.0, positive=2)
    """
    if len(a) != len(b):
        raise BadSetting(f"{len(a)} values and {len(b)} cannot be paired; give one of each for every seed")
    found = spread(differences := tuple(float(x) - float(y) for x, y in zip(a, b, strict=True)))
    return Paired(differences, found.mean, found.sd, sum(d > 0 for d in differences))


def _own_scores(scores: Float[Tensor, "texts videos"], positive: Int[Tensor, " texts"], side: int) -> Tensor:
    """Of each text (side 0) or video (1), the score of its counterpart, the best of several; NaN without any."""
    assert not len(positive) or (int(positive.min()) >= -1 and int(positive.max()) < scores.shape[1])
    rows = (positive >= 0).nonzero()[:, 0]
    columns = positive[rows].long()
    own = wide(scores.detach()[rows, columns])
    nothing = own.new_full((scores.shape[side],), math.nan)
    return nothing.scatter_reduce(0, columns if side else rows, own, "amax", include_self=False)


def _counts(
    scores: Float[Tensor, "queries items"], own: Float[Tensor, " queries"], group: Int[Tensor, " items"] | None = None
) -> tuple[Float64[Tensor, " queries"], Float64[Tensor, " queries"]]:
    """Of each query, how many items score above `own`, how many others tie with it; infinity above without it.

    With `group`, items are ranked as groups, one for each query, that score as their best member.
    """
    above, ties, odd = own.new_zeros((3, len(own)), dtype=torch.float64)
    step = max(1, CHUNK // max(1, *scores.shape))
    for some in (slice(start, start + step) for start in range(0, len(own), step)):
        items, mine = wide(scores[some].detach()), own[some, None]
        odd[some] = items.isnan().any(1) | mine[:, 0].isinf()
        if group is not None:
            items = _best_of_groups(items, group, len(own))
        above[some] = (items > mine).sum(1)
        ties[some] = (items == mine).sum(1) - 1
    if len(bad := odd.nonzero()):
        raise PipelineError(
            f"{len(bad)} of {len(own)} queries cannot be ranked (scores are NaN, or infinite for their own item), "
            f"the first is query {int(bad[0])}; look for NaN in the features and in the weights"
        )
    return above.masked_fill(own.isnan(), math.inf).cpu(), ties.cpu()


def _best_of_groups(
    scores: Float[Tensor, "queries items"], group: Int[Tensor, " items"], groups: int
) -> Float[Tensor, "queries groups"]:
    place = torch.where(group < 0, groups, group).long().expand(len(scores), -1)
    best = scores.new_full((len(scores), groups + 1), -math.inf)  # the last one is for items of no group
    return best.scatter_reduce(1, place, scores, "amax")[:, :groups]


def _retrieval(
    convention: Convention, counts: tuple[Tensor, Tensor], gallery: tuple[int, int | None], missing: int, oracle: bool
) -> Retrieval:
    above = torch.cat([counts[0], torch.full((missing,), math.inf, dtype=torch.float64)])
    ties = torch.cat([counts[1], torch.zeros(missing, dtype=torch.float64)])
    if not len(above):
        raise BadDataset("there is no query to evaluate; choose a part of the data set that has captions and features")
    found = {how: 1 + above + factor * ties for how, factor in TIES.items()}
    recalls = {how: {k: recall(one, k) for k in KS} for how, one in found.items()}
    size = max(gallery[0], gallery[1] or 0)
    return Retrieval(
        direction="t2v" if convention == "each_caption" else "v2t",
        convention=convention,
        queries=len(above),
        missing=int(above.isinf().sum()),
        gallery=gallery[0],
        expected=gallery[1],
        uses_test_queries=oracle,
        recalls=recalls["average"],
        optimistic=recalls["optimistic"],
        pessimistic=recalls["pessimistic"],
        median=median_rank(found["average"], size),
        mean=mean_rank(found["average"], size),
    )


def _finite(ranks: Tensor, gallery: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return ranks.double().masked_fill(ranks.isinf(), gallery + 1).cpu().numpy()


def _named(recalls: dict[int, float]) -> dict[str, float]:
    return {f"R@{k}": value for k, value in recalls.items()}


def _cells(result: Retrieval) -> tuple[str, ...]:
    def per_cent(k: int) -> str:
        low, high = 100 * result.pessimistic[k], 100 * result.optimistic[k]
        return f"{100 * result.recalls[k]:.1f}" + (f" ({low:.1f}–{high:.1f})" if low < high else "")

    gallery = f"{result.gallery} of {result.expected}" if result.note else f"{result.gallery}"
    head = (result.direction, result.convention, "used" if result.uses_test_queries else "not used")
    numbers = (f"{result.median:.1f}", f"{result.mean:.1f}", f"{result.queries}", f"{result.missing}", gallery)
    return (*head, *map(per_cent, KS), *numbers)
