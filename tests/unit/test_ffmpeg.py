"""The command line of ffmpeg, the program itself, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from extractors.spec import Chain
from pipeline import ffmpeg
from pipeline.child import Clock
from pipeline.errors import BadSetting, BadVideo
from pipeline.ffmpeg import Branch, Job
from pipeline.messages import Messages, damage
from pipeline.probe import probe
from tests.unit.fakeffmpeg import fake, said

__all__ = ["fake"]

RESNET = Chain(fps=1, short_side=224)
X101 = Chain(fps=24, short_side=112, crop=112)
S3D = Chain(fps=16, short_side=224, crop=224)


# The command line


def command(*branches: Branch, stream: int = 0, **job: object) -> list[str]:
    fds = range(10, 11 + len(branches))
    return ffmpeg.command("ffmpeg-9", Job(Path("-a b.mp4"), said(stream=stream), 2, 60.0, **job), branches, fds)  # type: ignore[arg-type]


@pytest.fixture
def modern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "version", lambda program: "9.0.2")


def graph(words: list[str]) -> str:
    return words[words.index("-filter_complex") + 1]


@pytest.mark.usefixtures("modern")
def test_the_graph_of_the_default_presets_is_the_published_chain() -> None:
    words = command(*(Branch(chain, 640, 360) for chain in (RESNET, X101, S3D)))
    # 640 * 224 / 360 = 398.2; 640 * 112 / 360 = 199.1, (199 - 112) / 2 = 43.5; (398 - 224) / 2 = 87
    assert graph(words) == (
        "[0:0]split=4[s0][s1][s2][s3];"
        "[s1]fps=1:round=near[s4];[s4]scale=398:224:flags=bilinear[s5];[s5]format=rgb24[s6];"
        "[s2]fps=24:round=near[s7];[s7]scale=199:112:flags=bilinear[s8];[s8]crop=112:112:43:0[s9];"
        "[s9]format=rgb24[s10];"
        "[s3]fps=16:round=near[s11];[s11]scale=398:224:flags=bilinear[s12];[s12]crop=224:224:87:0[s13];"
        "[s13]format=rgb24[s14]"
    )


@pytest.mark.usefixtures("modern")
def test_the_clock_takes_frames_as_they_come_and_chains_at_their_rate() -> None:
    words = command(Branch(RESNET, 640, 360), stream=3)
    assert words[0] == "ffmpeg-9"
    assert words[words.index("-i") + 1] == "file:-a b.mp4"
    assert words[words.index("-protocol_whitelist") + 1] == "file"
    assert "-nostdin" in words
    assert [words[i + 1] for i, word in enumerate(words) if word == "-fps_mode"] == ["passthrough", "cfr"]
    assert [word for word in words if word.startswith("pipe:")] == ["pipe:10", "pipe:11"]
    assert graph(words).startswith("[0:3]split=2")


@pytest.mark.usefixtures("modern")
@pytest.mark.parametrize(
    ("branch", "filters"),
    [
        # a portrait: the short side is the width; (199 - 112) / 2 = 43.5
        (Branch(X101, 360, 640), ["fps=24:round=near", "scale=112:199:flags=bilinear", "crop=112:112:0:43"]),
        (
            Branch(Chain(fps=29.97, short_side=256, scaler="bicubic"), 320, 240),
            ["fps=29.97:round=near", "scale=341:256:flags=bicubic"],
        ),
        (
            Branch(Chain(fps=10, short_side=224, crop_first=True), 638, 360),
            [
                "fps=10:round=near",
                r"crop=min(iw\,ih):min(iw\,ih):(iw-min(iw\,ih))/2:(ih-min(iw\,ih))/2",
                "scale=224:224:flags=bilinear",
            ],
        ),
        (Branch(RESNET, 240, 240, "first"), ["scale=224:224:flags=bilinear"]),
    ],
)
def test_the_filters_of_one_branch(branch: Branch, filters: list[str]) -> None:
    parts = graph(command(branch)).split(";")[1:]
    assert [part.split("]", 1)[1].rsplit("[", 1)[0] for part in parts] == [*filters, "format=rgb24"]


@pytest.mark.usefixtures("modern")
def test_a_gpu_decodes_what_it_decodes_to_the_same_samples() -> None:
    """Tried on no GPU: this is the command line alone."""
    words = command(Branch(RESNET, 640, 360), hwaccel="cuda:2")
    source = words.index("-i")
    assert [words[words.index(option, 0, source) + 1] for option in ("-hwaccel", "-hwaccel_device")] == ["cuda", "2"]
    assert "-hwaccel_output_format" not in words  # frames come back to memory
    assert graph(words).startswith("[0:0]format=yuv420p[s0];[s0]split=2[s1][s2];[s2]fps=1:round=near")


@pytest.mark.usefixtures("modern")
@pytest.mark.parametrize(("codec", "pixels"), [("mpeg4", "yuv420p"), ("h264", "yuv444p"), ("h264", "yuvj420p")])
def test_a_gpu_is_not_asked_for_what_it_may_decode_otherwise(codec: str, pixels: str) -> None:
    probe = replace(said(), codec=codec, pixel_format=pixels)
    job = Job(Path("a.mp4"), probe, 1, 60.0, hwaccel="cuda:0")
    words = ffmpeg.command("ffmpeg-9", job, [Branch(RESNET, 640, 360)], [3, 4])
    assert "-hwaccel" not in words
    assert graph(words).startswith("[0:0]split=2")


@pytest.mark.parametrize(("listed", "can"), [(r"cuda\nvaapi", True), (r"vaapi\ncuda_other", False), ("", False)])
def test_what_a_program_was_built_for(listed: str, can: bool, tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!/bin/sh\necho Hardware acceleration methods:\nprintf '{listed}'\n")
    program.chmod(0o755)
    assert ffmpeg.accelerates(str(program)) is can


@pytest.mark.usefixtures("modern")
def test_repeated_frames_share_memory_when_fps_comes_last() -> None:
    text = graph(command(Branch(RESNET, 240, 240, "late")))
    assert text.endswith("[s1]scale=224:224:flags=bilinear[s2];[s2]format=rgb24[s3];[s3]fps=1:round=near[s4]")


@pytest.mark.usefixtures("modern")
def test_a_video_is_cut_off_in_front_of_all_branches() -> None:
    text = graph(command(Branch(RESNET, 240, 240), until=(45, 1.5)))
    assert text.startswith(r"[0:0]trim=end_frame=45[s0];[s0]setpts=min(PTS\,STARTPTS+1.500000/TB)[s1];[s1]split=2")


@pytest.mark.parametrize(
    ("version", "option"), [("4.2.2", "-vsync"), ("5.0", "-vsync"), ("5.1", "-fps_mode"), ("N-1-gab", "-fps_mode")]
)
def test_the_option_that_ffmpeg_renamed(version: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "version", lambda program: version)
    assert command(Branch(RESNET, 240, 240)).count(option) == 2


# The program


def test_the_program_on_path_comes_first(fake: Callable[..., Path]) -> None:
    installed = fake()
    assert ffmpeg.program() == str(installed)


def test_without_one_on_path_the_bundled_program_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = ffmpeg.program()
    assert "imageio_ffmpeg" in program
    assert ffmpeg.version(program)[0].isdigit()


@pytest.mark.parametrize(
    ("says", "version"),
    [("n9.0.2-17-g2a571b6068", "9.0.2"), ("5.1.9-0+deb12u1", "5.1.9"), ("6.0-static", "6.0"), ("N-1-gab", "N-1-gab")],
)
def test_the_version_is_a_number_where_there_is_one(says: str, version: str, fake: Callable[..., Path]) -> None:
    assert ffmpeg.version(str(fake(version=says))) == version


def test_a_program_that_is_not_ffmpeg_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    with pytest.raises(BadSetting, match=r"is not ffmpeg: it says 'hello'; put ffmpeg first"):
        ffmpeg.version(str(other))
    with pytest.raises(BadSetting, match="does not run"):
        ffmpeg.version(str(tmp_path / "none"))


# What the program tells


def test_the_clock_counts_frames_and_spans_their_time() -> None:
    clock = Clock()
    for line in ("#software: x", "#tb 0: 1/1000", "#dimensions 0: 320x240", "0, 40, 40, 40, 424, 0x1"):
        clock.take(line)
    assert (clock.size, clock.frames, clock.seconds) == ((320, 240), 1, pytest.approx(0.04))
    clock.take("0, 120, 120, 40, 424, 0x1, S=1, 8")
    assert (clock.frames, clock.seconds, clock.now) == (2, pytest.approx(0.12), pytest.approx(0.16))  # 40 to 160 ms


def test_the_clock_knows_slides_from_broken_time() -> None:
    clock = Clock()
    for line in ("#tb 0: 1/1", "0, 0, 0, 1, 1, 0", "0, 10, 10, 1, 1, 0"):
        clock.take(line)
    assert (clock.still, clock.frames) == (False, 2)  # 9 seconds from the end of the first
    clock.take("0, 21, 21, 1, 1, 0")
    assert (clock.still, clock.jumped) == (True, False)
    clock.take("0, 622, 622, 1, 1, 0")
    clock.take("0, 623, 623, 1, 1, 0")
    assert (clock.jumped, clock.frames, clock.seconds) == (True, 3, 22.0)


def test_the_clock_knows_a_start_that_is_far_away() -> None:
    clock = Clock()
    for line in ("#tb 0: 1/1", "0, 600, 600, 1, 1, 0"):
        clock.take(line)
    assert (clock.jumped, clock.frames) == (True, 0)


def test_one_picture_may_last_for_an_hour() -> None:
    clock = Clock()
    for line in ("#tb 0: 1/1", "0, 0, 0, 3600, 1, 0"):
        clock.take(line)
    assert (clock.still, clock.jumped, clock.frames, clock.seconds) == (True, False, 1, 3600.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[h264 @ 0x55ae41a0b740] [error] no frame!", "[h264] no frame!"),
        ("[NULL @ 0x5] [error] non-existing PPS 0 referenced", "non-existing PPS 0 referenced"),
        ("[in#0/matroska,webm @ 0x5] [error] File ended prematurely", "[in#0/matroska,webm] File ended prematurely"),
        ("[error] Error while decoding stream #0:0: Invalid data", "Error while decoding stream #0:0: Invalid data"),
        ("[fatal] Cannot go on", "Cannot go on"),
        ("[vist#0:0/h264 @ 0x5] [warning] corrupt decoded frame", "[vist#0:0/h264] corrupt decoded frame"),
        ("[mov,mp4 @ 0x5] [warning] Packet corrupt (stream = 0, dts = 213000).", ""),  # continuity counters only
        ("[swscaler @ 0x5] [warning] deprecated pixel format used", ""),
        ("[aac @ 0x5] [error] Prediction is not allowed in AAC-LC.", ""),  # sound is not decoded
        ("  Consider increasing the value for the 'analyzeduration'", ""),
        ("", ""),
        ("[h264 @ 0x5] [error] " + "x" * 200, "[h264] " + "x" * 112 + "…"),
    ],
)  # fmt: skip
def test_which_lines_tell_of_damage(line: str, message: str) -> None:
    assert damage(line) == message


def test_messages_are_counted_and_kept_within_bounds() -> None:
    messages = Messages()
    messages.take("[vist#0:0/h264 @ 0x5] [dec:h264 @ 0x6] [error] Error submitting packet to decoder")
    for n in range(10_000):
        messages.take(f"[h264 @ 0x5] [error] bad block {n}")
    assert messages.summary() == "10001 decoder errors, first: [h264] bad block 0"
    kept = messages.kept()
    assert len(kept) == 101
    assert kept[50] == "... 9901 lines ..."
    assert kept[-1].endswith("bad block 9999")


# Files that are no videos


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.mp4", b"", "empty file (0 bytes)"),
        ("a.mp4", b"<!DOCTYPE html><html><body>404</body></html>", "not a video: an HTML or XML page"),
        ("a.txt", b"hello " * 50, "not a video: Invalid data found when processing input"),
        (
            "a.mp4",
            b"\x00\x00\x00\x14ftypisom\x00\x00\x02\x00mp41\x00\x00\x00\x08free\x00\x00\x00\x00mdat" + bytes(99),
            "index missing (moov atom not found): truncated download?",
        ),
    ],
)
def test_why_a_file_is_no_video(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadVideo) as told:
        probe(path)
    assert str(told.value) == reason


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadVideo, match=r"^cannot be read: No such file or directory$"):
        probe(tmp_path / "none.mp4")
    with pytest.raises(BadVideo, match=r"^not a file$"):
        probe(tmp_path)


def test_a_version_call_that_is_killed_is_made_again(tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; kill -9 $$; }}\necho ffmpeg version 7.1\n"
    )
    program.chmod(0o755)
    assert ffmpeg.version(str(program)) == "7.1"
