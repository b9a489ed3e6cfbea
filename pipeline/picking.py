"""Chosen frames of a video by the ffmpeg program: in one pass, or from key frames on where that decodes less.

Which frame is shown at a time is read off the clock of what was decoded, never off a header. A run that began at a key
frame counts only if it gave every frame that the packets announce, from that key frame to the last one wanted, without
a complaint: what a decoder makes of half a group of pictures then never gets out. Else one pass decides.
"""

from __future__ import annotations

import logging
import math
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline import ffmpeg
from pipeline.errors import BadVideo
from pipeline.ffmpeg import Branch, Job, Pick
from pipeline.messages import Messages
from pipeline.packets import SECOND, Packets

Frames = NDArray[np.uint8]
Times = NDArray[np.int64]

START = 60
"""Frames that could be decoded in the time that one more run takes to start: 0.05 s, at 320x240."""
_SEEKABLE = ("mov,mp4", "matroska,webm", "flv")
"""Formats whose files say when each frame is shown. In AVI and others FFmpeg guesses, and guesses anew after a seek; in
MPEG-TS and -PS the program counts from another start when it decodes only some of the streams."""
_BEFORE = 17
"""Frames by which a seek stays ahead of the first one wanted: at most 16 are decoded before one that is shown first."""
_NEAR = 2
"""Microseconds by which the clock may be off after a seek, by rounding."""
_ALWAYS = 1 << 50
"""Microseconds before any time, negative."""
_MOST = 1 << 30
"""Bytes of frames that one run may hand out beyond those wanted."""
_LOG = logging.getLogger(__name__)


class _Astray(Exception):
    """A run that began at a key frame did not give what the packets announce."""


@dataclass(frozen=True)
class Window:
    """One run: which frames are wanted of it, and where it begins. Frames are counted as they are shown."""

    key: int
    """The key frame that decoding begins with."""
    wanted: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Frames that are decoded, and those that could be while the program starts."""
        return START + self.wanted[-1] - self.key + 1


@dataclass(frozen=True)
class _Run:
    times: Times
    """Of every decoded frame, by the run's clock."""
    size: tuple[int, int] | None
    pixels: bytes
    status: int
    messages: Messages


def pick(job: Job, branch: Branch, wanted: Times, known: Packets) -> Frames:
    """Return the frames that are shown at the times `wanted`, which rise. Raises BadVideo where there is none."""
    windows = seeks(known, known.covering(wanted)) if not known.doubt else []
    try:
        parts = [_window(job, branch, window, known) for window in windows]
    except _Astray as error:
        _LOG.debug("%s: %s; decoded from its start instead", job.path, error)
        parts = []
    return np.concatenate(parts) if parts else _one_pass(job, branch, wanted)


def seeks(known: Packets, ranks: Times) -> list[Window]:
    """Return the runs that give frames of rising rank; none where one pass costs no more, or seeks are not trusted.

    >>> known = Packets(np.arange(1000), np.arange(1000) % 250 == 0, "mov,mp4,m4a", 1, "", False, "")
    >>> seeks(known, np.array([255, 255, 260, 980]))
    [Window(key=250, wanted=(255, 255, 260)), Window(key=750, wanted=(980,))]
    >>> seeks(known, np.arange(0, 1000, 8))
    []
    """
    keys = known.ranks[known.key]
    if not known.container.startswith(_SEEKABLE) or not len(keys) or ranks[0] < keys[0]:
        return []
    windows: list[Window] = []
    for rank, key in zip(ranks.tolist(), keys[np.searchsorted(keys, ranks, side="right") - 1].tolist(), strict=True):
        if windows and key - windows[-1].wanted[-1] <= START:
            windows[-1] = replace(windows[-1], wanted=(*windows[-1].wanted, rank))
        else:
            windows.append(Window(key, (rank,)))
    return windows if sum(window.cost for window in windows) < START + ranks[-1] + 1 else []


def _window(job: Job, branch: Branch, window: Window, known: Packets) -> Frames:
    begin = max(window.key, window.wanted[0] - _BEFORE)
    zero = int(known.shown[begin]) if window.key else 0
    wanted = sorted(set(window.wanted))
    times = known.shown[wanted] - zero
    spans = tuple((time - _NEAR, time + _NEAR) for time in times.tolist())
    run = _run(job, branch, Pick(spans, zero if window.key else None))
    announced = known.shown[window.key : wanted[-1] + 1] - zero
    given = run.times[run.times >= announced[0] - _NEAR]
    if run.status or run.messages.errors or not _sized(run, branch):
        raise _Astray(run.messages.first or f"exit status {run.status}, pictures of {run.size}")
    if len(given) != len(announced) or np.abs(given - announced).max() > _NEAR:
        raise _Astray("a seek did not give the frames that the packets announce")
    frames = _frames(run, branch)
    if len(frames) != len(wanted):
        raise _Astray("a seek gave other frames than those wanted")
    return frames[np.searchsorted(wanted, window.wanted)]


def _one_pass(job: Job, branch: Branch, wanted: Times) -> Frames:
    """Return what is shown at the times `wanted`, from the start of the file on; of a damaged one, of what is left.

    Handed out are the frames of a short while before each time; then, where others stood longer, just those; and all,
    where times go back and a change of size hides it.
    """
    before = int(2 * SECOND / job.probe.fps) if job.probe.fps > 0 else SECOND  # an interval, and one to be sure
    spans = _merged((time - before, time) for time in wanted.tolist())
    for _ in range(3):
        run, branch = _sized_run(job, branch, spans)
        frames, handed = _frames(run, branch), _handed(run.times, spans)
        shown = _shown(run.times, wanted)
        if handed[shown].all() and len(frames) == handed.sum():
            return np.asarray(frames[(np.cumsum(handed) - 1)[shown]])
        exact = _merged((time, time) for time in run.times[shown].tolist())
        spans = exact if spans != exact else ((-_ALWAYS, int(wanted[-1])),)
        if spans != exact and len(run.times) * math.prod(branch.frame_size) * 3 > _MOST:
            break
    raise BadVideo("its times go back: which of its frames are shown when cannot be told")


def _sized_run(job: Job, branch: Branch, spans: tuple[tuple[int, int], ...]) -> tuple[_Run, Branch]:
    """Return a run that gave something, and the branch with the true size. Raises BadVideo when there is nothing."""
    run = _run(job, branch, Pick(spans))
    if not len(run.times):  # all are wanted before the first
        run = _run(job, branch, Pick(()))
    if run.size and not _sized(run, branch):  # the header was wrong
        width, height = run.size
        return _sized_run(job, replace(branch, width=width, height=height), spans)
    if not len(run.times) or run.status < 0:
        raise BadVideo(f"no frame could be decoded: {run.messages.first or f'exit status {run.status}'}")
    return run, branch


def _shown(times: Times, wanted: Times) -> Times:
    """Return which decoded frame stands at each time: the one before the first that comes later."""
    latest = np.maximum.accumulate(times)
    return np.maximum(np.searchsorted(latest, wanted, side="right") - 1, 0)


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the spans, sorted, those that touch in one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _handed(times: Times, spans: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which of the decoded frames the run hands out."""
    first, last = np.array(spans).T
    at = np.searchsorted(first, times, side="right") - 1
    return np.asarray((at >= 0) & (times <= last[np.maximum(at, 0)]))


def _sized(run: _Run, branch: Branch) -> bool:
    return run.size == (branch.width, branch.height)


def _frames(run: _Run, branch: Branch) -> Frames:
    """Return the whole frames that were handed out."""
    width, height = branch.frame_size
    whole = len(run.pixels) // (width * height * 3)
    return np.frombuffer(run.pixels, np.uint8, whole * width * height * 3).reshape(whole, height, width, 3)


def _run(job: Job, branch: Branch, pick: Pick) -> _Run:
    """Run the program to its end. Its frames are few, so they are kept; its clock goes to a file, which never blocks.

    Raises BadVideo when it does not end."""
    patience = job.stall + 4 * (job.probe.duration or 0.0)
    with tempfile.TemporaryFile() as clock:
        command = ffmpeg.picking(ffmpeg.program(), job, branch, pick, [clock.fileno(), 1])
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[clock.fileno()], timeout=patience,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BadVideo(f"the decoder was ended after {patience:.0f} s") from None
        clock.seek(0)
        lines = clock.read().decode().splitlines()
    messages = Messages()
    for line in done.stderr.decode(errors="replace").splitlines():
        messages.take(line)
    times = [int(line.split(",")[2]) for line in lines if not line.startswith("#")]
    sizes = [line.partition(": ")[2].split("x") for line in lines if line.startswith("#dimensions 0")]
    size = (int(sizes[0][0]), int(sizes[0][1])) if sizes else None
    return _Run(np.array(times, np.int64), size, done.stdout, done.returncode, messages)
