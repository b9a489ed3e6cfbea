"""The offline steps, one file each: `pipeline/stages/extract.py` is `pipeline run extract`."""

from pathlib import Path


def names() -> list[str]:
    """Return the names of all stages."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
