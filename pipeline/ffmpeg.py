"""The ffmpeg program: where it is, and its command line for a video.

One run decodes a video once for several chains. Beside the frames it writes a *clock*: one line for each decoded
frame with its time, through the `framecrc` muxer and the `wrapped_avframe` codec, which copies no picture. The clock
tells how many frames were decoded, what time they span and how large they are after rotation; `-progress`, which
seems made for that, reports the slowest or the fastest output, depending on ffmpeg's version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import ffmpeg
import imageio_ffmpeg

from extractors.spec import Chain
from pipeline.errors import BadSetting
from pipeline.probe import OPENING, Probe


def program() -> str:
    """Return the path of ffmpeg: the one on PATH, else the one that `imageio-ffmpeg` brings."""
    return shutil.which("ffmpeg") or str(imageio_ffmpeg.get_ffmpeg_exe())


def _told(program: str) -> str:
    """Return what `ffmpeg -version` prints. It may be killed from outside like any other: that proves nothing."""
    for _ in range(3):
        try:
            told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
            if told.returncode >= 0:
                told.check_returncode()
                return told.stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise BadSetting(f"'{program}' does not run: {error}; put an ffmpeg that works first on PATH") from error
    raise BadSetting(f"'{program}' is killed whenever it runs; put an ffmpeg that works first on PATH")


@lru_cache
def version(program: str) -> str:
    """Return the version of an ffmpeg program, '9.0.2'; a build without a number gives its own name.

    Raises BadSetting when it does not run.
    """
    told = _told(program)
    name = re.match(r"ffmpeg version (\S+)", told)
    if name is None:
        raise BadSetting(f"'{program}' is not ffmpeg: it says '{told[:60].strip()}'; put ffmpeg first on PATH")
    number = re.match(r"n?(\d+(\.\d+)+)", name[1])
    return number[1] if number else name[1]


NVDEC = frozenset({"h264", "hevc", "vp8", "vp9", "av1"})
"""Codecs whose decoders must give the same samples everywhere, by their standards, and that NVDEC knows. MPEG-2 and
MPEG-4 may be decoded to others: their inverse transform is not fixed to the bit."""
_PLANAR = frozenset({"yuv420p", "yuv420p10le"})
"""Pixel formats whose samples NVDEC gives, in another order: as nv12 and p010."""
Sampling = Literal["early", "late", "first"]
"""Where the `fps` filter stands.

`early`, as the first filter: the way of the published extractors. `late`, as the last: the same frames, at the price of
scaling all of them; frames repeated over a still picture then share their memory, while ffmpeg 9, which does not wait
for a slow reader here, else heaps up 1.8 GB for five minutes. `first`, not at all: the first frame alone, for videos
too short for the filter."""


@dataclass(frozen=True)
class Job:
    """One video to decode."""

    path: Path
    probe: Probe
    threads: int
    """Of the decoder, and of the filters."""
    stall: float
    """Seconds without a sign of life after which the program is ended."""
    until: tuple[int, float] | None = None
    """(frames, seconds) after which the video is cut off, because its clock jumps there."""
    hwaccel: str = ""
    """The GPU that decodes, `cuda:N`, where its decoder knows the video; empty for none."""


@dataclass(frozen=True)
class Branch:
    """One chain at work on pictures of a known size."""

    chain: Chain
    width: int
    """Of the decoded picture, after rotation; likewise `height`."""
    height: int
    sampling: Sampling = "early"

    @property
    def frame_size(self) -> tuple[int, int]:
        """(width, height) of the frames that come out."""
        return self.chain.frame_size(self.width, self.height)


def command(program: str, job: Job, branches: Sequence[Branch], fds: Sequence[int]) -> list[str]:
    """Return the command line that decodes a video through all branches.

    `fds[0]` receives the clock, the others the frames of one branch each as packed RGB.
    """
    source = _source(job)
    if job.until is not None:
        source = _cut(source, *job.until)
    split = source.filter_multi_output("split", len(branches) + 1)
    mode = _mode(version(program))
    outputs = [_clock(split[0], fds[0], mode)]
    for number, (branch, fd) in enumerate(zip(branches, fds[1:], strict=True), start=1):
        # `cfr` is what the published extractors got without asking: a video that begins late has its first frame
        # repeated from the container's start on, so that row k stands for the same seconds in every video.
        frames = {"f": "rawvideo"} | ({"frames:v": 1} if branch.sampling == "first" else {}) | {mode: "cfr"}
        outputs.append(ffmpeg.output(_filtered(split[number], branch), f"pipe:{fd}", **frames))
    return cast(list[str], ffmpeg.compile(ffmpeg.merge_outputs(*outputs), cmd=program))


@dataclass(frozen=True)
class Pick:
    """Which frames one run hands out; the times are whole microseconds of its clock."""

    spans: tuple[tuple[int, int], ...]
    """(first, last) time of the frames, both included, in rising order; without any, the first frame alone."""
    seek: int | None = None
    """The time at which to begin, from the start of the file: the clock's zero. Decoding begins at a key frame before
    it, at times below zero. None: at the start of the file."""


def picking(program: str, job: Job, branch: Branch, pick: Pick, fds: Sequence[int]) -> list[str]:
    """Return the command line that scales and crops chosen frames only, and ends after the last of them.

    `fds` receive the clock and the frames.
    """
    seek = {} if pick.seek is None else {"ss": f"{pick.seek / 1e6:.6f}", "noaccurate_seek": None}
    last = {"end_pts": pick.spans[-1][1] + 1} if pick.spans else {"end_frame": 1}
    rising = "if(isnan(PREV_OUTPTS),PTS,max(PTS,PREV_OUTPTS))"  # times that go back: as the clock writes them
    source = _source(job, **seek).filter("settb", "AVTB").filter("setpts", rising).filter("trim", **last)
    split = source.filter_multi_output("split", 2)
    mode = _mode(version(program))
    chosen = split[1].filter("select", "+".join(f"between(pts,{a},{b})" for a, b in pick.spans) or "1")
    frames = {"f": "rawvideo", mode: "passthrough"}
    outputs = [
        _clock(split[0], fds[0], mode),
        ffmpeg.output(_filtered(chosen, replace(branch, sampling="first")), f"pipe:{fds[1]}", **frames),
    ]
    return cast(list[str], ffmpeg.compile(ffmpeg.merge_outputs(*outputs), cmd=program))


def _source(job: Job, **seek: str | None) -> Any:
    """Return the decoded stream of a job."""
    source = ffmpeg.input(
        f"file:{job.path}",
        hide_banner=None,
        nostdin=None,
        loglevel="repeat+level+warning",
        **OPENING,
        threads=job.threads,
        filter_complex_threads=job.threads,
        **seek,
        **_acceleration(job),
    )[str(job.probe.stream)]
    if _acceleration(job):
        source = source.filter("format", job.probe.pixel_format)  # the order of samples that filters always get
    return source


def _clock(stream: Any, fd: int, mode: str) -> Any:
    clock = {"f": "framecrc", "c:v": "wrapped_avframe", "enc_time_base": "1:1000000", "flush_packets": 1}
    return ffmpeg.output(stream, f"pipe:{fd}", **clock, **{mode: "passthrough"})


def _acceleration(job: Job) -> dict[str, str]:
    """Return ffmpeg's options for decoding on a GPU; none for what NVDEC does not decode to the same samples.

    Frames come back to memory, so the filters are those of any other video. ffmpeg itself decodes what the GPU refuses.
    """
    if not job.hwaccel or job.probe.codec not in NVDEC or job.probe.pixel_format not in _PLANAR:
        return {}
    return {"hwaccel": "cuda", "hwaccel_device": job.hwaccel.partition(":")[2] or "0"}


@lru_cache
def accelerates(program: str) -> bool:
    """Return whether an ffmpeg program was built to decode on NVIDIA's GPUs."""
    told = subprocess.run([program, "-hide_banner", "-hwaccels"], capture_output=True, text=True, check=False)
    return "cuda" in told.stdout.split()


def _filtered(stream: Any, branch: Branch) -> Any:
    """Append a branch's filters, in the order and with the words of the published extractors (DESIGN 5)."""
    chain = branch.chain
    rate = f"{chain.fps:.10g}"
    if branch.sampling == "early":
        stream = stream.filter("fps", rate, round="near")
    if chain.crop_first:
        side = "min(iw,ih)"  # evaluated, and rounded to whole chroma samples, by the filter itself
        stream = stream.filter("crop", side, side, f"(iw-{side})/2", f"(ih-{side})/2")
    width, height = chain.scaled(branch.width, branch.height)
    stream = stream.filter("scale", width, height, flags=chain.scaler)
    if chain.crop is not None:
        stream = stream.filter("crop", chain.crop, chain.crop, *chain.crop_from(width, height))
    stream = stream.filter("format", "rgb24")
    return stream.filter("fps", rate, round="near") if branch.sampling == "late" else stream


def _cut(stream: Any, frames: int, seconds: float) -> Any:
    """End a stream early. `trim` alone still tells `fps` the time of the frame that it cuts off; `setpts` hides it."""
    return stream.filter("trim", end_frame=frames).filter("setpts", f"min(PTS,STARTPTS+{seconds:.6f}/TB)")


def _mode(version: str) -> str:
    """Return the option that says how outputs take frames; ffmpeg 5.1 renamed it."""
    number = re.match(r"(\d+)\.(\d+)", version)
    old = number is not None and (int(number[1]), int(number[2])) < (5, 1)
    return "vsync" if old else "fps_mode"
