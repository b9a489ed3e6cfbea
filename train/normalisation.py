"""NCL's instance biases (Park et al., EMNLP 2022) as pure functions, and the two methods that it is compared with.

A score matrix is (texts, videos), or (queries, items) for what serves both directions: transpose it for video to text.
NCL's scores are divided by the temperature, S = <t, v> / gamma. A softmax over videos is blind to the texts' biases a,
one over texts to the videos' b, so each direction needs only the other side's. Everything stays logarithmic: exp(S)
overflows at gamma = 0.01 as soon as one column stands out. Numbers of equations are those of the paper.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from train.losses import nce, wide


def biases(
    scores: Float[Tensor, "texts videos"], iterations: int = 4, detach: bool = False
) -> tuple[Float[Tensor, " texts"], Float[Tensor, " videos"]]:
    """Return the biases (a, b) that even out exp(S + a + b) by Sinkhorn's iterations (eqs. 7-11, Fig. 4).

    As in Fig. 4, all rows and all columns are to sum to one even if there are more of one than of the other, which
    moves the biases by a constant only, and the last step is the columns': their sums are exact, the rows' nearly so.
    `detach`: no gradients through the iterations; the paper does not say, its figure's code lets them through.
    Test queries: uses those that are among `scores`; with the test's own matrix this is the paper's oracle.

    >>> a, b = biases(torch.tensor([[2.0, 0.0], [2.0, 0.0]]))  # everybody likes the first video
    >>> (b[0] - b[1]).item()
    -2.0
    """
    scores = wide(scores.detach() if detach else scores)
    a, b = scores.new_zeros(len(scores)), -scores.logsumexp(0)
    for _ in range(iterations):
        a = -(scores + b).logsumexp(1)
        b = -(scores + a[:, None]).logsumexp(0)
    return a, b


def ncl(
    scores: Float[Tensor, "texts videos"], positive: Int[Tensor, " texts"], iterations: int = 4, detach: bool = False
) -> Float[Tensor, ""]:
    """Return NCL's training loss: eq. 4 with the adjusted scores of eq. 12, the mean over the batch's pairs.

    `positive[i]`: the column of text i's video. It is the sum of the two directions, as in eq. 4: text i's video among
    all videos, and text i among all texts of that video; two texts of one video are each other's rivals in the second,
    and videos that are nobody's positive are rivals only. Test queries: none, the biases are the batch's own.
    """
    a, b = biases(scores, iterations, detach)
    scores = wide(scores)
    texts = torch.arange(len(scores), device=scores.device)
    to_video = nce(scores + b, positive)
    to_text = nce((scores + a[:, None]).T[positive], texts)
    return (to_video + to_text).mean()


def error(scores: Float[Tensor, "texts videos"]) -> tuple[float, float]:
    """Return the normalisation errors, text to video and video to text (eq. 5): 0 if all are retrieved equally often.

    `scores`: S, or S + a + b for those of adjusted scores. If there are not as many texts as videos, eq. 5's 1 becomes
    the mean that there must be, and the error is in units of it. Test queries: measures all of them, changes nothing.

    >>> error(torch.tensor([[50.0, 0.0], [50.0, 0.0]]))  # each text finds video 0; each video has both texts alike
    (1.0, 0.0)
    """
    return _uneven(wide(scores)), _uneven(wide(scores).T)


def _uneven(scores: Tensor) -> float:
    """Return how far items' shares of all queries' probability are from equal ones, on average."""
    shares = scores.softmax(1).mean(0) * scores.shape[1]
    return float((shares - 1).abs().mean())


def bank_bias(bank: Float[Tensor, "bank items"], iterations: int = 4) -> Float[Tensor, " items"]:
    """Return the items' biases by a bank of train queries in the test queries' place (3.4).

    `bank`: S of train texts x test videos gives the videos' biases b, of train videos x test texts the texts' biases a.
    Test queries: none. The oracle is this function with the test queries themselves for bank: that uses all of them.
    """
    return biases(bank, iterations, detach=True)[1]


def adjusted(scores: Float[Tensor, "queries items"], bias: Float[Tensor, " items"]) -> Float[Tensor, "queries items"]:
    """Return the scores with each item's bias (eq. 6); the queries' own biases change no rank.

    Test queries: none but through `bias`.
    """
    return wide(scores) + bias


def qb_norm(
    scores: Float[Tensor, "queries items"],
    bank: Float[Tensor, "bank items"],
    beta: float = 20.0,
    how: Literal["dis", "is"] = "dis",
    k: int = 1,
) -> Float[Tensor, "queries items"]:
    """Return the scores of querybank normalisation (QB-Norm; Bogolin et al., CVPR 2022).

    Both matrices are cosines, not S: `beta` is an inverse temperature. The inverted softmax, exp(beta s) over the sum
    of exp(beta s) in the bank, is returned as its logarithm / beta: the ranks of each query are the same, and the scale
    is that of the scores. `how`: "is" for all queries; "dis" only for those whose best item is among the `k` best of
    any query of the bank; the others keep their scores. Test queries: none but the one that is ranked.
    """
    scores, bank = wide(scores), wide(bank)
    inverted = scores - (beta * bank).logsumexp(0) / beta
    if how == "is":
        return inverted
    hubs = torch.zeros(scores.shape[1], dtype=torch.bool, device=scores.device)
    hubs[bank.topk(min(k, bank.shape[1]), dim=1).indices.flatten()] = True
    return torch.where(hubs[scores.argmax(1)][:, None], inverted, scores)


def dsl(scores: Float[Tensor, "queries items"], temperature: float = 1000.0) -> Float[Tensor, "queries items"]:
    """Return the scores of the dual softmax (CAMoE; Cheng et al., 2021): s * softmax over queries(s / temperature) * Q.

    The temperature divides, 1000 by default, as in its code; for scores below 100 that prior is nearly flat.
    Test queries: all of them, always, an oracle. Number of queries Q.

    >>> dsl(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), temperature=0.01).tolist()  # query 1's second item is its own
    [[1.0, 0.0], [1.0, 2.0]]
    """
    scores = wide(scores)
    return scores * (scores / temperature).softmax(0) * len(scores)
