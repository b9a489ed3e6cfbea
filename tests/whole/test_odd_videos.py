"""Made videos with broken time or still pictures, and a decoder that is killed."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipeline.decode import DecoderKilled, Decoding
from pipeline.probe import probe
from tests.whole.frames import RESNET, X101, by_hand, decoded, outcome, program


def made(path: Path, time_of_frame: str = "N/30/TB", seconds: int = 3) -> Path:
    """Make a 320x240 video; `time_of_frame` is ffmpeg's expression for the time of frame N."""
    source = f"testsrc2=size=320x240:rate=30:duration={seconds}"
    words = ("-f", "lavfi", "-i", source, "-vf", f"setpts='{time_of_frame}'", "-fps_mode", "passthrough")
    program(*words, "-c:v", "ffv1", "-y", path)
    return path


def test_a_clock_that_jumps_does_not_repeat_a_frame_for_a_day(tmp_path: Path) -> None:
    path = made(tmp_path / "jump.mkv", "if(lt(N,45),N/30/TB,(N/30+100000)/TB)")
    start = time.monotonic()
    status, reason, counts, frames = outcome(path)
    assert time.monotonic() - start < 20
    assert (status, frames) == ("partial", 45)
    assert reason == "timestamps jump after 1.5 s: the rest was left out"
    assert counts == [2, 36, 24]  # 1.5 s at 1, 24 and 16 frames a second


@pytest.mark.parametrize(("seconds", "status"), [(12, "ok"), (700, "failed")])
def test_a_video_that_begins_late_is_filled_up_with_its_first_frame(seconds: int, status: str, tmp_path: Path) -> None:
    video = made(tmp_path / "video.mkv")
    sound = ("-f", "lavfi", "-i", "sine=duration=3", "-itsoffset", f"{seconds}", "-i", video)
    program(*sound, "-map", "0", "-map", "1", "-c:a", "pcm_s16le", "-c:v", "copy", "-y", tmp_path / "late.mkv")
    found, reason, counts, _ = outcome(tmp_path / "late.mkv")
    assert found == status, reason
    if status == "ok":
        assert counts == [15, 15 * 24, 15 * 16]  # 12 seconds that repeat the first frame, and 3
    else:
        assert reason.endswith("the first frame's timestamp is far from the start of the file")


def test_a_still_picture_is_repeated_as_ffmpeg_does(tmp_path: Path) -> None:
    path = made(tmp_path / "slide.mkv", "if(lt(N,45),N/30/TB,(N/30+20)/TB)")
    found, summary = decoded(path, [RESNET, X101])
    assert found[0] == by_hand(path, 0, "fps=1,scale=298:224:flags=bilinear")
    assert found[1] == by_hand(path, 0, "fps=24,scale=149:112:flags=bilinear,crop=112:112:18:0")
    assert (summary.status, summary.seconds) == ("ok", pytest.approx(23.0, abs=0.01))


def test_a_video_that_ends_before_its_sound_is_whole(tmp_path: Path) -> None:
    """FLV tells one duration for the file and none for the video."""
    video = made(tmp_path / "video.mkv")
    words = ("-i", video, "-f", "lavfi", "-i", "sine=duration=8", "-c:v", "flv1", "-c:a", "pcm_s16le", "-ar", "44100")
    program(*words, "-y", tmp_path / "long.flv")
    told = probe(tmp_path / "long.flv")
    assert (told.alone, told.duration) == (False, pytest.approx(8.0, abs=0.1))
    assert outcome(tmp_path / "long.flv")[0] == "ok"

    whole = (tmp_path / "long.flv").read_bytes()
    (tmp_path / "cut.flv").write_bytes(whole[: len(whole) // 4])
    status, reason, _, _ = outcome(tmp_path / "cut.flv")
    assert status == "partial"
    assert re.search(r"decoded [012]\.\d of 8\.0 s: file truncated\?$", reason)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_ffmpeg_blames_no_video(sent: signal.Signals, tmp_path: Path) -> None:
    path = made(tmp_path / "long.mkv", seconds=30)
    decoding = Decoding(path, probe(path), [X101])
    frames = iter(decoding)
    next(frames)
    (child,) = (p for p in psutil.Process().children() if "ffmpeg" in p.name())
    threading.Timer(0.2, child.send_signal, (sent,)).start()
    time.sleep(0.5)  # meanwhile ffmpeg waits for us: it is far from its end
    with pytest.raises(DecoderKilled):
        list(frames)


def test_frames_are_fresh_arrays(tmp_path: Path) -> None:
    """The caller may keep them."""
    path = made(tmp_path / "a.mkv")
    frames = [frame for _, frame in Decoding(path, probe(path), [X101])]
    assert {frame.shape for frame in frames} == {(112, 112, 3)}
    assert len({frame.ctypes.data for frame in frames}) == len(frames) == 72
    assert all(frame.flags.writeable and frame.flags.c_contiguous for frame in frames)
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).mean() > 1
