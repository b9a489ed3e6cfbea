"""Pictures and lengths that no video has, in files of some kilobytes; and what headers say that is not so."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from extractors.spec import Chain
from pipeline import child
from pipeline.decode import Decoded, Decoding
from pipeline.errors import BadVideo
from pipeline.probe import MOST_PIXELS, OPENING, probe
from tests.unit.fakeffmpeg import TINY
from tests.whole.frames import program

SMALL = Chain(fps=1, short_side=16)


def png(path: Path, side: int) -> Path:
    """Write a black picture of `side` x `side` bits: a thousandth of its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(1)
    rows = b"".join(packer.compress(bytes(1 + side // 8)) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def made(path: Path, *words: str, source: str = "testsrc2=size=64x48:rate=10:duration=1") -> Path:
    program("-f", "lavfi", "-i", source, *words, "-y", path)
    return path


def decoded(path: Path, chain: Chain = TINY) -> tuple[int, Decoded]:
    decoding = Decoding(path, probe(path), [chain])
    return sum(1 for _ in decoding), decoding.summary


def test_pictures_that_are_too_large(tmp_path: Path) -> None:
    path = png(tmp_path / "a.mp4", 30_000)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(BadVideo, match="no picture size in the file: .*, or pictures are over 67,108,864 pixels"):
        probe(path)
    assert MOST_PIXELS >= 7_680 * 4_320, "8K is a size that videos have"


def test_pictures_whose_size_the_header_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.mov", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p")
    monkeypatch.setattr("pipeline.probe.MOST_PIXELS", 3_000)
    with pytest.raises(BadVideo, match="pictures of 64x48 pixels: over 3,000"):
        probe(path)


def test_pictures_that_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder makes no room for those that are too large, whatever came before."""
    monkeypatch.setitem(OPENING, "max_pixels", "2000")
    words = ("-c:v", "mpeg2video", "-r", "25")
    small = made(tmp_path / "a.ts", *words, source="testsrc2=size=32x24:rate=25:duration=1")
    large = made(tmp_path / "b.ts", *words, source="testsrc2=size=64x48:rate=25:duration=1")
    small.write_bytes(small.read_bytes() + large.read_bytes())
    _, summary = decoded(small)
    assert summary.status == "partial"
    assert 24 <= summary.frames <= 25
    assert "exceeds specified max pixel count" in summary.reason


def test_a_video_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slides of 500 s each; half an hour is taken of an hour and a half."""
    monkeypatch.setattr(child, "LONGEST", 1_800.0)
    monkeypatch.setattr("pipeline.decode.LONGEST", 1_800.0)
    path = made(tmp_path / "a.mkv", "-vf", "setpts=N*500/TB", "-fps_mode", "passthrough", "-c:v", "ffv1")
    count, summary = decoded(path, SMALL)
    assert (summary.status, summary.reason) == ("partial", "over 0.5 h: the rest was left out")
    assert summary.frames == 4
    assert 1_500 <= count <= 1_502


def test_a_first_frame_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LONGEST", 0.05)
    monkeypatch.setattr("pipeline.decode.LONGEST", 0.05)
    with pytest.raises(BadVideo, match="no frame could be decoded: it stands for over .* h, or"):
        decoded(made(tmp_path / "a.mkv", "-c:v", "ffv1"))


def test_a_first_frame_that_comes_when_the_header_does_not_say(tmp_path: Path) -> None:
    """An AVI's stream begins at the 255th tenth of a second, as one byte of its header has it."""
    path = made(tmp_path / "a.avi", "-c:v", "mjpeg", "-pix_fmt", "yuvj420p")
    assert probe(path).first_frame == 0
    data = bytearray(path.read_bytes())
    begin = data.index(b"strh") + 8 + 28
    assert data[begin : begin + 4] == bytes(4)
    data[begin] = 255
    path.write_bytes(data)
    assert probe(path).first_frame == pytest.approx(25.5)
    assert decoded(path, SMALL)[0] == 27  # as many as are counted from the start of the file


@pytest.mark.parametrize(
    "told", [b"nan:00:01.00000000", b"inf:00:01.00000000", b"-01:00:01.0000000", b"99:99:99:99.000000"]
)
def test_a_duration_that_is_none(told: bytes, tmp_path: Path) -> None:
    path = made(tmp_path / "a.mkv", "-c:v", "ffv1")
    known = b"00:00:01.000000000"
    data = path.read_bytes()
    assert data.count(known) == 1
    path.write_bytes(data.replace(known, told.ljust(len(known), b"0")))
    assert probe(path).duration == pytest.approx(1.0)
    assert not probe(path).alone
