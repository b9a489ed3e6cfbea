"""Files appear whole or not at all: a temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.errors import BadFeatureFile

NEARLY_FULL = 1 << 16
"""Bytes left on a disk to which a failure to write is put down."""


@contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; when the block ends well, fsync it and rename it to `path`.

    When it does not, nothing is left. Raises BadFeatureFile when the place cannot be written or is full.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _fsync(temporary)
        temporary.replace(path)
        _fsync(path.parent)
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        if path.parent.is_dir() and shutil.disk_usage(path.parent).free < NEARLY_FULL:
            why = os.strerror(errno.ENOSPC)  # HDF5 has many other words for it
        raise BadFeatureFile(
            f"cannot write {path}: {why}; free space or choose another place, and run again: it resumes"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_stale(folder: Path) -> None:
    """Remove the temporary files that dead processes of this machine left in `folder`."""
    ours = re.compile(rf"\..+\.{re.escape(socket.gethostname())}-(\d+)\.tmp")
    for file in folder.iterdir():
        match = ours.fullmatch(file.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            file.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
