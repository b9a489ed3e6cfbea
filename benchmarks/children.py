"""Measurements in processes of their own: what one leaves behind, in memory and caches, is not the next one's."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil  # type: ignore[import-untyped]


def child(module: str, *words: str) -> dict[str, Any]:
    """Return the JSON object that `python -m MODULE WORDS` prints last.

    `{"failed": …}` where it was killed, as for want of memory; other failures end this process too.
    """
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode == -9:
        return {"failed": "out of memory (killed)"}
    if done.returncode:
        sys.exit(f"{module} {words[0] if words else ''} failed ({done.returncode}):\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True)
class Watched:
    """What a command took."""

    seconds: float
    """By the clock."""
    processor: float
    """Seconds on the processor, of all its processes."""
    peak: int
    """The largest resident size of any of its processes, in bytes."""


def watched(command: Sequence[str], more: Mapping[str, str] = MappingProxyType({})) -> Watched:
    """Return what a command takes. `more`: variables that it finds besides."""
    begun, before, peak = time.monotonic(), _processor(), 0
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **more})
        while running.returncode is None:
            peak = max([peak, *_resident(running.pid)])
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.2)  # looking costs time too
        taken = time.monotonic() - begun
        said.seek(0)
        if running.returncode:
            sys.exit(f"{' '.join(command)} failed ({running.returncode}):\n{said.read().decode()}")
    return Watched(taken, _processor() - before, peak)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _resident(pid: int) -> list[int]:
    try:
        parent = psutil.Process(pid)
        return [process.memory_info().rss for process in (parent, *parent.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def told(name: str) -> int:
    """Return what the system tells of this process's memory in bytes: VmHWM, its peak; RssAnon, RssFile, now."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])
