"""All rows in one array of float32, named row by row: BigFile, of MS-SL, GMMFormer and other partially relevant ones.

`shape.txt` says how many rows and numbers a row, `id.txt` names the rows, `feature.bin` holds them, and
`video2frames.txt` is a dict {VIDEO: [name of a row, …]} as Python prints it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.foreign import Asked, foreign
from pipeline.sources import check_id, read_text

SOURCE = "a folder with feature.bin, id.txt, shape.txt and video2frames.txt"


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:  # noqa: ARG001 - it holds one thing
    """Yield (name, rows) of each video, in the order of video2frames.txt. Raises BadFeatureFile."""
    names = read_text(source / "id.txt").split()
    with foreign(source / "shape.txt", "the number of rows and that of numbers in a row"):
        count, dim = map(int, read_text(source / "shape.txt").split())
    path = source / "feature.bin"
    with foreign(path, f"{count} rows of {dim} float32"):
        if len(names) != count or path.stat().st_size != count * dim * 4:
            raise ValueError(f"{len(names)} names in id.txt, {path.stat().st_size} bytes")
        data = np.memmap(path, "<f4", "r", shape=(count, dim))
    place = {name: at for at, name in enumerate(names)}
    for video, frames in _videos(source / "video2frames.txt").items():
        if lacking := [name for name in frames if name not in place]:
            raise BadFeatureFile(f"{source}, {video}: its frame {lacking[0]} is not in id.txt")
        yield check_id(video, str(source)), np.array(data[[place[name] for name in frames]])


def _videos(path: Path) -> dict[str, list[str]]:
    with foreign(path, "a dict {video: [frame, …]}"):
        try:
            found = ast.literal_eval(read_text(path))
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(type(error).__name__) from error
        if not isinstance(found, dict):
            raise TypeError(type(found).__name__)
        return {str(video): [str(name) for name in frames] for video, frames in found.items()}


def fits(source: Path) -> bool:
    """Return whether it is a folder with feature.bin and id.txt."""
    return (source / "feature.bin").is_file() and (source / "id.txt").is_file()
