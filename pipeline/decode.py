"""Frames of one video for several presets, from one decode by the ffmpeg program (DESIGN 5).

    decoding = Decoding(path, probe(path), [preset.chain for preset in presets])
    for chain, frame in decoding:
        ...
    decoding.summary

A video ends in one of four ways: `summary.status` is 'ok' or 'partial' (with a reason), `BadVideo` is raised when some
chain got no frame, `DecoderKilled` when something else on the machine ended the decoder.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from extractors.spec import Chain
from pipeline.child import JUMP, LONGEST, Frame, Run
from pipeline.errors import BadVideo
from pipeline.ffmpeg import Branch, Job
from pipeline.probe import Probe, last_timestamps

_LOG = logging.getLogger(__name__)
_LARGEST = 16384
"""Pixels on the long side of a scaled frame; beyond it the picture is a line, and one frame is tens of megabytes."""
_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
"""Signals that a decoder does not bring upon itself."""
_INTERRUPTED = 255
"""ffmpeg's exit status when it ended upon a signal that it caught."""


class DecoderKilled(Exception):
    """The decoder was ended from outside, for example for want of memory: worth one more try, blames no video."""


@dataclass(frozen=True)
class Decoded:
    """What became of a video that gave frames for every chain."""

    seconds: float
    """From the first decoded frame to the end of the last."""
    frames: int
    """Decoded frames of the source."""
    status: Literal["ok", "partial"]
    reason: str = ""
    short: bool = False
    """True when the video was too short for some chain's rate, which then got the first frame."""


class Decoding:
    """The frames of one video: iterate once, then read `summary`. Closing it early ends the decoder."""

    summary: Decoded
    """There when the iteration is over."""

    def __init__(
        self,
        path: Path,
        probe: Probe,
        chains: Sequence[Chain],
        *,
        threads: int = 1,
        stall: float = 120.0,
        hwaccel: str = "",
    ) -> None:
        """Prepare to decode for one or more chains, each another.

        `threads` are the decoder's, and the filters'. A decoder that gives no sign of life for `stall` seconds,
        not counting those in which nobody asks for frames, is ended. `hwaccel` is a GPU, `cuda:N`, that decodes what
        its decoder knows.
        """
        self._frames = self._decode(Job(path, probe, threads, stall, hwaccel=hwaccel), chains)

    def __iter__(self) -> Iterator[tuple[int, Frame]]:
        """Yield (index of the chain, frame) as they come."""
        return self._frames

    def close(self) -> None:
        """End the decoder, if it runs."""
        self._frames.close()

    def _decode(self, job: Job, chains: Sequence[Chain]) -> Generator[tuple[int, Frame]]:
        run: Run | None = _first_run(job, chains)
        while run is not None:
            yield from run.frames()
            last, run = run, _next_run(run)
        self.summary = _judge(last)


def _first_run(job: Job, chains: Sequence[Chain]) -> Run:
    branches = [Branch(chain, job.probe.width, job.probe.height) for chain in chains]
    refuse_lines(branches)
    return Run(job, branches, [0] * len(branches))


def _next_run(run: Run) -> Run | None:
    """Return the run that mends what the last one met, None when there is nothing to mend. Each happens once."""
    job, branches = run.job, run.branches
    if not run.sized and run.clock.size is not None:  # the header was wrong; no frame was delivered yet
        width, height = run.clock.size
        probe = replace(job.probe, width=width, height=height)
        return _first_run(replace(job, probe=probe), [branch.chain for branch in branches])
    if run.unfit and run.clock.still and branches[0].sampling == "early":
        return Run(job, [replace(branch, sampling="late") for branch in branches], run.counts)
    if run.clock.jumped and run.clock.frames and job.until is None:
        return Run(replace(job, until=(run.clock.frames, run.clock.seconds)), branches, run.counts)
    if _short(run):
        pairs = zip(branches, run.counts, strict=True)
        return Run(job, [b if count else replace(b, sampling="first") for b, count in pairs], run.counts)
    return None


def refuse_lines(branches: Sequence[Branch]) -> None:
    """Raise BadVideo for a picture whose shape makes the scaled frame absurdly long."""
    for branch in branches:
        scaled = branch.chain.scaled(branch.width, branch.height)
        if max(scaled) > _LARGEST:
            raise BadVideo(
                f"aspect ratio {branch.width}:{branch.height}: scaled to {scaled[0]}x{scaled[1]}, "
                f"over {_LARGEST} pixels"
            )


def _short(run: Run) -> bool:
    """Say whether some chain got no frame of a video that has some.

    The `fps` filter gives none of a video shorter than half its interval. ffmpeg 9 then calls the empty output a
    failure and ends the others before they are done, so all that was not delivered is decoded again.
    """
    ended = run.status is not None and run.status >= 0
    tried = any(branch.sampling == "first" for branch in run.branches)
    return ended and not tried and run.clock.frames > 0 and 0 in run.counts


def _judge(run: Run) -> Decoded:
    """Say how a video ended. An exit status of 0 proves little: ffmpeg gives it for most damaged files."""
    reasons = [text for text in (run.fault, _end(run), _cut(run), run.messages.summary(), _missing(run)) if text]
    if reasons:
        _LOG.debug("%s: %s\n%s", run.job.path, "; ".join(reasons), "\n".join(run.messages.kept()))
    if 0 in run.counts:
        count = f"only {run.clock.frames} frames" if run.clock.frames else "no frame"
        cause = run.fault or run.messages.first or "; ".join(reasons) or "the decoder gave none, and no reason"
        raise BadVideo(f"{count} could be decoded: {cause}")
    status: Literal["ok", "partial"] = "partial" if reasons else "ok"
    short = any(branch.sampling == "first" for branch in run.branches)
    return Decoded(run.clock.seconds, run.clock.frames, status, "; ".join(reasons), short)


def _cut(run: Run) -> str:
    if run.job.until is not None and run.job.until[1] > LONGEST - JUMP:
        return f"over {LONGEST / 3600:g} h: the rest was left out"
    if run.job.until is not None:
        return f"timestamps jump after {run.job.until[1]:.1f} s: the rest was left out"
    hours = f"{LONGEST / 3600:g} h"
    far = f"it stands for over {hours}, or the first frame's timestamp is far from the start of the file"
    return far if run.clock.jumped else ""


def _end(run: Run) -> str:
    """Return what the exit status tells beyond the messages. Raises DecoderKilled."""
    status = run.status or 0
    if -status in _OUTSIDE or (status == _INTERRUPTED and not run.messages.errors):
        name = signal.Signals(-status).name if status < 0 else "a signal"
        raise DecoderKilled(f"ffmpeg was ended from outside by {name} (out of memory?): {run.job.path}")
    if status < 0:
        return f"the decoder crashed ({signal.Signals(-status).name})"
    if status > 0 and not run.messages.errors:
        return f"the decoder ended with exit status {status}"
    return "the decoder ended within a frame" if run.torn and not run.fault else ""


def _missing(run: Run) -> str:
    """Compare the decoded seconds with the expected ones: two frames or 2 % may be missing."""
    probe, clock = run.job.probe, run.clock
    if probe.duration is None or run.fault or run.job.until is not None or not clock.frames:
        return ""
    tolerance = max(2 * clock.seconds / clock.frames, 0.02 * probe.duration) + 1e-3  # times are rounded
    if clock.seconds >= probe.duration - tolerance:
        return ""
    if not probe.alone and _others_last_longer(run, tolerance):
        return ""
    return f"decoded {clock.seconds:.1f} of {probe.duration:.1f} s: file truncated?"


def _others_last_longer(run: Run, tolerance: float) -> bool:
    """Say whether the file is whole and only its video ends early, so that its duration is that of the sound."""
    probe = run.job.probe
    ends = last_timestamps(run.job.path)
    whole = max(ends.values(), default=0.0) >= probe.first_frame + (probe.duration or 0.0) - tolerance
    video = ends.get(probe.stream, 0.0) - probe.first_frame
    return whole and run.clock.seconds >= video - tolerance
