"""The table `words` of a feature file: written from tagged blocks, block by block."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.captions import Block, Captions
from pipeline.errors import BadSetting
from pipeline.parts import read_column
from pipeline.tables import captions_of

COLUMNS = {"start": np.int32, "end": np.int32, "text": np.int32, "lemma": np.int32, "pos": np.uint8}
"""Of each word."""
TABLES = {"text": "texts", "lemma": "lemmas", "pos": "tags"}
"""Columns that are positions, and the sorted tables of texts that they point into."""
UNIVERSAL = frozenset(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X SPACE".split()  # noqa: SIM905
)
"""The universal parts of speech."""


def is_current(place: Captions) -> bool:
    """Return whether the file has the words of its captions, from this model."""
    with h5py.File(place.path, "r") as file:
        attrs = file["words"].attrs if "words" in file else {}
        same = dict(place.settings) == json.loads(attrs.get("settings", "null"))
        return same and attrs.get("captions") == captions_of(file)


def check_interest(interest: Sequence[str]) -> None:
    """Raise BadSetting for a part of speech that there is not."""
    unknown = [name for name in interest if name not in UNIVERSAL]
    if unknown or not interest:
        what = unknown[0] if unknown else "nothing"
        raise BadSetting(f"--interest {what}: expected parts of speech among {', '.join(sorted(UNIVERSAL))}")


def save(place: Captions, size: int, interest: Sequence[str], made: bool) -> None:
    """Write `words` into the file, from blocks if they were `made` in this run, else only its tokens of interest."""
    if made or not is_current(place):
        blocks = place.blocks(size)
        place.save({"words": lambda group: _write(group, place, blocks, interest)})
    elif set(_interest(place)) != set(interest):
        with h5py.File(place.path, "r") as file:
            words = file["words"]
            place.save({"words": lambda group: _copy(words, group, interest)})


def _interest(place: Captions) -> list[str]:
    with h5py.File(place.path, "r") as file:
        return list(json.loads(file["words"].attrs["interest"]))


def _copy(source: h5py.Group, group: h5py.Group, interest: Sequence[str]) -> None:
    for name in source:
        if name != "interest":
            source.copy(name, group)
    group.attrs.update(source.attrs)
    _mark(group, interest)


def _write(group: h5py.Group, place: Captions, blocks: Sequence[Block], interest: Sequence[str]) -> None:
    tables, captions, total = _survey(place, blocks)
    for name, values in tables.items():
        group.create_dataset(name, data=values, dtype=h5py.string_dtype())
    group.create_dataset("offsets", (captions + 1,), np.int64)
    for name, dtype in COLUMNS.items():
        group.create_dataset(name, (total,), dtype)
    moves = {name: {text: at for at, text in enumerate(values)} for name, values in tables.items()}
    at = caption = 0
    for columns in place.kept().read(blocks):
        offsets = columns["offsets"]
        group["offsets"][caption : caption + len(offsets)] = offsets + at
        for name in COLUMNS:
            group[name][at : at + offsets[-1]] = _moved(columns, name, moves)
        at, caption = at + int(offsets[-1]), caption + len(offsets) - 1
    group.attrs["settings"] = json.dumps(place.settings)
    group.attrs["captions"] = captions_of(group.file)
    _mark(group, interest)


def _survey(place: Captions, blocks: Sequence[Block]) -> tuple[dict[str, list[str]], int, int]:
    """Return the tables of all blocks together, sorted, and the numbers of captions and words."""
    found: dict[str, set[str]] = {name: set() for name in TABLES.values()}
    captions = words = 0
    for columns in place.kept().read(blocks):
        for name, values in found.items():
            values.update(columns[name])
        captions += len(columns["offsets"]) - 1
        words += int(columns["offsets"][-1])
    return {name: sorted(values) for name, values in found.items()}, captions, words


def _moved(columns: dict[str, NDArray[Any]], name: str, moves: dict[str, dict[str, int]]) -> NDArray[Any]:
    """Return a block's column, its positions as they are in the tables of the whole."""
    if name not in TABLES:
        return columns[name]
    table = TABLES[name]
    new = np.asarray([moves[table][text] for text in columns[table]], COLUMNS[name])
    return new[columns[name]] if len(new) else columns[name]


def _mark(group: h5py.Group, interest: Sequence[str]) -> None:
    """Write which words are tokens of interest."""
    group.attrs["interest"] = json.dumps(list(interest))
    wanted = np.isin(read_column(group["tags"]).astype(str), list(interest))
    pos = group["pos"]
    marks = group.create_dataset("interest", pos.shape, np.bool_)
    for at in range(0, len(pos), 1 << 20):
        marks[at : at + (1 << 20)] = wanted[pos[at : at + (1 << 20)]]
