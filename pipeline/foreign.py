"""Features of other systems: what several formats need to read them, and what is told beside those that we write."""

from __future__ import annotations

import fnmatch
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.publish import publish
from pipeline.sources import check_id, walk

Rows = NDArray[np.floating[Any]]

DAMAGE = (OSError, LookupError, ValueError, RuntimeError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
"""What numpy and h5py raise on files that are not what they should be."""
ABOUT = "about.json"
KINDS = ("_2d", "_3d")
"""By which names of one video's files end where a folder holds two kinds."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted of a source that holds more than one thing."""

    key: str = ""
    """Which of several: the array of an .npz file or an HDF5 group, the expert (mmt), the split (mmpt)."""
    files: str = ""
    """Only files of this pattern below SOURCE, for example '*_2d.npz'."""
    allow_pickle: bool = False
    """Read pickles: of dicts, lists, texts, numbers and numpy arrays alone; whatever else is in one is refused."""


def files_below(source: Path, suffix: str, asked: Asked) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the files with `suffix` below `source`, in natural order; of a file, of itself.

    A name is the path below `source` with `/` and without `suffix`. Raises BadFeatureFile where there is no file, or
    where files of two kinds, `X_2d` and `X_3d`, lie side by side.
    """
    if source.is_file():
        yield check_id(source.name.removesuffix(suffix), str(source)), source
        return
    if not source.is_dir():
        raise BadFeatureFile(f"{source} does not exist; expected a folder of {suffix} files")
    found = [path for path in walk(source) if path.name.endswith(suffix) and not path.name.startswith(".")]
    found = [path for path in found if not asked.files or fnmatch.fnmatch(str(path.relative_to(source)), asked.files)]
    if not found:
        raise BadFeatureFile(f"{source}: no file is called {asked.files or f'*{suffix}'}")
    kinds = {kind for path in found for kind in KINDS if path.name.endswith(kind + suffix)}
    if len(kinds) > 1:
        raise BadFeatureFile(
            f"{source} holds *{KINDS[0]}{suffix} and *{KINDS[1]}{suffix}; choose by --files '*{KINDS[0]}{suffix}'"
        )
    for path in found:
        yield check_id(path.relative_to(source).as_posix().removesuffix(suffix), str(path)), path


@contextmanager
def foreign(path: Path, what: str) -> Iterator[None]:
    """Raise BadFeatureFile when the file at `path` cannot be read as `what`."""
    try:
        yield
    except FileNotFoundError:
        raise BadFeatureFile(f"{path} does not exist; expected {what}") from None
    except DAMAGE as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise BadFeatureFile(f"{path}: not {what} ({why:.200})") from error


def npy_below(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, array) of the .npy files below `source`. Raises BadFeatureFile; pickled ones are not read."""
    for name, path in files_below(source, ".npy", asked):
        with foreign(path, "an .npy file"):
            rows = np.load(path, allow_pickle=False)
        yield name, as_array(rows, str(path))


def as_array(value: Any, where: str) -> NDArray[Any]:
    """Return `value` if it is an array. Raises BadFeatureFile, beginning with `where`."""
    if not isinstance(value, np.ndarray):
        raise BadFeatureFile(f"{where}: is {type(value).__name__}; expected an array (rows, dim)")
    return value


def chosen(names: list[str], asked: Asked, where: str, usual: tuple[str, ...] = ()) -> str:
    """Return which of several arrays is meant: --key, the only one, or the first `usual` one that is there."""
    wanted = [asked.key] if asked.key else names if len(names) == 1 else [*usual]
    for name in wanted:
        if name in names:
            return name
    there = ", ".join(names[:20]) or "none"
    if asked.key:
        raise BadFeatureFile(f"{where}: no --key {asked.key}; there are: {there}")
    raise BadSetting(f"{where} holds several arrays: {there}; choose one by --key")


def about_path(place: Path, folder: bool) -> Path:
    """Return where it is told what features are that we wrote to `place`."""
    return place / ABOUT if folder else place.with_name(f"{place.name}.{ABOUT}")


def write_about(path: Path, told: dict[str, Any]) -> None:
    """Tell beside exported features what no format has a place for."""
    with publish(path) as temporary:
        temporary.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n")


def read_about(source: Path) -> dict[str, Any]:
    """Return what is told beside features that we wrote; nothing where it is not there. Raises BadFeatureFile."""
    path = about_path(source, source.is_dir())
    if not path.is_file():
        return {}
    with foreign(path, "what `pipeline export` writes beside features"):
        told = orjson.loads(path.read_bytes())
        return {
            **{name: told[name] for name in ("model", "stream", "settings") if name in told},
            "rate": float(told["rows_per_second"]),
            "row_seconds": float(told["row_seconds"]),
            "l2": bool(told["l2"]),
            "videos": [check_id(str(video), str(path)) for video in told["videos"]],
        }
