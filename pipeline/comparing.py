"""`pipeline compare`: rows beside someone else's rows of the same videos, and what their difference looks like.

A side is a feature file, or whatever `pipeline import` reads. The k-th row of one side is compared with the k-th row of
the other, of videos that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.table import Table

from pipeline import diagnosing, formats, lags
from pipeline.errors import BadFeatureFile, BadSetting, UnknownName
from pipeline.foreign import Asked, Rows, read_about
from pipeline.lags import Array
from pipeline.matching import Index
from pipeline.records import Video
from pipeline.store import Features

LOOKED_AT = 4096
"""Rows of both sides that the diagnosis looks at: those of the first videos. Every row is measured."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    rate: float | None
    """Rows in a second, if that is known."""
    each: Callable[[], Iterator[tuple[str, Rows]]]
    ids: Sequence[str] = ()
    """Of a feature file, whose rows can be had one by one; of others nothing is known before they are read."""
    get: Callable[[str], Rows] | None = None


@dataclass(frozen=True)
class Difference:
    """How far the rows of one video are apart."""

    video: str
    rows_a: int
    rows_b: int
    error: float | None = None
    """|a - b| / |a - mean over rows of a|; None for less than two rows, other dims and other rates."""
    cosine: float | None = None
    """Mean over rows of the cosine of a and b."""
    centred_cosine: float | None = None
    """Cosine of both sides' rows less their means: it sees what cosines near 1 hide."""


def compare(a: Path, b: Path, streams: Sequence[str] = (), allow_pickle: bool = False) -> dict[str, Any]:
    """Return the differences of all videos, their sum, and what they look like.

    `streams`: of A and of B, or one for both; of a source that is no feature file, what --key is to `pipeline import`.
    Raises UnknownName, BadSetting and BadFeatureFile.
    """
    wanted = _wanted(a, b, streams)
    with ExitStack() as stack:
        one, two = (_open(path, name, allow_pickle, stack) for path, name in zip((a, b), wanted, strict=True))
        lacking: Counter[str] = Counter()
        differences, sample, seen = [], list[tuple[Array, Array]](), 0
        for video, ours, theirs in _joined(one, two, lacking):
            pair = _pair(ours, theirs, video)
            differences.append(_difference(video, (len(ours), len(theirs)), pair))
            if seen < LOOKED_AT:
                sample.append(pair)
                seen += len(pair[0])
    if not differences:
        raise BadFeatureFile(f"{one.name} and {two.name} have no video in common, by their names")
    counts = [(d.rows_a, d.rows_b) for d in differences]
    findings = diagnosing.diagnose(sample, counts, one.rate or two.rate)
    if not diagnosing.of_counts(counts)[1]:
        differences = [Difference(d.video, d.rows_a, d.rows_b) for d in differences]
    return {
        "a": one.name,
        "b": two.name,
        "videos": len(differences),
        "only_a": lacking["a"],
        "only_b": lacking["b"],
        "looked_at": {"videos": len(sample), "rows": seen},
        **_median(differences),
        "findings": [asdict(finding) for finding in findings],
        "differences": [asdict(difference) for difference in differences],
    }


def _wanted(a: Path, b: Path, streams: Sequence[str]) -> tuple[str, str]:
    """Return the stream of each side: one name is meant for feature files, where there are any."""
    if len(streams) > 2:
        raise BadSetting(f"--stream {','.join(streams)}: expected one name, or one for each side")
    if len(streams) == 2:
        return streams[0], streams[1]
    name = streams[0] if streams else ""
    ours = [_is_ours(path) for path in (a, b)]
    return (name if ours[0] or not any(ours) else ""), (name if ours[1] or not any(ours) else "")


def _is_ours(path: Path) -> bool:
    """Return whether it is a feature file or a folder of shards."""
    if path.is_dir():
        return any(path.glob("manifest*.jsonl")) or (path / "tables.h5").exists()
    if not path.exists():
        raise BadFeatureFile(f"{path} does not exist; expected a feature file, or what `pipeline import` reads")
    if not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as file:
        return "streams" in file and "format" in file.attrs


def _open(path: Path, name: str, allow_pickle: bool, stack: ExitStack) -> Side:
    if _is_ours(path):
        return _of_features(path, name, stack.enter_context(Features.open(path)))
    format_ = formats.recognised(path)
    if not format_:
        raise BadFeatureFile(f"{path} looks like no known format; `pipeline import` it, and compare what that writes")
    asked = Asked(key=name, allow_pickle=allow_pickle)
    rate = read_about(path).get("rate")
    return Side(f"{path} ({format_})", rate, lambda: formats.get(format_).read(path, asked))


def _of_features(path: Path, name: str, features: Features) -> Side:
    if not name and len(features.streams) != 1:
        raise UnknownName(f"{path} holds the streams {', '.join(features.streams) or 'none'}; choose one by --stream")
    stream = features.stream(name or next(iter(features.streams)))
    return Side(
        name=f"{path} ({stream.name})",
        rate=stream.rows_per_second,
        each=lambda: features.all_rows(stream.name),
        ids=[str(features.videos["id"][at]) for at in np.flatnonzero(stream.count)],
        get=lambda video: features.rows(stream.name, video),
    )


def _joined(a: Side, b: Side, lacking: Counter[str]) -> Iterator[tuple[str, Rows, Rows]]:
    """Yield (video, rows of A, rows of B); count in `lacking` the videos that only one side has.

    The rows of one side are looked up while the other is read. Of two that are no feature files A is held in memory.
    """
    swapped = a.get is None and b.get is not None
    kept, read = (b, a) if swapped else (a, b)
    held = dict(kept.each()) if kept.get is None else {}
    ids, get = kept.ids or list(held), kept.get or held.__getitem__
    index, matched = Index(Video(video, None) for video in ids), set[str]()
    for name, rows in read.each():
        video = index.find(name)
        if video is None or video in matched:
            lacking["a" if swapped else "b"] += 1
            continue
        matched.add(video)
        yield (video, rows, get(video)) if swapped else (video, get(video), rows)
    lacking["b" if swapped else "a"] += len(ids) - len(matched)


def _pair(ours: Rows, theirs: Rows, video: str) -> tuple[Array, Array]:
    """Return the rows that both sides have. Raises BadFeatureFile for what cannot be compared at all."""
    for side, rows in (("A", ours), ("B", theirs)):
        if rows.ndim != 2 or rows.dtype.kind != "f":
            raise BadFeatureFile(f"{video} of {side}: {rows.dtype} of shape {rows.shape}; expected floats (rows, dim)")
        if not np.isfinite(rows).all():
            raise BadFeatureFile(f"{video} of {side}: rows that are not finite")
    both = min(len(ours), len(theirs))
    return ours[:both].astype(np.float64), theirs[:both].astype(np.float64)


def _difference(video: str, rows: tuple[int, int], pair: tuple[Array, Array]) -> Difference:
    a, b = pair
    if a.shape != b.shape or not len(a):
        return Difference(video, *rows)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosine = float(np.mean(np.sum(a * b, axis=1) / np.maximum(lengths, 1e-300)))
    if len(a) < 2:
        return Difference(video, *rows, cosine=cosine)
    error = diagnosing.centred_error([pair])
    centred = lags.cosine(a - a.mean(0), b - b.mean(0))
    return Difference(video, *rows, error if np.isfinite(error) else None, cosine, centred)


def _median(differences: Sequence[Difference]) -> dict[str, float | None]:
    """Return the median over videos of each measure, of those that have it."""
    found: dict[str, float | None] = {}
    for name in ("error", "cosine", "centred_cosine"):
        values = [value for one in differences if (value := getattr(one, name)) is not None]
        found[name] = float(np.median(values)) if values else None
    return found


def lines(found: dict[str, Any], most: int) -> list[Any]:
    """Return what is printed of a comparison: its sum, what it looks like, and the `most` worst videos."""
    head = (
        f"A {found['a']}\nB {found['b']}\n{found['videos']:,} videos in both, {found['only_a']:,} in A only, "
        f"{found['only_b']:,} in B only; medians over videos: centred relative error {_number(found['error'])}, "
        f"cosine {_number(found['cosine'])}, centred cosine {_number(found['centred_cosine'])}"
    )
    looked = found["looked_at"]
    seen = f"what it looks like, by {looked['rows']:,} rows of {looked['videos']:,} videos:"
    table = Table(title="the worst videos", title_justify="left")
    for column in ("video", "rows of A", "rows of B", "error", "cosine", "centred cosine"):
        table.add_column(column, justify="left" if column == "video" else "right", overflow="fold")
    for one in sorted(found["differences"], key=_badness, reverse=True)[:most]:
        numbers = (_number(one[name]) for name in ("error", "cosine", "centred_cosine"))
        table.add_row(one["video"], f"{one['rows_a']:,}", f"{one['rows_b']:,}", *numbers)
    findings = [f"* {finding['sure']}: {finding['text']}" for finding in found["findings"]]
    return [head, seen, *(findings or ["* nothing"]), *([table] if most else [])]


def _badness(one: dict[str, Any]) -> tuple[float, int]:
    error = one["error"] if one["error"] is not None else 1 - (one["cosine"] if one["cosine"] is not None else -9.0)
    return error, abs(one["rows_a"] - one["rows_b"])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
