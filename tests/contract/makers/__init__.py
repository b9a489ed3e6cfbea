"""Each data set in small, as its users have it, one file each: `make(root, shuffle) -> root to load`.

`shuffle` must be applied to every list of records whose order means nothing. `ANNOTATIONS` are the files in the root
that cannot be cut off unnoticed.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

Shuffle = Callable[[list[Any]], list[Any]]


class Maker(Protocol):
    """What every `tests/contract/makers/NAME.py` offers."""

    ANNOTATIONS: list[str]
    make: Callable[[Path, Shuffle], Path]


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def get(name: str) -> Maker:
    return cast(Maker, import_module(f"{__name__}.{name}"))
