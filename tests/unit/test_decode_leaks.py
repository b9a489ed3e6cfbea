"""Whatever becomes of a video, no process and no open file is left behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import ffmpeg
from pipeline.decode import Decoding
from pipeline.errors import BadSetting, BadVideo
from tests.unit.fakeffmpeg import TINY, children, fake, run, said

__all__ = ["fake"]


@pytest.fixture
def no_leaks() -> Iterator[None]:
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names, not files
    yield
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert not children()


@pytest.mark.usefixtures("no_leaks")
def test_closing_early_ends_the_decoder(fake: Callable[..., Path]) -> None:
    fake("header(); frames(10_000)")
    with contextlib.closing(Decoding(Path("a.mp4"), said(), [TINY])) as decoding:
        assert int(next(iter(decoding))[1][0, 0, 0]) == 0
        (running,) = children()
    with pytest.raises(ProcessLookupError):
        os.kill(running, 0)


@pytest.mark.usefixtures("no_leaks")
def test_nothing_is_left_behind_by_videos_that_end(fake: Callable[..., Path]) -> None:
    fake("header(); frames(2)")
    for _ in range(5):
        run()


@pytest.mark.usefixtures("no_leaks")
def test_nothing_is_left_behind_by_videos_that_fail(fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    fake("raise SystemExit(1)")
    with pytest.raises(BadVideo, match="exit status 1"):
        run()
    monkeypatch.setattr(ffmpeg, "program", lambda: "/none/ffmpeg")
    with pytest.raises(BadSetting, match="does not run"):
        run()
