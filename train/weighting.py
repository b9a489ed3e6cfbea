"""What each level of score counts beside the others: the paper's weights, or those that a validation part chooses.

A method's last level is its own sum of the levels before it. With L2 trained, the paper's 0.5 for the words' score may
count it too little or too much; test queries must not decide that.
"""

from __future__ import annotations

from itertools import product

from torch import Tensor

from pipeline.errors import unknown
from train import ranking
from train.data import Corpus

GRID = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Weights of a level beside the first one, whose weight is 1, or 0 if it is left out."""
CHOSEN = "chosen"


def choose(scores: dict[str, Tensor], corpus: Corpus) -> dict[str, float]:
    """Return the weights of the levels, (captions, clips) each, with which a validation part is retrieved best.

    Nothing if there is one level only, or if no weights are better than the method's own; of equally good ones the
    first in the order of the grid.
    """
    *levels, own = scores
    if len(levels) < 2:
        return {}
    ways = (dict(zip(levels, some, strict=True)) for some in product((1.0, 0.0), *[GRID] * (len(levels) - 1)))
    best, value = {}, ranking.selection({own: scores[own]}, corpus)
    for way in (way for way in ways if any(way.values())):
        found = ranking.selection({CHOSEN: weighed(scores, way)}, corpus)
        if found > value:
            best, value = way, found
    return best


def weighed(scores: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """Return the sum of the levels' scores by their weights."""
    odd = [level for level in weights if level not in scores]
    if odd or not any(weights.values()):
        raise unknown("level of score", odd[0] if odd else "", scores)
    parts = [weight * scores[level] for level, weight in weights.items() if weight]
    return sum(parts[1:], parts[0])


def with_chosen(scores: dict[str, Tensor], weights: dict[str, float]) -> dict[str, Tensor]:
    """Return the scores with one level more, if weights were chosen."""
    return {**scores, CHOSEN: weighed(scores, weights)} if weights else scores
