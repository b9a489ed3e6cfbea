"""The toy data set, not drawn."""

from pathlib import Path

from pipeline.datasets import toy
from tests.contract.makers import Shuffle

ANNOTATIONS: list[str] = []


def make(root: Path, shuffle: Shuffle) -> Path:
    """All files, not drawn."""
    for film in shuffle(list(toy.FILMS)):
        (root / f"{film.id}.mp4").write_bytes(b"already there")
    return root
