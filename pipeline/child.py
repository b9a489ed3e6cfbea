"""One run of ffmpeg as a child process, and the loop that reads its pipes.

A decoder that crashes or hangs must cost one video, not a worker, so it lives in a process of its own. Memory is
bounded by one frame per branch and the pipes; a slow consumer blocks ffmpeg and nothing else.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from pipeline import ffmpeg
from pipeline.ffmpeg import Branch, Job
from pipeline.messages import Messages

Frame = NDArray[np.uint8]
"""(height, width, 3), RGB."""

_READ = 1 << 16
_SLICE = 1.0
"""Seconds of one wait. A longer absence (a suspended job) counts as one slice, so that it is not taken for a hang."""
_STILL = 10.0
"""Seconds for which a frame may stand before its repetitions are made to share their memory."""
JUMP = 600.0
"""Seconds. A slide may stand for minutes; beyond that the clock is broken, and `fps` would repeat a frame for hours."""
LONGEST = 12 * 3_600.0
"""Seconds of a video that are taken. A small file of slides could last for ever."""


class Run:
    """One run of the program: the frames it gives and what it tells of them."""

    def __init__(self, job: Job, branches: Sequence[Branch], seen: Sequence[int]) -> None:
        """Prepare to decode; of each branch the first `seen` frames are not delivered again."""
        self.job, self.branches = job, branches
        self.clock, self.messages = Clock(), Messages()
        self.status: int | None = None
        """Exit status, negative for a signal; None when we ended it."""
        self.fault = ""
        """Why we ended it."""
        self._sinks = [_Frames(branch, known) for branch, known in zip(branches, seen, strict=True)]

    @property
    def counts(self) -> list[int]:
        """Frames of each branch that were delivered, by this run or earlier ones."""
        return [sink.delivered for sink in self._sinks]

    @property
    def torn(self) -> bool:
        """True when some branch ended within a frame."""
        return any(sink.torn for sink in self._sinks)

    @property
    def sized(self) -> bool:
        """True unless the decoded pictures have another size than the branches were made for."""
        return self.clock.size in (None, (self.branches[0].width, self.branches[0].height))

    @property
    def unfit(self) -> bool:
        """True when the pictures turn out to need another command line: no more frames are delivered."""
        early = any(branch.sampling == "early" for branch in self.branches)
        return not self.sized or self.clock.jumped or (self.clock.still and early)

    def frames(self) -> Iterator[tuple[int, Frame]]:
        """Run the program and yield (number of the branch, frame)."""
        child = _Child(self.job, self.branches)
        try:
            for _ in self._read(child):
                yield from self._due(self.clock.now)
            if not self.unfit and not self.fault:
                yield from self._due(math.inf)
                self.status = child.wait(self.job.stall)
                self.fault = "" if self.status is not None else "the decoder gave all frames but does not end"
        finally:
            child.close()

    def _due(self, now: float) -> Iterator[tuple[int, Frame]]:
        for branch, sink in enumerate(self._sinks):
            for frame in sink.take(now):
                yield branch, frame

    def _read(self, child: _Child) -> Iterator[None]:
        """Serve whichever pipes have something: none may fill up while another is waited for. Yield after each turn."""
        readers = [_Lines(self.messages.take), _Lines(self.clock.take), *self._sinks]
        idle = 0.0
        with selectors.DefaultSelector() as pipes:
            for pipe, reader in zip((child.stderr, child.clock, *child.frames), readers, strict=True):
                pipes.register(pipe, selectors.EVENT_READ, reader)
            while pipes.get_map() and not self.fault:
                start, ended = time.monotonic(), child.ended()
                read = {key.fd for key, _ in pipes.select(_SLICE) if _serve(pipes, key)}
                if self.unfit or (ended and not read):  # what it started may still hold the pipes open
                    return
                idle = 0.0 if read - {child.stderr} else idle + min(time.monotonic() - start, _SLICE)
                if idle > self.job.stall:
                    self.fault = f"the decoder made no progress for {self.job.stall:g} s"
                yield


def _serve(pipes: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
    """Read one pipe once; return False, and forget the pipe, at its end."""
    got: int = key.data.read(key.fd)
    if not got:
        pipes.unregister(key.fd)
    return got > 0


class _Lines:
    """Cuts what comes through a pipe into lines."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._line = take
        self._rest = b""

    def read(self, fd: int) -> int:
        """Read once; return the number of bytes, 0 at the end."""
        got = os.read(fd, _READ)
        *lines, rest = (self._rest + got).split(b"\n")
        if rest and (not got or len(rest) > _READ):  # the end, or no line at all
            lines, rest = [*lines, rest], b""
        for line in lines:
            self._line(line.decode(errors="replace"))
        self._rest = rest
        return len(got)


class _Frames:
    """Puts together the frames of one branch, and holds those that are ahead of the clock.

    The clock may yet tell that they have another size, or that they repeat a picture up to a jump of time; how many
    of them come before its line is chance.
    """

    def __init__(self, branch: Branch, seen: int) -> None:
        width, height = branch.frame_size
        self.delivered = seen
        self._count = 0
        self._rate, self._shape = branch.chain.fps, (height, width, 3)
        self._whole: deque[Frame] = deque()
        self._renew()

    def _renew(self) -> None:
        self._frame = np.empty(self._shape, np.uint8)
        self._missing = self._frame.data.cast("B")

    def read(self, fd: int) -> int:
        """Read once; return the number of bytes, 0 at the end."""
        got = os.readv(fd, [self._missing])
        self._missing = self._missing[got:]
        if not self._missing:
            self._whole.append(self._frame)
            self._renew()
        return got

    def take(self, now: float) -> Iterator[Frame]:
        """Yield the frames up to a time of the clock, without those that an earlier run delivered."""
        while self._whole and self._count < now * self._rate:
            frame = self._whole.popleft()
            self._count += 1
            if self._count > self.delivered:
                self.delivered = self._count
                yield frame

    @property
    def torn(self) -> bool:
        """True within a frame."""
        return len(self._missing) < self._frame.nbytes


class Clock:
    """Counts the decoded frames and their time, from the lines of the `framecrc` muxer. Stops at a jump of time."""

    def __init__(self) -> None:
        self.frames = 0
        self.size: tuple[int, int] | None = None
        """(width, height) after rotation; None before the first frame."""
        self.still = False
        """True when a frame stands for long: a slide."""
        self.jumped = False
        """True when a frame would stand for hours, as the clock is broken, or would end beyond what is taken. Nothing
        is counted from there on."""
        self._unit = 1e-6
        self.now = 0.0
        """Seconds from the start of the file to the end of the last frame."""
        self._start = math.inf

    @property
    def seconds(self) -> float:
        """From the first frame to the end of the last."""
        return max(0.0, self.now - self._start)

    def take(self, line: str) -> None:
        """Read `#tb 0: 1/1000000`, `#dimensions 0: 320x240`, or `0, dts, pts, duration, ...` of one frame."""
        name, _, value = line.partition(" 0: ")
        if name == "#tb":
            above, _, below = value.partition("/")
            self._unit = int(above) / int(below)
        elif name == "#dimensions":
            width, _, height = value.partition("x")
            self.size = (int(width), int(height))
        elif not line.startswith("#") and not self.jumped:
            pts, duration = (int(field) * self._unit for field in line.split(",")[2:4])
            self._add(pts, duration)

    def _add(self, pts: float, duration: float) -> None:
        standing = max(duration if self.frames else 0.0, pts - self.now)
        self.still = self.still or max(duration, standing) >= _STILL
        self.jumped = standing >= JUMP or pts + duration > LONGEST
        if not self.jumped:
            self.frames += 1
            self._start, self.now = min(self._start, pts), max(self.now, pts + duration)


class _Child:
    """The running program with the reading ends of its pipes. `close` must be called.

    Larger pipes than the usual 64 KiB were measured to save one per cent, and draw on a quota that all processes share.
    """

    def __init__(self, job: Job, branches: Sequence[Branch]) -> None:
        program = ffmpeg.program()
        pipes = [os.pipe() for _ in range(len(branches) + 2)]
        self.stderr, self.clock, *self.frames = (read for read, _ in pipes)
        stderr, *outputs = (write for _, write in pipes)
        try:
            self._process = subprocess.Popen(
                ffmpeg.command(program, job, branches, outputs),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=outputs,
                process_group=0,  # Ctrl-C is for us: we end the child ourselves
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for write in (stderr, *outputs):
                os.close(write)

    def ended(self) -> bool:
        """Say whether the program has ended."""
        return self._process.poll() is not None

    def wait(self, seconds: float) -> int | None:
        """Return the exit status (negative: the signal that ended it), None if it does not end in time."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        """End the program and whatever it started, and close the pipes."""
        if not self.ended():
            os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(30.0)  # longer only when the kernel itself hangs, on a dead file server
        self._close_pipes()

    def _close_pipes(self) -> None:
        for read in (self.stderr, self.clock, *self.frames):
            os.close(read)
