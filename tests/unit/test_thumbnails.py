"""`pipeline frames`: the pictures are the video's, and a wrong flag is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.cli import main
from pipeline.errors import BadSetting
from pipeline.thumbnails import save
from tests.unit.commands import inside
from tests.unit.test_sparse import made
from tests.whole.frames import program


def rgb(path: Path, scale: str, rank: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return one frame as ffmpeg numbers and scales it."""
    height, width = (int(side) for side in reversed(scale.split(":")))
    words = ("-vf", f"select='eq(n,{rank})',scale={scale}:flags=bilinear", "-frames:v", "1", "-pix_fmt", "rgb24")
    return np.frombuffer(program("-i", path, *words, "-f", "rawvideo", "-"), np.uint8).reshape(height, width, 3)


def test_pictures_are_the_frames_of_the_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video, out = made(tmp_path / "a b.mp4"), tmp_path / "new/folder"
    said = inside(capsys)("frames", video, "--at", "1.05,0.333333", "--at", "5.95", "--out", out, of=main).splitlines()
    assert [line.partition(", read by ")[0] for line in said] == [
        f"{out}/a b-{seconds}.png: 64x48" for seconds in ("0.333333", "1.05", "5.95")
    ]
    for seconds, rank in (("0.333333", 3), ("1.05", 10), ("5.95", 59)):
        np.testing.assert_array_equal(np.asarray(Image.open(out / f"a b-{seconds}.png")), rgb(video, "64:48", rank))
    assert len(list(out.iterdir())) == 3


def test_segments_and_the_short_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = made(tmp_path / "a.mp4")  # 6 s: the middles of its thirds are 1, 3 and 5 s
    inside(capsys)("frames", video, "--segments", 3, "--side", 24, "--out", tmp_path / "out", of=main)
    for seconds in (1, 3, 5):
        picture = np.asarray(Image.open(tmp_path / f"out/a-{seconds}.png"))
        np.testing.assert_array_equal(picture, rgb(video, "32:24", 10 * seconds))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "no time is given: --at 1.5,20 or --segments 8"),
        (["--at", "soon"], "--at soon: expected seconds, such as 1.5,20"),
        (["--at", "1,"], "--at : expected seconds, such as 1.5,20"),
        (["--at", "-1"], "--at -1: expected seconds, 0 or more"),
        (["--at", "nan"], "--at nan: expected seconds, 0 or more"),
        (["--at", "1,6.5"], "--at 6.5: the video ends at 6.00 s"),
        (["--at", "1", "--segments", "-1"], "--segments -1: expected 0 or more"),
        (["--at", "1", "--side", "-2"], "--side -2: expected 0 or more"),
    ],
)
def test_flags_that_cannot_be(words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video, out = made(tmp_path / "a.mp4"), tmp_path / "out"
    assert inside(capsys)("frames", video, *words, "--out", out, code=2, of=main) == error
    assert not out.exists()


def test_a_bad_video_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mp4").write_text("<html>")
    words = ("frames", tmp_path / "a.mp4", "--at", "0", "--out", tmp_path / "out")
    assert inside(capsys)(*words, code=2, of=main) == f"{tmp_path / 'a.mp4'}: not a video: an HTML or XML page"


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    words = ("frames", made(tmp_path / "a.mp4"), "--at", "0", "--out", tmp_path / "file")
    assert inside(capsys)(*words, code=2, of=main).startswith(f"cannot write {tmp_path / 'file/a-0.png'}: File exists;")


def test_segments_of_a_video_without_a_length(tmp_path: Path) -> None:
    video = made(tmp_path / "a.mkv")
    path = tmp_path / "live.webm"
    program("-i", video, "-c:v", "libvpx", "-f", "webm", "-live", "1", "-y", path)
    with pytest.raises(BadSetting, match="--segments needs a length, and the file says none; use --at"):
        save(path, [], 2, 0, tmp_path / "out")
    assert len(save(path, [0.5], 0, 0, tmp_path / "out")) == 1
