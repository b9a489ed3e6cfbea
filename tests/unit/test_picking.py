"""Frames that the ffmpeg program hands out: the same from one pass and from key frames on, or one pass decides."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from extractors.spec import Chain
from pipeline import picking
from pipeline.errors import BadVideo
from pipeline.ffmpeg import Branch, Job, Pick
from pipeline.packets import Packets, packets
from pipeline.probe import probe
from tests.unit.fakeffmpeg import TINY, children, fake, said
from tests.unit.test_sparse import CHAIN, H264, OPEN, REFRESH, SOURCE, all_frames, made
from tests.whole.frames import program

__all__ = ["fake"]

UNKNOWN = Packets(np.zeros(0, np.int64), np.zeros(0, bool), "avi", 1, "", False, "no packets")


def job(path: Path, chain: Chain = CHAIN) -> tuple[Job, Branch]:
    known = probe(path)
    return Job(path, known, 1, 60.0), Branch(chain, known.width, known.height, "first")


def seconds(*times: float) -> np.ndarray[Any, Any]:
    return np.rint(np.array(times) * 1e6).astype(np.int64)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of the program costs nothing, so every key frame is worth one."""
    monkeypatch.setattr(picking, "START", 0)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Pick]:
    """The runs that are made."""
    runs: list[Pick] = []
    run = picking._run

    def noted(job: Job, branch: Branch, pick: Pick) -> picking._Run:
        runs.append(pick)
        return run(job, branch, pick)

    monkeypatch.setattr(picking, "_run", noted)
    return runs


def test_doctests() -> None:
    assert doctest.testmod(picking) == (0, 3)


# From key frames on


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.flv"])
def test_seeks_give_the_frames_of_one_pass(name: str, passes: list[Pick], tmp_path: Path) -> None:
    path = made(tmp_path / name)
    known = packets(path, probe(path))
    start = int(known.shown[0])
    wanted = seconds(0.05, 0.9, 1.0, 1.949, 1.95, 3.05, 3.15, 5.95, 9.0) + start
    frames = picking.pick(*job(path), wanted, known)
    np.testing.assert_array_equal(frames, all_frames(path)[[0, 9, 10, 19, 19, 30, 31, 59, 59]])
    assert [pick.seek is not None for pick in passes] == [False, True, True, True]


def test_few_frames_of_a_long_video_do_not_decode_it_all(passes: list[Pick], tmp_path: Path) -> None:
    path = made(tmp_path / "long.mp4", source="testsrc2=size=64x48:rate=10:duration=60")
    known = packets(path, probe(path))
    wanted = seconds(55.05)
    (frame,) = picking.pick(*job(path), wanted, known)
    (pick,) = passes
    assert len(picking._run(*job(path), pick).times) <= 30  # three groups of 10, of 600
    np.testing.assert_array_equal(frame, all_frames(path)[550])


def test_one_pass_ends_with_the_last_frame_that_is_wanted(tmp_path: Path) -> None:
    path = made(tmp_path / "a.avi", "-c:v", "mpeg4")
    run = picking._run(*job(path), Pick(((900_000, 1_000_000),)))
    assert run.times.tolist() == [n * 100_000 for n in range(11)]
    assert len(run.pixels) == 2 * 20 * 20 * 3


@pytest.mark.parametrize(
    ("container", "doubt"), [("avi", ""), ("mpegts", ""), ("mpeg", ""), ("mov,mp4", "an edit list hides frames")]
)
@pytest.mark.usefixtures("eager")
def test_seeks_that_are_not_trusted(container: str, doubt: str, passes: list[Pick], tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4")
    known = replace(packets(path, probe(path)), container=container, doubt=doubt)
    np.testing.assert_array_equal(picking.pick(*job(path), seconds(3.05), known), all_frames(path)[[30]])
    assert [pick.seek for pick in passes] == [None]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("option", [OPEN, REFRESH, "intra-refresh=1:keyint=10:bframes=2"])
def test_what_half_a_group_decodes_to_does_not_get_out(option: str, passes: list[Pick], tmp_path: Path) -> None:
    """Every frame alone: some need frames before the key frame that they would be decoded from."""
    path = made(tmp_path / "a.mkv", *H264, "-x264-params", option)
    known, truth = packets(path, probe(path)), all_frames(path)
    for rank in range(11, 60, 6):
        np.testing.assert_array_equal(picking.pick(*job(path), known.shown[[rank]], known), truth[[rank]])
    assert any(pick.seek for pick in passes)


@pytest.mark.usefixtures("eager")
def test_a_damaged_key_frame_is_mended_from_the_frames_before_it(tmp_path: Path) -> None:
    """As one pass does; a decoder that begins there has none."""
    path = made(tmp_path / "a.mkv")
    known = packets(path, probe(path))
    with av.open(path) as container:
        (key,) = (p for p in container.demux(video=0) if p.is_keyframe and float(p.pts * p.time_base) == 3.0)
        data = bytearray(path.read_bytes())
        assert data.find(bytes(key)) > 0
        at = data.find(bytes(key)) + key.size // 2
    data[at : at + key.size // 4] = bytes([85]) * (key.size // 4)
    path.write_bytes(data)
    assert not known.doubt
    np.testing.assert_array_equal(picking.pick(*job(path), known.shown[[33]], known), all_frames(path)[[33]])


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("change", [1, -1, 100_000])
def test_packets_that_announce_other_frames(change: int, passes: list[Pick], tmp_path: Path) -> None:
    path = made(tmp_path / "a.mp4")
    known = packets(path, probe(path))
    times = known.times.copy()
    times[np.argsort(known.times)[25]] += change * 3
    frames = picking.pick(*job(path), seconds(2.85), replace(known, times=times))
    np.testing.assert_array_equal(frames, all_frames(path)[[28]])
    assert [pick.seek is None for pick in passes] == [False, True]


# One pass


def test_frames_that_stand_for_long(passes: list[Pick], tmp_path: Path) -> None:
    """Frames follow each other fast, but the tenth stands for four seconds."""
    late = ("-vf", "setpts='if(lt(N,10),N/20/TB,(N/20+4)/TB)'", "-fps_mode", "passthrough")
    path = made(tmp_path / "a.mkv", *late, "-c:v", "ffv1", source="testsrc2=size=64x48:rate=20:duration=6")
    frames = picking.pick(*job(path), seconds(4.4, 4.51), UNKNOWN)
    np.testing.assert_array_equal(frames, all_frames(path)[[9, 10]])
    assert len(passes) == 2


def test_pictures_whose_size_changes(tmp_path: Path) -> None:
    """They are scaled to the size that the first ones get. The second part begins at 5.8 s, two frames early."""
    larger = ("-output_ts_offset", "6", *H264)
    parts = [made(tmp_path / "a.ts"), made(tmp_path / "b.ts", *larger, source=SOURCE.replace("64x48", "96x64"))]
    path = tmp_path / "c.ts"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    truth = all_frames(path)
    assert len(truth) == 120
    frames = picking.pick(*job(path), seconds(0.35, 5.05, 7.05, 11.5), UNKNOWN)
    np.testing.assert_array_equal(frames, truth[[3, 50, 72, 117]])


def test_a_wrong_size_in_the_header_is_corrected(fake: Callable[..., Path]) -> None:
    fake("header('48x64'); frames(2)")  # 4x5 instead of 5x4
    frames = picking.pick(Job(Path("a.mp4"), said(), 1, 30.0), Branch(TINY, 64, 48, "first"), seconds(0.15), UNKNOWN)
    assert frames.shape == (1, 5, 4, 3)


# Endings


def test_a_damaged_video_gives_what_is_left(tmp_path: Path) -> None:
    path = made(tmp_path / "a.mkv")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    truth = all_frames(path)
    assert 20 < len(truth) < 60
    frames = picking.pick(*job(path), seconds(1.05, 5.9), packets(path, probe(path)))
    np.testing.assert_array_equal(frames, truth[[10, -1]])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "no frame could be decoded: exit status -9"),
        ("header(); frames(3); os.kill(os.getpid(), signal.SIGKILL)", "no frame could be decoded: exit status -9"),
        ("say('[h264 @ 0x1] [error] bad\\n'); raise SystemExit(69)", r"no frame could be decoded: \[h264\] bad"),
        ("time.sleep(100)", "the decoder was ended after 1 s"),
    ],
)
def test_a_decoder_that_gives_nothing_to_be_trusted(body: str, reason: str, fake: Callable[..., Path]) -> None:
    fake(body)
    with pytest.raises(BadVideo, match=f"^{reason}$"):
        picking.pick(Job(Path("a.mp4"), said(), 1, 1.0), Branch(TINY, 64, 48, "first"), seconds(0.1), UNKNOWN)
    assert not children()


def test_frames_without_a_time_are_not_guessed(fake: Callable[..., Path]) -> None:
    """The program hands out more frames than its clock accounts for."""
    fake("header(); frames(3); os.write(1, bytes(60))")
    with pytest.raises(BadVideo, match="which of its frames are shown when cannot be told"):
        picking.pick(Job(Path("a.mp4"), said(), 1, 30.0), Branch(TINY, 64, 48, "first"), seconds(0.25), UNKNOWN)


def test_a_flood_of_messages_does_not_block(fake: Callable[..., Path]) -> None:
    fake("header(); [tick(n) for n in range(3)]; say('[h264 @ 0x1] [warning] so\\n' * 20_000); frames(2, start=3)")
    frames = picking.pick(Job(Path("a.mp4"), said(), 1, 30.0), Branch(TINY, 64, 48, "first"), seconds(0.45), UNKNOWN)
    assert frames[0, 0, 0, 0] == 4


def test_nothing_of_ours_reads_what_ffmpeg_is_not_told_to(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_text("#EXTM3U\n#EXTINF:1,\nb.ts\n#EXT-X-ENDLIST\n")
    program("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=1", "-y", tmp_path / "b.ts")
    with pytest.raises(BadVideo, match="no frame could be decoded"):
        picking.pick(Job(path, said(), 1, 30.0), Branch(TINY, 64, 48, "first"), seconds(0.1), UNKNOWN)
