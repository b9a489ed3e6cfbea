"""Sequences of different lengths without their padding: the tokens of all of them one after the other, (N, d).

Layers that see one token at a time run on packed tokens as they are. Attention runs on a kernel for packed sequences
where there is one (CUDA, 16-bit numbers); elsewhere on sequences of like length, padded to the longest of their group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

GROUPS = 4
"""Groups of like length at most; more of them save little padding."""


@dataclass(frozen=True)
class Group:
    """Sequences of like length."""

    tokens: Tensor
    """(b, l) places of their tokens among all packed ones; any place for padding."""
    there: Tensor | None
    """(b, l) which are no padding; None if all are."""


@dataclass(frozen=True)
class Packing:
    """Where the tokens of B sequences stand, padded to (B, L) and packed."""

    shape: tuple[int, int]
    """B, L"""
    place: Tensor
    """(N,) place of each packed token among the B * L padded ones."""
    starts: Tensor
    """(B + 1,) int32: sequence i has the packed tokens [starts[i], starts[i + 1])."""
    lengths: tuple[int, ...]
    """Tokens of each sequence."""
    most: int = GROUPS
    """Groups at most."""

    @classmethod
    def of(cls, mask: Tensor, most: int = GROUPS) -> Packing:
        """Return the packing of a mask (B, L), which may have holes."""
        sizes = mask.sum(1)
        starts = functional.pad(sizes.cumsum(0), (1, 0)).int()
        return cls((len(mask), mask.shape[1]), mask.flatten().nonzero()[:, 0], starts, tuple(sizes.tolist()), most)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The sequences by like length; made once, and not where a kernel needs none."""
        return tuple(_group(rows, self.lengths, self.starts.long()) for rows in by_length(self.lengths, self.most))

    @cached_property
    def back(self) -> Tensor:
        """(N,) where each packed token is among those of the groups, group after group."""
        parts = [one.tokens.flatten() if one.there is None else one.tokens[one.there] for one in self.groups]
        return torch.cat(parts).argsort()

    def pack(self, x: Tensor) -> Tensor:
        """Return the tokens (N, d) of padded ones (B, L, d)."""
        return x.flatten(0, 1).index_select(0, self.place)

    def unpack(self, tokens: Tensor) -> Tensor:
        """Return tokens (N, d) as padded ones (B, L, d), with 0 for padding."""
        batch, length = self.shape
        return (
            tokens.new_zeros(batch * length, tokens.shape[1])
            .index_copy(0, self.place, tokens)
            .view(*self.shape, tokens.shape[1])
        )

    def attend(self, qkv: Tensor) -> Tensor:
        """Return what each token takes from those of its sequence: (N, heads, d) of queries, keys, values together.

        `qkv`: (N, 3, heads, d).
        """
        if not len(qkv):
            return qkv[:, 0]
        if qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16):
            from torch.nn.attention.varlen import varlen_attn

            q, k, v = qkv.unbind(1)
            longest = max(self.lengths)
            seen = varlen_attn(q, k, v, self.starts, self.starts, longest, longest)
            assert isinstance(seen, Tensor)
            return seen
        parts = [_attend(qkv, group) for group in self.groups]
        return torch.cat(parts).index_select(0, self.back)


def by_length(lengths: Sequence[int], groups: int = GROUPS) -> list[list[int]]:
    """Return the places of all lengths but 0, in groups of like length and as good as equal size.

    >>> by_length([3, 9, 2, 0, 8], groups=2)
    [[2, 0], [4, 1]]
    """
    order = sorted((place for place, length in enumerate(lengths) if length), key=lengths.__getitem__)
    if not order:
        return []
    if lengths[order[0]] == lengths[order[-1]]:
        return [order]
    size = -(-len(order) // groups)
    return [order[begin : begin + size] for begin in range(0, len(order), size)]


def _group(rows: Sequence[int], lengths: Sequence[int], starts: Tensor) -> Group:
    least, most = lengths[rows[0]], lengths[rows[-1]]
    chosen = torch.tensor(rows, device=starts.device)
    at = torch.arange(most, device=starts.device)
    first = starts[chosen][:, None]
    if least == most:
        return Group(first + at, None)
    there = at < (starts[chosen + 1][:, None] - first)
    return Group(torch.where(there, first + at, first), there)


def _attend(qkv: Tensor, group: Group) -> Tensor:
    """Return (n, heads, d) for the n tokens of a group."""
    found = qkv.index_select(0, group.tokens.flatten()).unflatten(0, group.tokens.shape)
    q, k, v = found.permute(2, 0, 3, 1, 4)
    mask = None if group.there is None else group.there[:, None, None]
    seen = functional.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)
    return seen.flatten(0, 1) if group.there is None else seen[group.there]
