"""Several files as one: what the last of them says of a video in a stream counts.

Files are taken one after the other, and of each is kept only what is needed to the end: there may be thousands, of a
million videos.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PresetMismatch
from pipeline.parts import VIDEO_COLUMNS, Part, without_columns

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Stream:
    """One stream over all videos of a feature file."""

    name: str
    dim: int
    dtype: np.dtype[Any]
    settings: dict[str, Any]
    """The whole preset with its weights; two files' rows are comparable only if these are equal."""
    provenance: dict[str, Any]
    """Versions, device and threads that made it; not compared."""
    part: NDArray[np.int32]
    """(V,) which file holds the rows of each video; -1 where there are none."""
    first: NDArray[np.int64]
    """(V,) row number in that file's `values`."""
    count: NDArray[np.int64]
    """(V,) number of rows."""
    status: NDArray[np.uint8]
    """(V,) index into `store.STATUS`."""
    crc32: NDArray[np.uint32]
    """(V,) CRC-32 of the rows' bytes."""
    reason: NDArray[np.object_]
    """(V,) why, where not all went well."""
    values_at: dict[int, int] = field(default_factory=dict)
    """Part to the byte at which its `values` begin."""

    @property
    def rows_per_second(self) -> float:
        """Rows in a second of video."""
        return float(self.settings["chain"]["fps"]) / int(self.settings.get("stride") or self.settings["frames"])


@dataclass(frozen=True)
class Overlay:
    """All files as one."""

    index: dict[str, int]
    """The place of each video."""
    videos: Columns
    """(V,) each: id and `VIDEO_COLUMNS`."""
    streams: dict[str, Stream]
    parts: list[Part]
    """The files, without what they say of single videos."""


@dataclass(frozen=True)
class _Layer:
    """What one file says of its videos."""

    at: NDArray[np.int32]
    """(n,) their places."""
    source: Columns
    """(n,) size and time of the files they are of."""
    streams: Mapping[str, Columns]


def overlay(parts: Iterable[Part]) -> Overlay:
    """Lay files over each other, in their order. Raises PresetMismatch where they hold one stream in two settings."""
    index, videos, heads, layers = _read(parts)
    names = dict.fromkeys(name for part in heads for name in part.streams)
    return Overlay(index, videos, {name: _merged(name, heads, layers, videos) for name in names}, heads)


def _read(parts: Iterable[Part]) -> tuple[dict[str, int], Columns, list[Part], list[_Layer]]:
    """Return index and table of the videos, and of each file what there is to know besides; nothing else is kept."""
    index: dict[str, int] = {}
    table, heads, layers = _Table(), list[Part](), list[_Layer]()
    known: dict[str, dict[str, Any]] = {}
    for part in parts:
        at = np.fromiter((index.setdefault(v, len(index)) for v in part.videos["id"]), np.int32, len(part.videos["id"]))
        table.grow(len(index))
        table.tell(part.videos, at)
        heads.append(_head(part, known))
        source = {name: part.videos[name] for name in ("source_size", "source_mtime")}
        layers.append(_Layer(at, source, {name: _columns(found) for name, found in part.streams.items()}))
    return index, {"id": np.fromiter(index, object, len(index)), **table.cut(len(index))}, heads, layers


def _head(part: Part, known: dict[str, dict[str, Any]]) -> Part:
    """Return a part without what it says of single videos. What else it says, thousands of others say too."""
    attrs = {name: value for name, value in part.attrs.items() if name != "made"}
    return replace(without_columns(part), attrs=known.setdefault(repr(attrs), attrs))


class _Table:
    """Columns of all videos so far, with room for more."""

    def __init__(self) -> None:
        self.columns: Columns = {name: _blank(name, 0) for name in VIDEO_COLUMNS}
        self._texts: dict[str, str] = {}
        """Each once: codecs and versions of a million videos are a few."""

    def grow(self, size: int) -> None:
        """Make room for `size` videos."""
        room = len(next(iter(self.columns.values())))
        if size > room:
            more = size - room if room == 0 else max(size - room, room // 2)  # the first file mostly has them all
            for name, column in self.columns.items():
                self.columns[name] = np.concatenate([column, _blank(name, more)])

    def tell(self, videos: Columns, at: NDArray[np.int32]) -> None:
        """Note what a file tells of its videos."""
        use = _stamped(videos)
        # A failure of one stream does not blank what another stream's decoding told of the same file.
        same = _same_source(videos, self.columns, at)
        use &= ~(same & (videos["decoded"] == 0) & (self.columns["decoded"][at] > 0))
        for name, column in self.columns.items():
            told = videos[name][use]
            is_text = column.dtype == object
            column[at[use]] = [self._texts.setdefault(text, text) for text in told] if is_text else told

    def cut(self, size: int) -> Columns:
        """Return the columns of `size` videos, and keep nothing."""
        columns, self.columns = self.columns, {}
        return {name: column if len(column) == size else column[:size].copy() for name, column in columns.items()}


def _blank(name: str, size: int) -> NDArray[Any]:
    empty = VIDEO_COLUMNS[name]
    kind = object if isinstance(empty, str) else np.float64 if isinstance(empty, float) else np.int64
    return np.full(size, empty, dtype=kind)


def _stamped(videos: Columns) -> NDArray[np.bool_]:
    """Return which rows tell of a file; those of tables.h5 and of missing files do not."""
    return np.asarray((videos["source_size"] != 0) | (videos["source_mtime"] != 0))


def _same_source(videos: Columns, table: Columns, at: NDArray[np.int32]) -> NDArray[np.bool_]:
    size, mtime = (videos[name] == table[name][at] for name in ("source_size", "source_mtime"))
    return np.asarray(size & mtime)


def _columns(stream: Mapping[str, Any]) -> Columns:
    return {name: stream[name] for name in ("offsets", "status", "crc32", "reason")}


def _is_imported(stream: Mapping[str, Any]) -> bool:
    """Return whether rows came without the files that they are of: nobody can know whether these have changed."""
    return "imported" in stream["settings"]


def _merged(name: str, parts: Sequence[Part], layers: Sequence[_Layer], videos: Columns) -> Stream:
    """Put a stream's parts together. Rows of a file that has changed since are as good as missing."""
    holding = [number for number, part in enumerate(parts) if name in part.streams]
    _check_equal(name, [parts[number] for number in holding])
    made = next((parts[n] for n in holding if parts[n].streams[name]["rows"]), parts[holding[0]])
    stream = _empty_stream(name, made.streams[name], len(videos["id"]))
    for number in holding:
        head, layer = parts[number].streams[name], layers[number]
        found = layer.streams[name]
        said = np.flatnonzero(
            (found["status"] != 0) & (_same_source(layer.source, videos, layer.at) | _is_imported(head))
        )
        to = layer.at[said]
        stream.part[to] = number
        stream.first[to] = found["offsets"][:-1][said]
        stream.count[to] = np.diff(found["offsets"])[said]
        for column in ("status", "crc32", "reason"):
            getattr(stream, column)[to] = found[column][said]
        stream.values_at[number] = head["at"]
    return stream


def _check_equal(name: str, parts: Sequence[Part]) -> None:
    for part in parts[1:]:
        if part.streams[name]["settings"] != parts[0].streams[name]["settings"]:
            raise PresetMismatch(
                f"{part.path} holds stream {name} with other settings than {parts[0].path}; use another --out, or "
                "--force to make the stream anew"
            )


def _empty_stream(name: str, found: Mapping[str, Any], size: int) -> Stream:
    return Stream(
        name=name,
        dim=found["dim"],
        dtype=found["dtype"],
        settings=found["settings"],
        provenance=found["provenance"],
        part=np.full(size, -1, np.int32),
        first=np.zeros(size, np.int64),
        count=np.zeros(size, np.int64),
        status=np.zeros(size, np.uint8),
        crc32=np.zeros(size, np.uint32),
        reason=np.full(size, "", dtype=object),
    )
