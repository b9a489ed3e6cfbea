"""One part of a split, resident: its clips' rows in one flat buffer a stream, its captions as word pieces.

A batch is put together by index arithmetic on the device that holds the buffers; there are no loader processes.

    corpus = load(Features.open(path), "split1/train", ["resnet152:howto100m"])
    x, mask = video_tokens(corpus, torch.tensor([0, 5]), most=48)     # (2, 48, 2048), (2, 48)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile, BadSetting, unknown
from pipeline.store import Features
from train.config import Long


@dataclass(frozen=True)
class Rows:
    """The rows that one stream has for the clips of a corpus."""

    name: str
    values: Tensor
    """(N, D), as stored."""
    first: Tensor
    """(V,) place of each clip's first row."""
    count: Tensor
    """(V,) rows of each clip; 1 or more."""
    rate: float
    """Rows a second."""


@dataclass(frozen=True)
class Words:
    """The words of captions that are of interest, by characters: caption c has [offsets[c], offsets[c + 1])."""

    offsets: NDArray[np.int64]
    spans: NDArray[np.int64]
    """(W, 2) characters [start, end) in the caption's text."""
    weights: NDArray[np.float32]
    """(W,) a word's share of its caption's idf (TACo, eq. 7), 0 for words that are not of interest."""


@dataclass(frozen=True)
class Corpus:
    """Clips with their captions; a caption's clip is `clip[c]`."""

    dataset: str
    part: str
    clips: tuple[str, ...]
    captions: tuple[str, ...]
    texts: tuple[str, ...]
    clip: Tensor
    """(C,) int64."""
    streams: tuple[Rows, ...]
    words: Words | None
    lacking: tuple[str, ...]
    """Clips of the part without rows in one of the streams; they and their captions are left out."""
    lacking_captions: int

    @property
    def dim(self) -> int:
        """Return the numbers of one video token: all streams' rows side by side."""
        return sum(rows.values.shape[1] for rows in self.streams)

    @property
    def device(self) -> torch.device:
        """Return where the rows are."""
        return self.streams[0].values.device

    def to(self, device: torch.device | str) -> Corpus:
        """Return the corpus with its rows on a device."""
        moved = tuple(
            replace(r, values=r.values.to(device), first=r.first.to(device), count=r.count.to(device))
            for r in self.streams
        )
        return replace(self, streams=moved, clip=self.clip.to(device))


def load(features: Features, part: str, streams: Sequence[str] = (), words: bool = True) -> Corpus:
    """Load one part of a split, with these streams or all there are.

    Raises BadFeatureFile for what is not in the file, for words without weights and for rows that are not finite.
    """
    clips, captions = features.table("clips"), features.table("captions")
    if not len(captions.get("id", ())):
        raise BadFeatureFile(f"{_path(features)} has no captions; extract a data set that has some, or `pipeline join`")
    if not features.streams:
        raise BadFeatureFile(f"{_path(features)} has captions only; `pipeline join` puts it together with features")
    chosen = _part(features, part, len(clips["id"]), len(captions["id"]))
    names = list(streams) or list(features.streams)
    first, last = zip(*(_ranges(features, name, clips, chosen["clips"]) for name in names), strict=True)
    whole = np.all([b > a for a, b in zip(first, last, strict=True)], axis=0)
    if not whole.any():
        raise BadFeatureFile(f"{part}: no clip has rows in {', '.join(names)}; extract them, or choose other --streams")
    place = np.full(len(clips["id"]), -1)
    place[chosen["clips"][whole]] = np.arange(whole.sum())
    kept = chosen["captions"][place[captions["clip"][chosen["captions"]]] >= 0]
    videos = clips["video"][chosen["clips"]][whole]
    return Corpus(
        dataset=str(features.parts[0].attrs.get("dataset", "")),
        part=part,
        clips=tuple(clips["id"][chosen["clips"]][whole]),
        captions=tuple(captions["id"][kept]),
        texts=tuple(captions["text"][kept]),
        clip=torch.from_numpy(place[captions["clip"][kept]]),
        streams=tuple(
            _rows(features, name, videos, a[whole], b[whole]) for name, a, b in zip(names, first, last, strict=True)
        ),
        words=_words(features, kept) if words else None,
        lacking=tuple(clips["id"][chosen["clips"]][~whole]),
        lacking_captions=len(chosen["captions"]) - len(kept),
    )


def subset(corpus: Corpus, captions: Tensor) -> Corpus:
    """Return a corpus of some captions, by their places, and their clips."""
    clips, clip = corpus.clip[captions].unique(return_inverse=True)
    words = corpus.words
    if words is not None:
        own = [np.arange(words.offsets[c], words.offsets[c + 1]) for c in captions.tolist()]
        at = np.concatenate(own)
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in own])])
        words = Words(offsets, words.spans[at], words.weights[at])
    return replace(
        corpus,
        clips=tuple(corpus.clips[c] for c in clips.tolist()),
        captions=tuple(corpus.captions[c] for c in captions.tolist()),
        texts=tuple(corpus.texts[c] for c in captions.tolist()),
        clip=clip,
        streams=tuple(replace(rows, first=rows.first[clips], count=rows.count[clips]) for rows in corpus.streams),
        words=words,
    )


def _path(features: Features) -> str:
    return str(features.parts[0].path)


def _part(features: Features, part: str, clips: int, captions: int) -> dict[str, NDArray[np.int64]]:
    """Return the places of a part's clips and captions; of all, for `all`."""
    if part == "all":
        return {"clips": np.arange(clips), "captions": np.arange(captions)}
    found = features.table(f"splits/{part}")
    if not found:
        raise unknown("part of a split", part, [*features.parts_of_splits(), "all"])
    if not len(found["captions"]):
        raise BadSetting(f"{part} of {_path(features)} has no captions; choose another --split")
    return found


def _ranges(
    features: Features, stream: str, clips: dict[str, NDArray[np.float64]], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    videos = clips["video"][chosen].astype(np.int64)
    return features.ranges(stream, videos, clips["start"][chosen], clips["end"][chosen])


def _rows(
    features: Features, stream: str, videos: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
) -> Rows:
    """Read whole videos, each once, so that clips that overlap share rows."""
    found = features.stream(stream)
    used, of = np.unique(videos, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(found.count[used])])
    values = np.empty((int(offsets[-1]), found.dim), found.dtype)
    for number, video in enumerate(used):
        values[offsets[number] : offsets[number + 1]] = features.rows(stream, str(features.videos["id"][video]))
    odd = np.flatnonzero(~np.isfinite(values.sum(axis=1, dtype=np.float64)))
    if len(odd):
        video = features.videos["id"][used[np.searchsorted(offsets, odd[0], side="right") - 1]]
        raise BadFeatureFile(
            f"{_path(features)}: {len(odd):,} rows of {stream} are NaN or infinite, the first of video {video}; "
            "`pipeline verify` lists them, extract these videos again with --force"
        )
    places, counts = torch.from_numpy(offsets[of] + first), torch.from_numpy(last - first)
    return Rows(stream, torch.from_numpy(values), places, counts, found.rows_per_second)


def _words(features: Features, captions: NDArray[np.int64]) -> Words:
    table, idf = features.table("words"), features.table("idf")
    if not table or "weight" not in idf:
        raise BadFeatureFile(f"{_path(features)} has no idf weights; run `pipeline run idf --features …` on it first")
    sizes = np.diff(table["offsets"])[captions]
    at = np.repeat(table["offsets"][captions] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    spans = np.stack([table["start"][at], table["end"][at]], axis=1).astype(np.int64)
    weights = np.where(table["interest"][at], idf["weight"][at], 0).astype(np.float32)
    if not weights.any():
        raise BadFeatureFile(
            f"{_path(features)} has no token of interest; run `pipeline run tag --interest NOUN,VERB` and idf"
        )
    return Words(np.concatenate([[0], np.cumsum(sizes)]), spans, weights)


def lengths(corpus: Corpus) -> Tensor:
    """Return (V,) the video tokens of each clip on the common grid, which has the rate of the slowest stream."""
    rate = min(rows.rate for rows in corpus.streams)
    return torch.stack([rows.count for rows in corpus.streams if rows.rate == rate]).amax(0)


def video_tokens(corpus: Corpus, clips: Tensor, most: int, long: Long = "truncate") -> tuple[Tensor, Tensor]:
    """Return tokens (B, L, D) float32 and mask (B, L) of clips, L at most `most`; streams side by side.

    Token j of the grid is the row that each stream has at the middle of its span. Clips with more than `most` tokens
    are cut down as `long` says.
    """
    total = lengths(corpus)[clips]
    taken = total.clamp(max=most)
    size = int(taken.max())
    at = torch.arange(size, device=clips.device)
    mask = at < taken[:, None]
    rate = min(rows.rate for rows in corpus.streams)
    if long == "bins" and bool((total > most).any()):
        edges = (at * total[:, None]) // taken[:, None], ((at + 1) * total[:, None]) // taken[:, None]
        parts = [_averages(rows, clips, edges, rows.rate / rate) for rows in corpus.streams]
    else:
        step = (total / taken)[:, None] if long == "uniform" else torch.ones_like(total)[:, None]
        middle = ((at + 0.5) * step).floor() + 0.5
        parts = [_picked(rows, clips, middle * (rows.rate / rate)) for rows in corpus.streams]
    return torch.cat(parts, dim=2) * mask[:, :, None], mask


def _picked(rows: Rows, clips: Tensor, at: Tensor) -> Tensor:
    """Return the row at each of the places `at` (B, L), in rows from the clip's first."""
    row = torch.minimum(at.long(), rows.count[clips][:, None] - 1) + rows.first[clips][:, None]
    return rows.values.index_select(0, row.flatten()).view(*row.shape, -1).float()


def _averages(rows: Rows, clips: Tensor, edges: tuple[Tensor, Tensor], scale: float) -> Tensor:
    """Return the average of the rows in each span of the grid: one row or more."""
    last = rows.count[clips][:, None]
    first = torch.minimum((edges[0] * scale).long(), last - 1)
    stop = torch.maximum(torch.minimum((edges[1] * scale).long(), last), first + 1)
    sizes = (stop - first).flatten()
    begins = sizes.cumsum(0) - sizes
    start = (first + rows.first[clips][:, None]).flatten()
    inside = torch.arange(int(sizes.sum()), device=clips.device) - begins.repeat_interleave(sizes)
    row = start.repeat_interleave(sizes) + inside
    found = rows.values.index_select(0, row).float()
    return torch.segment_reduce(found, "mean", lengths=sizes).view(*first.shape, -1)
