"""The tables of a feature file that say what the videos are: clips, captions, steps, splits, and words.

The data set's own tables come from its Manifest and are always written together. Tables that are derived from captions
(`words`, `idf`) carry the digest of the captions they were made from, and are left behind when those have changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.layout import create, write_columns
from pipeline.parts import VIDEO_COLUMNS, Part, read_column
from pipeline.publish import publish
from pipeline.records import Caption, Clip, Manifest, Video
from pipeline.seals import reseal, seal

log = logging.getLogger(__name__)

OWN = ("clips", "captions", "windows", "steps", "tasks", "originals", "splits")
"""Tables of the data set itself."""
DERIVED = ("words", "idf")
"""Tables that were made from captions; each later one from the ones before it."""

Columns = dict[str, NDArray[Any]]
Writer = Callable[[h5py.Group], None]
"""Fills a table's group."""


def write_tables(path: Path, attrs: Mapping[str, Any], manifest: Manifest, before: Sequence[Part] = ()) -> None:
    """Write a feature file that holds a data set's videos and its own tables, and no rows.

    Tables of the files `before` that were derived from the same captions are copied.
    """
    videos: Columns = {"id": _texts(v.id for v in manifest.videos)}
    for column, empty in VIDEO_COLUMNS.items():
        dtype = object if isinstance(empty, str) else None
        videos[column] = np.full(len(manifest.videos), empty, dtype=dtype)
    tables = {**_spans(manifest), **_labels(manifest)}
    with publish(path) as temporary:
        create(temporary, attrs, videos, {})
        with h5py.File(temporary, "r+") as file:
            for name in OWN:  # even empty ones: those of an older file must not come through
                write_columns(file.create_group(name), tables.get(name, {}))
            for name, columns in _parts(manifest).items():
                write_columns(file["splits"].create_group(name), columns)
            file["captions"].attrs["sha256"] = digest(tables["captions"]["text"])
            file["captions"].attrs["dedup"] = manifest.dedup
            seal(file, OWN)
        copy_tables(before, temporary, {})


def digest(texts: Iterable[str]) -> str:
    """Return what tells one list of caption texts from another."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode())
        found.update(b"\0")
    return found.hexdigest()


def _texts(values: Iterable[str]) -> NDArray[np.object_]:
    return np.asarray(list(values), dtype=object)


def _places(ids: Iterable[str], table: Sequence[Video | Clip | Caption]) -> NDArray[np.int64]:
    """Return where in a table the records with these ids stand."""
    named = iter(ids)
    first = next(named, None)
    if first is None:
        return np.zeros(0, np.int64)
    index = {record.id: place for place, record in enumerate(table)}
    return np.fromiter((index[id_] for id_ in chain([first], named)), np.int64)


def _spans(manifest: Manifest) -> dict[str, Columns]:
    """Return clips, captions and their windows; references are positions in the other table."""
    windows = [(i, start, end) for i, c in enumerate(manifest.captions) for start, end in c.windows]
    return {
        "clips": {
            "id": _texts(c.id for c in manifest.clips),
            "video": _places((c.video for c in manifest.clips), manifest.videos),
            "start": np.asarray([c.start for c in manifest.clips], np.float64),
            "end": np.asarray([np.nan if c.end is None else c.end for c in manifest.clips], np.float64),
            "label": _texts(c.label for c in manifest.clips),
        },
        "captions": {
            "id": _texts(c.id for c in manifest.captions),
            "clip": _places((c.clip for c in manifest.captions), manifest.clips),
            "text": _texts(c.text for c in manifest.captions),
        },
        "windows": {
            "caption": np.asarray([i for i, _, _ in windows], np.int64),
            "start": np.asarray([start for _, start, _ in windows], np.float64),
            "end": np.asarray([end for _, _, end in windows], np.float64),
        },
    }


def _labels(manifest: Manifest) -> dict[str, Columns]:
    """Return steps, tasks, and the ids that were brought into another form."""
    renamed = [(i, v.original) for i, v in enumerate(manifest.videos) if v.original]
    return {
        "steps": {
            "id": _texts(s.id for s in manifest.steps),
            "clip": _places((s.clip for s in manifest.steps), manifest.clips),
            "label": _texts(s.label for s in manifest.steps),
            "number": np.asarray([s.number for s in manifest.steps], np.int64),
            "start": np.asarray([s.start for s in manifest.steps], np.float64),
            "end": np.asarray([s.end for s in manifest.steps], np.float64),
        },
        "tasks": {
            "id": _texts(t.id for t in manifest.tasks),
            "name": _texts(t.name for t in manifest.tasks),
            "steps": _texts(json.dumps(t.steps, ensure_ascii=False) for t in manifest.tasks),
            "primary": np.asarray([t.primary for t in manifest.tasks], np.bool_),
        },
        "originals": {
            "video": np.asarray([i for i, _ in renamed], np.int64),
            "id": _texts(original for _, original in renamed),
        },
    }


def _parts(manifest: Manifest) -> dict[str, Columns]:
    """Return SPLIT/PART to the positions of its clips and captions."""
    if not manifest.splits:
        return {}
    clip = {c.id: i for i, c in enumerate(manifest.clips)}
    caption = {c.id: i for i, c in enumerate(manifest.captions)}
    return {
        f"{part.split}/{part.name}": {
            "clips": np.asarray([clip[c] for c in part.clips], np.int64),
            "captions": np.asarray([caption[c] for c in part.captions], np.int64),
        }
        for part in manifest.splits
    }


def same_tables(a: Path, b: Path) -> bool:
    """Return whether two files list the same videos and have the same tables of the data set itself."""
    with h5py.File(a, "r") as one, h5py.File(b, "r") as two:
        return _digests(one) == _digests(two)


def _digests(file: h5py.File) -> dict[str, str]:
    found: dict[str, str] = {}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            values = read_column(thing)
            is_text = values.dtype == object
            found[name] = digest(values) if is_text else hashlib.sha256(values.tobytes()).hexdigest()

    visit("videos/id", file["videos/id"])
    for table in (name for name in OWN if name in file):
        file[table].visititems(lambda name, thing, table=table: visit(f"{table}/{name}", thing))
    return found


def copy_tables(parts: Sequence[Part], path: Path, made: Mapping[str, Writer]) -> None:
    """Write `made` into the file at `path`, and copy each other table from the first of `parts` that has it.

    A table that was derived from other captions, or from words that are made anew, is left behind.
    """
    with h5py.File(path, "r+") as file:
        for part in parts:
            _copy_from(part, file, [name for name in part.tables if name not in (*made, *DERIVED)])
        for name, write in made.items():
            write(file.create_group(name))
        for part in parts:  # of the words made anew no weights are left: these are of the words as they were
            _copy_from(part, file, [name for name in DERIVED if name in part.tables])
        reseal(file)  # their names


def _copy_from(part: Part, file: h5py.File, names: Sequence[str]) -> None:
    wanted = [name for name in names if name not in file]
    if not wanted:
        return
    with h5py.File(part.path, "r") as source:
        for name in wanted:
            if why := out_of_date(source[name], name, file):
                log.warning("%s: %s are left out; run `pipeline run idf` again", why, name)
            else:
                source.copy(name, file)


def out_of_date(table: h5py.Group, name: str, file: h5py.File) -> str:
    """Return why a derived table is not that of the file's captions, words and splits; '' where it is."""
    if name not in DERIVED:
        return ""
    if str(table.attrs["captions"]) != captions_of(file):
        return "the captions have changed"
    if name != "idf":
        return ""
    if json.loads(table.attrs["words"]) != words_of(file):
        return "the words have changed"
    same = str(table.attrs.get("training", "")) == training_of(file, str(table.attrs["split"]))
    return "" if same else "the training captions have changed"


def words_of(file: h5py.File) -> str:
    """Return what tells the words of a file from others; '' where there are none."""
    if "words" not in file:
        return ""
    attrs = file["words"].attrs
    return f"{attrs['settings']} {attrs['interest']}"


def training_of(file: h5py.File, split: str) -> str:
    """Return the digest of which captions are in SPLIT/PART; '' for all, or where there is no such part."""
    captions = file.get(f"splits/{split}/captions")
    if captions is None:
        return ""
    return hashlib.sha256(np.sort(captions[()]).astype(np.int64).tobytes()).hexdigest()


def captions_of(file: h5py.File) -> str:
    """Return the digest of a file's captions, '' where there are none."""
    return str(file["captions"].attrs.get("sha256", "")) if "captions" in file else ""
