"""Files appear whole or not at all: a temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.errors import BadFeatureFile
from pipeline.faults import point

NEARLY_FULL = 1 << 16
"""Bytes left on a disk to which a failure to write is put down."""


def temporary_name(path: Path) -> str:
    """Return a name beside `path` for what this process is making; `remove_stale` knows it when the process is dead."""
    return f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp"


@contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; when the block ends well, fsync it and rename it to `path`.

    When it does not, nothing is left. Raises BadFeatureFile when the place cannot be written or is full.
    """
    temporary = path.with_name(temporary_name(path))
    try:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            point("write.before", path)
            yield temporary
            point("fsync.before", path)
            _fsync(temporary)
            point("rename.before", path)
            temporary.replace(path)
            point("rename.after", path)
            _fsync(path.parent)
            point("fsync.after", path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise BadFeatureFile, which tells what to do, when `path` cannot be written or its disk is full."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        if path.parent.is_dir() and shutil.disk_usage(path.parent).free < NEARLY_FULL:
            why = os.strerror(errno.ENOSPC)  # HDF5 has many other words for it
        raise BadFeatureFile(
            f"cannot write {path}: {why}; free space or choose another place, and run again: it resumes"
        ) from error


def append(path: Path, lines: Sequence[str]) -> None:
    """Add lines to the list at `path` and fsync it. Raises BadFeatureFile when it cannot be written.

    A line that a dead process, or a full disk, left torn is ended first: it must not spoil the next one.
    """
    with explained(path):
        point("append.before", path)
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = file.read(1) not in (b"", b"\n")
            file.write(("\n" * torn + "".join(lines)).encode())
            file.flush()
            point("append.written", path)
            os.fsync(file.fileno())
        point("append.after", path)


def remove_stale(folder: Path) -> None:
    """Remove the temporary files that dead processes of this machine left in `folder`."""
    ours = re.compile(rf"\..+\.{re.escape(socket.gethostname())}-(\d+)\.tmp")
    for file in folder.iterdir():
        match = ours.fullmatch(file.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
