"""What a feature file holds, and whether it can be trusted: `pipeline show` and `pipeline verify`."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pipeline.layout import worst
from pipeline.parts import read_column
from pipeline.store import STATUS, Features, Stream

ROWS_OFF = 1
"""Rows by which a video may differ from its decoded duration: the sampling filter rounds at both ends."""


def show(path: Path) -> dict[str, Any]:
    """Return what is in a feature file as plain values: counts, streams, splits, failures, provenance."""
    with Features.open(path) as features:
        status, reason = worst(features.streams, len(features.videos["id"]))
        attrs = features.parts[-1].attrs if features.parts else {}
        return {
            "path": str(path),
            "dataset": str(attrs.get("dataset", "")),
            "created_by": json.loads(attrs.get("created_by", "{}")),
            "videos": {"total": len(status), **counts(status)},
            "seconds": round(float(features.videos["decoded"].sum()), 3),
            "streams": [_show_stream(stream) for stream in features.streams.values()],
            "tables": _tables(features),
            "failures": [
                {"video": str(features.videos["id"][i]), "status": STATUS[status[i]], "reason": reason[i]}
                for i in np.flatnonzero(reason != "")
            ],
        }


def counts(status: np.ndarray[Any, Any]) -> dict[str, int]:
    """Return how many videos there are of each status."""
    return {name: int((status == code).sum()) for code, name in enumerate(STATUS)}


def _show_stream(stream: Stream) -> dict[str, Any]:
    rows = int(stream.count.sum())
    return {
        "name": stream.name,
        "dim": stream.dim,
        "dtype": stream.dtype.name,
        "rows": rows,
        "rows_per_second": stream.rows_per_second,
        "bytes": rows * stream.dim * stream.dtype.itemsize,
        "videos": counts(stream.status),
        "settings": stream.settings,
        "provenance": stream.provenance,
    }


def _tables(features: Features) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in features.parts:
        with h5py.File(part.path, "r") as file:
            for name in (n for n in part.tables if n not in found):
                group = file[name]
                found[name] = _split_sizes(group) if name == "splits" else len(group["id"])
    return found


def _split_sizes(group: h5py.Group) -> dict[str, dict[str, dict[str, int]]]:
    return {
        split: {side: {name: len(group[split][side][name]) for name in group[split][side]} for side in group[split]}
        for split in group
    }


def verify(path: Path) -> list[str]:
    """Return what is wrong with a feature file, one line each; empty when nothing is.

    Reads every row: checksums, values that are not finite, row counts against decoded durations, references between
    tables, and how much of the data set each stream covers.
    """
    with Features.open(path) as features:
        problems = [line for stream in features.streams.values() for line in _verify_stream(features, stream)]
        return [*problems, *_verify_tables(features)]


def _verify_stream(features: Features, stream: Stream) -> Iterator[str]:
    for video, rows in features.all_rows(stream.name):
        at = int(features.index[video])
        if zlib.crc32(rows.data) != int(stream.crc32[at]):
            yield f"stream {stream.name}, video {video}: rows do not match their checksum; extract the video again"
        elif not np.isfinite(rows).all():
            yield f"stream {stream.name}, video {video}: rows that are not finite"
        seconds = float(features.videos["first_frame"][at] + features.videos["decoded"][at])
        frames = round(seconds * stream.settings["chain"]["fps"])
        expected = max(1, -(-frames // int(stream.settings["frames"])))
        if abs(len(rows) - expected) > ROWS_OFF:
            yield f"stream {stream.name}, video {video}: {len(rows)} rows for {seconds:.2f} s, expected {expected}"
    empty = (stream.count == 0) & np.isin(stream.status, [STATUS.index("ok"), STATUS.index("partial")])
    for lacking in features.videos["id"][empty]:
        yield f"stream {stream.name}, video {lacking}: extracted, but without rows"


def coverage(path: Path) -> list[str]:
    """Return how much of the data set each stream covers, one line for each that does not cover all of it."""
    with Features.open(path) as features:
        lines = []
        for stream in features.streams.values():
            found = Counter(STATUS[code] for code in stream.status)
            if found["missing"] or found["failed"]:
                lines.append(
                    f"stream {stream.name}: {found['ok'] + found['partial']} of {len(stream.status)} videos, "
                    f"{found['failed']} failed, {found['missing']} without a file or not yet extracted"
                )
        return lines


def _verify_tables(features: Features) -> Iterator[str]:
    """Check that every table points inside the one it refers to; the first part that has a table counts."""
    sizes = {"videos": len(features.videos["id"])}
    for part in features.parts:
        with h5py.File(part.path, "r") as file:
            for table, column, target in (("clips", "video", "videos"), ("captions", "clip", "clips")):
                if table in file and table not in sizes:
                    sizes[table] = len(file[table]["id"])
                    yield from _outside(file[table], column, sizes.get(target, 0))
            if "splits" in file and "splits" not in sizes:
                sizes["splits"] = 1
                for group in (side for split in file["splits"].values() for side in split.values()):
                    for target in ("clips", "captions"):
                        yield from _outside(group, target, sizes.get(target, 0))


def _outside(group: h5py.Group, column: str, size: int) -> Iterator[str]:
    values = read_column(group[column])
    if len(values) and not (values.min() >= 0 and values.max() < size):
        yield f"{group.name}/{column} points outside its table"
