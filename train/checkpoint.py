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


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint: tensors and plain values only. Raises MissingWeights."""
    try:
        found: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise MissingWeights(f"no checkpoint {path}; `train --features …` writes one") from None
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise MissingWeights(f"{path} is no checkpoint of this program ({str(error).splitlines()[0]:.120})") from error
    return found
