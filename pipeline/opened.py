"""Rows out of the files of a feature file's parts: read, or copied out of a map.

A read tells of a disk's error as an error. A map is twice as fast for what is read again and again, but the system
ends a process that reads a map where its file has lost that place; so what is read once, to check or to keep it, is
read. A map alone is slow where the file is not in the system's memory: `expect` has it fetch a batch's rows at once.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.parts import Part

if TYPE_CHECKING:
    from pipeline.overlay import Stream

MOST = 200
"""Parts that are kept open, two handles each, as a process may often have no more than 1,024; a folder may have
thousands of shards. Further ones are opened for each read."""
ASKED = 16
"""Of so many spans of a batch one is asked whether it is in memory."""
_BYTE = [bytearray(1)]
"""Room for a byte that nobody looks at."""

Rows = NDArray[np.floating[Any]]


class Opened:
    """Parts, each opened when it is first read. Several threads may read."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._files: dict[int, int] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._values: dict[tuple[str, int], Rows] = {}

    def close(self) -> None:
        """Close the files. Reading again opens them again."""
        self._values.clear()
        self._maps.clear()  # a map closes when nobody reads it any more
        while self._files:
            os.close(self._files.popitem()[1])

    def read(self, stream: Stream, video: int, first: int, out: Rows) -> None:
        """Fill `out` (n, dim) with rows of a video, named by its place, from its row `first` on."""
        if not len(out):
            return
        view, (part, place) = out.data.cast("B"), _place(stream, video, first)
        with self._file(part) as file:
            while view:
                got = os.preadv(file, [view], place)
                if got == 0:
                    raise self._truncated(stream, part)
                view, place = view[got:], place + got

    def copy(self, stream: Stream, video: int, first: int, out: Rows) -> None:
        """Fill `out` as `read` does, out of a map."""
        part, begin = int(stream.part[video]), int(stream.first[video]) + first
        values = self._values.get((stream.name, part))
        if values is None:
            values = self._map(stream, part)
        if values is None:
            self.read(stream, video, first, out)
        else:
            out[:] = values[begin : begin + len(out)]

    def expect(self, stream: Stream, spans: Sequence[Sequence[int]]) -> None:
        """Have the system fetch the rows of spans (video, first, last + 1), unless some of them are in memory already.

        Raises BadFeatureFile for a file that has been cut off since it was opened.
        """
        for part in set(stream.part[[video for video, _, _ in spans]].tolist()):
            if (stream.name, part) not in self._values:
                self._map(stream, part)
            elif self._maps[part].size() < self._end(stream, part):
                raise self._truncated(stream, part)
        if all(self._in_memory(*_place(stream, video, last - 1)) for video, _, last in spans[::ASKED]):
            return
        for video, first, last in spans:
            part, place = _place(stream, video, first)
            if part in self._files:
                size = _place(stream, video, last)[1] - place
                os.posix_fadvise(self._files[part], place, size, os.POSIX_FADV_WILLNEED)

    def _in_memory(self, part: int, place: int) -> bool:
        """Return whether the system has the byte at `place` in memory; False where it does not say."""
        if part not in self._files:
            return False
        try:
            return os.preadv(self._files[part], _BYTE, place, os.RWF_NOWAIT) == 1
        except OSError:  # it would have to wait, or cannot tell
            return False

    @contextmanager
    def _file(self, part: int) -> Iterator[int]:
        if part in self._files:
            yield self._files[part]
            return
        file = os.open(self._parts[part].path, os.O_RDONLY | os.O_CLOEXEC)
        kept = self._files.setdefault(part, file) if len(self._files) < MOST else None
        try:
            yield file if kept is None else kept
        finally:
            if kept != file:
                os.close(file)

    def _map(self, stream: Stream, part: int) -> Rows | None:
        """Return a map of all rows that a part has in a stream; None where enough parts are open."""
        with self._file(part) as file:
            if part not in self._files:
                return None
            if os.fstat(file).st_size < self._end(stream, part):
                raise self._truncated(stream, part)
            if part not in self._maps:
                self._maps[part] = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        rows = self._rows(stream, part)
        flat = np.frombuffer(self._maps[part], stream.dtype, rows * stream.dim, stream.values_at[part])
        return self._values.setdefault((stream.name, part), flat.reshape(rows, stream.dim))

    def _rows(self, stream: Stream, part: int) -> int:
        return int(self._parts[part].streams[stream.name]["rows"])

    def _end(self, stream: Stream, part: int) -> int:
        return stream.values_at[part] + self._rows(stream, part) * stream.dim * stream.dtype.itemsize

    def _truncated(self, stream: Stream, part: int) -> BadFeatureFile:
        return BadFeatureFile(f"{self._parts[part].path} ends inside stream {stream.name}: truncated")


def _place(stream: Stream, video: int, row: int) -> tuple[int, int]:
    """Return which part holds a video's row, and at which byte it begins."""
    part, row = int(stream.part[video]), int(stream.first[video]) + row
    return part, stream.values_at[part] + row * stream.dim * stream.dtype.itemsize
