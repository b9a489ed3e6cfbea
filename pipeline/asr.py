"""Captions of speech recognition, video by video, from every form in which HowTo100M's are passed around.

    for cues in stream(Path("raw_caption.json")):
        print(cues.video, len(cues.text))

A source is one of these; `PATH` says which:

* `raw_caption.json`, `caption.json`, `sentencified_htm_*.json`: `{VIDEO: {"start": […], "end": […], "text": […]}, …}`,
  or `{VIDEO: {"segments": […]}, …}`. Read with the memory of one video, at any size.
* `caption.pickle`: the same, of dicts, lists and numpy arrays. A pickle has no parts: it is loaded whole, so it needs
  memory for all of it; prefer the json. Whatever else than those types it holds is refused, not run.
* a folder with one file a video: `VIDEO.csv` with the columns `start`, `end`, `text` (MIL-NCE); `VIDEO.json` as
  WhisperX writes it, `{"segments": [{"start": 0.5, "end": 2, "text": "…"}, …]}`; or lists of timed words or sentences,
  `VIDEO_word_timings.json`, `VIDEO_sentence_timings.json`: `[["text", start, end], …]`, of which `[]` is a video
  without speech, and sentences win over words.
* one such file of one video.

Several workers can share a source: `part` yields the videos that begin in a range of `0 … extent`, each video in
exactly one of ranges that follow each other.

Times are as they stand there; null is NaN. A text of null or NaN is empty. A video that stands twice is yielded twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.bigjson import holds_objects, members
from pipeline.errors import BadDataset
from pipeline.restricted import SUFFIXES, unpickle
from pipeline.shown import shown
from pipeline.sources import check_id, natural, read_json, read_table

_WORDS = (
    "a about all an and are as at be but by can do for from have he her his i if in is it it's just like my not of on "
    "or our out she so that the their them then there they this to up was we were what when will with you your"
)
FUNCTION_WORDS = frozenset(_WORDS.split())
"""The words that English stop lists have, and that make up most of them in speech."""
STOP_SHARE = 0.1
"""Of function words among all, below which they were removed. Of any 100 captions they are 29% or more in MSR-VTT,
MSVD, ActivityNet, YouCook2 and in speech, and 2.1% or less in the same ones without the stop words of scikit-learn or
spaCy."""

_TIMINGS = re.compile(r"_(sentence|word)_timings")


@dataclass(frozen=True, slots=True)
class Cues:
    """The captions of one video: three lists of one length; start and end in seconds."""

    video: str
    start: list[float]
    end: list[float]
    text: list[str]


def stream(path: Path) -> Iterator[Cues]:
    """Yield every video's captions, in the order of the file; of a folder, in natural order of the names.

    Raises BadDataset, with file and video or byte, for what cannot be read.
    """
    return part(path, 0, extent(path))


def extent(path: Path) -> int:
    """Return what `part` counts in: bytes of a json of many videos, files of a folder, else 1."""
    if path.is_dir():
        return len(_files(path))
    if path.suffix == ".json" and holds_objects(path):
        return path.stat().st_size
    return 1


def part(path: Path, start: int, stop: int) -> Iterator[Cues]:
    """Yield the captions of the videos that begin in [start, stop) of `extent(path)`."""
    if path.is_dir():
        return map(_one, islice(_files(path), start, stop))
    if path.suffix == ".json" and holds_objects(path):
        return (_cues(path, video, value) for video, value in members(path, start, stop))
    if not start <= 0 < stop:
        return iter(())
    return _pickled(path) if path.suffix in SUFFIXES else iter([_one(path)])


def has_stop_words(texts: Iterable[str], sample: int = 2_000) -> bool:
    """Return whether the first `sample` of `texts`, English ones, have their function words; True if they are empty."""
    words = list(chain.from_iterable(text.lower().split() for text in islice(texts, sample)))
    return not words or sum(word in FUNCTION_WORDS for word in words) >= STOP_SHARE * len(words)


def _files(folder: Path) -> list[Path]:
    """Return a folder's files, one a video, in natural order; listed once for each change of the folder."""
    return _listed(folder, folder.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _listed(folder: Path, age: int) -> list[Path]:  # noqa: ARG001 - `age` tells a folder from what it was
    found = [path for path in folder.iterdir() if path.suffix in (".csv", ".json") and path.name[0] != "."]
    if not found:
        raise BadDataset(f"{folder}: no captions; expected a file VIDEO.csv or VIDEO.json for each video")
    by_video: dict[str, Path] = {}
    for path in sorted(found, key=lambda path: natural(path.name)):
        other = by_video.setdefault(_video(path), path)
        if other != path and (_TIMINGS.search(other.stem) is None or _TIMINGS.search(path.stem) is None):
            raise BadDataset(f"{folder}: {other.name} and {path.name} are of one video; keep one of them there")
    return list(by_video.values())


def _video(path: Path) -> str:
    return _TIMINGS.sub("", path.stem)


def _one(path: Path) -> Cues:
    """Read a file of one video."""
    video = check_id(_video(path), str(path))
    if path.suffix == ".csv":
        return _table(path, video)
    if path.suffix != ".json":
        raise BadDataset(f"{path}: expected captions as .json, .csv or .pickle, or a folder of them")
    match read_json(path):
        case list(rows):
            return _rows(f"{path}, {video}", video, rows)
        case {"segments": list(rows)}:
            return _rows(f"{path}, {video}", video, rows)
    raise BadDataset(f'{path}: expected {{"segments": […]}}, [["text", start, end], …], or an object of videos')


def _table(path: Path, video: str) -> Cues:
    rows = [record for _, record in read_table(path, ("start", "end", "text"))]
    if not path.read_bytes().endswith(b"\n"):
        raise BadDataset(f"{path}, row {len(rows) + 1}: the line has no end, so it is cut off; download it again")
    try:
        start, end = ([float(row[name] or "nan") for row in rows] for name in ("start", "end"))
    except ValueError as error:
        raise BadDataset(f"{path}: {error!s:.100}; expected start and end in seconds") from error
    return Cues(video, start, end, [row["text"] for row in rows])


def _rows(where: str, video: str, rows: Sequence[Any]) -> Cues:
    """Turn timed words, sentences or segments to columns."""
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for number, row in enumerate(rows):
        match row:
            case [text, start, end] | {"start": start, "end": end, "text": text}:
                for column, value in zip(columns, (start, end, text), strict=True):
                    column.append(value)
            case _:
                raise BadDataset(f"{where}: no. {number} is {shown(row, 80)}; expected text, start and end")
    return _columns(where, video, *columns)


def _cues(path: Path, video: str, value: Any) -> Cues:
    check_id(video, str(path))
    match value:
        case {"start": start, "end": end, "text": text}:
            return _columns(f"{path}, {video}", video, start, end, text)
        case {"segments": list(rows)}:
            return _rows(f"{path}, {video}", video, rows)
    raise BadDataset(
        f"{path}, {video}: is {shown(value, 60)}; expected an object with start, end and text, or segments"
    )


def _columns(where: str, video: str, start: Any, end: Any, text: Any) -> Cues:
    if not isinstance(start, list) or not isinstance(end, list) or not isinstance(text, list):
        raise BadDataset(f"{where}: start, end and text are not all lists; download it again")
    if not len(start) == len(end) == len(text):
        raise BadDataset(
            f"{where}: {len(start)} starts, {len(end)} ends, {len(text)} texts; expected as many of each, download it "
            "again"
        )
    return Cues(video, _times(where, start), _times(where, end), _texts(where, text))


def _times(where: str, values: list[Any]) -> list[float]:
    kinds = set(map(type, values))
    if kinds <= {float}:
        return values
    if not kinds <= {float, int, type(None)}:
        odd = next(value for value in values if not isinstance(value, (float, int, type(None))) or value is True)
        raise BadDataset(f"{where}: {shown(odd, 60)} for a time; expected seconds")
    try:
        return [math.nan if value is None else float(value) for value in values]
    except OverflowError as error:
        raise BadDataset(f"{where}: {error}; expected seconds") from error


def _texts(where: str, values: list[Any]) -> list[str]:
    if set(map(type, values)) <= {str}:
        return values
    texts = ["" if value is None or value != value else value for value in values]  # noqa: PLR0124 - NaN is not itself
    if odd := [text for text in texts if not isinstance(text, str)]:
        raise BadDataset(f"{where}: {shown(odd[0], 60)} for a text; expected text")
    return texts


def _pickled(path: Path) -> Iterator[Cues]:
    try:
        videos = unpickle(path)
    except OSError as error:
        raise BadDataset(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadDataset(f"{path}: not a whole pickle ({error}); download it again") from error
    if not isinstance(videos, dict) or not all(isinstance(video, str) for video in videos):
        raise BadDataset(f"{path}: expected a dict of videos")
    for video, value in videos.items():
        plain = {name: _plain(column) for name, column in value.items()} if isinstance(value, dict) else value
        yield _cues(path, video, plain)


def _plain(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column.tolist()
    if isinstance(column, list):
        return [value.item() if isinstance(value, np.generic) else value for value in column]
    return column
