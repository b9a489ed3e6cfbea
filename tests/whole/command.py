"""Running the commands as a user does, and comparing what they wrote."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest

from pipeline import cli
from pipeline.stages import extract, merge, tag

ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def start(*words: str | Path, cwd: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
    )


def pipeline(*words: str | Path, code: int = 0, cwd: Path | None = None, **environment: str) -> tuple[str, str]:
    """Run `pipeline WORDS`, assert its exit code, and return what it printed to stdout and stderr."""
    with start(*words, cwd=cwd, **environment) as process:
        out, err = process.communicate(timeout=900)
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return out, err


@contextlib.contextmanager
def _as_if_new() -> Iterator[None]:
    """Let a command find what it would in a process of its own: no log, no plan of before, no GPU; tidy up after it."""
    root, interrupt = logging.getLogger(), signal.getsignal(signal.SIGTERM)
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    for known in (extract.plan_of, merge.place_of, tag.place_of):
        known.cache_clear()
    try:
        with mock.patch("pipeline.devices.gpus", return_value=0):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        signal.signal(signal.SIGTERM, interrupt)


def inside(*words: str | Path | int, code: int = 0, cwd: Path | None = None) -> tuple[str, str]:
    """As `pipeline`, in this process: spares seconds of importing torch where a test is not about processes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        _as_if_new(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(list(map(str, words)))
    assert ended.value.code == code, f"exit code {ended.value.code}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def error(*words: str | Path | int, code: int = 2, cwd: Path | None = None) -> str:
    """Run a command, in this process, that must fail with one line, and return the line."""
    _, err = inside(*words, code=code, cwd=cwd)
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, err
    return lines[0]


def arrays(path: Path) -> dict[str, Any]:
    """Return every array of a feature file by its name."""
    found: dict[str, Any] = {}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def assert_same(a: Path, b: Path) -> None:
    """Assert that two feature files have the same arrays, bit for bit."""
    one, two = arrays(a), arrays(b)
    assert one.keys() == two.keys()
    for name, values in one.items():
        assert values.dtype == two[name].dtype, name
        if values.dtype == object:
            assert list(values) == list(two[name]), name
        else:
            np.testing.assert_array_equal(values.view(np.uint8), two[name].view(np.uint8), err_msg=name)


def table(place: Path, files: list[Path]) -> Path:
    """Write a table of videos for the `files` data set."""
    path = place / "videos.csv"
    path.write_text("video_id,path\n" + "".join(f'v{i:03},"{file}"\n' for i, file in enumerate(files)))
    return path
