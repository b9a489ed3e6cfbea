"""The packets of a video: when each frame is shown and where decoding may begin, read without decoding.

It is what random access rests on, and it is as good as the file: `doubt` says when the frames found by it may be
others than those of one pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadVideo
from pipeline.probe import OPENING, Probe

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

SECOND = 1_000_000
"""Times are whole microseconds from the start of the file, as in ffmpeg's clock."""
_TIMEOUT = (30.0, 30.0)
"""Seconds to open the file, and to read from it."""
_FIRST = 50
"""Packets in which the first frame must come."""
_IDR = 5
"""NAL unit type of an IDR slice (ITU-T H.264, table 7-1)."""
_START_CODE = re.compile(rb"\x00\x00\x01")


@dataclass(frozen=True)
class Packets:
    """The packets of one stream, in the order of the file, which is that of decoding."""

    times: NDArray[np.int64]
    """When each packet's frame is shown, in microseconds from the start of the file, rounded as ffmpeg does."""
    key: NDArray[np.bool_]
    """Whether the file calls it a key frame."""
    container: str
    """FFmpeg's names of the format, `mov,mp4,m4a,3gp,3g2,mj2`."""
    videos: int
    """Streams of moving or still pictures."""
    picture: str
    """What is unusual about the first decoded frame; empty where nothing is."""
    refreshed: bool
    """True when some key frame is no IDR picture: what follows it may need frames before it (H.264)."""
    doubt: str
    """Why random access may give other frames than one pass; empty when nothing speaks against it."""

    @cached_property
    def shown(self) -> NDArray[np.int64]:
        """The times in the order in which frames are shown."""
        return np.sort(self.times)

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Which frame, counted as they are shown, each packet holds."""
        ranks = np.empty(len(self.times), np.int64)
        ranks[np.argsort(self.times, kind="stable")] = np.arange(len(self.times))
        return ranks

    def covering(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rank of the frame that is shown at each time; before the first frame that is the first."""
        return np.maximum(np.searchsorted(self.shown, wanted, side="right") - 1, 0)


@dataclass
class _Seen:
    """What comes of reading the packets one by one."""

    ticks: list[int | None] = field(default_factory=list)
    key: list[bool] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    picture: str = "no picture in its first packets"
    refreshed: bool = False
    end: str = ""


def packets(path: Path, probe: Probe) -> Packets:
    """Read all packets of the probed stream and decode its first frame. Of a file that breaks off, those before.

    Raises BadVideo when the file no longer opens.
    """
    try:
        with av.open(f"file:{path}", options=OPENING, timeout=_TIMEOUT, metadata_errors="replace") as container:
            return _packets(container, probe)
    except av.FFmpegError as error:
        raise BadVideo(f"cannot be read: {error.strerror}") from error


def _packets(container: InputContainer, probe: Probe) -> Packets:
    stream = next(video for video in container.streams.video if video.index == probe.stream)
    stream.codec_context.thread_count = 1
    read = _Seen()
    try:
        _read(container, stream, read)
    except av.FFmpegError as error:
        read.end = f"reading it ends early: {error.strerror}"
    if 0 < stream.frames != len(read.ticks):
        read.end = read.end or f"{len(read.ticks)} of {stream.frames} packets are there"
    return Packets(
        times=_microseconds(read.ticks, stream.time_base or Fraction(1), container.start_time or 0),
        key=np.array(read.key, bool),
        container=container.format.name,
        videos=len(container.streams.video),
        picture=read.picture,
        refreshed=read.refreshed,
        doubt=_doubt(read, probe),
    )


def _read(container: InputContainer, stream: VideoStream, read: _Seen) -> None:
    context, first = stream.codec_context, None
    h264 = context.codec.canonical_name == "h264"
    length = _length_size(context.extradata)
    for packet in container.demux(stream):
        if packet.size:  # the empty one ends the stream
            read.ticks.append(packet.pts)
            read.key.append(packet.is_keyframe)
            read.wrong |= _wrong(packet)
        if packet.is_keyframe and h264 and not read.refreshed:
            read.refreshed = _IDR not in _units(bytes(packet), length)
        if first is None and (len(read.ticks) <= _FIRST or not packet.size):
            first = next(iter(packet.decode()), None)
            read.picture = _odd(first, stream) if first is not None else read.picture


def _wrong(packet: Packet[Any]) -> set[str]:
    faults = {
        "an edit list hides frames": packet.is_discard,
        "its codec's settings change": packet.has_sidedata("new_extradata"),
        "a damaged packet": packet.is_corrupt,
    }
    return {fault for fault, there in faults.items() if there}


def _odd(frame: VideoFrame, stream: VideoStream) -> str:
    try:
        if "DISPLAYMATRIX" in frame.side_data:
            return "a display matrix turns or mirrors it"
    except ValueError:  # PyAV's, of a kind that it has no name for
        return "side data of an unknown kind"
    if frame.interlaced_frame:
        return "interlaced"
    if (frame.width, frame.height) != (stream.width, stream.height):
        return "its pictures have another size than its header says"
    return ""


def _length_size(extradata: bytes | None) -> int:
    """Return the bytes of a NAL unit's length (ISO/IEC 14496-15, 5.3.3.1); 0 where start codes part the units."""
    return (extradata[4] & 3) + 1 if extradata and extradata[0] == 1 and len(extradata) > 4 else 0


def _units(packet: bytes, length: int) -> Iterator[int]:
    """Yield the type of each NAL unit of a packet."""
    if not length:
        yield from (packet[code.end()] & 31 for code in _START_CODE.finditer(packet, 0, len(packet) - 1))
        return
    at = 0
    while at + length < len(packet):
        yield packet[at + length] & 31
        at += length + int.from_bytes(packet[at : at + length], "big")


def _microseconds(ticks: list[int | None], base: Fraction, start: int) -> NDArray[np.int64]:
    """Return times as the ffmpeg program has them: the file's start, in whole ticks, is subtracted first."""
    one = base * SECOND
    offset = _round(Fraction(start) / one)
    return np.array([_round(((tick or 0) - offset) * one) for tick in ticks], np.int64)


def _round(value: Fraction) -> int:
    """Round to the nearest whole number, halves away from zero, as FFmpeg does."""
    whole = int(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


def _doubt(read: _Seen, probe: Probe) -> str:
    known = [tick for tick in read.ticks if tick is not None]
    if not read.ticks:
        return "no packets"
    if len(known) < len(read.ticks):
        return "packets without a time"
    if len(set(known)) < len(known):
        return "packets of the same time"
    if probe.codec == "h264" and not probe.pixel_format.startswith(("yuv420p", "yuvj420p", "yuv422p", "yuvj422p")):
        return "H.264 of 4:4:4 may need what only its first packet says"  # which build of x264 made it
    return read.end or min(read.wrong, default="")
