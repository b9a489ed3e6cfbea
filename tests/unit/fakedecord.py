"""A fake decord, first on the path of this process and of the one that reads: it gives what a test tells it to."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

FILL = 7
"""Every sample of its frames."""


@pytest.fixture
def decord(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a fake that takes a file for `count` frames at `fps`, and runs `body` before it gives any."""

    def make(body: str = "pass", *, count: int = 60, fps: float = 10.0, wider: int = 0) -> None:
        folder = tmp_path / "fake"
        folder.mkdir()
        (folder / "decord.py").write_text(
            textwrap.dedent(f"""\
                import ctypes, os, signal, sys, time
                import numpy as np
                class logging:
                    ERROR = 16
                    def set_level(level): pass
                def cpu(number): return None
                class Batch:
                    def __init__(self, array): self.array = array
                    def asnumpy(self): return self.array
                class VideoReader:
                    def __init__(self, path, ctx, width, height, num_threads):
                        self.shape = (height, width + {wider}, 3)
                    def __len__(self): return {count}
                    def get_frame_timestamp(self, frames):
                        begin = np.array(frames, np.float32) / {fps}
                        return np.stack([begin, begin + 1 / {fps}], axis=1)
                    def get_batch(self, frames):
                        {body}
                        return Batch(np.full((len(frames), *self.shape), {FILL}, np.uint8))
                """)
        )
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return make
