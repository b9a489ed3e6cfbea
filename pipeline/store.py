"""The feature file: its layout, and how it is read.

A feature file is one HDF5 file, or a folder of shards with the same layout (docs/feature-file.md). Every stream is one
flat array of rows with offsets. Metadata is read once through h5py, which is then closed; rows are read with `pread`
at the array's place in the file, so that reading takes no lock, no chunk cache and no second copy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile, unknown
from pipeline.sampling import row_range

FORMAT = 1
"""Version of the layout."""

STATUS = ("missing", "ok", "partial", "failed")
"""A video's status in a stream, by its code in the file."""

VIDEO_COLUMNS: dict[str, Any] = {
    "duration": 0.0,  # seconds the container promises; 0 when it does not say
    "decoded": 0.0,  # seconds that were decoded
    "first_frame": 0.0,  # seconds from the container's start to the first frame
    "frames": 0,  # frames of the source that were decoded
    "width": 0,  # after rotation
    "height": 0,
    "fps": 0.0,  # as the container tells it
    "stream": -1,  # index of the decoded stream in its container
    "codec": "",
    "color": "",  # matrix and range as tagged, or 'untagged'
    "source_size": 0,  # bytes
    "source_mtime": 0,  # nanoseconds
    "ffmpeg": "",  # version of the program that decoded it
}
"""Columns of `videos/` besides id, status and reason, with what stands there before a video is decoded."""


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
    """(V,) index into `STATUS`."""
    crc32: NDArray[np.uint32]
    """(V,) CRC-32 of the rows' bytes."""
    reason: NDArray[np.object_]
    """(V,) why, where not all went well."""
    values_at: dict[int, int] = field(default_factory=dict)
    """Part to the byte at which its `values` begin."""

    @property
    def rows_per_second(self) -> float:
        """Rows in a second of video."""
        return float(self.settings["chain"]["fps"]) / int(self.settings["frames"])


@dataclass(frozen=True)
class Part:
    """One HDF5 file as read: its metadata, without rows."""

    path: Path
    attrs: dict[str, Any]
    videos: dict[str, NDArray[Any]]
    streams: dict[str, dict[str, Any]]
    tables: tuple[str, ...]
    """Names of the groups besides videos and streams: clips, captions, splits, words ..."""


def _strings(dataset: h5py.Dataset) -> NDArray[np.object_]:
    return np.asarray(dataset.asstr()[()], dtype=object)


def read_column(dataset: h5py.Dataset) -> NDArray[Any]:
    """Return a column of a table: numbers as they are, text as an object array of str."""
    return _strings(dataset) if h5py.check_string_dtype(dataset.dtype) else np.asarray(dataset[()])


def _read_stream(group: h5py.Group) -> dict[str, Any]:
    values = group["values"]
    return {
        "dim": int(values.shape[1]),
        "rows": int(values.shape[0]),
        "dtype": values.dtype,
        # An array without rows has no place in the file.
        "at": values.id.get_offset() or 0,
        "settings": json.loads(group.attrs["settings"]),
        "provenance": json.loads(group.attrs["provenance"]),
        **{name: read_column(group[name]) for name in ("offsets", "status", "crc32", "reason")},
    }


def read_part(path: Path) -> Part:
    """Return the metadata of one HDF5 file. Raises BadFeatureFile when it cannot be read."""
    try:
        with h5py.File(path, "r") as file:
            if int(file.attrs.get("format", -1)) != FORMAT:
                found = file.attrs.get("format", "none")
                raise BadFeatureFile(f"{path}: feature-file format {found}, this program reads {FORMAT}")
            return Part(
                path=path,
                attrs=dict(file.attrs.items()),
                videos={name: read_column(file["videos"][name]) for name in file["videos"]},
                streams={name: _read_stream(file["streams"][name]) for name in file["streams"]},
                tables=tuple(sorted(set(file) - {"videos", "streams"})),
            )
    except FileNotFoundError:
        raise BadFeatureFile(f"no feature file {path}; `pipeline run extract` writes one") from None
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        cure = "restore it from a copy, or move it away and run again"
        raise BadFeatureFile(f"{path} is damaged or not a feature file ({why}); {cure}") from error


class Features:
    """A feature file or a folder of shards, open for reading.

    Where several parts hold rows of one video in one stream, the last one wins: a part is only written when what came
    before it was missing, failed or out of date.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.videos = _video_table(self.parts)
        self.index = {video: i for i, video in enumerate(self.videos["id"])}
        self.streams = {
            name: _merge_stream(name, self.parts, self.index)
            for name in dict.fromkeys(name for part in self.parts for name in part.streams)
        }
        self._files: dict[int, int] = {}

    @classmethod
    def open(cls, path: Path) -> Features:
        """Open `features.h5`, or a folder of shards."""
        return cls([read_part(file) for file in part_files(path)])

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()

    def close(self) -> None:
        """Close the files. Reading again opens them again."""
        while self._files:
            os.close(self._files.popitem()[1])

    def stream(self, name: str) -> Stream:
        """Return the stream called `name`. Raises UnknownName with the streams there are."""
        if name not in self.streams:
            raise unknown("stream", name, self.streams)
        return self.streams[name]

    def rows(self, stream: str, video: str, start: float = 0.0, end: float | None = None) -> NDArray[np.floating[Any]]:
        """Return the rows (n, dim) of `stream` that saw the seconds [start, end) of `video`.

        Seconds count from the container's start, as annotations do. Empty only if the video has no rows at all.
        """
        if video not in self.index:
            raise unknown("video", video, list(self.index)[:20])
        at, s = self.index[video], self.stream(stream)
        first, last = row_range(start, end, s.rows_per_second, int(s.count[at]))
        return self._read(s, at, first, last)

    def all_rows(self, stream: str) -> Iterator[tuple[str, NDArray[np.floating[Any]]]]:
        """Yield (video, rows) for every video that has rows in `stream`."""
        s = self.stream(stream)
        ids = self.videos["id"]
        for at in np.flatnonzero(s.count):
            yield str(ids[at]), self._read(s, int(at), 0, int(s.count[at]))

    def _read(self, stream: Stream, at: int, first: int, last: int) -> NDArray[np.floating[Any]]:
        out = np.empty((last - first, stream.dim), stream.dtype)
        if out.size == 0:
            return out
        part, width = int(stream.part[at]), stream.dim * stream.dtype.itemsize
        place = stream.values_at[part] + (int(stream.first[at]) + first) * width
        view = out.data.cast("B")
        while view:
            got = os.preadv(self._file(part), [view], place)
            if got == 0:
                raise BadFeatureFile(f"{self.parts[part].path} ends inside stream {stream.name}: truncated")
            view, place = view[got:], place + got
        return out

    def _file(self, part: int) -> int:
        if part not in self._files:
            self._files[part] = os.open(self.parts[part].path, os.O_RDONLY | os.O_CLOEXEC)
        return self._files[part]


def part_files(path: Path) -> list[Path]:
    """Return the HDF5 files of a feature file: itself, or a folder's tables and shards in their order."""
    if not path.is_dir():
        return [path]
    files = [path / name for name in ("tables.h5", *read_ledger(path)) if (path / name).exists()]
    if not files:
        raise BadFeatureFile(f"no feature file in folder {path}; `pipeline run extract --out {path}` writes one")
    return files


def ledger_entries(folder: Path) -> list[tuple[str, int]]:
    """Return (name, time of writing) of the shards that a folder's ledgers list; a torn last line is passed over."""
    entries: list[tuple[str, int]] = []
    for ledger in sorted(folder.glob("manifest*.jsonl")):
        for line in ledger.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                entries.append((str(entry["shard"]), int(entry["written"])))
            except (ValueError, KeyError, TypeError):
                continue
    return entries


def read_ledger(folder: Path) -> list[str]:
    """Return the names of the shards that a folder's ledgers list and that are there, oldest first."""
    names = [name for name, _ in ledger_entries(folder)]
    # The last entry counts: a shard that was written again moves to the end.
    return [name for name in reversed(dict.fromkeys(reversed(names))) if (folder / name).exists()]


def _video_table(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    ids = list(dict.fromkeys(video for part in parts for video in part.videos["id"]))
    index = {video: i for i, video in enumerate(ids)}
    table: dict[str, NDArray[Any]] = {"id": np.asarray(ids, dtype=object)}
    for name, empty in VIDEO_COLUMNS.items():
        kind = object if isinstance(empty, str) else np.float64 if isinstance(empty, float) else np.int64
        table[name] = np.full(len(ids), empty, dtype=kind)
    for part in parts:
        known = np.flatnonzero(part.videos["source_mtime"])  # rows of tables.h5 and of missing files say nothing
        at = np.asarray([index[video] for video in part.videos["id"][known]], dtype=np.int64)
        for name in VIDEO_COLUMNS:
            table[name][at] = part.videos[name][known]
    return table


def _merge_stream(name: str, parts: Sequence[Part], index: dict[str, int]) -> Stream:
    size = len(index)
    stream: Stream | None = None
    for number, part in enumerate(parts):
        if name not in part.streams:
            continue
        found = part.streams[name]
        if stream is None:
            stream = _empty_stream(name, found, size)
        at = np.asarray([index[video] for video in part.videos["id"]], dtype=np.int64)
        said = np.flatnonzero(found["status"])
        to = at[said]
        stream.part[to] = number
        stream.first[to] = found["offsets"][:-1][said]
        stream.count[to] = np.diff(found["offsets"])[said]
        for column in ("status", "crc32", "reason"):
            getattr(stream, column)[to] = found[column][said]
        stream.values_at[number] = found["at"]
    assert stream is not None
    return stream


def _empty_stream(name: str, found: dict[str, Any], size: int) -> Stream:
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
