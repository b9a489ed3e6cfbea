"""The methods, one file for each: `train/methods/taco.py` is `--method taco`.

A file offers `Model(settings, data, in_dim, text)` (a module) and `losses(model, batch, settings, generator)` (parts by
name; `loss` is what is minimised). For retrieval: `scores(model, corpus, pieces, settings, rerank)`, score matrices
(texts, videos) by level, of which the last is the method's own; `scales(model, settings)`, what cosines are multiplied
by in each level that is one; `Model.video(x, mask)`, video tokens (B, L, d); `Model.texts(sentences)`, (B, d); and
`alike(model, tokens, texts, settings)`, how like single tokens are to texts: of these exported features, steps and
segments are made. For grounding: `predict(model, batch, settings)`, spans (k, M, 2) and their
scores (k, M). Its settings, which are its flags, are in `train/settings.py`: they must not load torch.
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
