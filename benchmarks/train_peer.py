"""The peer of `train.py`: retrieval training as UniVL does it, written anew from a description of what it costs.

A sample is read from its video's own .npy by loader processes, padded to the most frames in float64, its caption
tokenised and padded to the most words; both are made float32 on the device. The fusion sees every text with every
video of the batch (or, for comparison, the pairs that a cascade picks), padded, five texts at a time, and keeps all
activations. Losses go one way, from text to video: L1 on pooled tokens and L3 on fused pairs; there is no L2.

Left out, in its favour: the masked samples for pretraining losses, its own four optimiser groups, double softmax
attention (this one calls torch's fused kernels, as ours does). Sizes, dropout and optimiser are ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModel, AutoTokenizer

from benchmarks.train import Job

ROWS = 5
"""Texts whose pairs are fused in one call."""


class Samples(Dataset[dict[str, NDArray[Any]]]):
    """Clips with their captions, padded."""

    def __init__(self, job: Job) -> None:
        self.job, self.tokenizer = job, AutoTokenizer.from_pretrained(job.encoder)
        self.texts: list[str] = json.loads((job.place / "texts.json").read_text())

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: int) -> dict[str, NDArray[Any]]:
        rows = np.load(self.job.arrays / f"v{number}.npy")[: self.job.video_tokens]
        video, there = np.zeros((self.job.video_tokens, rows.shape[1])), np.zeros(self.job.video_tokens, np.int64)
        video[: len(rows)], there[: len(rows)] = rows, 1
        words = self.tokenizer(
            self.texts[number], truncation=True, padding="max_length", max_length=self.job.text_tokens
        )
        ids, mask = np.array(words["input_ids"]), np.array(words["attention_mask"])
        return {"video": video, "video_mask": there, "ids": ids, "mask": mask}


def batches(job: Job) -> Iterator[dict[str, Tensor]]:
    """Yield batches without end."""
    loader = DataLoader(
        Samples(job), job.batch, shuffle=True, drop_last=True, num_workers=job.workers, persistent_workers=True
    )
    while True:
        yield from loader


class Block(nn.Module):
    """One self-attention layer, the same sums as ours on padded tokens."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = max(1, dim // 64), dropout
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        split = self.qkv(self.before_attention(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None], dropout_p=dropout)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.before_mlp(x))
        return out


class Tower(nn.Module):
    """Layers with absolute positions and a last normalisation."""

    def __init__(self, dim: int, layers: int, most: int, dropout: float) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(most, dim))
        self.blocks = nn.ModuleList(Block(dim, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.positions
        for block in self.blocks:
            x = block(x, mask)
        out: Tensor = self.last(x)
        return out


class Model(nn.Module):
    """Text encoder, video encoder, fusion."""

    def __init__(self, job: Job, in_dim: int, layers: tuple[int, int], dropout: float) -> None:
        super().__init__()
        self.text = AutoModel.from_pretrained(job.encoder)
        dim, both = job.hidden, job.video_tokens + job.text_tokens
        self.project, self.video = nn.Linear(in_dim, dim), Tower(dim, layers[0], job.video_tokens, dropout)
        self.types, self.fusion = nn.Parameter(torch.randn(2, dim)), Tower(dim, layers[1], both, dropout)
        self.read = nn.Linear(dim, 1)

    def fuse(self, text: Tensor, text_mask: Tensor, video: Tensor, video_mask: Tensor) -> Tensor:
        """Return (P,) logits of pairs."""
        joint = torch.cat([text + self.types[0], video + self.types[1]], dim=1)
        fused = self.fusion(joint, torch.cat([text_mask, video_mask], dim=1))
        out: Tensor = self.read(fused[:, 0])[:, 0]
        return out


def losses(model: Model, batch: dict[str, Tensor], negatives: int) -> tuple[Tensor, int]:
    """Return the loss of a batch on the model's device, and how many pairs were fused.

    `negatives`: K' of the cascade; 0 fuses all pairs.
    """
    mask, video_mask = batch["mask"].bool(), batch["video_mask"].bool()
    text: Tensor = model.text(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
    video = model.video(model.project(batch["video"].float()), video_mask)
    whole = (video * video_mask[:, :, None]).sum(1) / video_mask.sum(1, keepdim=True)
    early = text[:, 0].float() @ whole.float().T
    own = torch.arange(len(text), device=text.device)
    first = functional.cross_entropy(early, own)
    if not negatives:
        later = _all_pairs(model, (text, mask), (video, video_mask))
        return first + functional.cross_entropy(later.float(), own), later.numel()
    pairs, place = _cascade(early.detach(), negatives)
    logits = model.fuse(text[pairs[0]], mask[pairs[0]], video[pairs[1]], video_mask[pairs[1]])
    both = [functional.cross_entropy(logits.float()[one], torch.zeros_like(own)) for one in place]
    return first + sum(both) / 2, len(logits)


def _all_pairs(model: Model, text: tuple[Tensor, Tensor], video: tuple[Tensor, Tensor]) -> Tensor:
    """Return logits (texts, videos)."""
    parts, videos = [], len(video[0])
    for words, mask in zip(text[0].split(ROWS), text[1].split(ROWS), strict=True):
        count = len(words)
        several = [one.unsqueeze(1).repeat(1, videos, *[1] * (one.dim() - 1)).flatten(0, 1) for one in (words, mask)]
        others = [one.unsqueeze(0).repeat(count, *[1] * one.dim()).flatten(0, 1) for one in video]
        parts.append(model.fuse(*several, *others).view(count, videos))
    return torch.cat(parts)


def _cascade(early: Tensor, negatives: int) -> tuple[Tensor, list[Tensor]]:
    """Return the different (text, video) pairs (2, P), and where each text's and each video's are, its own first."""
    size = len(early)
    own = torch.arange(size, device=early.device)[:, None]
    others = early.masked_fill(torch.eye(size, dtype=torch.bool, device=early.device), -torch.inf)
    k = min(negatives, size - 1)
    to_video, to_text = (torch.cat([own, one.topk(k, dim=1).indices], dim=1) for one in (others, others.T))
    keys, place = torch.stack([own * size + to_video, to_text * size + own]).unique(return_inverse=True)
    return torch.stack([keys // size, keys % size]), list(place)
