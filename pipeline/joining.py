"""`pipeline join`: captions from one file and rows from others, in one feature file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import h5py

from pipeline.derived import check_out
from pipeline.errors import PresetMismatch
from pipeline.output import Output
from pipeline.parts import Part, part_files, read_part
from pipeline.provenance import file_attrs
from pipeline.shards import fold
from pipeline.store import Features
from pipeline.tables import OWN


def join(files: Sequence[Path], out: Path) -> list[str]:
    """Write the videos, tables and rows of `files` into `out`; return lines on what it holds.

    The data set's own tables all come from the first file that has captions, else from the first that has clips: they
    refer to each other. Words and weights come from the first that has those of the same captions.

    Raises PresetMismatch for files of different data sets, or streams of different settings.
    """
    check_out(out, files)
    parts = [[read_part(part) for part in part_files(file)] for file in files]
    sets = sorted({str(part.attrs["dataset"]) for some in parts for part in some})
    if len(sets) > 1:
        raise PresetMismatch(f"cannot join files of different data sets: {', '.join(sets)}")
    # What comes first decides the videos' order, which the tables' positions count in.
    order = sorted(range(len(parts)), key=lambda at: _worth(parts[at]), reverse=True)
    joined = [_own_only(part, at == order[0]) for at in order for part in parts[at]]
    with Output(out).owned():
        fold(joined, out, file_attrs(sets[0]))
    return _told(out, files[order[0]])


def _worth(parts: Sequence[Part]) -> tuple[bool, bool]:
    """Return whether there are captions, and clips: what makes a file the one whose tables count."""
    return _holds(parts, "captions/id"), _holds(parts, "clips/id")


def _holds(parts: Sequence[Part], column: str) -> bool:
    for part in parts:
        with h5py.File(part.path, "r") as file:
            if column in file and len(file[column]):
                return True
    return False


def _own_only(part: Part, first: bool) -> Part:
    return part if first else replace(part, tables=tuple(name for name in part.tables if name not in OWN))


def _told(out: Path, tables: Path) -> list[str]:
    with Features.open(out) as features:
        streams = [f"{name} ({int((s.count > 0).sum())} videos)" for name, s in features.streams.items()]
        videos = len(features.videos["id"])
    return [f"{out}: {videos} videos; tables of {tables}; streams: {', '.join(streams) or 'none'}"]
