"""Changing a feature file by hand, which its seals would take for damage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from pipeline.seals import SEAL


@contextmanager
def edited(path: Path) -> Iterator[h5py.File]:
    """Open a file to be changed; it ends without seals, as an older file has none."""
    with h5py.File(path, "r+") as file:
        yield file
        groups = [file]
        file.visititems(lambda _, thing: groups.append(thing) if isinstance(thing, h5py.Group) else None)
        for group in groups:
            group.attrs.pop(SEAL, None)
