"""Which networks are compiled, and how a worker decodes."""

from __future__ import annotations

import pytest

import extractors
from extractors import weights
from pipeline import devices, ffmpeg
from pipeline.devices import Decoders, decoders
from pipeline.jobs import Job, compiled


def test_networks_that_see_one_frame_size_are_compiled() -> None:
    # ResNet-152 sees the whole picture, of any width.
    names = "resnet152", "i3d_x101", "s3d_howto100m"
    todo = compiled([Job(extractors.preset(name), weights.Found("random")) for name in names])
    assert [job.preset.extractor for job in todo if job.compiled] == ["i3d_x101", "s3d_howto100m"]


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
