"""The networks on top of cached features: video encoder and fusion, of plain self-attention layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.losses import mean_tokens, product
from train.packing import Packing

HEAD = 64
"""Numbers of one attention head."""


class Block(nn.Module):
    """One self-attention layer, normalised before attention and before its two-layer perceptron."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = max(1, dim // HEAD)
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Return (N, d) of packed tokens (N, d)."""
        return self._after(x, packing.attend(self._before(x)))

    def _before(self, x: Tensor) -> Tensor:
        """Return queries, keys and values, (N, 3, heads, d / heads)."""
        qkv: Tensor = self.qkv(self.before_attention(x)).unflatten(1, (3, self.heads, x.shape[1] // self.heads))
        return qkv

    def _after(self, x: Tensor, seen: Tensor) -> Tensor:
        """Return (N, d) of tokens and of what attention took for each."""
        x = x + self.dropout(self.out(seen.flatten(1)))
        out: Tensor = x + self.mlp(self.before_mlp(x))
        return out

    def compile_tokens(self) -> None:
        """Compile what sees one token at a time, for any number of them; attention has kernels of its own."""
        self._before = torch.compile(self._before, dynamic=True)  # type: ignore[method-assign]
        self._after = torch.compile(self._after, dynamic=True)  # type: ignore[method-assign]


class Stack(nn.Module):
    """Self-attention layers over packed tokens, and a last normalisation."""

    def __init__(self, dim: int, layers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(dim)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """Return (N, d) of packed tokens (N, d)."""
        for block in self.blocks:
            x = block(x, packing)
        out: Tensor = self.last(x)
        return out


class Layers(nn.Module):
    """A stack over padded tokens, which have absolute positions if there is a layer that could use them."""

    def __init__(self, dim: int, layers: int, most: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.positions = _small(nn.Embedding(most, dim)) if layers else None
        self.stack = Stack(dim, layers, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, d) of tokens (B, L, d) with `mask` (B, L); 0 for what is not in the mask."""
        packing = Packing.of(mask)
        return packing.unpack(self.packed(packing.pack(x), packing))

    def packed(self, tokens: Tensor, packing: Packing) -> Tensor:
        """Return (N, d) of packed tokens (N, d)."""
        if self.positions is not None:
            tokens = tokens + self.positions(packing.place % packing.shape[1])
        out: Tensor = self.stack(tokens, packing)
        return out


def _small(table: nn.Embedding) -> nn.Embedding:
    """Begin as BERT's do: places and types are not to drown what stands there."""
    nn.init.normal_(table.weight, std=0.02)
    return table


def pooled(tokens: Tensor, mask: Tensor, how: str) -> Tensor:
    """Return what stands for a caption: its first token, its last one, or the average of all."""
    if how == "last":
        return tokens[torch.arange(len(tokens), device=tokens.device), mask.sum(1) - 1]
    return tokens[:, 0] if how == "first" else mean_tokens(tokens, mask)


def scale_of(logarithm: Tensor) -> Tensor:
    """Return a scale that is learnt as its logarithm, at most 100 (CLIP)."""
    return logarithm.clamp(max=math.log(100)).exp()


class VideoEncoder(nn.Module):
    """Video tokens to x in R^(m x d) (TACo, 3.1): a linear projection, then 0, 1, 2 or 4 self-attention layers."""

    def __init__(self, in_dim: int, dim: int, layers: int, most: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.project = nn.Linear(in_dim, dim)
        self.layers = Layers(dim, layers, most, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, d), 0 for what is not in the mask."""
        packing = Packing.of(mask)
        return packing.unpack(self.layers.packed(self.project(packing.pack(x)), packing))


class Fusion(nn.Module):
    """Text and video tokens of pairs to w . z^cls (TACo, eq. 5): token types, absolute positions, self-attention.

    A video's positions begin after the longest caption there may be, so that no caption's length moves them.
    """

    def __init__(self, dim: int, layers: int, most: tuple[int, int], dropout: float = 0.0) -> None:
        """`most`: text and video tokens at most."""
        super().__init__()
        self.types = _small(nn.Embedding(2, dim))
        self.positions = _small(nn.Embedding(sum(most), dim))
        self.most = most
        self.stack = Stack(dim, layers, dropout)
        self.read = nn.Linear(dim, 1)

    def forward(self, text: tuple[Tensor, Tensor], video: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        """Return (P,) logits of pairs (P, 2) of a text's and a video's place.

        `text`: tokens (T, S, d), the first of which is [CLS], and which of them there are (T, S); `video` likewise.
        """
        tokens, masks = zip(text, video, strict=True)
        begin = (0, self.most[0])
        placed = [
            x + self.types.weight[kind] + self.positions.weight[begin[kind] : begin[kind] + x.shape[1]]
            for kind, x in enumerate(tokens)
        ]
        table = torch.cat([x.flatten(0, 1) for x in placed])
        packing = Packing.of(torch.cat([mask[some] for mask, some in zip(masks, pairs.unbind(1), strict=True)], dim=1))
        fused = self.stack(table.index_select(0, self._rows(tokens, pairs).flatten()[packing.place]), packing)
        first = fused[packing.starts[:-1].long()]
        return product(first, self.read.weight.T)[:, 0] + self.read.bias

    def in_chunks(self, text: tuple[Tensor, Tensor], video: tuple[Tensor, Tensor], pairs: Tensor, chunk: int) -> Tensor:
        """Return what `forward` does, so many pairs at a time; 0: all.

        While training, a chunk keeps nothing but its pairs: in the backward pass it is fused again, with the same
        dropout.
        """
        if not chunk or len(pairs) <= chunk:
            whole: Tensor = self(text, video, pairs)
            return whole

        def fuse(some: Tensor) -> Tensor:
            places = [side.unique(return_inverse=True) for side in some.unbind(1)]
            (left, _), (right, _) = places
            both = tuple(x[left] for x in text), tuple(x[right] for x in video)
            out: Tensor = self(*both, torch.stack([place for _, place in places], dim=1))
            return out

        again = torch.is_grad_enabled()
        parts = [checkpoint(fuse, some, use_reentrant=False) if again else fuse(some) for some in pairs.split(chunk)]
        return torch.cat(parts)

    @staticmethod
    def _rows(tokens: tuple[Tensor, ...], pairs: Tensor) -> Tensor:
        """Return (P, S + L) the rows of the table, all texts' tokens and then all videos', of each pair."""
        text, video = tokens
        of_text = pairs[:, :1] * text.shape[1] + torch.arange(text.shape[1], device=pairs.device)
        of_video = pairs[:, 1:] * video.shape[1] + torch.arange(video.shape[1], device=pairs.device)
        return torch.cat([of_text, of_video + text.shape[0] * text.shape[1]], dim=1)
