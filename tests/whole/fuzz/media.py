"""Small videos of many kinds, made by the project's own ffmpeg, a second long each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadVideo
from pipeline.probe import probe
from tests.whole.frames import program

LARGEST = 64_000
"""Bytes of a real video that is taken beside them; likewise `PIXELS` of its pictures, and `SECONDS`."""
PIXELS, SECONDS = 352 * 288, 6.0

_H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "5", "-threads", "1")
_MPEG4 = ("-c:v", "mpeg4", "-c:a", "mp3", "-g", "5")
MADE: dict[str, tuple[str, ...]] = {
    "h264.mp4": (*_H264, "-c:a", "aac"),
    "fast.mp4": (*_H264, "-an", "-movflags", "+faststart"),
    "fragments.mp4": (*_H264, "-an", "-movflags", "frag_keyframe+empty_moov"),
    "hevc.mp4": ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:pools=1", "-an"),
    "turned.mov": ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-an"),
    "h264.mkv": (*_H264, "-c:a", "aac"),
    "ffv1.mkv": ("-c:v", "ffv1", "-an"),
    "vp8.webm": ("-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libvorbis"),
    "vp9.webm": ("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-an"),
    "mpeg4.avi": _MPEG4,
    "mjpeg.avi": ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-an"),
    "mpeg2.ts": ("-c:v", "mpeg2video", "-c:a", "mp2", "-g", "5", "-r", "25"),
    "h264.ts": (*_H264, "-an"),
    "mpeg1.mpg": ("-c:v", "mpeg1video", "-c:a", "mp2", "-g", "5", "-r", "25"),
    "flv1.flv": ("-c:v", "flv1", "-c:a", "mp3", "-ar", "44100", "-g", "5"),
    "h263.3gp": ("-c:v", "h263", "-s", "128x96", "-an"),
    "theora.ogv": ("-c:v", "libtheora", "-c:a", "libvorbis", "-g", "5"),
    "wmv2.wmv": ("-c:v", "wmv2", "-an", "-g", "5"),
    "picture.gif": (),
    "raw.h264": (*_H264, "-an"),
    "lossless.nut": ("-c:v", "huffyuv", "-an"),
    "studio.mxf": ("-c:v", "mpeg2video", "-r", "25", "-an"),
    "moving.png": ("-f", "apng"),
    "plain.y4m": ("-pix_fmt", "yuv420p",),
}  # fmt: skip
"""By name, the words that make them of 64x48 pixels, ten frames a second."""


@dataclass(frozen=True)
class Seed:
    """A video to be damaged."""

    name: str
    data: bytes

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix


def make(folder: Path) -> list[Seed]:
    """Make the videos that the program at hand can make."""
    source = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-f", "lavfi", "-i", "sine=duration=1")
    for name, words in MADE.items():
        program(*source, *words, "-fflags", "+bitexact", "-y", folder / name)
    program("-display_rotation", "90", "-i", folder / "turned.mov", "-c", "copy", "-y", folder / "turned2.mov")
    shutil.move(folder / "turned2.mov", folder / "turned.mov")
    return list(_seeds(sorted(folder / name for name in MADE)))


def real(folder: Path) -> list[Seed]:
    """Return those among real videos that take next to no time: few bytes, small pictures, some seconds, or none."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= LARGEST)
    return list(_seeds([path for path in files if _cheap(path)]))


def _cheap(path: Path) -> bool:
    try:
        probed = probe(path)
    except BadVideo:
        return True
    return probed.width * probed.height <= PIXELS and (probed.duration or 0.0) <= SECONDS


def _seeds(files: Sequence[Path]) -> Iterator[Seed]:
    for path in files:
        if path.is_file() and (data := path.read_bytes()):
            yield Seed(path.name, data)
