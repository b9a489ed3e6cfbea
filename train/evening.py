"""Scores evened out at test time, so that no clip and no caption is everybody's answer: NCL's biases and its rivals.

bank      Sinkhorn's biases from train captions and clips (NCL, 3.4); no test queries
oracle    the same from all test queries (NCL's upper bound)
dis, is   querybank normalisation by the same train captions and clips (QB-Norm); no test queries
dsl       dual softmax (CAMoE); all test queries
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from train.losses import wide
from train.normalisation import adjusted, bank_bias, biases, dsl, error, qb_norm

How = Literal["none", "bank", "oracle", "dis", "is", "dsl"]
USE_TEST_QUERIES = frozenset({"oracle", "dsl"})
NEED_BANK = frozenset({"bank", "dis", "is"})


@dataclass(frozen=True)
class Evened:
    """A level's scores for both directions, (texts, videos) each, and NCL's error (eq. 5) before and after."""

    to_video: Tensor
    to_text: Tensor
    errors: dict[str, tuple[float, float]]


def even(scores: Tensor, how: How, bank: tuple[Tensor, Tensor] | None, iterations: int, beta: float) -> Evened:
    """Return the scores of a level, evened out.

    `bank`: (bank texts, test videos) and (test texts, bank videos). `beta`: QB-Norm's, on the scale of the scores.
    """
    to_video = to_text = wide(scores)
    if how == "bank" and bank is not None:
        to_video = adjusted(scores, bank_bias(bank[0], iterations))
        to_text = adjusted(scores.T, bank_bias(bank[1].T, iterations)).T
    elif how == "oracle":
        a, b = biases(scores, iterations, detach=True)
        to_video, to_text = adjusted(scores, b), adjusted(scores.T, a).T
    elif how in ("dis", "is") and bank is not None:
        to_video = qb_norm(scores, bank[0], beta, how)
        to_text = qb_norm(scores.T, bank[1].T, beta, how).T
    elif how == "dsl":
        to_video, to_text = dsl(scores), dsl(scores.T).T
    return Evened(to_video, to_text, {"before": error(scores), "after": (error(to_video)[0], error(to_text)[1])})
