"""Faults on purpose, for the tests of what a run survives: nothing happens unless VTF_FAULT is set.

    VTF_FAULT=shard-*.h5:rename.before:2:kill:LOG

When a run comes the second time to the point `rename.before` of a file of such a name, the process is killed. LOG gets
a line for each time; since it is one for all processes, a worker that is started anew does not die again.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from fnmatch import fnmatchcase
from pathlib import Path

ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO}


def point(step: str, path: Path) -> None:
    """Do what VTF_FAULT says of this step with the file `path`: kill, enospc, eio, memory, sleep; else only count."""
    if fault := os.environ.get("VTF_FAULT"):
        _meet(fault, step, path.name)


def _meet(fault: str, step: str, name: str) -> None:
    names, steps, count, deed, log = fault.split(":", 4)
    if not (fnmatchcase(name, names) and fnmatchcase(step, steps)):
        return
    with Path(log).open("a+", encoding="utf-8") as lines:
        lines.write(f"{name}:{step}\n")
        lines.flush()
        lines.seek(0)
        met = len(lines.readlines())
    if met == int(count):
        _do(deed)


def _do(deed: str) -> None:
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "sleep":
        time.sleep(3600)
    elif deed == "memory":
        raise MemoryError("on purpose")
    elif deed in ERRORS:
        raise OSError(ERRORS[deed], os.strerror(ERRORS[deed]))
