"""Frames of real videos are those of the ffmpeg program, byte for byte, and every verdict on them is true."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from extractors.spec import Chain
from pipeline import ffmpeg
from pipeline.decode import Decoded
from pipeline.probe import probe
from tests.whole.frames import RESNET, S3D, X101, by_hand, counted, decoded, outcome

# Byte for byte. Sizes and offsets are worked out by hand from the size after rotation.


@pytest.mark.parametrize(
    ("name", "stream", "resnet", "x101", "s3d"),
    [
        ("msrvtt/video7010.mp4", 0, "298:224", "149:112,18:0", "298:224,37:0"),
        ("torchcodec/nasa_13013.mp4", 3, "398:224", "199:112,43:0", "398:224,87:0"),  # the larger of two streams
        ("avi/mmaction2_test.avi", 0, "298:224", "149:112,18:0", "298:224,37:0"),  # 110 frames without a time
        ("hmdb51/RATRACE_wave_f_nm_np1_fr_goo_37.avi", 0, "522:224", "261:112,74:0", "522:224,149:0"),
        ("kinetics/flipping_a_pancake.mkv", 0, "397:224", "198:112,43:0", "397:224,86:0"),
        ("muxjs/test-no-audio-segment.ts", 0, "289:224", "144:112,16:0", "289:224,32:0"),
        ("androidx/roadtrip-vp92-10bit.webm", 0, "397:224", "198:112,43:0", "397:224,86:0"),  # 10 bit
        ("androidx/bear-vp9-odd-dimensions.webm", 0, "298:224", "149:112,18:0", "298:224,37:0"),  # 161x121
        ("fluent/te[s]t_ video ' _ .flv", 0, "298:224", "149:112,18:0", "298:224,37:0"),
        ("streamio/awesome movie.mov", 1, "298:224", "149:112,18:0", "298:224,37:0"),  # variable rate
        ("streamio/sideways movie.mov", 0, "224:298", "112:149,0:18", "224:298,0:37"),  # rotated by -90
        ("php_ffmpeg/portrait.MOV", 1, "224:397", "112:198,0:43", "224:397,0:86"),  # rotated by -90
        ("androidx/sample_rotate_and_reflect.mp4", 0, "224:336", "112:168,0:28", "224:336,0:56"),
        ("androidx/edit_list_positive_shift.mp4", 0, "398:224", "199:112,43:0", "398:224,87:0"),  # starts at 1.0 s
        ("moviepy/-video-with-dash-.mp4", 0, "224:224", "112:112,0:0", "224:224,0:0"),  # 1x1 pixel
    ],
)
def test_frames_are_those_of_ffmpeg(name: str, stream: int, resnet: str, x101: str, s3d: str, shared: Path) -> None:
    path = shared / "data/videos" / name
    found, summary = decoded(path, [RESNET, X101, S3D])
    assert found[0] == by_hand(path, stream, f"fps=1,scale={resnet}:flags=bilinear")
    for frames, rate, text in ((found[1], 24, x101), (found[2], 16, s3d)):
        size, offset = text.split(",")
        side = size.split(":")[0 if int(size.split(":")[0]) < int(size.split(":")[1]) else 1]
        crop = f"crop={side}:{side}:{offset}"
        assert frames == by_hand(path, stream, f"fps={rate},scale={size}:flags=bilinear,{crop}")
    assert all(found)
    assert summary.status == "ok"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("video_0.mov", "397:224"),
        ("video_90.mov", "224:397"),
        ("video_180.mov", "397:224"),
        ("video_270.mov", "224:397"),
    ],
)
def test_every_rotation_is_applied(name: str, size: str, shared: Path) -> None:
    path = shared / "data/videos/decord" / name
    (frames,), _ = decoded(path, [Chain(fps=30, short_side=224)])
    assert frames == by_hand(path, 0, f"fps=30,scale={size}:flags=bilinear")
    assert len(frames) == 3 * 397 * 224 * 3
    assert probe(path).rotation in {0, -90, 90, -180}


def test_a_square_cropped_first_is_rounded_to_whole_chroma_samples(shared: Path) -> None:
    path = shared / "data/videos/kinetics/flipping_a_pancake.mkv"  # 426x240, yuv420p: (426 - 240) / 2 = 93
    (frames,), _ = decoded(path, [Chain(fps=1, short_side=224, crop_first=True)])
    scale = "scale=224:224:flags=bilinear"
    assert frames == by_hand(path, 0, f"fps=1,crop=240:240:92:0,{scale}")
    assert frames != by_hand(path, 0, f"fps=1,crop=240:240:93:0:exact=1,{scale}")


def test_the_scaler_is_the_chains_and_threads_change_nothing(shared: Path) -> None:
    path = shared / "data/videos/msrvtt/video7500.mp4"  # 298x224
    (bicubic,), _ = decoded(path, [Chain(fps=1, short_side=112, scaler="bicubic")])
    (bilinear,), _ = decoded(path, [Chain(fps=1, short_side=112)])
    assert bicubic == by_hand(path, 0, "fps=1,scale=149:112:flags=bicubic")
    assert bilinear != bicubic
    assert decoded(path, [Chain(fps=1, short_side=112)], threads=2)[0] == [bilinear]


# A video too short for a chain


def test_a_short_video_gives_its_first_frame_and_loses_none(shared: Path) -> None:
    path = shared / "data/videos/androidx/hlg10-color-test.mp4"  # 9 frames, 0.3 s, 1920x1080, stream 1
    (one, many), summary = decoded(path, [RESNET, X101])
    assert one == by_hand(path, 1, "scale=398:224:flags=bilinear", "-frames:v", "1")
    assert many == by_hand(path, 1, "fps=24,scale=199:112:flags=bilinear,crop=112:112:43:0")
    assert len(many) == 7 * 112 * 112 * 3
    assert summary == Decoded(pytest.approx(0.3, abs=1e-3), 9, "ok", short=True)


# Verdicts

FAILED = {
    "androidx/bear-id3.mp3": "no video stream: audio with a cover picture",
    "androidx/invalid-bitstream.webm": r"no frame could be decoded: \[vp9\]",
    "androidx/sample_audio_only.mp4": "no video stream: audio only",
    "derived/video7010.truncated60pct.mp4": r"index missing \(moov atom not found\): truncated download",
    "ffmpegcore/input_audio_only_10sec.mp4": "no video stream: audio only",
    "go_mp4/sample_qt.mp4": "no frame could be decoded: ",
    "moviepy/zero_bytes_result.webm": r"empty file \(0 bytes\)",
    "mp4parse/bipbop_nonfragment_header.mp4": "no frames: the file holds a header only",
    "mp4parse/chunk_out_of_range.mp4": "not a video: Invalid data",
    "mp4parse/short-cenc.mp4": "encrypted",
    "mp4parse/test_case_1185230.mp4": "no frame could be decoded: ",
    "muxjs/dash-608-captions-init.mp4": "no frames: the file holds a header only",
    "php_ffmpeg/WrongFile.mp4": "index missing",
    "streamio/broken.mp4": "index missing",
    "streamio/empty.flv": "not a video: Invalid data",
}
PARTIAL = {
    "androidx/sample_with_invalid_nalu.mp4": r"\d+ decoder errors?, first: \[h264\] .*NAL",
    "decord/corrupted.mp4": r"\d+ decoder errors, first: .*NAL unit",
    "derived/flipping_a_pancake.truncated50pct.mkv": r"File ended prematurely; decoded 5\.0 of 10\.3 s: file trunc",
    "derived/v_GGSY1Qvo990.truncated50pct.mp4": r"decoded 9\.0 of 18\.0 s: file truncated",
    "derived/v_SoccerJuggling_g23_c01.truncated50pct.avi": r"decoder errors, first: \[mpeg4\] ",
    "streamio/weird_aspect.small.mpg": r"decoder errors, first: \[mpeg1video\] ac-tex damaged",
}
"""Checked one by one against the table of shared/data/README.md. All other files decode without fault."""
KNOWN_BETTER = {
    "androidx/sample_vvc.mp4": 120,  # counted with an ffmpeg that had no VVC decoder
    "torchcodec/nasa_13013.mp4": 390,  # counted in the smaller of its two videos; 13.013 s at 29.97
}
FEW = (
    "activitynet/v_GGSY1Qvo990.mp4", "androidx/bbb_2500ms.ts", "androidx/edit_list_positive_shift.mp4",
    "androidx/sample.flv", "androidx/sample_empty_track.mp4", "androidx/sample_fragmented.mp4",
    "auto_editor/h264-mjpeg.mkv", "hf_datasets/test_video_66x50.mov", "imageio/newtonscradle.gif",
    "moviepy/no_duration.webm", "mp4parse/video_rotation_90.mp4", "openshot/interlaced_test1.mp4", *PARTIAL, *FAILED,
)  # fmt: skip


def declared(shared: Path) -> dict[str, int | None]:
    """Return, by file, the number of frames that ffprobe decoded when the collection was made."""
    table = (shared / "data/README.md").read_text()
    rows = (line.split("|") for line in table.splitlines() if line.startswith("| `") and line.count("|") == 12)
    frames = {row[1].strip(" `"): row[7].rpartition("/")[2].strip() for row in rows}
    return {name: int(count) if count.isdigit() else None for name, count in frames.items()}


def judge(name: str, shared: Path) -> None:
    path = shared / "data/videos" / name
    status, reason, counts, frames = outcome(path)
    if name in FAILED:
        assert (status, bool(re.search(FAILED[name], reason))) == ("failed", True), reason
        return
    assert status == ("partial" if name in PARTIAL else "ok"), reason
    assert re.search(PARTIAL.get(name, "^$"), reason), reason
    assert counts == counted(path)
    assert frames == KNOWN_BETTER.get(name, declared(shared)[name])


@pytest.mark.parametrize("name", FEW)
def test_verdict(name: str, shared: Path) -> None:
    judge(name, shared)


def test_the_table_of_real_videos_is_read_whole(shared: Path) -> None:
    videos = shared / "data/videos"
    assert set(declared(shared)) == {str(f.relative_to(videos)) for f in videos.rglob("*") if f.is_file()}


@pytest.mark.slow
def test_verdicts_on_all_real_videos(shared: Path) -> None:
    wrong = {}
    for name in sorted(declared(shared)):
        try:
            judge(name, shared)
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong


REFERENCE_FAILS = {"g24", "s70", "s71", "d81", "d84", "d88", "d89"}
REFERENCE_PARTIAL = {"g21", "d80", "d82", "d83", "d85", "d86", "d87"}


@pytest.mark.slow
def test_verdicts_on_all_awkward_videos(shared: Path, tmp_path: Path) -> None:
    script = shared / "tools/make_awkward_videos.sh"
    subprocess.run(["bash", script, tmp_path], check=True, env={**os.environ, "FFMPEG": ffmpeg.program()})
    table = (shared / "decoders.md").read_text()
    reference = {m[1]: int(m[2]) for m in re.finditer(r"^\| (-?[a-z]\d\d) [^|]*\| (\d+) \|", table, re.MULTILINE)}
    assert len(reference) == 69
    reference["s74"] = 25  # counted in the smaller of its two videos; 1 s at 25 frames a second
    wrong = {}
    for name, frames in reference.items():
        (path,) = tmp_path.glob(f"{name}_*")
        status, reason, _, found = outcome(path)
        expected = "failed" if name in REFERENCE_FAILS else "partial" if name in REFERENCE_PARTIAL else "ok"
        if (status, found) != (expected, frames):
            wrong[path.name] = (status, reason, found, frames)
    assert not wrong
