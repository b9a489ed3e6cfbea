"""Which pairs are in which batch: a function of seed and step alone, so that a run that goes on draws the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train.config import Data
from train.data import Corpus, lengths, video_tokens
from train.text import Pieces, Sentences


@dataclass(frozen=True)
class Batch:
    """K clips with one caption each."""

    clips: Tensor
    """(K,) places in the corpus."""
    captions: Tensor
    """(K,) places in the corpus."""
    video: Tensor
    """(K, L, D)"""
    video_mask: Tensor
    """(K, L)"""
    text: Sentences
    step: tuple[int, int] = (0, 1)
    """Steps before this one, and all steps."""


@dataclass(frozen=True)
class Order:
    """Every clip with captions once an epoch, in an order of its own, with one of its captions by chance."""

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
        """Return the order of a corpus; a batch is never larger than there are clips."""
        captions = corpus.clip.cpu().argsort(stable=True)
        count = corpus.clip.cpu().bincount(minlength=len(corpus.clips))
        first = (count.cumsum(0) - count)[count > 0]
        return cls(captions, first, count[count > 0], min(size, len(first)), seed)

    @property
    def steps(self) -> int:
        """Return the batches of an epoch; what does not fill one is left to the next epoch's order."""
        return len(self.first) // self.size

    def at(self, step: int) -> Tensor:
        """Return (K,) the places of the captions of a step."""
        epoch, place = divmod(step, self.steps)
        order = torch.randperm(len(self.first), generator=self.generator(3 * epoch))
        some = order[place * self.size : (place + 1) * self.size]
        drawn = torch.rand(len(some), generator=self.generator(3 * step + 1), dtype=torch.float64)
        return self.captions[self.first[some] + (drawn * self.count[some]).long()]

    def generator(self, number: int) -> torch.Generator:
        """Return a generator for one purpose, which `number` names.

        Torch's generator takes 32 bits of a seed; numpy mixes both numbers into these.
        """
        mixed = np.random.SeedSequence((self.seed, number)).generate_state(1)
        return torch.Generator().manual_seed(int(mixed[0]))


def all_clips(corpus: Corpus, data: Data, size: int = 256) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield (places, tokens, mask) of all clips, those of like length together."""
    for some in lengths(corpus).argsort(stable=True).split(size):
        yield some, *video_tokens(corpus, some, data.max_video_tokens, data.long)


def all_texts(pieces: Pieces, size: int = 256) -> Iterator[tuple[Tensor, Sentences]]:
    """Yield (places, sentences) of all captions, in their order."""
    for some in torch.arange(len(pieces.offsets) - 1, device=pieces.ids.device).split(size):
        yield some, pieces.batch(some)


def make(corpus: Corpus, pieces: Pieces, captions: Tensor, data: Data, step: tuple[int, int] = (0, 1)) -> Batch:
    """Return the batch of these captions, on the corpus's device."""
    captions = captions.to(corpus.device)
    clips = corpus.clip[captions]
    video, mask = video_tokens(corpus, clips, data.max_video_tokens, data.long)
    return Batch(clips, captions, video, mask, pieces.batch(captions), step)
