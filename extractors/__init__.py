"""Frozen networks: frames in, rows out. Knows nothing of data sets, files or Dask.

The file's name is the registry: `extractors/resnet152.py` is the extractor `resnet152`.
"""

from importlib import import_module
from pathlib import Path
from typing import cast

from extractors.spec import Extractor, ExtractorError, Preset

# Modules of this folder that are no extractors.
_OTHERS = {"__init__", "spec", "preprocess", "weights", "checkpoints", "fitting", "catalogue", "embed", "packed"}


def names() -> list[str]:
    """Return the names of all extractors."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _OTHERS)


def get(name: str) -> Extractor:
    """Return the extractor called `name`. Raises ExtractorError with the names there are."""
    if name not in names():
        raise ExtractorError(f"unknown extractor '{name}'; there are: {', '.join(names())}")
    return cast(Extractor, import_module(f"extractors.{name}"))


def preset(name: str) -> Preset:
    """Return the preset of `EXTRACTOR` or `EXTRACTOR:PRESET`."""
    extractor, _, which = name.partition(":")
    return get(extractor).preset(which)
