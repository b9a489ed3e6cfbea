"""Runs of the commands in forks of this process: a fork has torch already, so hundreds of them can be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from pipeline import cli
from pipeline.store import STATUS, Features
from tests.whole.command import _as_if_new

LIMIT = 120.0
"""Seconds after which a run is taken for hung."""


def nothing() -> None:
    """Prepare nothing."""


@dataclass
class Fork:
    """A command that runs in a child process."""

    pid: int
    log: Path
    code: int | None = None

    def ended(self) -> bool:
        if self.code is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.code = 0  # its code does not matter to those who ask this
        return self.code is not None

    def wait(self) -> int:
        """Return the exit code, negative for a signal. A run that hangs is a failure."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                return self.code
            time.sleep(0.01)
        self.kill()
        raise AssertionError(f"the run hangs\n{self.said()}")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def fork(words: Sequence[Any], log: Path, fault: str = "", prepare: Callable[[], Any] = nothing) -> Fork:
    """Run `pipeline WORDS` in a fork, where `prepare` was called before; what it prints goes to `log`."""
    pid = os.fork()
    if pid:
        return Fork(pid, log)
    code = 99
    try:
        os.setpgid(0, 0)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(out, number)
        os.environ["VTF_FAULT"] = fault
        code = _main([str(word) for word in words], prepare)
    finally:
        os._exit(code)


def _main(words: list[str], prepare: Callable[[], Any]) -> int:
    import sys
    import traceback

    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    code = 98
    try:
        with _as_if_new():
            prepare()
            cli.main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # noqa: BLE001 — what a user would see
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def contents(path: Path) -> dict[str, Any]:
    """Return all that a feature file says but the time stamps: rows, what became of videos, tables."""
    found: dict[str, Any] = {}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            values = thing[()]
            found[name] = list(values) if values.dtype == object else (values.dtype.str, values.tobytes())

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def lost_rows(path: Path, whole: Path) -> int:
    """Return how many rows of `whole` are not in the file at `path`."""
    with Features.open(path) as found, Features.open(whole) as wanted:
        return sum(
            len(rows)
            for name in wanted.streams
            for video, rows in wanted.all_rows(name)
            if name not in found.streams
            or video not in found.index
            or found.rows(name, video).tobytes() != rows.tobytes()
        )


def ok(path: Path, stream: str) -> int:
    """Return how many videos of a stream are there."""
    with Features.open(path) as features:
        return int((features.stream(stream).status == STATUS.index("ok")).sum())
