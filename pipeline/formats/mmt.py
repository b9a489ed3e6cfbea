"""One HDF5 file a video, `v/i/d/vid.h5`: MMT and HCQ, several experts side by side.

`features.EXPERT` (rows, dim); --key says which expert. `features_t.EXPERT` (rows, 2) has the seconds of each row: rate
and window are taken from it. An expert whose rows are not evenly spaced, such as speech, is no stream and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.foreign import Asked, as_array, chosen, files_below, foreign
from pipeline.sources import check_id

SOURCE = "a folder with a file v/i/d/vid.h5 for each video, with `features.EXPERT` (rows, dim)"
BEFORE, TIMES = "features.", "features_t."
OFF = 0.1
"""Of the distance of two rows, by which a row may begin elsewhere than its number says."""


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each file. Raises BadFeatureFile for one without the expert, or with uneven rows."""
    known = says(source, asked)
    for name, path in files_below(source, ".h5", asked):
        rows, times = _expert(path, asked)
        if known and times is not None and not _even(times, known["rate"]):
            raise BadFeatureFile(
                f"{path}: its rows do not begin {1 / known['rate']:g} s after one another as those before; an expert "
                "without a rate is no stream: choose another by --key"
            )
        yield check_id(name.rpartition("/")[2], str(path)), rows


def says(source: Path, asked: Asked) -> Mapping[str, float]:
    """Return rate and window by the times of the first file that has two rows; nothing where no file has times."""
    for _, path in files_below(source, ".h5", asked):
        _, times = _expert(path, asked)
        if times is None:
            return {}
        if len(times) > 1 and times[1, 0] > times[0, 0]:
            found = {"rate": float((len(times) - 1) / (times[-1, 0] - times[0, 0]))}
            window = float(times[0, 1] - times[0, 0])
            return found | ({"row_seconds": window} if window > 0 else {})
    return {}


def _expert(path: Path, asked: Asked) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Return rows and, where it has them, the start and end of each in seconds."""
    with foreign(path, "an HDF5 file of experts"), h5py.File(path, "r") as file:
        experts = [name.removeprefix(BEFORE) for name in file if name.startswith(BEFORE)]
        expert = chosen(experts, asked, str(path))
        rows = as_array(file[BEFORE + expert][()], str(path))
        if TIMES + expert not in file:
            return rows, None
        times = np.asarray(file[TIMES + expert][()], np.float64)
    if times.shape != (len(rows), 2):
        raise BadFeatureFile(f"{path}: {TIMES}{expert} is {times.shape} for {len(rows)} rows; expected (rows, 2)")
    return rows, times


def _even(times: NDArray[np.float64], rate: float) -> bool:
    expected = times[:1, 0] + np.arange(len(times)) / rate
    return bool((np.abs(times[:, 0] - expected) * rate <= OFF).all())


def fits(source: Path) -> bool:
    """Return whether it is a folder of HDF5 files with experts."""
    path = next(source.rglob("*.h5"), None) if source.is_dir() else None
    if path is None or not h5py.is_hdf5(path):
        return False
    with foreign(path, "an HDF5 file"), h5py.File(path, "r") as file:
        return any(name.startswith(BEFORE) for name in file)
