"""Document frequencies of words, and the weights that follow from them (TACo, eq. 7 and appendix A).

    idf(w) = log(|D| / (1 + df(w))), not below 0;  D: the training captions, df(w): those that hold w
    weight of a token of interest = its idf / the sum of the idfs of its caption's tokens of interest

Counts are sums of whole numbers over blocks of captions, so they do not depend on who counted which block.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline import tables
from pipeline.captions import Block, Captions, words
from pipeline.errors import BadFeatureFile, BadSetting, unknown
from pipeline.parts import read_column
from pipeline.tables import captions_of

Columns = dict[str, NDArray[Any]]

ALL = "all"
"""The name of no split: every caption."""


def words_of(path: Path) -> str:
    """Return what tells the words of a file from others. Raises BadFeatureFile where there are none."""
    with h5py.File(path, "r") as file:
        if found := tables.words_of(file):
            return found
    raise BadFeatureFile(f"{path} has no words; run `pipeline run tag --features {path}` first")


def training_captions(path: Path, split: str) -> str:
    """Return the digest of which captions are trained on; '' for all."""
    with h5py.File(path, "r") as file:
        return tables.training_of(file, split)


def training_split(path: Path, wanted: str, default: str) -> str:
    """Return SPLIT/PART of the training captions: the wanted one, else the data set's default, else the only one.

    Raises UnknownName for one that is not there, BadSetting where none can be chosen.
    """
    with h5py.File(path, "r") as file:
        parts = [f"{s}/{p}" for s in file.get("splits", {}) for p in file["splits"][s]]
    if wanted:
        found = wanted if wanted == ALL or wanted in parts else f"{wanted}/train"
        if found not in (ALL, *parts):
            raise unknown("split", wanted, [*parts, ALL])
        return found
    trains = [part for part in parts if part.endswith("/train")]
    for choice in ([f"{default}/train"] if default else []) + (trains if len(trains) == 1 else []):
        if choice in parts:
            return choice
    if not parts:
        return ALL
    raise BadSetting(f"--split: {path} has {', '.join(parts)}; say which are the training captions, or `{ALL}`")


@lru_cache(maxsize=1)
def _training(path: Path, split: str, age: int) -> NDArray[np.int64] | None:  # noqa: ARG001 (`age` tells files apart)
    """Return the sorted positions of the training captions; None for all."""
    if split == ALL:
        return None
    with h5py.File(path, "r") as file:
        return np.sort(read_column(file[f"splits/{split}/captions"]))


def _types(path: Path, form: str) -> tuple[NDArray[np.object_], NDArray[np.int64]]:
    """Return (sorted types, type of each entry of words/texts or words/lemmas)."""
    return _types_at(path, form, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _types_at(path: Path, form: str, age: int) -> tuple[NDArray[np.object_], NDArray[np.int64]]:  # noqa: ARG001
    with h5py.File(path, "r") as file:
        entries = read_column(file["words/texts" if form == "surface" else "words/lemmas"])
    types, of = np.unique(np.asarray([str(entry).lower() for entry in entries], dtype=object), return_inverse=True)
    return types, of.astype(np.int64)


def _documents(path: Path, block: Block, split: str) -> NDArray[np.int64]:
    """Return which of a block's captions are training captions, counted from the block's start."""
    training = _training(path, split, path.stat().st_mtime_ns)
    if training is None:
        return np.arange(block.stop - block.start)
    first, last = np.searchsorted(training, [block.start, block.stop])
    return training[first:last] - block.start


def count(path: Path, block: Block, split: str, form: str) -> Columns:
    """Return the counts of one block: captions of each `type` (`df`), `uses` of each type under each tag, `totals`.

    `type_tag` is type * tags + tag; `totals` are the training captions and their words.
    """
    types, of = _types(path, form)
    with h5py.File(path, "r") as file:
        column = "text" if form == "surface" else "lemma"
        offsets, (entries, pos) = words(file, block, column, "pos")
        tags = read_column(file["words/tags"])
    inside = np.zeros(block.stop - block.start, np.bool_)
    inside[_documents(path, block, split)] = True
    caption = np.repeat(np.arange(len(inside)), np.diff(offsets))
    chosen = inside[caption]
    type_, caption, pos = of[entries[chosen]], caption[chosen], pos[chosen]
    found, df = np.unique(np.unique(caption * len(types) + type_) % len(types), return_counts=True)
    pairs, uses = np.unique(type_ * len(tags) + pos, return_counts=True)
    totals = np.asarray([inside.sum(), len(type_)], np.int64)
    return {"type": found, "df": df, "type_tag": pairs, "uses": uses, "totals": totals}


def save(place: Captions, size: int, split: str, form: str, min_count: int) -> None:
    """Write the table `idf`: types with their counts and commonest part of speech, and the weight of each word.

    A `min_count` of 1 takes no weight from any word, not even from one that no training caption has.
    """
    types, _ = _types(place.path, form)
    with h5py.File(place.path, "r") as file:
        tags = read_column(file["words/tags"]).astype(str)
    df, totals = np.zeros(len(types), np.int64), np.zeros(2, np.int64)
    uses = np.zeros(len(types) * len(tags), np.int64)
    blocks = place.blocks(size)
    for columns in place.kept().read(blocks):
        df[columns["type"]] += columns["df"]
        uses[columns["type_tag"]] += columns["uses"]
        totals += columns["totals"]
    if not totals[0]:
        raise BadFeatureFile(f"{place.path}: split {split} has no captions; choose another --split")
    idf = np.maximum(0.0, np.log(totals[0] / (1.0 + df)))
    commonest = tags[uses.reshape(len(types), len(tags)).argmax(1)]  # of equals the first in the alphabet

    def write(group: h5py.Group) -> None:
        group.create_dataset("type", data=types, dtype=h5py.string_dtype())
        for name, values in {"df": df, "idf": idf}.items():
            group.create_dataset(name, data=values)
        group.create_dataset("pos", data=np.where(df > 0, commonest, "").astype(object), dtype=h5py.string_dtype())
        group.attrs.update({"captions": captions_of(group.file), "split": split, "form": form, "min_count": min_count})
        group.attrs.update({"documents": int(totals[0]), "tokens": int(totals[1])})
        group.attrs["words"] = json.dumps(words_of(place.path))
        group.attrs["training"] = training_captions(place.path, split)
        _write_weights(group, place.path, blocks, idf, (df >= min_count) | (min_count == 1))

    place.save({"idf": write})


def _write_weights(
    group: h5py.Group, path: Path, blocks: list[Block], idf: NDArray[np.float64], counts: NDArray[np.bool_]
) -> None:
    """Write the weight of each word; `counts` (T,): types that may have one."""
    _, of = _types(path, str(group.attrs["form"]))
    with h5py.File(path, "r") as file:
        weight = group.create_dataset("weight", file["words/text"].shape, np.float32)
        at = equal = 0
        for block in blocks:
            offsets, (entries, interest) = words(
                file, block, "text" if group.attrs["form"] == "surface" else "lemma", "interest"
            )
            interest = interest & counts[of[entries]]
            values, even = weights(offsets, np.where(interest, idf[of[entries]], 0.0), interest)
            weight[at : at + len(values)] = values
            at, equal = at + len(values), equal + even
    group.attrs["equal"] = equal


def weights(
    offsets: NDArray[np.int64], idf: NDArray[np.float64], interest: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], int]:
    """Return each word's share of its caption's idf, and how many captions got equal weights.

    `offsets` (C + 1), `idf` (W,) 0 for what is not of interest. Where all tokens of interest have an idf of 0, they
    weigh the same.

    >>> weights(np.array([0, 3, 5]), np.array([1.0, 0.0, 3.0, 0.0, 0.0]), np.array([1, 0, 1, 0, 1], bool))
    (array([0.25, 0.  , 0.75, 0.  , 1.  ], dtype=float32), 1)
    """
    lengths = np.diff(offsets)
    caption = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(caption, idf, len(lengths))
    tokens = np.bincount(caption, interest, len(lengths))
    even = (sums == 0) & (tokens > 0)
    value = np.where(even[caption] & interest, 1.0, idf)
    total = np.where(even, tokens, sums)
    return (value / np.where(total == 0, 1.0, total)[caption]).astype(np.float32), int(even.sum())
