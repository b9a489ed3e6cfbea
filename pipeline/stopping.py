"""Ending a run before its work is done, so that nothing that is whole is lost: at a signal, or when its time is up.

    with watched(limit) as stop:
        outcomes = run(stage, pool, stop=stop)      # no more chunks are begun once stop.why() says something

Slurm sends SIGTERM before it takes a node back, and with `--signal=USR1@120` SIGUSR1 two minutes before. What is under
way is finished and saved. A second SIGTERM ends the run at once, as any other death does: it can be gone on with too.
What comes within `SAME` of the first is the first: `timeout` and Slurm send to a process and then to its whole group.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.errors import BadSetting

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
SAME = 1.0
"""Seconds."""
STOPPED = 3
"""Exit code of a run that was stopped: the same command goes on."""


class Stop:
    """Says whether a run is to end."""

    def __init__(self, limit: float | None = None) -> None:
        """`limit`: seconds that the run may take."""
        self._begun = time.monotonic()
        self._limit = limit
        self._longest = 0.0
        self._signal, self._heard = "", 0.0

    def why(self) -> str:
        """Return why no more work is to be begun; '' while there is no reason."""
        if self._signal:
            return self._signal
        spent = time.monotonic() - self._begun
        # What is begun now will take as long as the longest so far.
        return "the time limit" if self._limit is not None and spent + self._longest > self._limit else ""

    def took(self, seconds: float) -> None:
        """Note how long a chunk took."""
        self._longest = max(self._longest, seconds)

    def signalled(self, number: int, _: FrameType | None) -> None:
        """Note a signal; at a second one, after `SAME`, the process ends as if there were no handler."""
        if self._signal and number == signal.SIGTERM and time.monotonic() - self._heard > SAME:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        if not self._signal:
            self._heard = time.monotonic()
        self._signal = signal.Signals(number).name


@contextmanager
def watched(limit: float | None = None) -> Iterator[Stop]:
    """Give a Stop that hears of signals as long as the block runs."""
    stop = Stop(limit)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.signalled) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds_of(text: str) -> float | None:
    """Return the seconds of `--time-limit`: minutes, or H:MM, or H:MM:SS; None for ''. Raises BadSetting.

    >>> seconds_of("90"), seconds_of("1:30"), seconds_of("0:00:05"), seconds_of("")
    (5400.0, 5400.0, 5.0, None)
    """
    if not text:
        return None
    if not re.fullmatch(r"\d+(:\d{1,2}){0,2}", text) or not int(text.replace(":", "")):
        raise BadSetting(f"--time-limit {text}: expected minutes, H:MM or H:MM:SS, for example 90 or 1:30")
    parts = [int(part) for part in text.split(":")]
    if len(parts) == 1:
        return 60.0 * parts[0]
    hours, minutes, seconds = (*parts, 0)[:3]
    return float(3600 * hours + 60 * minutes + seconds)
