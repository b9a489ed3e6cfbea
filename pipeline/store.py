"""Reading a feature file.

Every stream is one flat array of rows with offsets. Metadata is read once through h5py, which is then closed; rows are
read at the array's place in the file (pipeline/opened.py), so that reading takes no lock, no chunk cache and no second
copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import unknown
from pipeline.opened import Opened
from pipeline.overlay import Stream, overlay
from pipeline.parts import Part, part_files, read_column, read_part, readable
from pipeline.sampling import row_range, row_ranges
from pipeline.seals import check_columns

STATUS = ("missing", "ok", "partial", "failed")
"""A video's status in a stream, by its code in the file."""


class Features:
    """A feature file or a folder of shards, open for reading.

    Where several parts hold rows of one video in one stream, the last one wins: a part is only written when what came
    before it was missing, failed or out of date.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        whole = overlay(parts)
        self.index, self.videos, self.streams, self.parts = whole.index, whole.videos, whole.streams, whole.parts
        self._opened = Opened(self.parts)

    @classmethod
    def open(cls, path: Path) -> Features:
        """Open `features.h5`, or a folder of shards."""
        return cls(read_part(file) for file in part_files(path))

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
