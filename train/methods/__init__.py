"""The methods, one file for each paper: `train/methods/taco.py` is `--method taco`.

A file offers `Model(settings, data, in_dim, text)` (a module), `losses(model, batch, settings, generator)` (parts by
name; `loss` is what is minimised) and `scores(model, corpus, pieces, settings)` (score matrices (texts, videos) by
level; the last one is the method's own), and `scales(model, settings)`, what cosines are multiplied by in each level
that is one. Its settings, which are its flags, are in `train/settings.py`: they must not
load torch.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from pipeline.errors import unknown


def names() -> list[str]:
    """Return the names of all methods."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def get(name: str) -> ModuleType:
    """Return the method called `name`. Raises UnknownName with the names there are."""
    if name not in names():
        raise unknown("method", name, names())
    return import_module(f"train.methods.{name}")
