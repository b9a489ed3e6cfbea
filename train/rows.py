"""The rows that a stream has for the clips of a corpus, and how they become video tokens on one time grid.

They are resident, all in one flat buffer on the device, or left in the feature file and read a batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile
from pipeline.store import Features
from train.config import Long

NEAR = 1 << 19
"""Bytes that are still near the processor when they have been read."""


@dataclass(frozen=True)
class Stored:
    """Rows that stay in the feature file."""

    features: Features
    spans: NDArray[np.int64]
    """(V, 3) of each clip: place of its video in the file, first row there, last + 1."""
    finite: NDArray[np.bool_]
    """(V,) whose rows have been read and are finite: a file's rows stay what they are."""


@dataclass(frozen=True)
class Rows:
    """The rows of one stream for V clips: clip c has `count[c]` of them from `first[c]`."""

    name: str
    values: Tensor | None
    """(N, D), as stored; None where rows stay in the file."""
    first: Tensor
    """(V,) place of each clip's first row in `values`; in its video where rows stay in the file."""
    count: Tensor
    """(V,) 1 or more."""
    rate: float
    """Rows a second."""
    dim: int
    stored: Stored | None = None

    def to(self, device: torch.device | str) -> Rows:
        """Return the rows on a device; those that stay in the file come there when they are read."""
        values = None if self.values is None else self.values.to(device)
        return replace(self, values=values, first=self.first.to(device), count=self.count.to(device))

    def of(self, clips: Tensor) -> Rows:
        """Return the rows of some clips, by their places: in memory, whatever they were."""
        count = self.count[clips]
        if self.stored is None:
            return replace(self, first=self.first[clips], count=count)
        stored, own = self.stored, clips.cpu().numpy()
        spans = stored.spans[own].tolist()
        stored.features.expect(self.name, spans)
        known = bool(stored.finite[own].all())
        values = read(stored.features, self.name, spans, again=True, check=not known, pin=count.is_cuda)
        stored.finite[own] = True
        return replace(
            self,
            values=values.to(count.device, non_blocking=True),
            first=count.cumsum(0) - count,
            count=count,
            stored=None,
        )

    def subset(self, clips: Tensor) -> Rows:
        """Return the rows of some clips, by their places, where they are."""
        stored, own = self.stored, clips.cpu().numpy()
        if stored is not None:
            stored = replace(stored, spans=stored.spans[own], finite=stored.finite[own])
        return replace(self, first=self.first[clips], count=self.count[clips], stored=stored)


def read(
    features: Features,
    stream: str,
    spans: Sequence[Sequence[int]],
    again: bool = False,
    check: bool = True,
    pin: bool = False,
) -> Tensor:
    """Return the rows of spans (video's place, first, last + 1), one after the other. Raises BadFeatureFile for NaN.

    `again`: they are some of those that are read again and again. `check`: whether they are finite is not known yet.
    """
    found, fill = features.stream(stream), features.read_rows if again else features.fill
    shape = sum(last - first for _, first, last in spans), found.dim
    flat = np.empty(shape, found.dtype)  # NumPy has the system use large pages, torch does not
    out = torch.from_numpy(flat)
    if pin:
        out = torch.empty(shape, dtype=out.dtype, pin_memory=True)
        flat = out.numpy()
    finite, at, checked = True, 0, 0
    for video, first, last in spans:
        fill(stream, video, first, flat[at : at + last - first])
        at += last - first
        if check and (at == len(flat) or flat[checked:at].nbytes >= NEAR):
            finite, checked = finite and _finite(flat[checked:at]), at
    if not finite:
        raise _odd(features, stream, spans, flat)
    return out


def _finite(rows: NDArray[Any]) -> bool:
    """Return whether no number is NaN or infinite: these have all bits of the exponent set, and no others have.

    So they are the largest as integers: with a sign those above 0, without one those below. That is ten times as fast
    as to ask of each float16.
    """
    above, below = np.array([np.inf, -np.inf], rows.dtype)
    signed, unsigned = f"i{rows.itemsize}", f"u{rows.itemsize}"
    return bool(
        rows.view(signed).max(initial=0) < above.view(signed)
        and rows.view(unsigned).max(initial=0) < below.view(unsigned)
    )


def _odd(features: Features, stream: str, spans: Sequence[Sequence[int]], flat: NDArray[Any]) -> BadFeatureFile:
    """Return the error that tells which of the rows are not finite."""
    odd = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    ends = np.cumsum([last - first for _, first, last in spans])
    video = features.videos["id"][spans[int(np.searchsorted(ends, odd[0], side="right"))][0]]
    return BadFeatureFile(
        f"{features.parts[0].path}: {len(odd):,} rows of {stream} are NaN or infinite, the first of video {video}; "
        "`pipeline verify` lists them, extract these videos again with --force"
    )


def lengths(streams: Sequence[Rows], clips: Tensor | slice = slice(None)) -> Tensor:
    """Return the video tokens of clips on the common grid, which has the rate of the slowest stream."""
    rate = min(rows.rate for rows in streams)
    return torch.stack([rows.count[clips] for rows in streams if rows.rate == rate]).amax(0)


def tokens(
    streams: Sequence[Rows], clips: Tensor, most: int, long: Long = "truncate", size: int = 0
) -> tuple[Tensor, Tensor]:
    """Return tokens (B, L, D) float32 and mask (B, L) of clips, L at most `most`; streams side by side.

    Token j of the grid is the row that each stream has at the middle of its span. Clips with more than `most` tokens
    are cut down as `long` says. `size`: L, if it is to be more than these clips need.
    """
    some = [rows.of(clips) for rows in streams]
    total = lengths(some)
    taken = total.clamp(max=most)
    at = torch.arange(size or int(taken.max()), device=clips.device)
    mask = at < taken[:, None]
    rate = min(rows.rate for rows in some)
    if long == "bins" and bool((total > most).any()):
        edges = (at * total[:, None]) // taken[:, None], ((at + 1) * total[:, None]) // taken[:, None]
        parts = [_averages(rows, edges, rows.rate / rate) for rows in some]
    else:
        step = (total / taken)[:, None] if long == "uniform" else torch.ones_like(total)[:, None]
        middle = ((at + 0.5) * step).floor() + 0.5
        parts = [_picked(rows, middle * (rows.rate / rate)) for rows in some]
    return _beside(parts, mask), mask


def _beside(parts: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return parts (B, L, D) side by side as float32, with 0 for what is not in the mask: each number written once."""
    out = torch.empty(*mask.shape, sum(part.shape[2] for part in parts), device=mask.device)
    for part, own in zip(parts, out.split([part.shape[2] for part in parts], dim=2), strict=True):
        own.copy_(part)
    return out.masked_fill_(~mask[:, :, None], 0)


def _picked(rows: Rows, at: Tensor) -> Tensor:
    """Return the row at each of the places `at` (B, L), in rows from the clip's first."""
    assert rows.values is not None
    row = torch.minimum(at.long(), rows.count[:, None] - 1) + rows.first[:, None]
    return rows.values.index_select(0, row.flatten()).view(*row.shape, -1)


def _averages(rows: Rows, edges: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """Return the average of the rows in each span of the grid: one row or more."""
    assert rows.values is not None
    last = rows.count[:, None]
    first = torch.minimum((edges[0] * scale).long(), last - 1)
    stop = torch.maximum(torch.minimum((edges[1] * scale).long(), last), first + 1)
    sizes = (stop - first).flatten()
    begins = sizes.cumsum(0) - sizes
    start = (first + rows.first[:, None]).flatten()
    inside = torch.arange(int(sizes.sum()), device=last.device) - begins.repeat_interleave(sizes)
    row = start.repeat_interleave(sizes) + inside
    found = rows.values.index_select(0, row).float()
    return torch.segment_reduce(found, "mean", lengths=sizes).view(*first.shape, -1)
