"""Which networks are compiled, and how a worker decodes: by the data set and the device, not by the run."""

from __future__ import annotations

import pytest

import extractors
from extractors import weights
from pipeline import devices, ffmpeg
from pipeline.devices import Decoders, decoders
from pipeline.jobs import GUESS, WORTH, Job, compiled
from pipeline.records import Manifest, Video

FOUND = weights.Found("random", None, "")


def jobs(*names: str) -> tuple[Job, ...]:
    return tuple(Job(extractors.preset(name), FOUND) for name in names)


def manifest(count: int, seconds: float) -> Manifest:
    return Manifest("files", tuple(Video(f"v{number}", None, seconds) for number in range(count)))


def chosen(todo: tuple[Job, ...], found: Manifest, asked: str = "auto", device: str = "cpu") -> list[str]:
    return [job.preset.extractor for job in compiled(todo, found, asked, device) if job.compiled]


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "sh")  # any program that there is


ALL = jobs("resnet152", "i3d_x101", "s3d_howto100m")


def test_what_is_worth_it_is_compiled_where_frames_have_one_size() -> None:
    # S3D makes a row a second, I3D one and a half; ResNet-152 sees the whole picture, of any width.
    assert chosen(ALL, manifest(10, WORTH / 10)) == ["i3d_x101", "s3d_howto100m"]
    assert chosen(ALL, manifest(10, WORTH / 10 - 1)) == ["i3d_x101"]
    assert chosen(ALL, manifest(10, WORTH / 15 - 1)) == []


def test_unknown_lengths_are_guessed_alike_in_every_run() -> None:
    enough = int(WORTH / GUESS)
    assert chosen(ALL, manifest(enough, 0.0)) == ["i3d_x101", "s3d_howto100m"]
    assert chosen(jobs("s3d_howto100m"), manifest(enough - 1, 0.0)) == []


def test_no_means_none_and_yes_needs_no_length() -> None:
    long, short = manifest(10, 1e6), manifest(1, 1.0)
    assert chosen(ALL, long, "no") == []
    assert chosen(ALL, short, "yes") == chosen(ALL, short, "yes", "cuda:0") == ["i3d_x101", "s3d_howto100m"]


def test_auto_compiles_on_a_processor_with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    long = manifest(10, 1e6)
    assert chosen(ALL, long, "auto", "cuda:0") == []
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert chosen(ALL, long) == []


def test_how_a_worker_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setattr(ffmpeg, "program", lambda: "ffmpeg")
    monkeypatch.setattr(ffmpeg, "accelerates", lambda _: True)
    assert decoders(0, "none", "cpu") == decoders(0, "auto", "cpu") == decoders(0, "cuda", "cpu") == Decoders(1, "")
    assert decoders(0, "none", "cuda:1") == Decoders(4, "")
    assert decoders(3, "auto", "cuda:1") == Decoders(3, "cuda:1")
    monkeypatch.setattr(ffmpeg, "accelerates", lambda _: False)
    assert decoders(3, "auto", "cuda:1") == Decoders(3, "")
    assert decoders(3, "cuda", "cuda:1") == Decoders(3, "cuda:1")
    assert decoders(5, "none", "cpu") == Decoders(5, "")
