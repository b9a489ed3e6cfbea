"""The HDF5 files that make a feature file, and what is in each besides rows.

A feature file is one file, or a folder of shards with the same layout (docs/feature-file.md).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline import seals
from pipeline.errors import BadFeatureFile

FORMAT = 1
"""Version of the layout."""

VIDEO_COLUMNS: dict[str, Any] = {
    "duration": 0.0,  # seconds the container promises; 0 when it does not say
    "decoded": 0.0,  # seconds that were decoded
    "first_frame": 0.0,  # seconds from the container's start to the first frame
    "frames": 0,  # frames of the source that were decoded
    "width": 0,  # after rotation
    "height": 0,
    "fps": 0.0,  # as the container tells it
    "stream": -1,  # index of the decoded stream in its container
    "codec": "",
    "color": "",  # matrix and range as tagged, or 'untagged'
    "source_size": 0,  # bytes
    "source_mtime": 0,  # nanoseconds
    "ffmpeg": "",  # version of the program that decoded it
}
"""Columns of `videos/` besides id, status and reason, with what stands there before a video is decoded."""


DAMAGE = (OSError, LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError, MemoryError)
"""What h5py and numpy have been seen to raise on files with flipped bits."""

FEW = 64
"""Values by which a column is taken for one of few different texts, each of which is kept once."""


@dataclass(frozen=True)
class Part:
    """One HDF5 file as read: its metadata, without rows."""

    path: Path
    attrs: dict[str, Any]
    videos: dict[str, NDArray[Any]]
    streams: dict[str, dict[str, Any]]
    tables: tuple[str, ...]
    """Names of the groups besides videos and streams: clips, captions, splits, words ..."""


def _strings(dataset: h5py.Dataset) -> NDArray[np.object_]:
    found = np.asarray(dataset.asstr()[()], dtype=object)
    if found.ndim == 1 and len(found) > FEW and len(set(found[:FEW])) <= FEW // 4:
        once: dict[str, str] = {}  # codecs, versions: a million of them are a few
        found[:] = [once.setdefault(text, text) for text in found]
    return found


def read_column(dataset: h5py.Dataset) -> NDArray[Any]:
    """Return a column of a table: numbers as they are, text as an object array of str."""
    return _strings(dataset) if h5py.check_string_dtype(dataset.dtype) else np.asarray(dataset[()])


@lru_cache(maxsize=256)
def _json(text: str) -> dict[str, Any]:
    """Return an object that nobody changes: thousands of shards have the same one."""
    found: dict[str, Any] = json.loads(text)
    return found


def _read_stream(group: h5py.Group) -> dict[str, Any]:
    values = group["values"]
    columns = {name: read_column(group[name]) for name in ("offsets", "status", "crc32", "reason")}
    if zlib.crc32(columns["crc32"].tobytes()) != int(group.attrs["checksum"]):
        raise ValueError(f"the checksums of stream {group.name} are not what they were")
    seals.check_columns(group, columns)
    return {
        "dim": int(values.shape[1]),
        "rows": int(values.shape[0]),
        "dtype": values.dtype,
        # An array without rows has no place in the file.
        "at": values.id.get_offset() or 0,
        "settings": _json(group.attrs["settings"]),
        "provenance": _json(group.attrs["provenance"]),
        **columns,
    }


def read_part(path: Path) -> Part:
    """Return the metadata of one HDF5 file. Raises BadFeatureFile when it cannot be read."""
    with readable(path), h5py.File(path, "r") as file:
        if int(file.attrs.get("format", -1)) != FORMAT:
            found = file.attrs.get("format", "none")
            raise BadFeatureFile(f"{path}: feature-file format {found}, this program reads {FORMAT}")
        seals.check(file)
        videos = {name: read_column(file["videos"][name]) for name in file["videos"]}
        seals.check_columns(file["videos"], videos)
        return Part(
            path=path,
            attrs=dict(file.attrs.items()),
            videos=videos,
            streams={name: _read_stream(file["streams"][name]) for name in file["streams"]},
            tables=tuple(sorted(set(file) - {"videos", "streams"})),
        )


def without_columns(part: Part) -> Part:
    """Return a part without what it says of single videos."""
    kept = ("dim", "rows", "dtype", "at", "settings", "provenance")
    streams = {name: {key: stream[key] for key in kept} for name, stream in part.streams.items()}
    return replace(part, videos={}, streams=streams)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise BadFeatureFile when what is read of `path` is not there, or damaged."""
    try:
        yield
    except FileNotFoundError:
        raise BadFeatureFile(f"no feature file {path}; `pipeline run extract` writes one") from None
    except DAMAGE as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        cure = "try `pipeline repair`, restore it from a copy, or move it away and run again"
        raise BadFeatureFile(f"{path} is damaged or not a feature file ({why}); {cure}") from error


def part_files(path: Path) -> list[Path]:
    """Return the HDF5 files of a feature file: itself, or a folder's tables and shards in their order."""
    if not path.is_dir():
        return [path]
    files = [path / name for name in ("tables.h5", *read_ledger(path)) if (path / name).exists()]
    if not files:
        raise BadFeatureFile(f"no feature file in folder {path}; `pipeline run extract --out {path}` writes one")
    return files


def ledger_entries(folder: Path) -> list[dict[str, Any]]:
    """Return what a folder's ledgers say of shards, in the order these count; torn lines are passed over."""
    entries: list[dict[str, Any]] = []
    for ledger in folder.glob("manifest*.jsonl"):
        with readable(ledger):
            lines = ledger.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            try:
                entry = json.loads(line)
                entries.append({"shard": str(entry["shard"]), "made": int(entry["made"]), **entry})
            except (ValueError, KeyError, TypeError):
                continue
    return sorted(entries, key=lambda entry: (made_at(entry), entry["shard"]))


def made_at(entry: dict[str, Any]) -> int:
    """Return by what the shard of a ledger's entry comes before or after others: when it was made, by its own clock.

    Later than that if, by that clock, it were older than what was listed before it.
    """
    return int(entry.get("order", entry["made"]))


def read_ledger(folder: Path) -> list[str]:
    """Return the names of the shards that a folder's ledgers list and that are there, oldest first."""
    names = [entry["shard"] for entry in ledger_entries(folder)]
    # The last entry counts: a shard that was written again moves to the end.
    return [name for name in reversed(dict.fromkeys(reversed(names))) if (folder / name).exists()]
