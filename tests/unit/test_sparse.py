"""Sampling rules by hand; which files decord is given; frames that are right whatever decord does."""

from __future__ import annotations

import doctest
import importlib.machinery
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import extractors
from extractors.embed import Batcher, network
from extractors.spec import Chain
from extractors.weights import find
from pipeline import decord_guard, sparse
from pipeline.decord_guard import decord_safe, refusal, refused_chain
from pipeline.errors import BadSetting, BadVideo
from pipeline.packets import Packets, packets
from pipeline.probe import probe
from tests.unit.fakedecord import FILL, decord
from tests.unit.fakeffmpeg import said
from tests.whole.frames import program

__all__ = ["decord"]

CHAIN = Chain(fps=1, short_side=24, crop=20)
SOURCE = "testsrc2=size=64x48:rate=10:duration=6"
H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-threads", "1", "-g", "10", "-bf", "2")
INSTALLED = importlib.machinery.PathFinder.find_spec("decord") is not None
real = pytest.mark.skipif(not INSTALLED, reason="decord has no wheel for this machine")


def made(path: Path, *words: str | Path, source: str = SOURCE) -> Path:
    """Make a video of 60 frames at 10 a second, closed groups of 10, by x264."""
    program("-f", "lavfi", "-i", source, *(words or H264), "-y", path)
    assert path.stat().st_size
    return path


def all_frames(path: Path) -> np.ndarray[Any, Any]:
    """Return every frame, scaled and cropped by a chain that is written out: 64x48, 32x24, 20x20.

    On one thread: what becomes of damage depends on their number.
    """
    graph = ("-vf", "scale=32:24:flags=bilinear,crop=20:20:6:2,format=rgb24", "-fps_mode", "passthrough")
    raw = program("-threads", "1", "-i", path, "-map", f"0:{probe(path).stream}", *graph, "-f", "rawvideo", "-")
    return np.frombuffer(raw, np.uint8).reshape(-1, 20, 20, 3)


# Rules


def test_doctests() -> None:
    assert doctest.testmod(sparse) == (0, 2)


def test_clips_are_in_the_middle_of_equal_segments() -> None:
    times = sparse.clip_times(80.0, fps=10)
    assert times.shape == (8, 16)
    np.testing.assert_allclose(times.mean(axis=1), [5, 15, 25, 35, 45, 55, 65, 75])
    np.testing.assert_allclose(np.diff(times), 0.1)


def test_clips_longer_than_their_segments_stay_inside_and_overlap() -> None:
    times = sparse.clip_times(2.0, fps=8, clips=3, frames=8)  # clips of 1 s in segments of 2/3 s
    np.testing.assert_allclose(times.mean(axis=1), [0.5, 1.0, 1.5])
    assert (times.min(), times.max()) == (0.0625, 1.9375)  # half a frame from either end


def test_a_video_shorter_than_a_clip_repeats_its_ends() -> None:
    times = sparse.clip_times(0.5, fps=4, clips=2, frames=4)  # a clip lasts a second
    assert times.tolist() == [[0.0, 0.125, 0.375, 0.5]] * 2


# The frame at a time


@real
def test_the_frame_at_a_time_is_the_last_that_began(tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4")
    times = [5.95, 0.0, 0.0999, 0.3, 0.2999, 3.14, 100.0, 3.14]
    taken = sparse.take(path, probe(path), CHAIN, times)
    assert (taken.decoder, taken.why) == ("decord", "")
    np.testing.assert_array_equal(taken.frames, all_frames(path)[[59, 0, 0, 3, 2, 31, 59, 31]])
    np.testing.assert_array_equal(sparse.frames_at(path, probe(path), CHAIN, times), taken.frames)


def test_times_before_the_first_frame_give_the_first(tmp_path: Path) -> None:
    video = made(tmp_path / "a.mp4")
    sound = ("-f", "lavfi", "-i", "sine=duration=6", "-itsoffset", "1.5", "-i", video)
    program(*sound, "-map", "0", "-map", "1", "-c:a", "pcm_s16le", "-c:v", "copy", "-y", tmp_path / "late.mkv")
    for chain in (CHAIN, replace(CHAIN, scaler="bicubic", crop=None)):
        known = probe(tmp_path / "late.mkv")
        assert known.first_frame == pytest.approx(1.5)
        frames = sparse.frames_at(tmp_path / "late.mkv", known, chain, [0.0, 1.0])
        (first,) = sparse.frames_at(video, probe(video), chain, [0.0])
        np.testing.assert_array_equal(frames, [first, first])
        np.testing.assert_array_equal(
            sparse.frames_at(tmp_path / "late.mkv", known, chain, [1.55, 2.45]),
            sparse.frames_at(video, probe(video), chain, [0.05, 0.95]),
        )


def test_no_times_give_no_frames() -> None:
    assert sparse.frames_at(Path("nowhere.mp4"), said(), CHAIN, []).shape == (0, 20, 20, 3)


@pytest.mark.parametrize("times", [[-0.1], [float("nan")], [float("inf")], [[1.0]]])
def test_times_that_cannot_be(times: list[float]) -> None:
    with pytest.raises(BadSetting, match="expected a list of seconds, 0 or more"):
        sparse.frames_at(Path("nowhere.mp4"), said(), CHAIN, times)


def test_a_line_of_pixels_is_refused() -> None:
    with pytest.raises(BadVideo, match="aspect ratio 3000:4"):
        sparse.frames_at(Path("a.mp4"), said(width=3000, height=4), Chain(fps=1, short_side=224), [0.0])


def test_a_file_that_is_gone_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(BadVideo, match="cannot be read: No such file"):
        sparse.frames_at(tmp_path / "a.mp4", said(), CHAIN, [0.0])


# The guard, by made values

SAFE = Packets(
    times=np.array([0, 300, 100, 200, 400, 500]) * 1000,  # a key frame, one that waits for two, and a key frame
    key=np.array([True, False, False, False, True, False]),
    container="mov,mp4,m4a,3gp,3g2,mj2",
    videos=1,
    picture="",
    refreshed=False,
    doubt="",
)


@real
def test_rows_of_equidistant_clips(tmp_path: Path) -> None:
    preset = replace(extractors.preset("colors"), chain=replace(CHAIN, fps=10), frames=4, batch=2)
    net = network(preset, find(preset, "random"))
    rows = sparse.clip_rows(made(tmp_path / "a.mp4"), preset, net, clips=3)
    own = all_frames(tmp_path / "a.mp4")
    batcher = Batcher(preset, net, 3)
    expected = [row for first in (8, 28, 48) for _, row in batcher.add(first, own[first : first + 4])]
    np.testing.assert_allclose(rows, np.stack(expected), rtol=1e-6)
    assert len(np.unique(rows, axis=0)) == 3


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decord_guard, "find_spec", lambda name: object())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("of_probe", "of_packets", "reason"),
    [
        ({}, {}, ""),
        ({"codec": "vp9"}, {"container": "matroska,webm"}, ""),
        ({}, {"container": "avi"}, "container avi"),
        ({}, {"container": "mpegts"}, "container mpegts"),
        ({}, {"container": "mpeg"}, "container mpeg"),
        ({}, {"container": "gif"}, "container gif"),
        ({"codec": "av1"}, {}, "codec av1"),
        ({"codec": "mpeg4"}, {}, "codec mpeg4"),
        ({"duration": None}, {}, "no duration in its header"),
        ({}, {"videos": 2}, "more than one picture stream"),
        ({}, {"doubt": "an edit list hides frames"}, "an edit list hides frames"),
        ({}, {"picture": "interlaced"}, "interlaced"),
        ({}, {"refreshed": True}, "key frames that are no IDR pictures"),
        ({}, {"key": np.zeros(6, bool)}, "begins without a key frame"),
        # The second key frame is shown after one that follows it: decord would take it for that one.
        ({}, {"times": np.array([0, 300, 100, 200, 500, 400]) * 1000}, "open groups of pictures"),
    ],
)
def test_what_decord_is_not_given(of_probe: dict[str, Any], of_packets: dict[str, Any], reason: str) -> None:
    assert refusal(said(**{"duration": 0.6} | of_probe), replace(SAFE, **of_packets)) == reason


def test_decord_need_not_be_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decord_guard, "find_spec", lambda name: None)
    path = made(tmp_path / "a.mp4")
    taken = sparse.take(path, probe(path), CHAIN, [3.0])
    assert (taken.decoder, taken.why) == ("ffmpeg", "decord is not installed")
    np.testing.assert_array_equal(taken.frames, all_frames(path)[[30]])


def test_chains_whose_pixels_decord_does_not_make() -> None:
    assert refused_chain(CHAIN) == refused_chain(Chain(fps=1, short_side=24)) == ""
    assert refused_chain(replace(CHAIN, stretch=(30, 20))) == ""
    assert refused_chain(replace(CHAIN, scaler="bicubic")) == "decord scales bilinearly, the chain bicubically"
    assert refused_chain(replace(CHAIN, crop_first=True)) == "the chain crops before it scales"


# The guard, on made files of the kinds that decord reads wrong

OPEN = "open-gop=1:keyint=10:min-keyint=10:bframes=3:scenecut=0"
REFRESH = "intra-refresh=1:keyint=10:bframes=0"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("a.mp4", H264, ""),
        ("a.mkv", H264, ""),
        ("a.ts", H264, "container mpegts"),
        ("a.avi", H264, "container avi"),
        ("a.mpg", ("-c:v", "mpeg2video"), "container mpeg"),
        ("open.mp4", (*H264, "-x264-params", OPEN), "key frames that are no IDR pictures"),
        ("refresh.mp4", (*H264, "-x264-params", REFRESH), "key frames that are no IDR pictures"),
        ("a444.mp4", (*H264, "-pix_fmt", "yuv444p"), "H.264 of 4:4:4 may need what only its first packet says"),
        ("fields.mp4", (*H264, "-vf", "setfield=tff", "-flags", "+ildct+ilme"), "interlaced"),
    ],
)
def test_made_files_that_decord_is_not_given(name: str, words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    path = made(tmp_path / name, *words)
    assert decord_safe(probe(path), path) == reason


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-ss", "0.55", "-i", "a.mp4", "-c", "copy"), "an edit list hides frames"),
        (("-display_rotation:v:0", "90", "-i", "a.mp4", "-c", "copy"), "a display matrix turns or mirrors it"),
        (("-display_hflip:v:0", "-i", "a.mp4", "-c", "copy"), "a display matrix turns or mirrors it"),
        (("-i", "a.mp4", "-map", "0", "-map", "0", "-c", "copy"), "more than one picture stream"),
    ],
)
def test_made_copies_that_decord_is_not_given(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    made(tmp_path / "a.mp4")
    program(*(tmp_path / word if word == "a.mp4" else word for word in words), "-y", tmp_path / "b.mp4")
    assert decord_safe(probe(tmp_path / "b.mp4"), tmp_path / "b.mp4") == reason


def test_a_file_that_breaks_off_is_doubted(tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4", *H264, "-movflags", "+faststart")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert packets(path, probe(path)).doubt.endswith(" of 60 packets are there")


# decord fails: the frames are ffmpeg's


@pytest.mark.parametrize(
    ("body", "facts", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", {}, r"decord crashed \(SIGSEGV\)"),
        ("os.abort()", {}, r"decord crashed \(SIGABRT\)"),
        ("ctypes.string_at(0)", {}, r"decord crashed \(SIGSEGV\)"),
        ("raise RuntimeError('cannot seek')", {}, "decord: RuntimeError: cannot seek"),
        ("bytearray(9 << 30)", {}, "decord: MemoryError"),
        ("os.write(2, b'[h264] error while decoding MB 1 2')", {}, r"decord: \[h264\] error while decoding MB 1 2"),
        ("raise SystemExit(3)", {}, "decord: exit status 3"),
        ("pass", {"count": 61}, "decord counts other frames"),
        ("pass", {"fps": 10.1}, "decord counts other frames"),
        ("pass", {"wider": 1}, "decord's frames have another size"),
    ],
)
def test_frames_are_right_when_decord_fails(
    body: str, facts: dict[str, Any], why: str, decord: Callable[..., None], tmp_path: Path
) -> None:
    decord(body, **facts)
    path = made(tmp_path / "a.mp4")
    taken = sparse.take(path, probe(path), CHAIN, [3.05])
    assert taken.decoder == "ffmpeg"
    assert re.fullmatch(why, taken.why), taken.why
    np.testing.assert_array_equal(taken.frames, all_frames(path)[[30]])


def test_frames_are_right_when_decord_hangs(
    decord: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decord("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(100)")
    monkeypatch.setattr(decord_guard, "PATIENCE", 1.0)
    path = made(tmp_path / "a.mp4")
    taken = sparse.take(path, probe(path), CHAIN, [3.05])
    assert (taken.decoder, taken.why) == ("ffmpeg", "decord hung: killed after 1 s")
    np.testing.assert_array_equal(taken.frames, all_frames(path)[[30]])


def test_what_decord_prints_is_a_complaint_and_no_frame(decord: Callable[..., None], tmp_path: Path) -> None:
    decord("os.write(1, b'hello')")
    path = made(tmp_path / "a.mp4")
    taken = sparse.take(path, probe(path), CHAIN, [3.05, 1.0])
    assert (taken.decoder, taken.why) == ("ffmpeg", "decord: hello")


def test_a_reader_whose_threads_do_not_end_is_left(decord: Callable[..., None], tmp_path: Path) -> None:
    decord("import threading; threading.Thread(target=time.sleep, args=(100,)).start()")
    path = made(tmp_path / "a.mp4")
    taken = sparse.take(path, probe(path), CHAIN, [3.05, 1.0])
    assert taken.decoder == "decord"
    np.testing.assert_array_equal(taken.frames, np.full((2, 20, 20, 3), FILL))
