"""Creating a feature file: every array in its place, rows not yet filled in."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.overlay import Stream
from pipeline.parts import FORMAT
from pipeline.seals import STEP, seal


@dataclass(frozen=True)
class StreamHead:
    """All of a stream but its rows, as it is written."""

    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    dim: int
    dtype: np.dtype[Any]
    count: NDArray[np.int64]
    status: NDArray[np.uint8]
    crc32: NDArray[np.uint32]
    reason: NDArray[np.object_]


def new_head(settings: Mapping[str, Any], provenance: Mapping[str, Any], dim: int, dtype: np.dtype[Any]) -> StreamHead:
    """Return the head of a stream without any video yet."""
    none = np.zeros(0)
    return StreamHead(
        settings, provenance, dim, dtype, none.astype(np.int64), none.astype(np.uint8), none.astype(np.uint32),
        none.astype(object),
    )  # fmt: skip


def write_columns(group: h5py.Group, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a table's columns, text as variable-length UTF-8."""
    for name, values in columns.items():
        if values.dtype == object:
            texts = group.create_dataset(name, values.shape, h5py.string_dtype())
            for begin in range(0, len(values), STEP):  # each text is copied once more on its way
                texts[begin : begin + STEP] = values[begin : begin + STEP]
        else:
            group.create_dataset(name, data=values)


def _create_stream(group: h5py.Group, head: StreamHead) -> None:
    offsets = np.concatenate([[0], np.cumsum(head.count)]).astype(np.int64)
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_layout(h5py.h5d.CONTIGUOUS)
    plan.set_obj_track_times(False)  # the same rows are the same bytes, at any second
    plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)  # every byte is written below; no second pass of zeros
    space = h5py.h5s.create_simple((int(offsets[-1]), head.dim))
    h5py.h5d.create(group.id, b"values", h5py.h5t.py_create(head.dtype), space, dcpl=plan)
    write_columns(
        group,
        {"offsets": offsets, "status": head.status, "crc32": head.crc32, "reason": head.reason},
    )
    group.attrs["settings"] = json.dumps(head.settings, sort_keys=True)
    group.attrs["provenance"] = json.dumps(head.provenance, sort_keys=True)
    step = head.settings.get("stride") or head.settings["frames"]
    group.attrs["rows_per_second"] = head.settings["chain"]["fps"] / step
    group.attrs["row_seconds"] = head.settings["frames"] / head.settings["chain"]["fps"]
    group.attrs["row_start"] = 0.0
    group.attrs["l2"] = bool(head.settings.get("l2", False))
    group.attrs["checksum"] = zlib.crc32(head.crc32.tobytes())


def create(
    path: Path,
    attrs: Mapping[str, Any],
    videos: Mapping[str, NDArray[Any]],
    streams: Mapping[str, StreamHead],
) -> None:
    """Write a feature file whose rows have their place but not yet their values."""
    status, reason = worst(streams, len(videos["id"]))
    with h5py.File(path, "w") as file:
        file.attrs.update({**attrs, "format": FORMAT})
        write_columns(file.create_group("videos"), {**videos, "status": status, "reason": reason})
        group = file.create_group("streams")
        for name, head in sorted(streams.items()):
            _create_stream(group.create_group(name), head)
        seal(file)


def worst(
    streams: Mapping[str, StreamHead] | Mapping[str, Stream], videos: int
) -> tuple[NDArray[np.uint8], NDArray[np.object_]]:
    """Return each video's worst status over its streams, and the first reason given for it."""
    status = np.zeros(videos, np.uint8)
    reason = np.full(videos, "", dtype=object)
    for name in sorted(streams):
        head = streams[name]
        more = (head.status > status) | ((head.status == status) & (reason == ""))
        status[more] = head.status[more]
        reason[more] = head.reason[more]
    return status, reason
