"""One HDF5 file with a group for each video: `file[VIDEO]["c3d_features"]`, 2D-TAN and LocVTP on ActivityNet.

Where groups hold several arrays, --key says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.foreign import Asked, Rows, as_array, chosen, foreign
from pipeline.sources import check_id

SOURCE = 'an HDF5 file with a group for each video, `file[VIDEO]["c3d_features"]` (rows, dim)'
SUFFIX = ".h5"
KEY = "c3d_features"


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each group, in the order of their names. Raises BadFeatureFile for a flat file."""
    with foreign(source, "an HDF5 file of groups"), h5py.File(source, "r") as file:
        if any(isinstance(thing, h5py.Dataset) for thing in file.values()):
            raise BadFeatureFile(f"{source}: its arrays are not in groups; import it as hdf5")
        for name, group in _groups(file, ""):
            arrays = [key for key, thing in group.items() if isinstance(thing, h5py.Dataset)]
            if arrays:
                key = chosen(arrays, asked, f"{source}, {name}", (KEY,))
                yield check_id(name, str(source)), as_array(group[key][()], f"{source}, {name}")


def _groups(group: h5py.Group, before: str) -> Iterator[tuple[str, h5py.Group]]:
    for name, thing in group.items():
        if isinstance(thing, h5py.Group):
            yield f"{before}{name}", thing
            yield from _groups(thing, f"{before}{name}/")


def fits(source: Path) -> bool:
    """Return whether it is an HDF5 file, not a feature file, whose first entry is a group."""
    if not (source.is_file() and h5py.is_hdf5(source)):
        return False
    with foreign(source, "an HDF5 file"), h5py.File(source, "r") as file:
        return "streams" not in file and isinstance(next(iter(file.values()), None), h5py.Group)


def write(out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:
    """Write a group for each video with the data set `key`, by default `c3d_features`."""
    with h5py.File(out, "w") as file:
        for video, rows in videos:
            file.create_group(video).create_dataset(key or KEY, data=rows)
