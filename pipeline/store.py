"""Reading a feature file.

Every stream is one flat array of rows with offsets. Metadata is read once through h5py, which is then closed; rows are
read at the array's place in the file (pipeline/opened.py), so that reading takes no lock, no chunk cache and no second
copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PresetMismatch, unknown
from pipeline.opened import Opened
from pipeline.parts import VIDEO_COLUMNS, Part, part_files, read_column, read_part, readable, without_columns
from pipeline.sampling import row_range, row_ranges
from pipeline.seals import check_columns

STATUS = ("missing", "ok", "partial", "failed")
"""A video's status in a stream, by its code in the file."""


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
        return float(self.settings["chain"]["fps"]) / int(self.settings.get("stride") or self.settings["frames"])


class Features:
    """A feature file or a folder of shards, open for reading.

    Where several parts hold rows of one video in one stream, the last one wins: a part is only written when what came
    before it was missing, failed or out of date.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.index, places = _index(parts)
        self.videos = _video_table(parts, self.index, places)
        self.streams = {
            name: _merge_stream(name, parts, self.videos, places)
            for name in dict.fromkeys(name for part in parts for name in part.streams)
        }
        self.parts = [without_columns(part) for part in parts]  # these are here now, and may be of a million videos
        self._opened = Opened(self.parts)

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
        self._opened.close()

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

    def ranges(
        self,
        stream: str,
        videos: NDArray[np.integer[Any]],
        start: NDArray[np.floating[Any]],
        end: NDArray[np.floating[Any]],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (first, last + 1) of the rows of `stream` that saw spans of videos, named by place; NaN: the end."""
        s = self.stream(stream)
        return row_ranges(start, end, s.rows_per_second, s.count[videos])

    def table(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a table, such as `captions` or `splits/split1/train`; none where it is not there.

        Raises BadFeatureFile when they are not what was written.
        """
        for part in self.parts:
            if name.split("/", maxsplit=1)[0] in part.tables:
                with readable(part.path), h5py.File(part.path, "r") as file:
                    return _columns(file[name]) if name in file else {}
        return {}

    def weighed_over(self) -> str:
        """Return the captions that words were weighed over, as `SPLIT/PART` or `all`; '' where none were."""
        for part in self.parts:
            if "idf" in part.tables:
                with h5py.File(part.path, "r") as file:
                    return str(file["idf"].attrs.get("split", ""))
        return ""

    def declared(self, part: str) -> dict[str, int]:
        """Return the counts that the data set's authors give for a part: videos, clips, captions, gallery."""
        found: dict[str, int] = json.loads(str(self.parts[0].attrs.get("declared", "{}"))).get(part, {})
        return found

    def papers(self, part: str) -> tuple[int, str] | None:
        """Return how many queries papers count in a part, and why it is another number; None where it is not."""
        found = json.loads(str(self.parts[0].attrs.get("papers", "{}"))).get(part)
        return None if found is None else (int(found[0]), str(found[1]))

    def parts_of_splits(self) -> list[str]:
        """Return the parts there are, as `SPLIT/PART`."""
        for part in self.parts:
            if "splits" in part.tables:
                with h5py.File(part.path, "r") as file:
                    return [f"{split}/{name}" for split in file["splits"] for name in file["splits"][split]]
        return []

    def all_rows(self, stream: str) -> Iterator[tuple[str, NDArray[np.floating[Any]]]]:
        """Yield (video, rows) for every video that has rows in `stream`."""
        s = self.stream(stream)
        ids = self.videos["id"]
        for at in np.flatnonzero(s.count):
            yield str(ids[at]), self._read(s, int(at), 0, int(s.count[at]))

    def read_rows(self, stream: str, video: int, first: int, out: NDArray[np.floating[Any]]) -> None:
        """Fill `out` (n, dim) with rows of a video, named by its place, from its row `first` on.

        Of rows that are read again and again, in any order; `expect` those of a batch first. `fill` is for once.
        """
        self._opened.copy(self.stream(stream), video, first, out)

    def expect(self, stream: str, spans: Sequence[Sequence[int]]) -> None:
        """Have the system fetch the rows of spans (video's place, first, last + 1), all at once, for `read_rows`."""
        self._opened.expect(self.stream(stream), spans)

    def fill(self, stream: str, video: int, first: int, out: NDArray[np.floating[Any]]) -> None:
        """Fill `out` as `read_rows` does, with rows that are read once."""
        self._opened.read(self.stream(stream), video, first, out)

    def _read(self, stream: Stream, at: int, first: int, last: int) -> NDArray[np.floating[Any]]:
        out = np.empty((last - first, stream.dim), stream.dtype)
        self.fill(stream.name, at, first, out)
        return out


def _columns(group: h5py.Group) -> dict[str, NDArray[Any]]:
    columns = {key: read_column(group[key]) for key in group if isinstance(group[key], h5py.Dataset)}
    check_columns(group, columns)
    return columns


def _index(parts: Sequence[Part]) -> tuple[dict[str, int], list[NDArray[np.int32]]]:
    """Return the place of each video, and for each part the places of its own ones."""
    index: dict[str, int] = {}
    places = []
    for part in parts:
        ids = part.videos["id"]
        places.append(np.fromiter((index.setdefault(video, len(index)) for video in ids), np.int32, len(ids)))
    return index, places


def _video_table(
    parts: Sequence[Part], index: dict[str, int], places: Sequence[NDArray[np.int32]]
) -> dict[str, NDArray[Any]]:
    table: dict[str, NDArray[Any]] = {"id": np.fromiter(index, object, len(index))}
    for name, empty in VIDEO_COLUMNS.items():
        kind = object if isinstance(empty, str) else np.float64 if isinstance(empty, float) else np.int64
        table[name] = np.full(len(index), empty, dtype=kind)
    for part, at in zip(parts, places, strict=True):
        use = _stamped(part.videos)
        # A failure of one stream does not blank what another stream's decoding told of the same file.
        use &= ~(_same_source(part.videos, table, at) & (part.videos["decoded"] == 0) & (table["decoded"][at] > 0))
        for name in VIDEO_COLUMNS:
            table[name][at[use]] = part.videos[name][use]
    return table


def _stamped(videos: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return which rows tell of a file; those of tables.h5 and of missing files do not."""
    return np.asarray((videos["source_size"] != 0) | (videos["source_mtime"] != 0))


def _same_source(
    videos: dict[str, NDArray[Any]], table: dict[str, NDArray[Any]], at: NDArray[np.int32]
) -> NDArray[np.bool_]:
    size, mtime = (videos[name] == table[name][at] for name in ("source_size", "source_mtime"))
    return np.asarray(size & mtime)


def _is_imported(stream: dict[str, Any]) -> bool:
    """Return whether rows came without the files that they are of: nobody can know whether these have changed."""
    return "imported" in stream["settings"]


def _merge_stream(
    name: str, parts: Sequence[Part], videos: dict[str, NDArray[Any]], places: Sequence[NDArray[np.int32]]
) -> Stream:
    """Put a stream's parts together. Rows of a file that has changed since are as good as missing."""
    holding = [number for number, part in enumerate(parts) if name in part.streams]
    _check_equal(name, [parts[number] for number in holding])
    made = next((parts[n] for n in holding if parts[n].streams[name]["rows"]), parts[holding[0]])
    stream = _empty_stream(name, made.streams[name], len(videos["id"]))
    for number in holding:
        part, found, at = parts[number], parts[number].streams[name], places[number]
        said = np.flatnonzero((found["status"] != 0) & (_same_source(part.videos, videos, at) | _is_imported(found)))
        to = at[said]
        stream.part[to] = number
        stream.first[to] = found["offsets"][:-1][said]
        stream.count[to] = np.diff(found["offsets"])[said]
        for column in ("status", "crc32", "reason"):
            getattr(stream, column)[to] = found[column][said]
        stream.values_at[number] = found["at"]
    return stream


def _check_equal(name: str, parts: Sequence[Part]) -> None:
    for part in parts[1:]:
        if part.streams[name]["settings"] != parts[0].streams[name]["settings"]:
            raise PresetMismatch(
                f"{part.path} holds stream {name} with other settings than {parts[0].path}; use another --out, or "
                "--force to make the stream anew"
            )


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
