"""`pipeline export`: a stream of a feature file, as other systems read it.

None of their formats has a place for the rate, the window, the network, or whether rows are normalised. That stands in
`about.json` in the folder, or `OUT.about.json` beside the file, and `pipeline import` reads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import formats
from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.foreign import Rows, about_path, write_about
from pipeline.overlay import Stream
from pipeline.provenance import file_attrs
from pipeline.publish import explained, publish, temporary_name
from pipeline.store import STATUS, Features

EPS = 1e-12
"""A row shorter than this is divided by it."""


def export(format_: str, path: Path, stream: str, out: Path, l2: bool = False, key: str = "") -> list[str]:
    """Write a stream's rows to `out`, raw or, with `l2`, normalised; return lines on what is there.

    Each video that has rows is there under its id, in the order of the feature file. Raises UnknownName, BadSetting and
    BadFeatureFile.
    """
    writing = formats.writer(format_)
    if out.exists():
        raise BadSetting(f"--out {out} is there already; move it away, or choose another")
    with Features.open(path) as features:
        found = features.stream(stream)
        told = _about(features, found, path, l2)
        if not told["videos"]:
            raise BadFeatureFile(f"{path}: stream {stream} has no rows")
        if hidden := [video for video in told["videos"] if video.startswith(".") or "/." in video]:
            raise BadFeatureFile(f"{path}: {hidden[0]} would be a hidden file, which readers pass over; rename it")
        with _folder(out) if not writing.SUFFIX else publish(out) as place, explained(out):
            _write(writing, place, _rows(features, stream, l2), key)
            if not writing.SUFFIX:
                write_about(about_path(place, folder=True), told)
        if writing.SUFFIX:
            write_about(about_path(out, folder=False), told)
    normalised = "L2-normalised" if told["l2"] else "raw"
    return [
        f"{out}: {len(told['videos']):,} videos, {told['dim']} numbers a row, {told['rows_per_second']:g} rows a "
        f"second, {normalised}; what no {format_} can say is in {about_path(out, not writing.SUFFIX)}"
    ]


def _write(writing: formats.Writing, place: Path, rows: Iterator[tuple[str, Rows]], key: str) -> None:
    try:
        writing.write(place, rows, key)
    except (ValueError, TypeError) as error:  # HDF5 cannot hold `a` and `a/b`
        raise BadFeatureFile(f"these ids cannot stand side by side in that format ({error}); choose another") from error


def normalised(rows: Rows) -> Rows:
    """Return rows of length 1, in the type they have."""
    wide = rows.astype(np.float32)
    length = np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), EPS)
    found: Rows = (wide / length).astype(rows.dtype)
    return found


def _rows(features: Features, stream: str, l2: bool) -> Iterator[tuple[str, Rows]]:
    for video, rows in features.all_rows(stream):
        yield video, normalised(rows) if l2 else rows


def _about(features: Features, stream: Stream, path: Path, l2: bool) -> dict[str, Any]:
    ids, made = features.videos["id"], stream.settings
    without = np.flatnonzero(stream.count == 0)
    dataset = str(features.parts[-1].attrs.get("dataset", ""))
    return {
        "written_by": json.loads(file_attrs(dataset)["created_by"]),
        "from": path.name,
        "dataset": dataset,
        "stream": stream.name,
        "model": made.get("imported", {}).get("model") or stream.name,
        "rows_per_second": stream.rows_per_second,
        "row_seconds": float(made["frames"]) / float(made["chain"]["fps"]),
        "l2": l2 or bool(made.get("l2", False)),
        "dim": stream.dim,
        "dtype": stream.dtype.name,
        "settings": made,
        "without_rows": {str(ids[at]): stream.reason[at] or STATUS[stream.status[at]] for at in without},
        "videos": [str(ids[at]) for at in np.flatnonzero(stream.count)],
    }


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """Give a folder under a temporary name beside `out`; when the block ends well, it is called `out`."""
    temporary = out.with_name(temporary_name(out))
    try:
        with explained(out):
            temporary.mkdir(parents=True)
            yield temporary
            temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
