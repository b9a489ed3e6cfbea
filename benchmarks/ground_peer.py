"""The peer of `ground.py`: 2D-TAN on the whole N x N map, written from the paper's description.

Candidates' features are written into a map (batch, hidden, N, N), zero elsewhere; each layer is a Conv2d over all of
it, then ReLU, then the mask with 1 / #valid neighbours. With the same weights its scores are ours, as a test says.

In its favour: the official code pads the map by half a kernel for each layer, which makes the first layers' maps larger
(96 x 96 at ActivityNet's settings), and builds its masks anew in each step; this one does neither.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SCALES = {16: (16,), 64: (16, 8, 8), 128: (16, 8, 8, 8)}


class Dense(nn.Module):
    """Rows (batch, bins, in) and a sentence's vector (batch, text) to logits (batch, N, N)."""

    def __init__(self, dims: tuple[int, int, int], clips: int, kernel: int, layers: int) -> None:
        """`dims`: of a row, of a sentence, of a candidate."""
        super().__init__()
        row, text, hidden = dims
        self.clips = clips
        self.frames = nn.Conv1d(row, hidden, 1)
        self.said, self.seen = nn.Linear(text, hidden), nn.Conv2d(hidden, hidden, 1)
        self.convs = nn.ModuleList(nn.Conv2d(hidden, hidden, kernel, padding=kernel // 2) for _ in range(layers))
        self.read = nn.Conv2d(hidden, 1, 1)
        mask = self.map_of(torch.ones(1, 1, clips)).bool().float()
        count = functional.conv2d(mask, torch.ones(1, 1, kernel, kernel), padding=kernel // 2)
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("weight", mask / count.clamp(min=1), persistent=False)

    def map_of(self, x: Tensor) -> Tensor:
        """Return (batch, hidden, N, N) of clips (batch, hidden, N)."""
        found = x.new_zeros(*x.shape, x.shape[2])
        stride, before = 1, 0
        for number, lengths in enumerate(SCALES[self.clips]):
            for level in range(lengths):
                if level:
                    x = functional.max_pool1d(x, 2, 1)
                elif number:
                    x = functional.max_pool1d(x, 3, 2)
                further = before + level * stride
                start = torch.arange(0, self.clips - further, stride)
                found[:, :, start, start + further] = x
            before += lengths * stride + stride
            stride *= 2
        return found

    def forward(self, video: Tensor, sentence: Tensor) -> Tensor:
        x = functional.relu(self.frames(functional.normalize(video, dim=2).transpose(1, 2)))
        x = self.map_of(functional.avg_pool1d(x, x.shape[2] // self.clips))
        x = functional.normalize(self.seen(x) * self.said(sentence)[:, :, None, None], dim=1) * self.get_buffer("mask")
        for conv in self.convs:
            x = functional.relu(conv(x)) * self.get_buffer("weight")
        logits: Tensor = self.read(x)[:, 0]
        return logits

    def loss(self, video: Tensor, sentence: Tensor, truth: Tensor, limits: tuple[float, float]) -> Tensor:
        """Return the binary cross entropy at the candidates; `truth` (batch, 2) as fractions."""
        at = torch.arange(self.clips, device=truth.device) / self.clips
        begin, end = at[:, None], at + 1 / self.clips
        s, e = truth[:, 0, None, None], truth[:, 1, None, None]
        both = (torch.minimum(end, e) - torch.maximum(begin, s)).clamp(min=0)
        overlap = both / (torch.maximum(end, e) - torch.minimum(begin, s))
        wanted = ((overlap - limits[0]) / (limits[1] - limits[0])).clamp(0, 1)
        there = self.get_buffer("mask")[0].bool().expand_as(wanted)
        return functional.binary_cross_entropy_with_logits(self(video, sentence)[there], wanted[there])
