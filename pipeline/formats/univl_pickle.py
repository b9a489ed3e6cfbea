"""One pickle of all videos, `{VIDEO: array (rows, dim)}`: UniVL's `youcookii_videos_features.pickle`, and CE's experts.

A pickle can run programs when it is loaded. Here it is read only with --allow-pickle, and what is in it besides dicts,
lists, texts, numbers and arrays is refused. It has no parts: it is loaded whole, and needs memory for all of it. NaN in
the place of an array is a video without rows.

What is written is a plain pickle that any Python from 3.4 and any numpy reads.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy._core import multiarray
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.foreign import Asked, Rows, as_array, foreign
from pipeline.restricted import unpickle
from pipeline.sources import check_id

SOURCE = "a pickle of a dict {VIDEO: array (rows, dim)}; needs --allow-pickle"
SUFFIX = ".pickle"


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) in the dict's order. Raises BadSetting without leave, BadFeatureFile for what is no such."""
    if not asked.allow_pickle:
        raise BadSetting(f"{source} is a pickle; --allow-pickle reads it, of dicts, texts, numbers and arrays only")
    with foreign(source, "a pickle of arrays"):
        videos = unpickle(source)
    if not isinstance(videos, dict) or not all(isinstance(video, str) for video in videos):
        raise BadFeatureFile(f"{source}: expected a dict of videos")
    for video in list(videos):
        rows = videos.pop(video)
        missing = isinstance(rows, float) and math.isnan(rows)
        yield check_id(video, str(source)), np.zeros((0, 0)) if missing else as_array(rows, f"{source}, {video}")


def fits(source: Path) -> bool:
    """Return whether its name is that of a pickle."""
    return source.is_file() and source.suffix in (".pickle", ".pkl")


def write(out: Path, videos: Iterable[tuple[str, Rows]], key: str) -> None:  # noqa: ARG001 - a dict has ids only
    """Write `{VIDEO: rows}`, one video in memory at a time."""
    with out.open("wb") as file:
        pickler = _Pickler(file, protocol=4)
        pickler.fast = True  # keeps nothing of what it has written
        pickler.dump(_Videos(videos))


class _Videos:
    """Stands for a dict whose values come one by one."""

    def __init__(self, videos: Iterable[tuple[str, Rows]]) -> None:
        self.items = videos


class _Pickler(pickle._Pickler):
    """The library's writer, which calls what makes an array as every numpy does: numpy 2's name for it is new."""

    write: Callable[[bytes], None]
    save: Callable[[Any], None]
    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(pickle._Pickler.dispatch)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if obj is multiarray._reconstruct:
            self.write(pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n")
        else:
            super().save_global(obj, name)  # type: ignore[misc]

    def save_videos(self, videos: _Videos) -> None:
        self.write(pickle.EMPTY_DICT)
        for video, rows in videos.items:
            self.save(video)
            self.save(rows)
            self.write(pickle.SETITEM)

    dispatch[_Videos] = save_videos
