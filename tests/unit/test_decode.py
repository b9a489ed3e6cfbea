"""How decoding ends: a fake ffmpeg hangs, crashes, floods, lies and is killed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from extractors.spec import Chain
from pipeline import child
from pipeline.decode import Decoded, DecoderKilled, Decoding
from pipeline.errors import BadVideo
from tests.unit.fakeffmpeg import TINY, children, fake, run, said

__all__ = ["fake"]


def test_frames_are_put_together(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        tick(0)
        os.write(outputs[0], bytes([1]) * 59)
        time.sleep(0.1)
        tick(1)
        os.write(outputs[0], bytes([1]) + bytes([2]) * 60)
    """)
    decoding = Decoding(Path("a.mp4"), said(duration=0.2), [TINY])
    frames = list(decoding)
    assert [branch for branch, _ in frames] == [0, 0]
    for value, (_, frame) in zip((1, 2), frames, strict=True):
        np.testing.assert_array_equal(frame, np.full((4, 5, 3), value, np.uint8))
    assert decoding.summary == Decoded(pytest.approx(0.2), 2, "ok")


def test_a_decoder_that_hangs_is_ended_though_it_ignores_sigterm(fake: Callable[..., Path]) -> None:
    fake("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        header()
        frames(3)
        time.sleep(100)
    """)
    found, summary = run(stall=0.5)
    assert found == [0, 1, 2]
    assert (summary.status, summary.reason) == ("partial", "the decoder made no progress for 0.5 s")
    assert not children()


def test_a_decoder_that_hangs_before_the_first_frame_fails(fake: Callable[..., Path]) -> None:
    fake("time.sleep(100)")
    with pytest.raises(BadVideo, match=r"^no frame could be decoded: the decoder made no progress for 0\.5 s$"):
        run(stall=0.5)
    assert not children()


def test_complaints_are_no_sign_of_life(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        frames(1)
        while True:
            say("[h264 @ 0x1] [error] bad\\n" * 1000)
    """)
    found, summary = run(stall=0.5)
    assert found == [0]
    assert summary.reason.startswith("the decoder made no progress for 0.5 s; ")


def test_the_time_of_a_slow_reader_is_not_the_decoders(fake: Callable[..., Path]) -> None:
    fake("header(); frames(3)")
    decoding = Decoding(Path("a.mp4"), said(), [TINY], stall=0.3)
    for _ in decoding:
        time.sleep(0.5)
    assert decoding.summary.status == "ok"


def test_a_suspended_job_is_no_hang(fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the watch finds it an hour later."""
    fake("header(); time.sleep(0.5); frames(2)")
    watch = itertools.count(step=3600)
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=lambda: next(watch)))
    assert run(stall=5.0)[1].status == "ok"


def test_a_flood_of_messages_does_not_block_the_frames(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        for n in range(20):
            say("[swscaler @ 0x1] [warning] deprecated pixel format used\\n" * 2000)  # over 64 KiB each time
            frames(1, n)
    """)
    found, summary = run()
    assert found == list(range(20))
    assert summary.status == "ok"


def test_branches_may_be_far_apart(fake: Callable[..., Path]) -> None:
    """Twenty times a pipe's size in one branch, before the other has its first byte."""
    fake("""
        header()
        for n in range(20_000):
            tick(n)
            os.write(outputs[0], bytes(60))
        for n in range(20_000):
            os.write(outputs[1], bytes(48))
    """)
    decoding = Decoding(Path("a.mp4"), said(), [TINY, Chain(fps=10, short_side=4, crop=4)])
    assert np.bincount([branch for branch, _ in decoding]).tolist() == [20_000, 20_000]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT"])
def test_a_crash_is_named(name: str, fake: Callable[..., Path]) -> None:
    fake(f"""
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        header()
        frames(4)
        signal.signal(signal.{name}, signal.SIG_DFL)
        os.kill(os.getpid(), signal.{name})
        time.sleep(10)
    """)
    found, summary = run()
    assert found == [0, 1, 2, 3]
    assert (summary.status, summary.reason) == ("partial", f"the decoder crashed ({name})")


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(255)"])
def test_a_decoder_killed_from_outside_blames_no_video(ending: str, fake: Callable[..., Path]) -> None:
    fake(f"header(); frames(4)\n{ending}")
    with pytest.raises(DecoderKilled, match="out of memory"):
        run()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("header(); frames(2); os.write(outputs[0], bytes(30))", "the decoder ended within a frame"),
        ("header(); frames(2); raise SystemExit(69)", "the decoder ended with exit status 69"),
        ("header(); frames(2); say('[h264 @ 0x1] [error] bad')", "1 decoder error, first: [h264] bad"),
        ("header(); frames(9)", "decoded 0.9 of 18.0 s: file truncated?"),
    ],
)
def test_an_end_that_is_not_whole_is_said(body: str, reason: str, fake: Callable[..., Path]) -> None:
    fake(body)
    _, summary = run(duration=18.0 if "truncated" in reason else None)
    assert (summary.status, summary.reason) == ("partial", reason)


@pytest.mark.parametrize(
    ("frames", "duration", "status"),
    [
        (20, 2.2, "ok"), (20, 2.21, "partial"), (20, 0.5, "ok"),  # 2.0 s decoded; two frames are 0.2 s
        (200, 20.4, "ok"), (200, 20.42, "partial"),  # 20.0 s decoded; 2 % of the duration are 0.408 s
    ],
)  # fmt: skip
def test_two_frames_or_two_per_cent_may_be_missing(
    frames: int, duration: float, status: str, fake: Callable[..., Path]
) -> None:
    fake(f"header(); frames({frames})")
    assert run(duration=duration)[1].status == status


def test_without_frames_the_first_error_is_the_reason(fake: Callable[..., Path]) -> None:
    fake("say('[h264 @ 0x1] [error] no frame!\\n[fatal] Nothing worked\\n'); raise SystemExit(1)")
    with pytest.raises(BadVideo, match=r"^no frame could be decoded: \[h264\] no frame!$"):
        run()


def test_a_decoder_that_does_not_end_is_ended(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        frames(2)
        for fd in (clock, *outputs, 1, 2):
            os.close(fd)
        time.sleep(100)
    """)
    found, summary = run(stall=0.5)
    assert (found, summary.reason) == ([0, 1], "the decoder gave all frames but does not end")


def test_pipes_held_open_by_others_are_not_waited_for(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        frames(2)
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(20)"], pass_fds=[clock, *outputs])
    """)
    start = time.monotonic()
    found, summary = run(stall=15.0)
    assert (found, summary.status) == ([0, 1], "ok")
    assert time.monotonic() - start < 10


def test_a_wrong_size_in_the_header_is_corrected(fake: Callable[..., Path]) -> None:
    fake("header('48x64'); frames(2)")  # 4x5 instead of 5x4
    decoding = Decoding(Path("a.mp4"), said(), [TINY])
    assert [frame.shape for _, frame in decoding] == [(5, 4, 3)] * 2


def test_a_still_picture_is_decoded_again_with_fps_last_and_no_frame_comes_twice(fake: Callable[..., Path]) -> None:
    fake("""
        header()
        frames(2)
        if sys.argv[sys.argv.index("-filter_complex") + 1].endswith("format=rgb24[s4]"):  # fps is first
            os.write(clock, b"0, 20000000, 20000000, 100000, 424, 0x1\\n")
            os.write(outputs[0], bytes([77]) * 600)
            time.sleep(100)
        frames(3, start=2)
    """)
    found, summary = run()
    assert found == [0, 1, 2, 3, 4]
    assert (summary.status, summary.frames) == ("ok", 5)


def test_a_jump_of_time_is_cut_off_and_no_frame_comes_twice(fake: Callable[..., Path]) -> None:
    fake("""
        graph = sys.argv[sys.argv.index("-filter_complex") + 1]
        header()
        if "trim=end_frame=5" in graph:  # the third run
            frames(5)
            raise SystemExit
        frames(4 if graph.endswith("format=rgb24[s4]") else 2)
        time.sleep(0.2)
        if not graph.endswith("format=rgb24[s4]"):
            frames(3, start=2)
        os.write(outputs[0], bytes([77]) * 180)  # `fps` is faster than the clock
        time.sleep(0.2)
        os.write(clock, b"0, 90000000000, 90000000000, 100000, 424, 0x1\\n")
        time.sleep(100)
    """)
    found, summary = run()
    assert found == [0, 1, 2, 3, 4]
    assert (summary.frames, summary.reason) == (5, "timestamps jump after 0.5 s: the rest was left out")


def test_a_chain_without_frames_gets_the_first_one(fake: Callable[..., Path]) -> None:
    """ffmpeg 9 fails when an output is empty, and loses frames of the others."""
    fake("""
        header()
        if "-frames:v" not in sys.argv:
            outputs.pop(1)  # the second gets none
            frames(2)
            say("[vost#2:0/rawvideo @ 0x1] [error] Could not open encoder before EOF\\n")
            raise SystemExit(234)
        for n in range(4):
            tick(n)
            os.write(outputs[0], bytes([n]) * 60)
        os.write(outputs[1], bytes([9]) * 60)
    """)
    decoding = Decoding(Path("a.mp4"), said(), [TINY, Chain(fps=1, short_side=4)])
    found = sorted((branch, int(frame[0, 0, 0])) for branch, frame in decoding)
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 9)]
    assert decoding.summary == Decoded(pytest.approx(0.4), 4, "ok", short=True)


def test_a_line_of_pixels_is_refused() -> None:
    with pytest.raises(BadVideo, match=r"aspect ratio 3000:4: scaled to 168000x224, over 16384 pixels"):
        list(Decoding(Path("a.mp4"), said(width=3000, height=4), [Chain(fps=1, short_side=224)]))
