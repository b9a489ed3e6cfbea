"""A linear head on frozen features: softmax regression on features that are standardised by those it is fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

CHUNK = 1 << 16
"""Rows that are looked at together, where there are millions."""


@dataclass(frozen=True, eq=False)
class Head:
    """Logits (x - mean) / sd @ weight + bias."""

    weight: Float[Tensor, "dim classes"]
    bias: Float[Tensor, " classes"]
    mean: Float[Tensor, " dim"]
    sd: Float[Tensor, " dim"]

    def logits(self, x: Shaped[Tensor, "*items dim"]) -> Float[Tensor, "*items classes"]:
        """Return the logits of features."""
        return (x.to(self.weight.dtype) - self.mean) / self.sd @ self.weight + self.bias

    def classes(self, x: Shaped[Tensor, "*items dim"]) -> Int[Tensor, "*items"]:
        """Return the likeliest class of each."""
        return self.logits(x).argmax(-1)


def standard(x: Shaped[Tensor, "items dim"]) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Return mean and standard deviation (n - 1) in float64; 1 for what does not vary, which then tells nothing.

    >>> standard(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))[1].round(decimals=3).tolist()
    [1.414, 1.0]
    """
    count = len(x)
    mean = torch.stack([some.double().sum(0) for some in x.split(CHUNK)]).sum(0) / count
    squares = torch.stack([(some.double() - mean).square().sum(0) for some in x.split(CHUNK)]).sum(0)
    sd = (squares / max(1, count - 1)).sqrt()
    return mean, torch.where(sd > 1e-6 * mean.abs(), sd, 1.0)


def solve(x: Shaped[Tensor, "items dim"], y: Int[Tensor, " items"], classes: int, penalty: float = 1e-3) -> Head:
    """Return softmax regression at its optimum: the mean cross-entropy + penalty * the sum of squared weights.

    The problem is convex and it starts at 0, so there is nothing to seed and nothing to tune: L-BFGS in float64, on all
    items at once. For millions of items `train.segments.fit` is there.
    """
    mean, sd = standard(x)
    z, target = (x.double() - mean) / sd, y.long()
    weights = z.new_zeros(x.shape[1] + 1, classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=500, tolerance_grad=1e-7, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        fit = functional.cross_entropy(z @ weights[1:] + weights[0], target)
        total = fit + penalty * weights[1:].square().sum()
        total.backward()
        return total

    optimiser.step(loss)
    found = weights.detach()
    return Head(found[1:], found[0], mean, sd)
