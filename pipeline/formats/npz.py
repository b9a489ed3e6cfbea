"""One .npz file a video, or one for all: Lighthouse, Moment-DETR, UniVTG, everything_at_once (`VIDEO_2d.npz`).

A video's file has the array `features` (rows, dim), or `last_hidden_state`; of others --key says which. A single file
without either has an array for each video, `VIDEO` or, with --key FOLDER, `FOLDER/VIDEO`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.foreign import Asked, Rows, as_array, chosen, files_below, foreign
from pipeline.sources import check_id, natural

SOURCE = "a folder with a file VIDEO.npz for each video, with an array `features`; or one .npz with an array a video"
SUFFIX = ""
KEYS = ("features", "last_hidden_state")


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each file, or of each array of a single file. Raises BadFeatureFile."""
    for name, path in files_below(source, ".npz", asked):
        with foreign(path, "an .npz file"), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if source.is_file() and not set(KEYS) & set(arrays.files):
                yield from _of_all(arrays, path, asked.key)
            else:
                yield name, as_array(arrays[chosen(arrays.files, asked, str(path), KEYS)], str(path))


def _of_all(arrays: Any, path: Path, folder: str) -> Iterator[tuple[str, NDArray[Any]]]:
    before = f"{folder}/" if folder else ""
    for name in sorted((name for name in arrays.files if name.startswith(before)), key=natural):
        video = check_id(name.removeprefix(before), str(path))
        yield video, as_array(arrays[name], f"{path}, {name}")


def fits(source: Path) -> bool:
    """Return whether it is an .npz file or a folder that has some."""
    return source.suffix == ".npz" if source.is_file() else any(source.rglob("*.npz"))


def write(out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:
    """Write one file a video, with the array `key`, by default `features`."""
    for video, rows in videos:
        path = out / f"{video}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {key or KEYS[0]: rows}
        with path.open("wb") as file:
            np.savez(file, **arrays)
