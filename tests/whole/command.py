"""Running the commands as a user does, and comparing what they wrote."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

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


def error(*words: str | Path, code: int = 2, cwd: Path | None = None, **environment: str) -> str:
    """Run a command that must fail with one line, and return the line."""
    _, err = pipeline(*words, code=code, cwd=cwd, **environment)
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
