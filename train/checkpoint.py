"""Checkpoints: whole or not there, and read without running what is in them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from pipeline.errors import BadFeatureFile, MissingWeights


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint under a temporary name, and give it its own when it is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        raise BadFeatureFile(f"cannot write {path}: {error}; free space, and `train resume {path.parent}`") from error


def best(path: Path) -> Path:
    """Return the best checkpoint of a run's folder, else its last one; a file as it is. Raises MissingWeights."""
    if not path.is_dir():
        return path
    found = next((p for name in ("best.pt", "last.pt") if (p := path / name).exists()), None)
    if found is None:
        raise MissingWeights(f"{path}: no checkpoint yet; `train resume {path}` goes on until there is one")
    return found


def folder_of(path: Path) -> Path:
    """Return the folder of the run that a checkpoint is of, or the folder itself. Raises MissingWeights."""
    if path.is_dir():
        return path
    check_there(path)
    return path.parent


def check_there(path: Path) -> None:
    """Raise MissingWeights where there is no such file."""
    if not path.exists():
        raise MissingWeights(f"no checkpoint {path}; `train --features …` writes one")


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint: tensors and plain values only. Raises MissingWeights."""
    check_there(path)
    try:
        found: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, LookupError, ValueError, pickle.UnpicklingError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise MissingWeights(f"{path} is no checkpoint of this program ({why:.120})") from error
    if not isinstance(found, dict) or not {"model", "step"} <= found.keys():
        raise MissingWeights(f"{path} is no checkpoint of this program; `train` writes best.pt and last.pt")
    return found
