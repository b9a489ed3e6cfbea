"""What the headers of real videos say: stream, size, duration, colour."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipeline.probe import last_timestamps, probe


@pytest.mark.parametrize(
    ("name", "stream", "size", "rotation"),
    [
        ("msrvtt/video7010.mp4", 0, (320, 240), 0),
        ("torchcodec/nasa_13013.mp4", 3, (480, 270), 0),  # 320x180 stands first
        ("php_ffmpeg/portrait.MOV", 1, (320, 568), -90),  # sound stands first
        ("decord/video_270.mov", 0, (320, 568), 90),
        ("decord/video_180.mov", 0, (568, 320), -180),
        ("androidx/sample_rotate_and_reflect.mp4", 0, (720, 1080), -90),
        ("mp4parse/video_rotation_90.mp4", 0, (60, 100), -90),  # one frame, which comes when the file has ended
        ("androidx/sample_portrait.mp4", 0, (720, 1080), 0),
        ("auto_editor/h264-mjpeg.mp4", 0, (640, 360), 0),  # a cover picture too
    ],
)
def test_stream_and_size(name: str, stream: int, size: tuple[int, int], rotation: int, shared: Path) -> None:
    told = probe(shared / "data/videos" / name)
    assert (told.stream, (told.width, told.height), told.rotation) == (stream, size, rotation)


def test_a_larger_stream_without_frames_is_not_chosen(shared: Path, tmp_path: Path) -> None:
    content = bytearray((shared / "data/videos/androidx/sample_empty_track.mp4").read_bytes())
    second = content.rindex(b"avc1") + 28  # width and height of its sample entry (ISO/IEC 14496-12, 12.1.3)
    assert struct.unpack(">HH", content[second : second + 4]) == (1080, 720)
    content[second : second + 4] = struct.pack(">HH", 2000, 1500)
    (tmp_path / "a.mp4").write_bytes(content)
    assert (probe(tmp_path / "a.mp4").stream, probe(tmp_path / "a.mp4").width) == (0, 1080)


@pytest.mark.parametrize(
    ("name", "duration", "alone", "first_frame"),
    [
        ("msrvtt/video7010.mp4", 18.0, True, 0.0),
        ("kinetics/flipping_a_pancake.mkv", 10.333, True, 0.0),  # the file, with its sound, lasts 10.381
        ("auto_editor/testsrc_with_attachment.mkv", 2.0, True, 0.023),  # the tag says 2.023, where it ends
        ("androidx/sample-with-key-frame-index.flv", 2.958, False, 0.0),  # 3.042, from 0.084 on
        ("androidx/edit_list_positive_shift.mp4", 9.0, True, 1.0),
        ("androidx/sample_fragmented.mp4", 1.001, True, 0.067),  # the file claims 143,165 s
        ("moviepy/no_duration.webm", None, False, 0.0),
    ],
)
def test_duration_and_first_frame(
    name: str, duration: float | None, alone: bool, first_frame: float, shared: Path
) -> None:
    told = probe(shared / "data/videos" / name)
    assert told.duration == (None if duration is None else pytest.approx(duration, abs=1e-3))
    assert (told.alone, told.first_frame) == (alone, pytest.approx(first_frame, abs=1e-3))


@pytest.mark.parametrize(
    ("name", "codec", "pixels", "color"),
    [
        ("torchcodec/bt709_full_range.mp4", "h264", "yuvj420p", "bt709/pc"),
        ("androidx/hlg10-color-test.mp4", "hevc", "yuv420p10le", "bt2020nc/tv"),
        ("androidx/h265_bframes.mp4", "hevc", "yuv420p", "untagged/tv"),
        ("msrvtt/video7010.mp4", "h264", "yuv420p", "untagged"),
    ],
)
def test_codec_and_colour(name: str, codec: str, pixels: str, color: str, shared: Path) -> None:
    path = shared / "data/videos" / name
    told = probe(path)
    assert (told.codec, told.pixel_format, told.color) == (codec, pixels, color)
    assert (told.size, told.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)


def test_the_end_of_each_stream(shared: Path) -> None:
    ends = last_timestamps(shared / "data/videos/kinetics/flipping_a_pancake.mkv")
    assert ends == {0: pytest.approx(10.333, abs=0.01), 1: pytest.approx(10.381, abs=0.03)}
