"""Few frames of a video by random access: which times the sampling rules name, and the frames that are shown then.

The frame at a time is the last one that begins no later, as a player shows it: before the first frame it is the first,
after the last the last. Its pixels are those of ffmpeg's chain (DESIGN 5), whoever reads them: decord, where it was
found to give the same (`decord_guard`), else the ffmpeg program (`picking`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from extractors.spec import Chain, Preset
from pipeline import decord_guard, picking
from pipeline.decode import refuse_lines
from pipeline.errors import BadSetting, BadVideo
from pipeline.ffmpeg import Branch, Job
from pipeline.packets import SECOND, Packets, packets
from pipeline.probe import Probe, probe

if TYPE_CHECKING:
    from torch import nn

Frames = NDArray[np.uint8]
"""(n, height, width, 3), RGB."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """Frames of one video, and who read them."""

    frames: Frames
    decoder: Literal["decord", "ffmpeg"]
    why: str
    """Why decord did not; empty where it did."""


def segment_times(seconds: float, count: int) -> NDArray[np.float64]:
    """Return the middles of `count` equal segments of a video, in seconds.

    Wang et al., Temporal Segment Networks (ECCV 2016), as its released code samples for testing.

    >>> segment_times(10.0, 4).tolist()
    [1.25, 3.75, 6.25, 8.75]
    """
    return (np.arange(count) + 0.5) * seconds / count


def clip_times(seconds: float, fps: float, clips: int = 8, frames: int = 16) -> NDArray[np.float64]:
    """Return the times of `clips` clips of `frames` frames that follow each other at `fps`, as (clips, frames) seconds.

    The clips are equidistant: each is in the middle of one of `clips` equal segments. In a video shorter than a clip
    they all are the same, and what would lie outside is its first and last frame. Cao et al. (LocVTP, ECCV 2022)
    sample 8 clips of 16 frames "equidistantly" and say neither at which rate, nor where in a segment a clip lies.

    >>> clip_times(8.0, fps=4, clips=2, frames=4).tolist()
    [[1.625, 1.875, 2.125, 2.375], [5.625, 5.875, 6.125, 6.375]]
    """
    offsets = (np.arange(frames) - (frames - 1) / 2) / fps
    room = max(0.0, seconds - frames / fps) / 2
    middles = np.clip(segment_times(seconds, clips), seconds / 2 - room, seconds / 2 + room)
    return np.asarray(np.clip(middles[:, None] + offsets, 0.0, seconds))


def frames_at(path: Path, known: Probe, chain: Chain, times: Sequence[float] | NDArray[np.float64]) -> Frames:
    """Return the frames that are shown at `times`, seconds from the start of the file, as (n, height, width, 3) RGB.

    Of the chain its geometry counts, not its rate. Raises BadVideo where no frame can be decoded.
    """
    return take(path, known, chain, times).frames


def take(
    path: Path, known: Probe, chain: Chain, times: Sequence[float] | NDArray[np.float64], *, stall: float = 120.0
) -> Taken:
    """Return what `frames_at` does, and which decoder read it.

    All packets of the file are read, none is decoded for that: 10 to 20 ms for each thousand. decord then decodes from
    the key frame before each time; so does ffmpeg where the packets tell all, from one start of the program (0.05 s)
    for each group of times. Elsewhere ffmpeg decodes from the start of the file to the last time.
    """
    wanted, where = np.unique(_microseconds(times), return_inverse=True)
    if not len(wanted):
        width, height = chain.frame_size(known.width, known.height)
        return Taken(np.empty((0, height, width, 3), np.uint8), "ffmpeg", "no times")
    branch = Branch(chain, known.width, known.height, "first")
    refuse_lines([branch])
    index = packets(path, known)
    why = decord_guard.refusal(known, index) or decord_guard.refused_chain(chain)
    if not why:
        try:
            return Taken(_by_decord(path, known, chain, index, wanted)[where], "decord", "")
        except decord_guard.DecordFailed as error:
            why = str(error)
    _LOG.debug("%s: read by ffmpeg: %s", path, why)
    job = Job(path, known, threads=1, stall=stall)
    return Taken(picking.pick(job, branch, wanted, index)[where], "ffmpeg", why)


def clip_rows(path: Path, preset: Preset, network: nn.Module, clips: int = 8) -> NDArray[np.float32]:
    """Return the rows (clips, D) of equidistant clips of a video, each of the preset's frames at its rate.

    `network` is what `extractors.embed.network` gives. They go into no feature file: a stream there has one rate, and
    these are a number for each video. Raises BadVideo.
    """
    from extractors.embed import Batcher  # torch

    known = probe(path)
    if known.duration is None:
        raise BadVideo("equidistant clips need a length, and the file says none")
    times = known.first_frame + clip_times(known.duration, preset.chain.fps, clips, preset.frames)
    batcher, rows = Batcher(preset, network, preset.batch), dict[int, NDArray[np.float32]]()
    frames = np.split(take(path, known, preset.chain, times.ravel()).frames, clips)
    for clip, some in enumerate(frames):
        rows.update(batcher.add(clip, some))
    rows.update(batcher.flush())
    return np.stack([rows[clip] for clip in range(clips)])


def _by_decord(path: Path, known: Probe, chain: Chain, index: Packets, wanted: NDArray[np.int64]) -> Frames:
    ranks, where = np.unique(index.covering(wanted), return_inverse=True)
    return decord_guard.read(path, known, chain, index, ranks)[where]


def _microseconds(times: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
    seconds = np.asarray(times, np.float64)
    if seconds.ndim != 1 or not (np.isfinite(seconds) & (seconds >= 0)).all():
        raise BadSetting("times of frames: expected a list of seconds, 0 or more")
    return np.rint(seconds * SECOND).astype(np.int64)
