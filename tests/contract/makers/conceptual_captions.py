"""Conceptual Captions in small."""

from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = ["Train_GCC-training.tsv", "Validation_GCC-1.1.0-Validation.tsv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Four pictures of train and three of val. Rows are not shuffled: their numbers are the names of the pictures."""
    for name, count in zip(ANNOTATIONS, (4, 3), strict=True):
        rows = [f"a dog , no {n % 3} , runs\thttps://example.org/{n},{count}.jpg\n" for n in range(count)]
        (root / name).write_text("".join(rows))
    for picture in ("train/00000/000000002.jpg", "validation/1.webp", "validation/7.webp", "train/list.jpg"):
        (root / picture).parent.mkdir(parents=True, exist_ok=True)
        (root / picture).touch()
    return root
