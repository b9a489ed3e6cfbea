"""A fake ffmpeg that does what a test tells it to, and the video that it pretends to decode."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from extractors.spec import Chain
from pipeline.decode import Decoded, Decoding
from pipeline.probe import Probe

TINY = Chain(fps=10, short_side=4)
"""64x48 pictures become 5x4: 60 bytes a frame."""


def said(**known: object) -> Probe:
    """A probe of a 64x48 video at 10 frames per second."""
    values = {
        "stream": 0, "width": 64, "height": 48, "fps": 10.0, "duration": None, "alone": True, "first_frame": 0.0,
        "codec": "h264", "pixel_format": "yuv420p", "color": "untagged", "rotation": 0, "size": 1, "mtime_ns": 1,
    }  # fmt: skip
    return Probe(**(values | known))  # type: ignore[arg-type]


def install(folder: Path, body: str, version: str = "9.0.2", python: str = sys.executable) -> Path:
    """Put a program called ffmpeg into a folder: `outputs` are its pipes, the clock's first."""
    program = folder / "ffmpeg"
    program.write_text(
        f"#!{python} -S\n"
        + textwrap.dedent(f"""\
            import os, signal, subprocess, sys, time
            if "-version" in sys.argv:
                print("ffmpeg version {version} Copyright")
                raise SystemExit
            clock, *outputs = (int(word[5:]) for word in sys.argv if word.startswith("pipe:"))
            def header(size="64x48"):
                os.write(clock, f"#tb 0: 1/1000000\\n#dimensions 0: {{size}}\\n".encode())
            def tick(n):
                os.write(clock, f"0, {{n}}00000, {{n}}00000, 100000, 424, 0x1\\n".encode())
            def frames(count, start=0):
                for n in range(start, start + count):
                    tick(n)
                    for output in outputs:
                        os.write(output, bytes([n]) * 60)
            def say(text):
                os.write(2, text.encode())
            """)
        + textwrap.dedent(body)
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install a fake ffmpeg and put it first on PATH."""

    def make(body: str = "", version: str = "9.0.2") -> Path:
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return install(tmp_path, body, version)

    return make


def run(chains: tuple[Chain, ...] = (TINY,), *, stall: float = 30.0, **known: object) -> tuple[list[int], Decoded]:
    """Decode with the fake; return the first byte of each frame, and the summary."""
    decoding = Decoding(Path("a.mp4"), said(**known), chains, stall=stall)
    found = [int(frame[0, 0, 0]) for _, frame in decoding]
    return found, decoding.summary


def children() -> list[int]:
    """Processes of this one, zombies too, but for the tracker that multiprocessing keeps to the end of a process."""
    tasks = Path("/proc/self/task").iterdir()
    found = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
