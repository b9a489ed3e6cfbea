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

from extractors.spec import row_count
from pipeline.counts import differences, stored
from pipeline.datasets import expected, names
from pipeline.layout import worst
from pipeline.overlay import Stream
from pipeline.parts import read_column, readable
from pipeline.seals import broken
from pipeline.store import STATUS, Features
from pipeline.tables import DERIVED, out_of_date

REFERENCES = (
    ("clips", "video", "videos"),
    ("captions", "clip", "clips"),
    ("windows", "caption", "captions"),
    ("steps", "clip", "clips"),
    ("originals", "video", "videos"),
)
"""Columns that are positions in another table, in an order in which that table comes first."""

ROWS_OFF = 1
"""Rows by which a video may differ from its decoded duration: the sampling filter rounds at both ends."""


def show(path: Path) -> dict[str, Any]:
    """Return what is in a feature file as plain values: counts, streams, splits, failures, provenance."""
    with readable(path), Features.open(path) as features:
        status, reason = worst(features.streams, len(features.videos["id"]))
        attrs = features.parts[-1].attrs if features.parts else {}
        return {
            "path": str(path),
            "dataset": str(attrs.get("dataset", "")),
            "created_by": json.loads(attrs.get("created_by", "{}")),
            "videos": {"total": len(status), **counts(status)},
            "seconds": round(float(features.videos["decoded"].sum()), 3),
            "streams": [_show_stream(stream) for stream in features.streams.values()],
            "counts": _counts(features),
            "incomplete": incomplete(path),
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
    """Return how large the derived tables are."""
    found: dict[str, Any] = {}
    for part in features.parts:
        with h5py.File(part.path, "r") as file:
            if "words" in part.tables and "words" not in found:
                words = file["words"]
                found["words"] = {
                    "words": len(words["text"]),
                    "interest": json.loads(words.attrs["interest"]),
                    "tagger": json.loads(words.attrs["settings"]),
                }
            if "idf" in part.tables and "idf" not in found:
                names = ("split", "documents", "form", "min_count")
                found["idf"] = {"types": len(file["idf/type"]), **{name: file["idf"].attrs[name] for name in names}}
    return found


def _counts(features: Features) -> dict[str, dict[str, int]]:
    """Return the sizes of the data set and its parts, by the file that has its tables."""
    for part in features.parts:
        if "clips" in part.tables:
            with h5py.File(part.path, "r") as file:
                return stored(file)
    return {"": {"videos": len(features.videos["id"])}}


def incomplete(path: Path) -> list[str]:
    """Return one line for each count that is not that of the whole data set, as its authors or papers give it."""
    with readable(path), Features.open(path) as features:
        dataset = str(features.parts[-1].attrs.get("dataset", ""))
        found = _counts(features)
        reduced = any("merge" in part.attrs for part in features.parts) or _is_reduced(features)
    wanted = expected(dataset) if dataset in names() and not reduced else {}
    return [f"not the whole data set: {line}" for line in differences(found, wanted)]


def _is_reduced(features: Features) -> bool:
    """Return whether repeated captions were left out on purpose."""
    for part in features.parts:
        if "captions" in part.tables:
            with h5py.File(part.path, "r") as file:
                return bool(file["captions"].attrs.get("dedup", False))
    return False


def verify(path: Path) -> list[str]:
    """Return what is wrong with a feature file, one line each; empty when nothing is.

    Reads every row: checksums, values that are not finite, row counts against decoded durations, references between
    tables, and how much of the data set each stream covers.
    """
    with readable(path), Features.open(path) as features:
        problems = [line for stream in features.streams.values() for line in _verify_stream(features, stream)]
        return [*problems, *_verify_seals(features), *_verify_tables(features)]


def _verify_seals(features: Features) -> Iterator[str]:
    for part in features.parts:
        with h5py.File(part.path, "r") as file:
            for table in broken(file, part.tables):
                yield f"{table}: does not match its checksum; restore the file, or run again what made it"


def _verify_stream(features: Features, stream: Stream) -> Iterator[str]:
    for video, rows in features.all_rows(stream.name):
        at = int(features.index[video])
        if zlib.crc32(rows.data) != int(stream.crc32[at]):
            yield f"stream {stream.name}, video {video}: rows do not match their checksum; extract the video again"
        elif not np.isfinite(rows).all():
            yield f"stream {stream.name}, video {video}: rows that are not finite"
        seconds = float(features.videos["first_frame"][at] + features.videos["decoded"][at])
        made = stream.settings
        sampled = round(seconds * made["chain"]["fps"])
        expected = max(1, row_count(sampled, made["frames"], made.get("stride"), made.get("tail")))
        if seconds and abs(len(rows) - expected) > ROWS_OFF:  # 0: of imported rows
            yield f"stream {stream.name}, video {video}: {len(rows)} rows for {seconds:.2f} s, expected {expected}"
    empty = (stream.count == 0) & np.isin(stream.status, [STATUS.index("ok"), STATUS.index("partial")])
    for lacking in features.videos["id"][empty]:
        yield f"stream {stream.name}, video {lacking}: extracted, but without rows"


def coverage(path: Path) -> list[str]:
    """Return how much of the data set each stream covers, one line for each that does not cover all of it."""
    with readable(path), Features.open(path) as features:
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
            for table, column, target in REFERENCES:
                if f"{table}/{column}" in file and table not in sizes:
                    sizes[table] = len(file[table][column])
                    yield from _outside(file[table], column, sizes.get(target, 0))
            if "words" in file and "words" not in sizes:
                sizes["words"] = len(file["words/text"])
                yield from _verify_words(file)
            if "splits" in file and "splits" not in sizes:
                sizes["splits"] = 1
                for group in (side for split in file["splits"].values() for side in split.values()):
                    for target in ("clips", "captions"):
                        yield from _outside(group, target, sizes.get(target, 0))


def _verify_words(file: h5py.File) -> Iterator[str]:
    """Check that words and weights are those of the captions that stand there."""
    for name in DERIVED:
        if name in file and (why := out_of_date(file[name], name, file)):
            yield f"{name}: {why} since it was made; run `pipeline run idf` again"
    offsets = file["words/offsets"]
    if len(offsets) != len(file["captions/id"]) + 1 or int(offsets[-1]) != len(file["words/text"]):
        yield "words/offsets do not fit captions and words; run `pipeline run tag --force`"
    if "idf" in file and len(file["idf/weight"]) != len(file["words/text"]):
        yield "idf/weight does not fit words; run `pipeline run idf` again"


def _outside(group: h5py.Group, column: str, size: int) -> Iterator[str]:
    values = read_column(group[column])
    if len(values) and not (values.min() >= 0 and values.max() < size):
        yield f"{group.name}/{column} points outside its table"
