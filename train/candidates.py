"""2D-TAN's candidate moments (Zhang et al., AAAI 2020, 3.2 and 3.3): which there are, their features, and convolution.

A video has n clips; candidate (a, b) is clips a to b, both included. Short moments are all candidates, of longer ones
fewer and fewer. A map of candidates is (candidates, batch, dim), in the order of `cells`: what is no candidate takes
neither memory nor time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from pipeline.errors import BadSetting

Start = Literal["even", "conv2d"]
"""What the weights of convolutions over the map are at first: see `MapConvs`."""

DENSE, FURTHER = 16, 8
"""Lengths of all moments that are candidates; lengths to each further stride."""


def scales(n: int) -> tuple[int, ...]:
    """Return how many lengths there are at strides 1, 2, 4 and so on.

    >>> scales(16), scales(64), scales(128)
    ((16,), (16, 8, 8), (16, 8, 8, 8))
    """
    return tuple(Counter(stride for _, stride in _lengths(n)).values())


def cells(n: int) -> Int[Tensor, "candidates 2"]:
    """Return (a, b) of the candidates, by length, then start."""
    found = [(a, a + length - 1) for length, stride in _lengths(n) for a in range(0, n - length + 1, stride)]
    return torch.tensor(found)


def spans(n: int) -> Float64[Tensor, "candidates 2"]:
    """Return [a / n, (b + 1) / n], the candidates as fractions of the video."""
    return (cells(n) + torch.tensor([0, 1])).double() / n


def mask(n: int) -> Bool[Tensor, "{n} {n}"]:
    """Return which cells (a, b) of the map are candidates."""
    found = torch.zeros(n, n, dtype=torch.bool)
    found[tuple(cells(n).T)] = True
    return found


def averages(
    x: Float[Tensor, "batch tokens dim"], mask: Bool[Tensor, "batch tokens"], n: int
) -> Float[Tensor, "batch {n} dim"]:
    """Return n averages of each video's tokens, over equal shares of its time.

    Of m tokens share j has those from round(j m / n) to before round((j + 1) m / n), halves up; where that is none, as
    with fewer tokens than shares, the one at its middle. 0 for a video without tokens.
    """
    m, j = mask.sum(1)[:, None, None], torch.arange(n, device=x.device)[:, None]
    place = torch.where(mask, mask.cumsum(1) - 1, -1)[:, None]
    begin, end = (2 * j * m + n) // (2 * n), (2 * (j + 1) * m + n) // (2 * n)
    inside = torch.where(begin < end, (begin <= place) & (place < end), place == (2 * j + 1) * m // (2 * n))
    inside &= mask[:, None]
    return (inside.to(x) / inside.sum(2, keepdim=True).clamp(min=1)).to(x) @ x


def max_map(x: Float[Tensor, "clips batch dim"]) -> Float[Tensor, "candidates batch dim"]:
    """Return for each candidate the largest of its clips' values: each length is made of shorter ones."""
    return _map(x, lambda _, parts: reduce(torch.maximum, parts))


class ConvMap(nn.Module):
    """Candidates' features as convolutions of shorter ones', one for each length, without a non-linearity between.

    The kernel is 1 for single clips, 3 where the stride doubles, 2 elsewhere.
    """

    def __init__(self, n: int, dim: int) -> None:
        super().__init__()
        strides = [stride for _, stride in _lengths(n)]
        sizes = [1] + [2 if after == before else 3 for before, after in pairwise(strides)]
        self.layers = nn.ModuleList(nn.Linear(size * dim, dim) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Return (candidates, batch, dim) of clips (clips, batch, dim)."""
        return _map(x, lambda level, parts: self.layers[level](torch.cat(parts, dim=-1)))


@dataclass(frozen=True)
class Neighbours:
    """Pairs of candidates that are both there and within a kernel of each other, offset by offset."""

    source: Tensor
    """(P,) the neighbour."""
    target: Tensor
    """(P,) the candidate that it is a neighbour of; once in an offset."""
    sizes: tuple[int, ...]
    """(kernel x kernel,) pairs of each offset, in the order of a kernel's rows."""
    count: Tensor
    """(candidates,) neighbours of each, itself included."""


@lru_cache
def neighbours(n: int, kernel: int) -> Neighbours:
    """Return the pairs of n clips' candidates for an odd kernel; made once. Raises BadSetting."""
    if kernel % 2 == 0:
        raise BadSetting(f"--kernel {kernel}: expected an odd number, so that a candidate is in the middle")
    found, side = cells(n), kernel // 2
    place = torch.full((n + 2 * side, n + 2 * side), -1)
    place[found[:, 0] + side, found[:, 1] + side] = torch.arange(len(found))
    offsets = torch.cartesian_prod(torch.arange(kernel), torch.arange(kernel))
    others = torch.stack([place[tuple((found + offset).T)] for offset in offsets])
    there = others >= 0
    return Neighbours(others[there], there.nonzero()[:, 1], tuple(there.sum(1).tolist()), there.sum(0))


class MapConvs(nn.Module):
    """Masked convolutions over the map, each with ReLU; a candidate's sum is divided by how many neighbours it has.

    Computes what torch's conv2d does on the dense map, zero outside the candidates before each layer, at the candidates
    alone. The official code zeroes only cells without any neighbour, so that its later layers also have values beside
    the candidates; here there are none.

    Weights (kernel x kernel, in, out) begin, with `start` "conv2d", as that does, which the official code uses. As sums
    are then divided, each layer's values are far smaller than the last one's, and gradients of the first layers too
    small for Adam's epsilon. "even": a neighbour's weights are at first the same wherever it is, as large as suits a
    layer that sees one candidate (He et al., 2015): averages keep their scale however many neighbours there are.
    """

    def __init__(self, n: int, sizes: tuple[int, int, int], start: Start = "even") -> None:
        """`sizes`: kernel, layers, dim."""
        super().__init__()
        kernel, layers, dim = sizes
        found, usual, places = neighbours(n, kernel), 1 / math.sqrt(kernel * kernel * dim), kernel * kernel
        self.sizes = found.sizes
        for name in ("source", "target", "count"):
            self.register_buffer(name, getattr(found, name), persistent=False)
        bound, drawn = (math.sqrt(6 / dim), 1) if start == "even" else (usual, places)
        weights = [torch.empty(drawn, dim, dim).uniform_(-bound, bound) for _ in range(layers)]
        self.weights = nn.ParameterList(one.repeat(places // drawn, 1, 1) for one in weights)
        self.biases = nn.ParameterList(torch.empty(dim).uniform_(-usual, usual) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return (candidates, batch, dim) of a map (candidates, batch, dim)."""
        count = self.get_buffer("count")[:, None, None]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = ((self._convolved(x, weight) + bias) / count).relu()
        return x

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        pairs = self.get_buffer("source"), self.get_buffer("target"), self.sizes
        out: Tensor = _Convolution.apply(x.to(dtype), weight.to(dtype), *pairs)
        return out


class _Convolution(torch.autograd.Function):
    """For each offset of the kernel: gather the neighbours, multiply, add to the candidates.

    Plain operations would keep the gathered rows of all offsets for the backward pass, some fifty maps; this gathers
    them again. Sums are in float32 or more.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, source: Tensor, target: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Return (candidates, batch, out) of a map and weights (offsets, in, out)."""
        ctx.save_for_backward(x, weight, source, target)
        ctx.sizes = sizes
        sums = torch.promote_types(x.dtype, torch.float32)
        out = x.new_zeros(*x.shape[:2], weight.shape[2], dtype=sums)
        for one, i, o in zip(weight, source.split(sizes), target.split(sizes), strict=True):
            _add(out, o, _rows(x, i) @ one)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of map and weights."""
        x, weight, source, target = ctx.saved_tensors
        grad, by_weight = grads[0].to(x.dtype), torch.empty_like(weight)
        by_x = torch.zeros_like(x, dtype=grads[0].dtype)
        for n, (i, o) in enumerate(zip(source.split(ctx.sizes), target.split(ctx.sizes), strict=True)):
            some = _rows(grad, o)
            torch.mm(_rows(x, i).T, some, out=by_weight[n])
            _add(by_x, i, some @ weight[n].T)
        return by_x.to(x.dtype), by_weight, None, None, None


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """Return (places x batch, dim), which one matrix product takes."""
    return x.index_select(0, places).flatten(0, 1)


def _add(out: Tensor, places: Tensor, rows: Tensor) -> None:
    out.index_add_(0, places, rows.view(len(places), *out.shape[1:]).to(out.dtype))


def _lengths(n: int) -> list[tuple[int, int]]:
    """Return (length, stride) of all candidates: 1 to 16 at stride 1, then 8 lengths at each stride twice as wide."""
    if n < 1:
        raise BadSetting(f"--clips {n}: expected 1 or more")
    found: list[tuple[int, int]] = []
    length, stride = 0, 1
    while True:
        for _ in range(DENSE if stride == 1 else FURTHER):
            length += stride
            if length > n:
                return found
            found.append((length, stride))
        stride *= 2


def _map(x: Tensor, join: Callable[[int, list[Tensor]], Tensor]) -> Tensor:
    """Return a map: each length's windows joined of two of the length before, or of three where the stride doubles."""
    levels, before = [], 1
    for level, (_, stride) in enumerate(_lengths(len(x))):
        if level == 0:
            parts = [x]
        elif stride == before:
            parts = [x[:-1], x[1:]]
        else:
            parts = [x[:-2:2], x[1:-1:2], x[2::2]]
        x, before = join(level, parts), stride
        levels.append(x)
    return torch.cat(levels)
