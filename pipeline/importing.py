"""`pipeline import`: rows that another system made, into a feature file.

What a row is cannot be seen in it: how many there are in a second, how long each one saw, and whether it was
L2-normalised must be stated where the format does not say it. What was stated is checked as far as numbers can tell.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline import derived, formats
from pipeline.derived import NewStream
from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.foreign import Asked, Rows, read_about
from pipeline.loading import write_lines, write_oddities
from pipeline.matching import Index
from pipeline.output import Output
from pipeline.parts import read_part
from pipeline.progress import Progress
from pipeline.provenance import file_attrs
from pipeline.records import Manifest, Outcome, Video
from pipeline.shards import Extracted
from pipeline.tables import write_tables

log = logging.getLogger(__name__)

NORM_OFF = 0.01
"""By which the length of an L2-normalised row may differ from 1; in float16 it does by 0.001."""
NO_DATASET = "imported"
"""Stands in a file for the data set that was not named."""
STATEMENTS = {
    "rate": "--rate (rows in a second of video)",
    "row_seconds": "--row-seconds (seconds that a row saw)",
    "l2": "--l2 or --no-l2 (whether rows are L2-normalised)",
}


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What the user says of the rows; None: nothing."""

    rate: float | None = None
    row_seconds: float | None = None
    l2: bool | None = None
    model: str = ""
    """What made them: rows of one model are comparable, whatever they were imported from."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is imported, from where and to where."""

    format: str
    source: Path
    out: Path
    stream: str
    stated: Stated
    asked: Asked


@dataclass
class Told:
    """What came of the names in a source."""

    unmatched: list[str] = field(default_factory=list)
    """Names that are no video of the data set."""
    found: dict[str, str] = field(default_factory=dict)
    """Video to the name under which its rows were found."""
    failed: dict[str, str] = field(default_factory=dict)
    """Video to why it has no rows."""


def import_features(request: Request, manifest: Manifest | None) -> tuple[list[str], int]:
    """Write the feature file; return lines on what is in it, and how many videos have no rows.

    `manifest`: of the data set that the rows are of, if one is named. What matched nothing is listed beside the file.

    Raises BadSetting for what must be stated, and BadFeatureFile, naming the video, for rows that cannot be kept: not
    two-dimensional, not finite, of another dim or type than those before.
    """
    out, source = request.out, request.source
    derived.check_out(out, [source])
    about = read_about(source)
    said = formats.says(request.format, source, request.asked)
    stated = complete(request, {**said, **about})
    told = Told()
    named = formats.get(request.format).read(source, request.asked)
    rows = _checked(_matched(named, manifest, told, source), told, source)
    first = next(rows, None)
    if first is None:
        raise BadFeatureFile(_nothing(source, manifest, told))
    streams = _streams(request, stated, about, first[1])
    known = manifest or Manifest(NO_DATASET, tuple(Video(video, None) for video in about.get("videos", ())))
    with tempfile.TemporaryDirectory() as place:
        tables = Path(place) / "tables.h5"
        write_tables(tables, file_attrs(known.dataset), known)
        videos = _extracted(chain([first], rows), streams, stated, (known, told, source))
        derived.write(out, [read_part(tables)], streams, videos)
    return _lists(Output(out), known, told, streams), len(told.failed)


def complete(request: Request, told: Mapping[str, Any]) -> Stated:
    """Return what is stated, with what the format, or the file beside it, tells. Raises BadSetting if that is not all.

    A statement that contradicts what is told is an error too.
    """
    found: dict[str, Any] = {}
    for name, flag in STATEMENTS.items():
        given, known = getattr(request.stated, name), told.get(name)
        if given is not None and known is not None and not math.isclose(given, known, rel_tol=1e-3):
            raise BadSetting(f"{flag} is {given}, but {request.source} says {known}; leave it out")
        found[name] = given if known is None else known
    if missing := [STATEMENTS[name] for name, value in found.items() if value is None]:
        raise BadSetting(f"{request.format} in {request.source} does not say all: give {'; '.join(missing)}")
    for name in ("rate", "row_seconds"):
        if not 0 < found[name] < math.inf:
            raise BadSetting(f"{STATEMENTS[name]} is {found[name]}: expected a number above 0")
    return Stated(**found, model=request.stated.model or str(told.get("model", "")))


def _matched(
    named: Iterator[tuple[str, NDArray[Any]]], manifest: Manifest | None, told: Told, source: Path
) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Yield (video, name, rows) of the names that mean a video. Raises BadFeatureFile for two of one video."""
    index = Index(manifest.videos) if manifest else None
    for name, rows in named:
        video = index.find(name) if index else name
        if video is None:
            told.unmatched.append(name)
            continue
        if video in told.found:
            raise BadFeatureFile(
                f"{source}: {told.found[video]} and {name} are both of video {video}; choose by --files or --key"
            )
        told.found[video] = name
        yield video, name, rows


def _checked(matched: Iterator[tuple[str, str, NDArray[Any]]], told: Told, source: Path) -> Iterator[tuple[str, Rows]]:
    """Yield (video, rows as they are kept). Raises BadFeatureFile with the name."""
    kept: tuple[int, np.dtype[Any]] | None = None
    for video, name, rows in matched:
        if not rows.size:
            told.failed[video] = f"no rows in {name} of {source}"
            continue
        fit = _fit(rows, f"{source}, {name}")
        if kept is None:
            if rows.dtype.itemsize > 4:
                log.warning("%s: rows are %s; they are kept as float32", source, rows.dtype)
            kept = fit.shape[1], fit.dtype
        if (fit.shape[1], fit.dtype) != kept:
            raise BadFeatureFile(
                f"{source}, {name}: {fit.shape[1]} numbers a row in {fit.dtype}, where those before have {kept[0]} in "
                f"{kept[1]}; one stream has rows of one kind"
            )
        yield video, fit


def _fit(rows: NDArray[Any], where: str) -> Rows:
    if rows.ndim != 2:
        raise BadFeatureFile(f"{where}: shape {rows.shape}; expected (rows, dim)")
    if rows.dtype.kind != "f" or rows.dtype.itemsize not in (2, 4, 8):
        raise BadFeatureFile(f"{where}: {rows.dtype}; expected float16, float32 or float64")
    with np.errstate(over="ignore"):  # said in words below
        fit: Rows = np.ascontiguousarray(rows, np.float16 if rows.dtype.itemsize == 2 else np.float32)
    if not np.isfinite(fit).all():
        raise BadFeatureFile(f"{where}: row {int(np.flatnonzero(~np.isfinite(fit).all(1))[0])} is not finite")
    return fit


def _nothing(source: Path, manifest: Manifest | None, told: Told) -> str:
    if manifest is None or not told.unmatched:
        return f"{source} holds no rows"
    ids = ", ".join(video.id for video in manifest.videos[:3])
    return (
        f"none of the {len(told.unmatched):,} names in {source} is a video of {manifest.dataset}: they are like "
        f"{', '.join(told.unmatched[:3])}, its ids like {ids}"
    )


def _streams(request: Request, stated: Stated, about: Mapping[str, Any], rows: Rows) -> list[NewStream]:
    name = request.stream or request.format
    if not name.strip() or set(name) & set("/,") or name == ".":
        raise BadSetting(f"--stream {name}: expected a name without / and commas, such as s3d:univl")
    assert stated.rate is not None
    assert stated.row_seconds is not None
    where = {"format": request.format, "source": str(request.source), "key": request.asked.key}
    origin = {"model": stated.model} if stated.model else where
    settings = {
        "chain": {"fps": stated.rate},
        "frames": round(stated.rate * stated.row_seconds, 9),
        "stride": 1,
        "l2": stated.l2,
        "dtype": rows.dtype.name,
        "weights": {"file": "", "sha256": ""},
    }
    made_by = {"imported": {**where, "model": stated.model}, "of": about.get("settings", {})}
    parts = formats.streams(request.format) or {"": rows.shape[1]}
    return [
        NewStream(
            f"{name}+{part}" if part else name,
            {**settings, "imported": {**origin, "part": part}},
            made_by,
            dim,
            rows.dtype,
        )
        for part, dim in parts.items()
    ]


def _extracted(
    rows: Iterator[tuple[str, Rows]],
    streams: Sequence[NewStream],
    stated: Stated,
    place: tuple[Manifest, Told, Path],
) -> Iterator[Extracted]:
    """Yield what a feature file keeps of each video, at last of those without rows."""
    manifest, told, source = place
    names = tuple(stream.name for stream in streams)
    normalised = dict.fromkeys(names, True)
    with Progress(len(manifest.videos)) as progress:
        for video, values in rows:
            cut = dict(zip(names, _cut(values, [stream.dim for stream in streams]), strict=True))
            for name, part in cut.items():
                normalised[name] &= _check_norms(part, stated.l2, f"{source}, {told.found[video]}")
            progress.add(Outcome(video, "ok"))
            yield Extracted(video, {}, names, cut, "ok")
        for name in (name for name in names if normalised[name] and not stated.l2):
            log.warning("WARNING: all rows of %s have length 1: are they not L2-normalised? --l2 says so", name)
        lacking = (video.id for video in manifest.videos if video.id not in told.found)
        told.failed.update(dict.fromkeys(lacking, f"no features in {source}"))
        for video, reason in told.failed.items():
            progress.add(Outcome(video, "failed", reason))
            yield Extracted(video, {}, names, {}, "failed", reason)


def _cut(rows: Rows, dims: Sequence[int]) -> list[Rows]:
    """Return the streams that stand side by side in rows."""
    return [np.ascontiguousarray(part) for part in np.split(rows, np.cumsum(dims)[:-1], axis=1)]


def _check_norms(rows: Rows, l2: bool | None, where: str) -> bool:
    """Return whether all rows have length 1, or 0. Raises BadFeatureFile where they should and do not."""
    length = np.linalg.norm(rows.astype(np.float32), axis=1)
    off = (np.abs(length - 1) > NORM_OFF) & (length > 0)
    if l2 and off.any():
        row = int(np.flatnonzero(off)[0])
        raise BadFeatureFile(f"{where}: row {row} has length {length[row]:.4g}, so it is not L2-normalised: --no-l2")
    return not off.any()


def _lists(output: Output, manifest: Manifest, told: Told, streams: Sequence[NewStream]) -> list[str]:
    """Write the lists beside the output; return what is said."""
    failures, unmatched = output.beside("failures.jsonl"), output.beside("unmatched.jsonl")
    failed = [Outcome(video, "failed", reason) for video, reason in told.failed.items()]
    write_oddities(output, manifest)
    write_lines(failures, [orjson.dumps(outcome) for outcome in failed])
    reason = f"no video of {manifest.dataset} is called so"
    write_lines(unmatched, [orjson.dumps({"name": name, "reason": reason}) for name in told.unmatched])
    have = sum(video not in told.failed for video in told.found)
    of = f" of {len(manifest.videos):,}" if manifest.dataset != NO_DATASET else ""
    dims = ", ".join(f"{stream.name} ({stream.dim} numbers, {stream.dtype})" for stream in streams)
    lines = [f"{output.path}: {have:,}{of} videos have rows in {dims}"]
    if failed:
        lines.append(f"{len(failed):,} have none: reasons are in {failures}")
    if told.unmatched:
        lines.append(f"{len(told.unmatched):,} names match no video, such as {told.unmatched[0]}: see {unmatched}")
    return lines
