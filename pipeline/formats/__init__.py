"""Features as other systems store them, one file each: the file's name is the format's.

    for video, rows in formats.get("npy").read(Path("features"), Asked()):
        ...

What several of them need is in `pipeline.foreign`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from pipeline.errors import BadSetting, unknown
from pipeline.foreign import Asked, Rows


class Format(Protocol):
    """What every `pipeline/formats/NAME.py` offers."""

    SOURCE: str
    """What SOURCE is, in one sentence."""

    def read(self, source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield (name of the video, its rows as they are stored), in an order that the file system does not decide."""
        ...

    def fits(self, source: Path) -> bool:
        """Return whether `source` looks like this format; never two formats do."""
        ...


class Writing(Protocol):
    """What those offer besides that `pipeline export` writes."""

    SUFFIX: str
    """Of the file that is written; '' for a folder."""

    def write(self, out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:
        """Write the rows of each video to the new file or folder `out`; `key`: of the array, where it has a name."""
        ...


def names() -> list[str]:
    """Return the names of all formats."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def get(name: str) -> Format:
    """Return the format called `name`. Raises UnknownName with the names there are."""
    if name not in names():
        raise unknown("format", name, names())
    return cast(Format, import_module(f"pipeline.formats.{name}"))


def written() -> list[str]:
    """Return the names of the formats that can be written."""
    return [name for name in names() if hasattr(get(name), "write")]


def writer(name: str) -> Writing:
    """Return the format called `name`, to write it. Raises UnknownName and BadSetting."""
    found = get(name)
    if not hasattr(found, "write"):
        raise BadSetting(f"format {name} is read only; written are: {', '.join(written())}")
    return cast(Writing, found)


def streams(name: str) -> Mapping[str, int]:
    """Return the streams that stand side by side in one row of a format, with their dims; none where it is one."""
    found: Mapping[str, int] = getattr(get(name), "STREAMS", {})
    return found


def says(name: str, source: Path, asked: Asked) -> Mapping[str, float]:
    """Return `rate` and `row_seconds` as far as the format itself says them."""
    tell = getattr(get(name), "says", None)
    return {} if tell is None else tell(source, asked)


def recognised(source: Path) -> str:
    """Return the name of the format that `source` looks like; '' if of none."""
    return next((name for name in names() if get(name).fits(source)), "")
