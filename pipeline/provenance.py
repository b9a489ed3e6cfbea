"""Which program wrote a file, and with what."""

from __future__ import annotations

import json
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from pipeline import datasets


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that decide a row's last bits."""
    return {name: version(name) for name in ("torch", "torchvision", "numpy")} | {"machine": platform.machine()}


def file_attrs(dataset: str) -> dict[str, str]:
    """Return a feature file's attributes: the data set, how large it is to be, and which version wrote the file."""
    known = dataset in datasets.names()
    declared, papers = (datasets.expected(dataset), datasets.papers(dataset)) if known else ({}, {})
    return {
        "dataset": dataset,
        "declared": json.dumps(declared),
        "papers": json.dumps(papers),
        "created_by": json.dumps(
            {"version": f"video-text-features {version('video-text-features')}", "commit": commit()}
        ),
    }


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the git commit of the program, '' when it is not run from a checkout of its own."""
    if not _git("ls-files", Path(__file__).name):  # installed inside somebody else's checkout
        return ""
    return _git("describe", "--always", "--dirty")


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
