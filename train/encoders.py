"""The networks on top of cached features: video encoder and fusion, of plain self-attention layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.losses import mean_tokens

HEAD = 64
"""Numbers of one attention head."""


class Block(nn.Module):
    """One self-attention layer, normalised before attention and before its two-layer perceptron."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = max(1, dim // HEAD), dropout
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, d) of tokens (B, L, d), of which those in `mask` (B, L) are looked at."""
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None], dropout_p=dropout)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, dim))
        out: Tensor = x + self.mlp(self.before_mlp(x))
        return out


class Layers(nn.Module):
    """Self-attention layers over tokens with absolute positions, and a last normalisation."""

    def __init__(self, dim: int, layers: int, most: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.positions = nn.Embedding(most, dim) if layers else None
        self.blocks = nn.ModuleList(Block(dim, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, d) of tokens (B, L, d) with `mask` (B, L)."""
        if self.positions is not None:
            x = x + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        out: Tensor = self.last(x)
        return out


def pooled(tokens: Tensor, mask: Tensor, how: str) -> Tensor:
    """Return what stands for a caption: its first token, or the average of all."""
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
        """Return (B, L, d)."""
        out: Tensor = self.layers(self.project(x), mask)
        return out


class Fusion(nn.Module):
    """Text and video tokens of pairs to w . z^cls (TACo, eq. 5): token types, absolute positions, self-attention."""

    def __init__(self, dim: int, layers: int, most: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.types = nn.Embedding(2, dim)
        self.layers = Layers(dim, layers, most, dropout)
        self.read = nn.Linear(dim, 1)

    def forward(self, text: Tensor, text_mask: Tensor, video: Tensor, video_mask: Tensor) -> Tensor:
        """Return (P,) logits of pairs: text (P, S, d) with its first token as [CLS], video (P, L, d)."""
        joint = torch.cat([text + self.types.weight[0], video + self.types.weight[1]], dim=1)
        fused = self.layers(joint, torch.cat([text_mask, video_mask], dim=1))
        logits: Tensor = self.read(fused[:, 0])[:, 0]
        return logits
