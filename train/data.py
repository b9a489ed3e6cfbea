"""One part of a split: its clips' rows in one flat buffer a stream, or in the file; its captions with their words.

A batch is put together by index arithmetic on the device that holds the buffers; there are no loader processes.

    corpus = load(Features.open(path), "split1/train", ["resnet152:howto100m"])
    x, mask = video_tokens(corpus, torch.tensor([0, 5]), most=48)     # (2, 48, 2048), (2, 48)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile, BadSetting, unknown
from pipeline.store import Features
from train import rows
from train.config import Long
from train.queries import Asked, whole_videos
from train.rows import Rows


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
    declared: int | None = None
    """Clips with captions, for grounding queries, that the data set says the part has; None if it does not say."""
    papers: tuple[int, str] | None = None
    """How many queries papers count in the part, and why it is another number; None where it is not."""
    asked: Asked | None = None
    """What captions ask for, if they are queries to whole videos."""

    @property
    def dim(self) -> int:
        """Return the numbers of one video token: all streams' rows side by side."""
        return sum(rows.dim for rows in self.streams)

    @property
    def device(self) -> torch.device:
        """Return where batches are made."""
        return self.clip.device

    def to(self, device: torch.device | str) -> Corpus:
        """Return the corpus with its rows on a device; those that stay in the file come there with each batch."""
        streams, asked = tuple(rows.to(device) for rows in self.streams), self.asked and self.asked.to(device)
        return replace(self, streams=streams, clip=self.clip.to(device), asked=asked)


def load(
    features: Features,
    part: str,
    streams: Sequence[str] = (),
    words: bool = True,
    resident: float = math.inf,
    whole: bool = False,
) -> Corpus:
    """Load one part of a split, with these streams or all there are.

    `resident`: bytes of rows that may be held in memory; if there are more, they stay in the file, which stays open.
    `whole`: clips are whole videos, in which captions ask for spans (`train/queries.py`).
    Raises BadFeatureFile for what is not in the file, for words without weights and for rows that are not finite.
    """
    clips, captions = features.table("clips"), features.table("captions")
    if not len(captions.get("id", ())):
        raise BadFeatureFile(f"{_path(features)} has no captions; extract a data set that has some, or `pipeline join`")
    if not features.streams:
        raise BadFeatureFile(f"{_path(features)} has captions only; `pipeline join` puts it together with features")
    chosen = _part(features, part, len(clips["id"]), len(captions["id"]))
    asked = None
    if whole:
        table = whole_videos(features, clips, captions, chosen)
        clips, captions, chosen, asked = table.clips, table.captions, table.chosen, table.asked
    names = list(streams) or list(features.streams)
    spans = (clips["video"][chosen["clips"]], clips["start"][chosen["clips"]], clips["end"][chosen["clips"]])
    found, there = streams_of(features, names, spans, resident)
    if not there.any():
        raise BadFeatureFile(f"{part}: no clip has rows in {', '.join(names)}; extract them, or choose other --streams")
    place = np.full(len(clips["id"]), -1)
    place[chosen["clips"][there]] = np.arange(there.sum())
    with_rows = place[captions["clip"][chosen["captions"]]] >= 0
    kept = chosen["captions"][with_rows]
    videos = clips["video"][chosen["clips"]][there].astype(np.int64)
    return Corpus(
        dataset=str(features.parts[0].attrs.get("dataset", "")),
        part=part,
        clips=tuple(clips["id"][chosen["clips"]][there]),
        captions=tuple(captions["id"][kept]),
        texts=tuple(captions["text"][kept]),
        clip=torch.from_numpy(place[captions["clip"][kept]]),
        streams=found,
        words=_words(features, kept) if words else None,
        lacking=tuple(clips["id"][chosen["clips"]][~there]),
        lacking_captions=len(chosen["captions"]) - len(kept),
        declared=features.declared(part).get("captions" if whole else "gallery"),
        papers=features.papers(part) if whole else None,
        asked=asked and replace(asked, spans=asked.spans[torch.from_numpy(with_rows)], seconds=asked.seconds[videos]),
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
        streams=tuple(one.subset(clips) for one in corpus.streams),
        words=words,
        lacking=(),
        lacking_captions=0,
        declared=None,
        asked=corpus.asked
        and replace(corpus.asked, spans=corpus.asked.spans[captions], seconds=corpus.asked.seconds[clips]),
    )


def hold_out(corpus: Corpus, seed: int, share: float) -> tuple[Corpus, Corpus | None]:
    """Return a corpus without a share of its clips, drawn by chance, and those; None for no share."""
    if not share:
        return corpus, None
    count = round(share * len(corpus.clips))
    order = torch.randperm(len(corpus.clips), generator=torch.Generator().manual_seed(seed))
    held = torch.isin(corpus.clip, order[:count])
    if held.all() or not held.any():
        raise BadSetting(
            f"--hold-out {share}: {count} of {len(corpus.clips)} clips leave nothing; choose another share"
        )
    rest, own = (subset(corpus, some.nonzero()[:, 0]) for some in (~held, held))
    asked = own.asked and replace(own.asked, dropped=0, clamped=0)  # these are told of once, with the rest
    return rest, replace(own, part=f"{corpus.part} (held out)", declared=None, papers=None, asked=asked)


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


def streams_of(
    features: Features, names: Sequence[str], spans: tuple[NDArray[Any], ...], resident: float = math.inf
) -> tuple[tuple[Rows, ...], NDArray[np.bool_]]:
    """Return each stream's rows in those of `spans` that have rows in all of the streams, and which these are.

    `spans`: place of the video, start and end in seconds, NaN for its end. `resident`: bytes that may be held.
    """
    videos, start, end = spans[0].astype(np.int64), *spans[1:]
    first, last = zip(*(features.ranges(name, videos, start, end) for name in names), strict=True)
    there = np.all([b > a for a, b in zip(first, last, strict=True)], axis=0)
    keep = _size(features, names, videos[there]) <= resident
    found = tuple(
        _rows(features, name, (videos[there], a[there], b[there]), keep)
        for name, a, b in zip(names, first, last, strict=True)
    )
    return found, there


def _rows(
    features: Features, stream: str, spans: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], keep: bool
) -> Rows:
    """Return the rows [first, last) of clips' videos; if they are kept, whole videos, which clips may share."""
    found = features.stream(stream)
    videos, first, last = spans
    counts = torch.from_numpy(last - first)
    if not keep:
        stored = rows.Stored(features, np.stack([videos, first, last], axis=1), np.zeros(len(videos), bool))
        return Rows(stream, None, torch.from_numpy(first), counts, found.rows_per_second, found.dim, stored)
    used, of = np.unique(videos, return_inverse=True)
    values = rows.read(features, stream, [(int(video), 0, int(found.count[video])) for video in used])
    offsets = np.concatenate([[0], np.cumsum(found.count[used])])
    places = torch.from_numpy(offsets[of] + first)
    return Rows(stream, values, places, counts, found.rows_per_second, found.dim)


def _size(features: Features, names: Sequence[str], videos: NDArray[np.int64]) -> int:
    """Return the bytes of all rows that these videos have in the streams."""
    streams, used = [features.stream(name) for name in names], np.unique(videos)
    return sum(int(s.count[used].sum()) * s.dim * s.dtype.itemsize for s in streams)


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


def lengths(corpus: Corpus, clips: Tensor | slice = slice(None)) -> Tensor:
    """Return the video tokens of clips, by default all, on the grid of the slowest stream."""
    return rows.lengths(corpus.streams, clips)


def video_tokens(
    corpus: Corpus, clips: Tensor, most: int, long: Long = "truncate", size: int = 0
) -> tuple[Tensor, Tensor]:
    """Return tokens (B, L, D) float32 and mask (B, L) of clips; `train/rows.py` says which."""
    return rows.tokens(corpus.streams, clips, most, long, size)
