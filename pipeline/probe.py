"""What a video file says of itself, read with PyAV: which stream, how large, how long. Nothing here is believed twice.

The headers of real files are often wrong, so the decoder checks them: the size against the first decoded frame, the
duration against the timestamps of all decoded frames.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
from av.container import InputContainer

from pipeline.errors import BadVideo

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

MOST_PIXELS = 1 << 26
"""Of one picture, 8192 x 8192: a file of some kilobytes can claim to hold pictures of gigabytes."""
_OTHERS = {
    "concat", "dash", "hls", "image2", "lavfi", "mlv", "rtp", "rtsp", "sap", "sdp", "svg_pipe", "tty", "vobsub",
    "webm_dash_manifest",
}  # fmt: skip
"""Formats that lead to other files: playlists, manifests, names with %d in them; and text, which is no video."""
OPENING = {
    "protocol_whitelist": "file",
    "format_whitelist": ",".join(sorted(av.formats_available - _OTHERS)),
    "max_pixels": str(MOST_PIXELS),
}
"""Options for whoever opens a file: one that calls itself video.mp4 must lead nowhere. What PyAV has not heard of, the
ffmpeg program does not open either."""
_TIMEOUT = (30.0, 30.0)
"""Seconds to open the file, and to read from it."""
_PACKETS = 250
"""Packets tried for a first frame; its only use is the display matrix, so damaged files do without."""
_SIZELESS = f"no picture size in the file: its parameter sets are missing, or pictures are over {MOST_PIXELS:,} pixels"
_OFF = 0.5
"""Seconds by which the first frame may come before or after what the header says."""
_MATRICES = {
    0: "rgb", 1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "ycgco", 9: "bt2020nc",
    10: "bt2020c",
}  # fmt: skip
"""Numbers of ISO/IEC 23091-2 (as in FFmpeg's AVColorSpace) to FFmpeg's names; 2 is 'unspecified'."""
_RANGES = {1: "tv", 2: "pc"}


@dataclass(frozen=True)
class Probe:
    """What the file says of its video. Sizes are in pixels, times in seconds."""

    stream: int
    """Index of the chosen video stream in the file."""
    width: int
    """After rotation, like `height`."""
    height: int
    fps: float
    """Average frames per second; 0 when unknown."""
    duration: float | None
    """Of the chosen stream, else of the whole file; None when neither is known."""
    alone: bool
    """True when `duration` is the stream's own, False when it is the file's."""
    first_frame: float
    """From the start of the file to the first video frame; 0 when unknown."""
    codec: str
    pixel_format: str
    color: str
    """`matrix/range` as tagged, `untagged` where the file does not say."""
    rotation: int
    """Degrees, counter-clockwise, as the display matrix says; multiples of 90 swap or flip the picture."""
    size: int
    """Bytes."""
    mtime_ns: int


def probe(path: Path) -> Probe:
    """Read a video's header and first frame. Raises BadVideo with a reason a person understands."""
    size, mtime_ns = _stat(path)
    try:
        with _open(path) as container:
            stream = _choose(container)
            _check_size(stream)
            rotation, start = _first(container, stream)
            if not (stream.width and stream.height):
                raise BadVideo(_SIZELESS)
            _check_size(stream)
            return _probe(container, stream, rotation, start, (size, mtime_ns))
    except (av.FFmpegError, UnicodeError) as error:
        raise BadVideo(_why(path, error)) from error


def last_timestamps(path: Path) -> dict[int, float]:
    """Return for each stream the seconds from the start of the file to the end of its last packet; decodes nothing."""
    ends: dict[int, float] = {}
    with _open(path) as container:
        start = (container.start_time or 0) / av.time_base
        for packet in _packets(container):
            if packet.pts is not None:
                end = float((packet.pts + (packet.duration or 0)) * packet.time_base) - start
                ends[packet.stream_index] = max(end, ends.get(packet.stream_index, 0.0))
    return ends


def _open(path: Path) -> InputContainer:
    return av.open(f"file:{path}", options=OPENING, timeout=_TIMEOUT, metadata_errors="replace")


def _stat(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise BadVideo(f"cannot be read: {error.strerror}") from error
    if not path.is_file():
        raise BadVideo("not a file")
    if stat.st_size == 0:
        raise BadVideo("empty file (0 bytes)")
    return stat.st_size, stat.st_mtime_ns


def _choose(container: InputContainer) -> VideoStream:
    """Return the largest video stream that is no cover picture; the first of equals."""
    pictures = [s for s in container.streams.video if s.disposition & av.stream.Disposition.attached_pic]
    videos = [s for s in container.streams.video if s not in pictures and s.codec_context is not None]
    if videos:
        return max(videos, key=lambda stream: (_has_samples(container, stream), stream.width * stream.height))
    if len(container.streams.video) > len(pictures):
        raise BadVideo("no decoder for this video's codec")
    if not container.streams.audio:
        raise BadVideo("no video stream" + (": a picture only" if pictures else ""))
    raise BadVideo("no video stream: audio " + ("with a cover picture" if pictures else "only"))


def _has_samples(container: InputContainer, stream: VideoStream) -> bool:
    """Say whether the stream may hold packets: only the MP4 family lists them all when it is opened."""
    return "mp4" not in container.format.name or stream.frames > 0 or len(stream.index_entries) > 0


def _check_size(stream: VideoStream) -> None:
    if stream.width * stream.height > MOST_PIXELS:
        raise BadVideo(f"pictures of {stream.width}x{stream.height} pixels: over {MOST_PIXELS:,}")


def _first(container: InputContainer, stream: VideoStream) -> tuple[int, float]:
    """Return the first frame's display rotation in degrees, which PyAV shows on frames only, and its time in seconds.

    0 and what the header says when none decodes.
    """
    told = _seconds(stream.start_time, stream)
    stream.codec_context.thread_count = 1
    stream.codec_context.options = {"max_pixels": OPENING["max_pixels"]}
    size = 0
    for packet in islice(_packets(container, stream), _PACKETS):
        size += packet.size
        if packet.has_sidedata("encryption_info"):
            raise BadVideo("encrypted: its frames cannot be decoded without the key")
        for frame in _decoded(packet):
            # The header's time is what is subtracted elsewhere; one that is far from the truth is damage.
            wrong = frame.time is not None and abs(frame.time - told) > _OFF
            return int(frame.rotation), frame.time if wrong else told
    if not size:
        raise BadVideo("no frames: the file holds a header only")
    return 0, told


def _packets(container: InputContainer, *streams: VideoStream) -> Iterator[Packet[Any]]:
    """Yield all packets and the empty one that ends a stream. A damaged file ends where reading it ends."""
    with suppress(av.FFmpegError):
        yield from container.demux(*streams)


def _decoded(packet: Packet[Any]) -> list[Any]:
    try:
        return list(packet.decode())
    except av.FFmpegError:
        return []  # the decoder that counts is ffmpeg's; it will say so too


def _probe(container: InputContainer, stream: VideoStream, rotation: int, start: float, file: tuple[int, int]) -> Probe:
    width, height = stream.width, stream.height
    if abs(rotation) == 90:
        width, height = height, width
    duration, alone = _duration(container, stream)
    return Probe(
        stream=stream.index,
        width=width,
        height=height,
        fps=max(0.0, float(stream.average_rate or 0)),
        duration=duration,
        alone=alone,
        first_frame=max(0.0, start - (container.start_time or 0) / av.time_base),
        codec=stream.codec_context.codec.canonical_name,
        pixel_format=stream.codec_context.pix_fmt or "",
        color=_color(stream),
        rotation=rotation,
        size=file[0],
        mtime_ns=file[1],
    )


def _seconds(ticks: int | None, stream: VideoStream) -> float:
    return float(ticks * stream.time_base) if ticks is not None and stream.time_base else 0.0


def _duration(container: InputContainer, stream: VideoStream) -> tuple[float | None, bool]:
    """Return (seconds, whether they are the stream's own).

    Matroska and FLV write the time of the end, counted from zero, where others write a length.
    """
    if stream.duration and stream.duration > 0:
        return _seconds(stream.duration, stream), True
    tag = _clock(stream.metadata.get("DURATION", ""))
    end = tag or max(0, container.duration or 0) / av.time_base
    start = _seconds(stream.start_time, stream)
    length = end - start if 0 < start < end else end
    return length or None, tag > 0


def _clock(text: str) -> float:
    """Return the seconds of `HH:MM:SS.fraction`, 0 for anything else."""
    match = re.fullmatch(r"(\d{1,6}):(\d\d):(\d\d(?:\.\d+)?)", text, re.ASCII)
    hours, minutes, seconds = (float(part) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    return 3600 * hours + 60 * minutes + seconds


def _color(stream: VideoStream) -> str:
    context = stream.codec_context
    matrix, extent = _MATRICES.get(int(context.colorspace)), _RANGES.get(int(context.color_range))
    if matrix is None and extent is None:
        return "untagged"
    return f"{matrix or 'untagged'}/{extent or 'untagged'}"


def _why(path: Path, error: Exception) -> str:
    """Say in a person's words why a file does not open."""
    with path.open("rb") as file:
        head = file.read(16)
        if head[4:8] == b"ftyp" and b"moov" not in _boxes(path):
            return "index missing (moov atom not found): truncated download?"
    if head.lstrip()[:1] == b"<":
        return "not a video: an HTML or XML page"
    if isinstance(error, av.error.ArgumentError):  # what ffmpeg says of a format that is not on the list
        return "not a video: text, a playlist or another kind of file that would lead to other files"
    return f"not a video: {getattr(error, 'strerror', None) or error}"


def _boxes(path: Path) -> list[bytes]:
    """Return the types of an MP4 file's top-level boxes (ISO/IEC 14496-12, 4.2)."""
    kinds, position, size = [], 0, path.stat().st_size
    with path.open("rb") as file:
        while position + 8 <= size:
            file.seek(position)
            length, kind = struct.unpack(">I4s", file.read(8))
            if length == 1:
                length = int.from_bytes(file.read(8), "big")
            kinds.append(kind)
            if length < 8:
                break  # 0: to the end of the file
            position += length
    return kinds
