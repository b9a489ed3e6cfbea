"""Which pairs are in which batch: a function of seed and step alone, so that a run that goes on draws the same ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from train import processes
from train.config import Data
from train.data import Corpus, lengths, video_tokens
from train.text import Pieces, Sentences

AHEAD = 4
"""Batches that are read before they are needed."""


@dataclass(frozen=True)
class Batch:
    """K clips with one caption each, of which this process encodes k: all of them where it is alone."""

    captions: Tensor
    """(K,) places in the corpus."""
    own: Tensor
    """(k,) which of the K pairs this process encodes."""
    video: Tensor
    """(k, L, D)"""
    text: Sentences
    """Of this process's k captions."""
    video_mask: Tensor
    """(K, L)"""
    texts: Sentences
    """Of all K captions; of other processes' without token features."""
    step: tuple[int, int] = (0, 1)
    """Steps before this one, and all steps."""
    spans: Tensor | None = None
    """(K, 2) what captions ask for, as fractions of the video, if they are queries to whole videos."""


@dataclass(frozen=True)
class Order:
    """Every clip with captions once an epoch, in an order of its own, with one of its captions by chance.

    If captions are queries to whole videos, every query once an epoch.
    """

    captions: Tensor
    """(C,) places of captions, those of a clip together."""
    first: Tensor
    """(N,) where each clip's captions begin; clips without captions are left out."""
    count: Tensor
    """(N,) captions of each clip."""
    size: int
    """Pairs in a batch."""
    seed: int

    @classmethod
    def of(cls, corpus: Corpus, size: int, seed: int) -> Order:
        """Return the order of a corpus; a batch is never larger than there are clips. Queries each come by turn."""
        clip = corpus.clip.cpu() if corpus.asked is None else torch.arange(len(corpus.captions))
        captions = clip.argsort(stable=True)
        count = clip.bincount()
        first = (count.cumsum(0) - count)[count > 0]
        most = len(first) // processes.size() * processes.size()
        return cls(captions, first, count[count > 0], max(1, min(size, most)), seed)

    @property
    def steps(self) -> int:
        """Return the batches of an epoch; what does not fill one is left to the next epoch's order."""
        return len(self.first) // self.size

    def at(self, step: int) -> Tensor:
        """Return (K,) the places of the captions of a step."""
        epoch, place = divmod(step, self.steps)
        order = _permutation(len(self.first), self._mixed(3 * epoch))
        some = order[place * self.size : (place + 1) * self.size]
        drawn = torch.rand(len(some), generator=self.generator(3 * step + 1), dtype=torch.float64)
        return self.captions[self.first[some] + (drawn * self.count[some]).long()]

    def generator(self, number: int) -> torch.Generator:
        """Return a generator for one purpose, which `number` names."""
        return torch.Generator().manual_seed(self._mixed(number))

    def seed_of(self, step: int, rank: int) -> int:
        """Return the seed of a step's dropout in one of the processes that train together."""
        return self._mixed(step, rank)

    def _mixed(self, *numbers: int) -> int:
        """Return a seed of 32 bits, which is what torch's generator takes, mixed of ours and these numbers."""
        return int(np.random.SeedSequence((self.seed, *numbers)).generate_state(1)[0])


@lru_cache(maxsize=2)
def _permutation(count: int, seed: int) -> Tensor:
    """Return an epoch's order, which is the same for each of its steps."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def all_clips(corpus: Corpus, data: Data, size: int = 256) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (places, tokens, mask) of all clips, those of like length together."""
    for some in lengths(corpus).argsort(stable=True).split(size):
        yield some, *video_tokens(corpus, some, data.max_video_tokens, data.long)


def all_texts(pieces: Pieces, size: int = 256) -> Iterator[tuple[Tensor, Sentences]]:
    """Yield (places, sentences) of all captions, in their order."""
    for some in torch.arange(len(pieces.offsets) - 1, device=pieces.ids.device).split(size):
        yield some, pieces.batch(some)


def make(
    corpus: Corpus,
    pieces: Pieces,
    captions: Tensor,
    data: Data,
    step: tuple[int, int] = (0, 1),
    share: slice | None = None,
) -> Batch:
    """Return the batch of these captions, on the corpus's device: rows and token features of this process's share."""
    share, captions = share or processes.share(len(captions)), captions.to(corpus.device)
    clips = corpus.clip[captions]
    total = lengths(corpus, clips).clamp(max=data.max_video_tokens)
    longest = int(total.max())
    mask = torch.arange(longest, device=total.device) < total[:, None]
    video, _ = video_tokens(corpus, clips[share], data.max_video_tokens, data.long, longest)
    own = torch.arange(len(captions), device=captions.device)[share]
    if len(own) == len(captions):
        whole = text = pieces.batch(captions)
    else:
        whole = replace(pieces, features=None).batch(captions)
        text = pieces.batch(captions[share], whole.ids.shape[1])
    spans = None if corpus.asked is None else corpus.asked.of(captions, step[0])
    return Batch(captions, own, video, text, mask, whole, step, spans)


def ahead(corpus: Corpus, pieces: Pieces, order: Order, data: Data, steps: range) -> Iterator[Batch]:
    """Yield the batch of each step; those whose rows are in the file are read while the ones before are trained on."""

    def one(step: int) -> Batch:
        return make(corpus, pieces, order.at(step), data, (step, steps.stop))

    if all(rows.stored is None for rows in corpus.streams):
        yield from map(one, steps)
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(one, step) for step in steps[:AHEAD])
        for step in steps:
            if step + AHEAD < steps.stop:
                waiting.append(pool.submit(one, step + AHEAD))
            yield waiting.popleft().result()
