"""Captions and words of a feature file, read in blocks, so that millions of them need no more memory than one block.

A caption stage (`tag`, `idf`) reads its input from the file, lets workers write one small HDF5 file for each block of
captions into `FILE.STAGE/`, and writes the file anew with the tables that these make. What a killed run leaves there is
used by the next one, if it was made from the same captions with the same settings.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.layout import write_columns
from pipeline.parts import read_column, read_part
from pipeline.publish import publish
from pipeline.shards import fold
from pipeline.tables import Writer, captions_of

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Block:
    """Captions, or bytes, [start, stop) of a file; the unit of work of a caption stage."""

    start: int
    stop: int

    @property
    def id(self) -> str:
        """Its name in reports and files; sorts by number."""
        return f"{self.start:013}-{self.stop:013}"

    @property
    def seconds(self) -> float:
        """Its share of the work, by which chunks are balanced: captions or bytes, not seconds."""
        return float(self.stop - self.start)


def divide(total: int, size: int) -> list[Block]:
    """Return [0, total) in blocks of `size`."""
    return [Block(at, min(at + size, total)) for at in range(0, total, size)]


@dataclass(frozen=True)
class Blocks:
    """What workers made of blocks, one file each, until all of it is saved."""

    folder: Path
    stamp: str
    """What they were made from, and how: files with another one do not count."""

    def left(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks that no earlier run has made."""
        return [block for block in blocks if _stamp_of(self._file(block)) != self.stamp]

    def write(self, block: Block, columns: Columns) -> None:
        """Keep what a worker made of a block."""
        with publish(self._file(block)) as temporary, h5py.File(temporary, "w") as file:
            write_columns(file, columns)
            file.attrs["stamp"] = self.stamp

    def read(self, blocks: Sequence[Block], *columns: str) -> Iterator[Columns]:
        """Yield what workers made of `blocks`, in their order: these columns, or all.

        Raises BadFeatureFile for a block that is damaged.
        """
        for block in blocks:
            try:
                with h5py.File(self._file(block), "r") as file:
                    yield {name: _column(file[name]) for name in columns or file}
            except (OSError, KeyError, RuntimeError) as error:
                raise BadFeatureFile(f"{self._file(block)} is damaged ({error}); remove it and run again") from error

    def remove(self) -> None:
        """Remove the blocks: they are saved."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, block: Block) -> Path:
        return self.folder / f"{block.id}.h5"


def tables_file(path: Path) -> Path:
    """Return the file that holds a feature file's tables: itself, or a folder's `tables.h5`."""
    return path / "tables.h5" if path.is_dir() else path


@dataclass(frozen=True)
class Captions:
    """The captions of a feature file, and the place where a stage keeps its blocks."""

    path: Path
    """The file that holds the tables."""
    stage: str
    settings: Mapping[str, Any]
    """What decides the blocks' content, besides the captions."""

    def blocks(self, size: int) -> list[Block]:
        """Return all captions in blocks of `size`. Raises BadFeatureFile where there are none."""
        return divide(count(self.path), size)

    def save(self, made: Mapping[str, Writer]) -> None:
        """Write the file anew with the tables `made`, and remove the blocks."""
        part = read_part(self.path)
        fold([part], self.path, part.attrs, made)
        self.kept().remove()

    def kept(self) -> Blocks:
        """Return the place of the blocks that go with the captions as they stand there now."""
        with h5py.File(self.path, "r") as file:
            stamp = json.dumps({"captions": captions_of(file), **self.settings}, sort_keys=True)
        return Blocks(self.path.with_name(f"{self.path.name}.{self.stage}"), stamp)


def _column(dataset: h5py.Dataset) -> NDArray[Any]:
    """Return a column; bytes of one length stay bytes, for decoding millions of them takes seconds."""
    return np.asarray(dataset[()]) if dataset.dtype.kind == "S" else read_column(dataset)


def _stamp_of(path: Path) -> str:
    with suppress(OSError, KeyError, RuntimeError), h5py.File(path, "r") as file:
        return str(file.attrs["stamp"])
    return ""


def count(path: Path) -> int:
    """Return how many captions a file has. Raises BadFeatureFile where there are none, or no file."""
    read_part(path)  # says what is wrong with a file that cannot be read
    with h5py.File(path, "r") as file:
        total = len(file["captions/id"]) if "captions/id" in file else 0
    if not total:
        raise BadFeatureFile(
            f"{path} has no captions; give --dataset NAME, or choose the file that `pipeline run extract` or "
            "`pipeline run merge` wrote"
        )
    return total


def texts(path: Path, block: Block) -> list[str]:
    """Return the texts of a block of captions."""
    with h5py.File(path, "r") as file:
        return list(file["captions/text"].asstr()[block.start : block.stop])


def words(file: h5py.File, block: Block, *columns: str) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return (offsets, columns) of the words of a block of captions; offsets begin at 0."""
    offsets = file["words/offsets"][block.start : block.stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, [file[f"words/{name}"][first:last] for name in columns]
