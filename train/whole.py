"""Whole videos of a feature file, with captions or without: their tokens, and what a checkpoint makes of them.

    videos, there = videos_with_rows(found.features, places, found.run.data.streams)
    for x in windowed(found, videos, sight(found.run, videos.rate, Windows()), lambda place, tokens: tokens):
        ...                                                             # (T, d), one video after the other

An encoder whose tokens see each other goes over a video in windows, and what these share is averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.store import Features
from train import rows
from train.config import Run
from train.data import streams_of
from train.loading import Trained, device_for, room
from train.rows import Rows
from train.settings import Windows
from train.windows import Span, average, windows

AT_ONCE = 64
"""Windows that are encoded together."""

Head = Callable[[int, Tensor], Tensor]
"""Place of a video and tokens (L, d) of one of its windows to what is to be known of each, (L, anything)."""


@dataclass(frozen=True)
class Videos:
    """Whole videos with rows in all of some streams."""

    places: NDArray[np.int64]
    """(V,) in the feature file."""
    streams: tuple[Rows, ...]

    @property
    def rate(self) -> float:
        """Return the tokens of a second, on the grid of the slowest stream."""
        return min(one.rate for one in self.streams)

    def __len__(self) -> int:
        """Return how many videos there are."""
        return len(self.places)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield each video's tokens (T, D) float32, streams side by side; read from the file one after the other."""
        for place in range(len(self)):
            one = torch.tensor([place])
            yield rows.tokens(self.streams, one, int(rows.lengths(self.streams, one)))[0][0]


def streams_in(features: Features, named: Sequence[str]) -> tuple[str, ...]:
    """Return the streams that are named, or all there are. Raises BadFeatureFile where there are none."""
    if not features.streams:
        raise BadFeatureFile(f"{features.parts[0].path} has no streams; `pipeline join` puts it together with features")
    return tuple(named or features.streams)


def videos_with_rows(
    features: Features, places: NDArray[np.int64], streams: Sequence[str]
) -> tuple[Videos, NDArray[np.bool_]]:
    """Return the videos at `places` of the file that have rows in all streams, and which these are."""
    ends = np.full(len(places), np.nan)
    found, there = streams_of(features, streams, (places, np.zeros(len(places)), ends), resident=0)
    return Videos(places[there], found), there


def check_room(videos: Videos, width: int) -> None:
    """Raise BadSetting where rows of `width` bytes, one for each second, do not fit into memory."""
    if not len(videos):
        return
    seconds, free = float(rows.lengths(videos.streams).sum()) / videos.rate, room(torch.device("cpu"))
    if seconds * width > free:
        raise BadSetting(
            f"{seconds:,.0f} seconds need {seconds * width / 1e9:.1f} GB, and half of what is free is {free / 1e9:.1f} "
            "GB; take fewer --streams, or shorter rows that a checkpoint makes of them (`train export-features`)"
        )


def sight(run: Run, rate: float, windows: Windows) -> tuple[int, int]:
    """Return the tokens of a window, and those from one window to the next. Raises BadSetting."""
    most = run.data.max_video_tokens
    if not run.method_settings.contextual:
        return most, most
    size = round(windows.window * rate) if windows.window else most
    if not 1 <= size <= most:
        raise BadSetting(
            f"--window {windows.window}: {size} video tokens at {rate:g} a second, and the encoder takes 1 to {most}"
        )
    stride = round(windows.stride * rate) if windows.stride else max(1, size // 2)
    if not 1 <= stride <= size:
        raise BadSetting(f"--stride {windows.stride}: {stride} video tokens; expected 1 to {size}, those of a window")
    return size, stride


@torch.inference_mode()
def windowed(found: Trained, videos: Videos, seen: tuple[int, int], head: Head) -> Iterator[NDArray[np.float64]]:
    """Yield what `head` tells of each video's tokens, a row for each, averaged where windows overlap."""
    waiting: list[tuple[int, Tensor, list[Span]]] = []
    for place, x in enumerate(videos):
        waiting.append((place, x, windows(len(x), *seen)))
        if sum(len(spans) for _, _, spans in waiting) >= AT_ONCE:
            yield from _encoded(found, waiting, head)
            waiting = []
    yield from _encoded(found, waiting, head)


def _encoded(
    found: Trained, some: Sequence[tuple[int, Tensor, list[Span]]], head: Head
) -> Iterator[NDArray[np.float64]]:
    if not some:
        return
    tokens = _tokens(found, [x[first:last] for _, x, spans in some for first, last in spans])
    for place, _, spans in some:
        parts = [head(place, next(tokens)[: last - first]).float().cpu().numpy() for first, last in spans]
        yield average(parts, spans)


def _tokens(found: Trained, cut: list[Tensor]) -> Iterator[Tensor]:
    """Yield what the model makes of each window, padded: of one long video there may be thousands."""
    device = device_for(found.run)
    for at in range(0, len(cut), AT_ONCE):
        some = cut[at : at + AT_ONCE]
        lengths = torch.tensor([len(one) for one in some], device=device)
        mask = torch.arange(int(lengths.max()), device=device) < lengths[:, None]
        yield from found.model.video(torch.nn.utils.rnn.pad_sequence(some, batch_first=True).to(device), mask)  # type: ignore[operator]


def by_second(x: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return a row for each second: the average of the rows whose middle is in it, else the row that it lies in.

    Half a second at the end is one, less belongs to the last one.

    >>> by_second(np.array([[0.0], [1.0], [4.0]]), 1.5).tolist(), by_second(np.array([[2.0], [3.0]]), 0.5).tolist()
    ([[0.0], [2.5]], [[2.0], [2.0], [3.0], [3.0]])
    """
    if rate == 1:
        return x
    count = max(1, int(len(x) / rate + 0.5))
    second = np.minimum(((np.arange(len(x)) + 0.5) / rate).astype(np.int64), count - 1)
    own = np.minimum(((np.arange(count) + 0.5) * rate).astype(np.int64), len(x) - 1)
    sizes = np.bincount(second, minlength=count)[:, None]
    total = np.zeros((count, x.shape[1]))
    np.add.at(total, second, x)
    return np.where(sizes > 0, total / np.maximum(sizes, 1), x[own])
