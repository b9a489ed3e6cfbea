"""A table of videos of one's own."""

from pathlib import Path

from pipeline.datasets import files
from tests.contract.makers import Shuffle

ANNOTATIONS = ["table.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """A table of five videos, two clips each, two captions a clip."""
    rows = [
        f"v{v},v{v}.mp4,{start},{start + 2.5},caption {n} of {v},{'test' if v == 11 else 'train'}"
        for v in range(7, 12)
        for start in (0, 2)
        for n in (1, 2)
    ]
    (root / "table.csv").write_text("\n".join([",".join(files.COLUMNS), *shuffle(rows)]))
    (root / "v7.mp4").touch()
    return root / "table.csv"
