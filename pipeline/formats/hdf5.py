"""One HDF5 file with a data set for each video, `file[VIDEO]`: 2D-TAN and LocVTP on Charades-STA and TACoS, COOT.

With --key FOLDER the videos are those of that group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from pipeline.foreign import Asked, Rows, as_array, foreign
from pipeline.sources import check_id

SOURCE = "an HDF5 file with a data set (rows, dim) for each video, `file[VIDEO]`"
SUFFIX = ".h5"


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each data set, in the order of their names. Raises BadFeatureFile."""
    with foreign(source, "an HDF5 file of features"), h5py.File(source, "r") as file:
        for name, thing in _sets(file[asked.key] if asked.key else file, ""):
            yield check_id(name, str(source)), as_array(thing[()], f"{source}, {name}")


def _sets(group: h5py.Group, before: str) -> Iterator[tuple[str, h5py.Dataset]]:
    for name, thing in group.items():
        if isinstance(thing, h5py.Group):
            yield from _sets(thing, f"{before}{name}/")
        else:
            yield f"{before}{name}", thing


def fits(source: Path) -> bool:
    """Return whether it is an HDF5 file, not a feature file, whose first entry is a data set."""
    if not (source.is_file() and h5py.is_hdf5(source)):
        return False
    with foreign(source, "an HDF5 file"), h5py.File(source, "r") as file:
        return "streams" not in file and isinstance(next(iter(file.values()), None), h5py.Dataset)


def write(out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:
    """Write a data set for each video, in the group `key` if one is given."""
    with h5py.File(out, "w") as file:
        group = file.create_group(key) if key else file
        for video, rows in videos:
            group.create_dataset(video, data=rows)
