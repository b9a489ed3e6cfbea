"""Writing feature files: whole, under a temporary name, verified, then renamed.

Nobody ever appends to an HDF5 file: a killed writer leaves it unreadable. Workers write shards; the owner of the
output lists them in a ledger and folds them into one file. Whatever is killed, and when, what stands under a final
name is whole.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.faults import point
from pipeline.layout import StreamHead, create
from pipeline.overlay import Stream
from pipeline.parts import VIDEO_COLUMNS, Part, read_part
from pipeline.publish import publish
from pipeline.records import Status
from pipeline.store import STATUS, Features
from pipeline.tables import Writer, copy_tables

Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Extracted:
    """What became of one video, and its rows."""

    video: str
    columns: Mapping[str, Any]
    """Values for `store.VIDEO_COLUMNS`, as far as they are known."""
    wanted: tuple[str, ...]
    """Streams it was extracted for."""
    rows: Mapping[str, Rows]
    """C-contiguous rows by stream; none at all when it failed."""
    status: Status
    reason: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What there is to say of single streams besides."""


def write_shard(
    path: Path, attrs: Mapping[str, Any], heads: Mapping[str, StreamHead], videos: Sequence[Extracted]
) -> None:
    """Write one shard: the rows of `videos` in the streams of `heads`, whose per-video columns are filled here."""
    full = {name: _fill(name, head, videos) for name, head in heads.items()}
    columns: dict[str, NDArray[Any]] = {"id": np.asarray([v.video for v in videos], dtype=object)}
    for column, empty in VIDEO_COLUMNS.items():
        values = [v.columns.get(column, empty) for v in videos]
        columns[column] = np.asarray(values, dtype=object if isinstance(empty, str) else None)
    with publish(path) as temporary:
        create(temporary, {**attrs, "made": time.time_ns()}, columns, full)
        point("rows.before", path)
        part = read_part(temporary)
        with temporary.open("r+b", buffering=0) as file:
            for name in full:
                file.seek(part.streams[name]["at"])
                for video in videos:
                    if name in video.rows:
                        _write_all(file.fileno(), video.rows[name])
                        point("rows.one", path)
        verify_file(temporary)


def _write_all(handle: int, rows: Rows) -> None:
    view = rows.data.cast("B") if rows.size else memoryview(b"")
    while view:
        view = view[os.write(handle, view) :]


def _fill(name: str, head: StreamHead, videos: Sequence[Extracted]) -> StreamHead:
    empty = np.empty((0, head.dim), head.dtype)
    rows = [video.rows.get(name, empty) for video in videos]
    # A video that was extracted for other streams only says nothing here.
    said: list[str] = [video.status if name in video.wanted else "missing" for video in videos]
    return StreamHead(
        settings=head.settings,
        provenance=head.provenance,
        dim=head.dim,
        dtype=head.dtype,
        count=np.asarray([len(r) for r in rows], np.int64),
        status=np.asarray([STATUS.index(status) for status in said], np.uint8),
        crc32=np.asarray([zlib.crc32(r.data) for r in rows], np.uint32),
        reason=np.asarray([_reason(video, name) for video in videos], dtype=object),
    )


def _reason(video: Extracted, stream: str) -> str:
    said = [video.reason, video.notes.get(stream, "")] if stream in video.wanted else []
    return "; ".join(text for text in said if text)


def verify_file(path: Path) -> None:
    """Read every row of a file again and compare checksums. Raises BadFeatureFile naming stream and video."""
    for stream, video in damaged(path):
        raise BadFeatureFile(
            f"{path}: rows of {video} in stream {stream} do not match their checksum; "
            f"`pipeline repair {path}` drops them, then run again"
        )


def damaged(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (stream, video) whose rows in this file are not there, or not those that were written."""
    with Features.open(path) as features:
        for stream in features.streams.values():
            for at in np.flatnonzero(stream.count):
                video = str(features.videos["id"][at])
                try:
                    rows = features.rows(stream.name, video)
                except BadFeatureFile:  # the file ends before
                    yield stream.name, video
                    continue
                if zlib.crc32(rows.data) != int(stream.crc32[at]):
                    yield stream.name, video


def fold(
    parts: Iterable[Part], out: Path, attrs: Mapping[str, Any], made: Mapping[str, Writer] = MappingProxyType({})
) -> None:
    """Write one feature file from `parts`: for rows the last one counts, for tables the first that has them.

    The tables `made` are written anew. Parts that are read while they are asked for are never all in memory.
    """
    with publish(out) as temporary:
        with Features(parts) as features:
            _write_folded(features, temporary, attrs, made)
        paths = [part.path for part in features.parts]
        del features  # of a million videos it is too much to hold while all of them are looked at again
        point("verify.before", out)
        _verify_folded(temporary, paths)


def _verify_folded(whole: Path, parts: Sequence[Path]) -> None:
    """Raise BadFeatureFile when rows are not what they were, naming the part that holds them so, if one does."""
    try:
        verify_file(whole)
    except BadFeatureFile:
        for part in parts:
            verify_file(part)
        raise


def _write_folded(features: Features, path: Path, attrs: Mapping[str, Any], made: Mapping[str, Writer]) -> None:
    heads = {name: _head(stream) for name, stream in features.streams.items()}
    create(path, attrs, features.videos, heads)
    copy_tables(features.parts, path, made)
    with h5py.File(path, "r") as file:  # an array without rows has no place
        places = {name: file["streams"][name]["values"].id.get_offset() or 0 for name in heads}
    handle = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(handle, 0, path.stat().st_size)  # a full disk says so here, not half-way
        for name, stream in features.streams.items():
            _copy_rows(features, stream, handle, places[name])
    finally:
        os.close(handle)


def _head(stream: Stream) -> StreamHead:
    return StreamHead(
        settings=stream.settings,
        provenance=stream.provenance,
        dim=stream.dim,
        dtype=stream.dtype,
        count=stream.count,
        status=stream.status,
        crc32=stream.crc32,
        reason=stream.reason,
    )


def _copy_rows(features: Features, stream: Stream, handle: int, place: int) -> None:
    """Copy a stream's rows by `copy_file_range`, neighbours in one call, to byte `place` and on."""
    width = stream.dim * stream.dtype.itemsize
    for part, first, count in _runs(stream):
        source = os.open(features.parts[part].path, os.O_RDONLY)
        try:
            place += _copy_range(source, handle, count * width, stream.values_at[part] + first * width, place)
        finally:
            os.close(source)


def _runs(stream: Stream) -> Iterator[tuple[int, int, int]]:
    """Yield (part, first row, rows) of the longest pieces that stand together in their part."""
    current: tuple[int, int, int] | None = None
    for at in np.flatnonzero(stream.count):
        part, first, count = int(stream.part[at]), int(stream.first[at]), int(stream.count[at])
        if current is not None and current[0] == part and current[1] + current[2] == first:
            current = (part, current[1], current[2] + count)
            continue
        if current is not None:
            yield current
        current = (part, first, count)
    if current is not None:
        yield current


def _copy_range(source: int, target: int, size: int, at: int, to: int) -> int:
    done = 0
    while done < size:
        try:
            moved = os.copy_file_range(source, target, size - done, at + done, to + done)
        except OSError:  # other file systems, older kernels
            moved = os.pwrite(target, os.pread(source, min(size - done, 1 << 24), at + done), to + done)
        if moved == 0:
            raise BadFeatureFile("a shard ends before its rows do; remove it and run again")
        done += moved
    return done
