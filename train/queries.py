"""Grounding's view of a part of a split: captions as queries to whole videos, with the spans that they ask for.

A query's span is its clip's; where annotators gave several windows for one caption (QVHighlights) it asks for any. Of
a data set that has such, a caption of a whole video without any has no answer that is known, and is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile
from pipeline.store import Features

Table = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Asked:
    """What the queries of a corpus ask for, in their order."""

    spans: Tensor
    """(C, W, 2) start and end as fractions of the video; a query with fewer than W windows repeats its first."""
    seconds: Tensor
    """(V,) duration of each video."""
    dropped: int
    """Queries left out as they have no window, or none that begins before it ends, and inside the video."""
    clamped: int
    """Queries with a window that ends behind the video; it ends with the video here."""

    def of(self, captions: Tensor, turn: int) -> Tensor:
        """Return (K, 2) one window of each query: another one every turn."""
        return self.spans[captions, turn % self.spans.shape[1]]

    def to(self, device: torch.device | str) -> Asked:
        """Return it on a device."""
        return Asked(self.spans.to(device), self.seconds.to(device), self.dropped, self.clamped)


@dataclass(frozen=True)
class Whole:
    """Tables in which each clip is a whole video, with the captions that ask for something in it."""

    clips: Table
    captions: Table
    chosen: dict[str, NDArray[np.int64]]
    asked: Asked
    """Of the chosen captions; `seconds` of all clips."""


def whole_videos(features: Features, clips: Table, captions: Table, chosen: dict[str, NDArray[np.int64]]) -> Whole:
    """Return the tables as grounding needs them. Raises BadFeatureFile if no query is left."""
    seconds = _seconds(features)
    video = clips["video"].astype(np.int64)[captions["clip"]]
    windows = _windows(features, clips, captions, chosen["captions"])
    own_seconds = seconds[video[chosen["captions"]]][:, None, None]
    spans = np.where(np.isinf(windows), 1.0, windows / own_seconds)  # a clip without an end ends with its video
    # A video that nobody has seen has no length to hold a span against: its queries are missing, not wrong.
    spans = np.where(np.isinf(own_seconds) & ~np.isnan(windows), np.array([0.0, 1.0]), spans)
    clamped = (spans[:, :, 1] > 1 + 1e-9).any(1)
    spans = np.clip(spans, 0, 1)
    good = spans[:, :, 1] > spans[:, :, 0]
    kept = good.any(1)
    if not kept.any():
        raise BadFeatureFile(
            f"{features.parts[0].path}: no query has a span inside its video; is it a grounding split?"
        )
    first = spans[np.arange(len(spans)), good.argmax(1)]
    spans = np.where(good[:, :, None], spans, first[:, None])[kept]
    asked = Asked(
        torch.from_numpy(spans).float(), torch.from_numpy(seconds).float(), int((~kept).sum()), int(clamped.sum())
    )
    own = chosen["captions"][kept]
    ids = features.videos["id"]
    every = {"id": ids, "video": np.arange(len(ids)), "start": np.zeros(len(ids)), "end": np.full(len(ids), np.nan)}
    return Whole(every, {**captions, "clip": video}, {"clips": np.unique(video[own]), "captions": own}, asked)


def _seconds(features: Features) -> NDArray[np.float64]:
    """Return (V,) how long each video is: what was decoded, else what its container promises, else its rows.

    Infinity for a video of which none of these is known.
    """
    found = np.where(features.videos["decoded"] > 0, features.videos["decoded"], features.videos["duration"])
    rows = [stream.count / stream.rows_per_second for stream in features.streams.values()]
    longest = np.max(rows, axis=0) if rows else np.zeros(len(found))
    known = np.where(found > 0, found, longest).astype(np.float64)
    return np.where(known > 0, known, np.inf)


def _windows(features: Features, clips: Table, captions: Table, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (C, W, 2) the seconds that each chosen caption asks for; fewer than W windows are repeated, none: NaN."""
    clip = captions["clip"][chosen]
    end = np.where(np.isnan(clips["end"][clip]), np.inf, clips["end"][clip])
    own = np.stack([clips["start"][clip], end], axis=1)[:, None]
    table = features.table("windows")
    if not len(table.get("caption", ())):
        return own
    counts = np.bincount(table["caption"], minlength=len(captions["id"]))[chosen]
    starts = np.searchsorted(table["caption"], chosen)  # captions in order, as they are written
    whole = (own[:, :, 0] == 0) & np.isinf(own[:, :, 1])  # not a moment: that of a query without an answer
    out = np.repeat(np.where(whole[:, :, None], np.nan, own), max(1, int(counts.max())), axis=1)
    for number in range(out.shape[1]):
        have = counts > 0
        at = starts[have] + np.minimum(number, counts[have] - 1)
        out[have, number] = np.stack([table["start"][at], table["end"][at]], axis=1)
    return out
