"""One .npy file a video: the HowTo100M and UniVL feature extractors, TemporalAlignNet (`VIDEO.mp4.npy`), and many more.

Each holds an array (rows, dim). The HowTo100M extractor stores float16, by default L2-normalised, at one row a second
(2D) or 1.5 (3D); UniVL's S3D and TemporalAlignNet's features have one a second. No file says any of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.foreign import Asked, Rows, npy_below

SOURCE = "a folder with a file VIDEO.npy for each video, an array (rows, dim), or one such file"
SUFFIX = ""


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each file. Raises BadFeatureFile for one that is no array; pickled ones are not read."""
    return npy_below(source, asked)


def fits(source: Path) -> bool:
    """Return whether it is an .npy file, or a folder that has some but no meta file of shards."""
    if source.is_file():
        return source.suffix == ".npy"
    return any(source.rglob("*.npy")) and not any(source.glob("*_meta.pkl"))


def write(out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:  # noqa: ARG001 - the array has no name
    """Write one file a video."""
    for video, rows in videos:
        path = out / f"{video}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.save(file, rows, allow_pickle=False)
