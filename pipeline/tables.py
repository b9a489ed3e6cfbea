"""The tables of a feature file that say what the videos are: clips, captions, splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.layout import create, write_columns
from pipeline.parts import VIDEO_COLUMNS, Part, read_column
from pipeline.publish import publish
from pipeline.records import Manifest


def write_tables(path: Path, attrs: Mapping[str, Any], manifest: Manifest) -> None:
    """Write a feature file that holds a data set's videos, clips, captions and splits, and no rows."""
    videos: dict[str, NDArray[Any]] = {"id": np.asarray([v.id for v in manifest.videos], dtype=object)}
    for column, empty in VIDEO_COLUMNS.items():
        dtype = object if isinstance(empty, str) else None
        videos[column] = np.full(len(manifest.videos), empty, dtype=dtype)
    with publish(path) as temporary:
        create(temporary, attrs, videos, {})
        with h5py.File(temporary, "r+") as file:
            file.create_group("splits")  # even without any: old ones must not come through
            for group, columns in _tables(manifest).items():
                write_columns(file.create_group(group), columns)


def _tables(manifest: Manifest) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the groups clips, captions and splits/SPLIT/PART; references are positions in the other table."""
    video = {v.id: i for i, v in enumerate(manifest.videos)}
    clip = {c.id: i for i, c in enumerate(manifest.clips)}
    caption = {c.id: i for i, c in enumerate(manifest.captions)}
    tables: dict[str, dict[str, NDArray[Any]]] = {
        "clips": {
            "id": np.asarray([c.id for c in manifest.clips], dtype=object),
            "video": np.asarray([video[c.video] for c in manifest.clips], np.int64),
            "start": np.asarray([c.start for c in manifest.clips], np.float64),
            "end": np.asarray([np.nan if c.end is None else c.end for c in manifest.clips], np.float64),
        },
        "captions": {
            "id": np.asarray([c.id for c in manifest.captions], dtype=object),
            "clip": np.asarray([clip[c.clip] for c in manifest.captions], np.int64),
            "text": np.asarray([c.text for c in manifest.captions], dtype=object),
        },
    }
    for part in manifest.splits:
        tables[f"splits/{part.split}/{part.name}"] = {
            "clips": np.asarray([clip[c] for c in part.clips], np.int64),
            "captions": np.asarray([caption[c] for c in part.captions], np.int64),
        }
    return tables


def same_tables(a: Path, b: Path) -> bool:
    """Return whether two files list the same videos, clips, captions and splits."""
    with h5py.File(a, "r") as one, h5py.File(b, "r") as two:
        return _columns(one) == _columns(two)


def _columns(file: h5py.File) -> dict[str, bytes]:
    found: dict[str, bytes] = {"videos/id": repr(list(file["videos/id"].asstr())).encode()}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            values = read_column(thing)
            found[name] = repr(list(values)).encode() if values.dtype == object else values.tobytes()

    for table in ("clips", "captions", "splits"):
        if table in file:
            file[table].visititems(lambda name, thing, table=table: visit(f"{table}/{name}", thing))
    return found


def copy_tables(parts: Sequence[Part], path: Path) -> None:
    """Copy each table into the file at `path` from the first of `parts` that has it."""
    with h5py.File(path, "r+") as file:
        for part in parts:
            wanted = [name for name in part.tables if name not in file]
            if wanted:
                with h5py.File(part.path, "r") as source:
                    for name in wanted:
                        source.copy(name, file)
