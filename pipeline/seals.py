"""Checksums of all that a feature file says besides its rows: HDF5 keeps none, and a flipped bit is another number.

A seal is an attribute of a group: the CRC-32 of its columns and its other attributes, and for a stream the place's type
and shape. Groups without one are of an older file, or derived from captions, and are taken as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

SEAL = "seal"
ROWS = "values"
Column = Any
"""A column: an array, or a data set of a file."""
STEP = 1 << 16
"""Texts that are put together at once."""


def seal(file: h5py.File, tables: Sequence[str] = ()) -> None:
    """Give videos, streams and `tables` their seals, and the file its own. Called when all is written but rows."""
    groups = [file["videos"], *file["streams"].values(), *(file[name] for name in tables)]
    for top in groups:
        for group in _all_groups(top):
            group.attrs[SEAL] = seal_of(group)
    reseal(file)


def reseal(file: h5py.File) -> None:
    """Give a file its seal anew, when groups that have theirs were copied into it."""
    file.attrs[SEAL] = _seal_of_file(file)


def broken(file: h5py.File, names: Sequence[str]) -> Iterator[str]:
    """Yield those of the groups called `names`, and of the groups in them, that are not what was sealed."""
    for name in names:
        for group in _all_groups(file[name]):
            if SEAL in group.attrs and group.attrs[SEAL] != seal_of(group):
                yield group.name.strip("/")


def check(file: h5py.File) -> None:
    """Raise ValueError when the file's own attributes, or the names of its groups, are not what was sealed."""
    if SEAL in file.attrs and file.attrs[SEAL] != _seal_of_file(file):
        raise ValueError("its attributes do not match their checksum")


def check_columns(group: h5py.Group, columns: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError when a group, whose columns have been read, is not what was sealed."""
    if SEAL in group.attrs and group.attrs[SEAL] != _seal(group, columns):
        raise ValueError(f"{group.name.strip('/')} does not match its checksum")


def seal_of(group: h5py.Group) -> int:
    """Return the checksum of a group as it stands there."""
    sets = {name: thing for name, thing in group.items() if isinstance(thing, h5py.Dataset) and name != ROWS}
    return _seal(group, sets)


def _all_groups(top: h5py.Group) -> list[h5py.Group]:
    found = [top]
    top.visititems(lambda _, thing: found.append(thing) if isinstance(thing, h5py.Group) else None)
    return found


def _seal(group: h5py.Group, columns: Mapping[str, Column]) -> int:
    sum_ = _attributes(group)
    for name in sorted(columns):
        sum_ = _column(columns[name], zlib.crc32(name.encode(), sum_))
    if ROWS in group:
        sum_ = zlib.crc32(f"{group[ROWS].dtype.str} {group[ROWS].shape}".encode(), sum_)
    return sum_


def _seal_of_file(file: h5py.File) -> int:
    names = [*file["streams"], *(name for name, group in file.items() if SEAL in group.attrs)]
    return zlib.crc32("\0".join(names).encode(), _attributes(file))


def _attributes(group: h5py.Group) -> int:
    sum_ = 0
    for name, value in sorted(group.attrs.items()):
        if name != SEAL:
            kept = np.asarray(value)
            data = str(value).encode() if kept.dtype.kind in "OUS" else kept.tobytes()
            sum_ = zlib.crc32(data, zlib.crc32(name.encode(), sum_))
    return sum_


def _column(values: Column, sum_: int) -> int:
    """Add a column to a sum, a piece at a time: a million texts are a hundred megabytes."""
    stored = isinstance(values, h5py.Dataset) and h5py.check_string_dtype(values.dtype) is not None
    texts: Any = values.asstr() if stored else values
    if not stored and values.dtype != object:
        whole = np.ascontiguousarray(values[()])
        return zlib.crc32(whole.tobytes(), zlib.crc32(whole.dtype.str.encode(), sum_))
    for begin in range(0, len(values), STEP):
        sum_ = zlib.crc32(("\0".join(texts[begin : begin + STEP]) + "\0").encode(), sum_)
    return sum_
