"""Single frames of real and of awkward videos: each is the one that ffmpeg shows then, whoever read it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from extractors.spec import Chain
from pipeline import ffmpeg
from pipeline.decord_guard import find_spec
from pipeline.errors import BadVideo
from pipeline.probe import probe
from pipeline.sparse import clip_times, take
from tests.whole.frames import program

BILINEAR = Chain(fps=1, short_side=80, crop=64)
BICUBIC = replace(BILINEAR, scaler="bicubic")
TIMES = 8
"""Frames of each video that are compared."""


def truth(path: Path, chain: Chain) -> tuple[NDArray[np.int64], list[str]]:
    """Return when each decoded frame begins, in microseconds, and its digest: one pass of ffmpeg, by hand."""
    known = probe(path)
    width, height = chain.scaled(known.width, known.height)
    crop = f"crop=64:64:{int((width - 64) / 2)}:{int((height - 64) / 2)}"
    filters = f"settb=AVTB,scale={width}:{height}:flags={chain.scaler},{crop},format=rgb24"
    words = ("-vf", filters, "-fps_mode", "passthrough", "-enc_time_base", "1:1000000", "-f", "framemd5", "-")
    out = program("-threads", "1", "-i", f"file:{path}", "-map", f"0:{known.stream}", *words).decode()
    rows = [line.split(",") for line in out.splitlines() if line and not line.startswith("#")]
    return np.array([int(row[2]) for row in rows], np.int64), [row[5].strip() for row in rows]


def asked(begins: NDArray[np.int64], seconds: float, seed: int) -> NDArray[np.float64]:
    """Return times within frames, at which frames begin, before the first and after the last."""
    draw = np.random.default_rng(seed)
    times = draw.uniform(0.0, 1.02 * max(seconds, begins[-1] / 1e6), TIMES)
    times[:3] = np.maximum(draw.choice(begins, 3), 0) / 1e6
    return times


def judged(path: Path, chain: Chain) -> tuple[str, list[str]]:
    """Return who read a video's frames and why, and the times at which it is not the frame that ffmpeg shows."""
    try:
        known = probe(path)
    except BadVideo:
        return "no video", []
    begins, digests = truth(path, chain)
    if not digests:
        with pytest.raises(BadVideo):
            take(path, known, chain, [0.0])
        return "no video", []
    times = asked(begins, min(known.duration or 0.0, 1000.0), seed=len(digests))
    taken = take(path, known, chain, times)
    # The frame before the first that begins later: times may go back.
    later = [np.flatnonzero(begins > round(time * 1e6)) for time in times]
    shown = [max(0, int(after[0]) - 1) if len(after) else len(begins) - 1 for after in later]
    wrong = [
        f"{time:.6f} s: not frame {frame}"
        for time, frame, pixels in zip(times, shown, taken.frames, strict=True)
        if md5(pixels.tobytes()).hexdigest() != digests[frame]
    ]
    return taken.decoder if not taken.why else f"{taken.decoder}: {taken.why.partition(' @ ')[0]}", wrong


needs_decord = pytest.mark.skipif(find_spec("decord") is None, reason="decord has no wheel for this machine")


@needs_decord
@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("msrvtt/video7010.mp4", "decord"),
        ("kinetics/flipping_a_pancake.mkv", "decord"),
        ("ffmpegwasm/Big_Buck_Bunny_180_10s.webm", "decord"),
        ("streamio/awesome movie.mov", "decord"),  # variable rate
        ("androidx/edit_list_positive_shift.mp4", "decord"),  # starts at 1.0 s
        ("hmdb51/RATRACE_wave_f_nm_np1_fr_goo_37.avi", "ffmpeg: container avi"),
        ("hf_datasets/test_video_66x50.mov", "ffmpeg: an edit list hides frames"),
        ("torchcodec/h265_video.mp4", "ffmpeg: open groups of pictures"),
        ("muxjs/sintel-captions.ts", "ffmpeg: container mpegts"),
        ("auto_editor/h264-mjpeg.mkv", "ffmpeg: more than one picture stream"),  # and a time goes back
        ("androidx/sample_rotate_and_reflect.mp4", "ffmpeg: a display matrix turns or mirrors it"),
        ("derived/v_GGSY1Qvo990.truncated50pct.mp4", "ffmpeg: 178 of 355 packets are there"),
    ],
)
def test_frames_are_those_of_ffmpeg(name: str, decoder: str, shared: Path) -> None:
    path = shared / "data/videos" / name
    assert judged(path, BILINEAR) == (decoder, [])
    assert judged(path, BICUBIC)[1] == []


@pytest.mark.parametrize(
    ("name", "clips", "frames"), [("msrvtt/video7011.mp4", 8, 16), ("vfr/mmaction2_demo_skeleton.mp4", 2, 4)]
)
def test_clips_of_both_decoders_are_the_same(name: str, clips: int, frames: int, shared: Path) -> None:
    path = shared / "data/videos" / name
    known = probe(path)
    assert known.duration
    times = clip_times(known.duration, 24.0, clips, frames).ravel()
    taken = take(path, known, Chain(fps=24, short_side=112, crop=112), times)
    by_ffmpeg = take(path, replace(known, codec="unknown"), Chain(fps=24, short_side=112, crop=112), times)
    assert by_ffmpeg.decoder == "ffmpeg"
    np.testing.assert_array_equal(taken.frames, by_ffmpeg.frames)


@needs_decord
@pytest.mark.slow
def test_no_frame_of_any_real_video_is_wrong(shared: Path) -> None:
    videos = shared / "data/videos"
    judge_all(sorted(path for path in videos.rglob("*") if path.is_file()), least=55)


@needs_decord
@pytest.mark.slow
def test_no_frame_of_any_awkward_video_is_wrong(shared: Path, tmp_path: Path) -> None:
    script = shared / "tools/make_awkward_videos.sh"
    subprocess.run(["bash", script, tmp_path], check=True, env={**os.environ, "FFMPEG": ffmpeg.program()})
    names = [line.split("\t")[0] for line in (tmp_path / "manifest.tsv").read_text().splitlines()]
    assert len(names) == 69
    judge_all([tmp_path / name for name in names], least=28)


def judge_all(paths: list[Path], least: int) -> None:
    """Compare frames of all videos with ffmpeg's. decord must read some: a guard that refuses all is no use."""
    readers: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for path in paths:
        reader, frames = judged(path, BILINEAR)
        readers[reader] += 1
        frames += judged(path, BICUBIC)[1]
        if frames:
            wrong[path.name] = frames
    print("\n".join(f"{count:4} {reader}" for reader, count in readers.most_common()))
    assert not wrong
    assert readers["decord"] >= least
