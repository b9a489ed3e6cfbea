"""Inputs that may do harm, one after the other in a fork that is watched: what raises, hangs, dies or eats memory is
that input's result, and the next one goes on."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """What became of one input. `outcome` is what its work returned, or 'raised', 'hung' or 'died'."""

    number: int
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    """By which memory grew at most meanwhile."""


def watched(inputs: Sequence[Any], work: Callable[[Any], tuple[str, str]], limit: float) -> Iterator[Result]:
    """Yield a result for each input. `work` returns (outcome, reason) within `limit` seconds, or the input hangs."""
    done = 0
    while done < len(inputs):
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            _child(inputs, done, work, writer)
        os.close(writer)
        end = ""
        for line in _lines(reader, limit):
            if not line:
                end = "hung"
                break
            yield Result(**json.loads(line))
            done += 1
        os.close(reader)
        if end:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if done < len(inputs):
            yield Result(done, end or "died", f"exit code {status}", limit if end else 0.0)
            done += 1


def _lines(reader: int, limit: float) -> Iterator[str]:
    """Yield the lines that come; an empty one when none comes for so many seconds."""
    rest = b""
    while True:
        if not select.select([reader], [], [], limit)[0]:
            yield ""
            return
        got = os.read(reader, 1 << 16)
        if not got:
            return
        *lines, rest = (rest + got).split(b"\n")
        yield from (line.decode() for line in lines)


def _child(inputs: Sequence[Any], start: int, work: Callable[[Any], tuple[str, str]], writer: int) -> None:
    code = 1
    try:
        for number in range(start, len(inputs)):
            os.write(writer, json.dumps(asdict(_one(number, inputs[number], work))).encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def _one(number: int, given: Any, work: Callable[[Any], tuple[str, str]]) -> Result:
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    begun = time.monotonic()
    try:
        outcome, reason = work(given)
    except BaseException as error:  # noqa: BLE001 — that is what is looked for
        outcome, reason = "raised", f"{error!r:.300}, in {_place(error)}"
    return Result(number, outcome, reason[:2_000], time.monotonic() - begun, memory("VmHWM") - before)


def memory(field: str) -> float:
    """Return megabytes of this process: VmRSS now, VmHWM at most."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def _place(error: BaseException) -> str:
    return " < ".join(
        f"{Path(f.filename).name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__))
    )
