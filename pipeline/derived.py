"""Feature files that are made of others: the same videos and tables, with a stream that no decoder gave.

    stream = NewStream("locvtp:run", settings, provenance, 512, np.dtype("float16"))
    of_features(features, out, stream, ["timm:vit"], rows)              # rows: (place of a video, its rows) one by one

`train` writes exported features so, and `workflows` planted ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pipeline.errors import BadSetting
from pipeline.layout import StreamHead, new_head, worst
from pipeline.output import FILES, Output
from pipeline.parts import VIDEO_COLUMNS, Part, read_part
from pipeline.provenance import file_attrs
from pipeline.publish import temporary_name
from pipeline.shards import Extracted, Rows, fold, write_shard
from pipeline.store import STATUS, Features
from pipeline.tables import Writer

SHARD = 1 << 27
"""Bytes that are held in memory before they are written."""
COLUMNS = 1 << 12
"""Bytes that a video takes besides its rows, roughly."""


@dataclass(frozen=True)
class NewStream:
    """What a stream is, before there are rows."""

    name: str
    settings: Mapping[str, Any]
    """Whatever its rows depend on; `chain.fps` / `frames` are the rows in a second."""
    provenance: Mapping[str, Any]
    dim: int
    dtype: np.dtype[Any]

    def head(self) -> StreamHead:
        """Return what a shard says of it."""
        return new_head(self.settings, self.provenance, self.dim, self.dtype)


def without_rows(part: Part) -> Part:
    """Return a part with its videos and tables alone."""
    return replace(part, streams={})


def check_out(out: Path, sources: Sequence[Path] = ()) -> None:
    """Raise BadSetting where no new feature file can be written to `out`."""
    if out.suffix not in FILES:
        raise BadSetting(f"--out {out}: expected a name in {' or '.join(sorted(FILES))}")
    if out.resolve() in {path.resolve() for path in sources}:
        raise BadSetting(f"--out {out} is a file that is read; use another")
    if out.exists():
        raise BadSetting(f"--out {out} is there already; move it away, or choose another")


def write(
    out: Path,
    beside: Sequence[Part],
    streams: Sequence[NewStream],
    videos: Iterable[Extracted],
    made: Mapping[str, Writer] = MappingProxyType({}),
) -> None:
    """Write a feature file: what the parts `beside` hold, the tables `made`, and the new streams of `videos`.

    It appears whole or not at all; rows are written in shards of 128 MB beside it, so that memory does not grow.
    """
    attrs = {**beside[0].attrs, **file_attrs(str(beside[0].attrs["dataset"]))}
    with Output(out).owned(), _folder(out.with_name(temporary_name(out.with_suffix(".shards")))) as place:
        parts = list(beside)
        for number, some in enumerate(_shards(videos)):
            path = place / f"shard-{number}.h5"
            write_shard(path, attrs, {stream.name: stream.head() for stream in streams}, some)
            parts.append(read_part(path))
        fold(parts, out, attrs, made)


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _shards(videos: Iterable[Extracted]) -> Iterator[list[Extracted]]:
    some: list[Extracted] = []
    size = 0
    for video in videos:
        some.append(video)
        size += COLUMNS + sum(rows.nbytes for rows in video.rows.values())
        if size >= SHARD:
            yield some
            some, size = [], 0
    if some:
        yield some


def of_features(
    features: Features, out: Path, stream: NewStream, sources: Sequence[str], rows: Iterable[tuple[int, Rows]]
) -> None:
    """Write a feature file with the tables of `features` and a new stream that was made of its streams `sources`.

    `rows`: places of videos and their rows. What became of a video in the sources is told of it in the new stream too;
    nothing, if it has no rows because one of the sources never had it.
    """
    parts = [without_rows(read_part(part.path)) for part in features.parts]
    write(out, parts, [stream], _videos(features, stream.name, sources, rows))


def _videos(
    features: Features, name: str, sources: Sequence[str], rows: Iterable[tuple[int, Rows]]
) -> Iterator[Extracted]:
    heads = {source: features.stream(source) for source in sources}
    status, reason = worst(heads, len(features.videos["id"]))
    never = np.any([head.status == STATUS.index("missing") for head in heads.values()], axis=0)
    untold = never & (status != STATUS.index("failed"))
    with_rows = set[int]()

    def one(place: int, found: dict[str, Rows]) -> Extracted:
        columns = {column: values[place] for column, values in features.videos.items() if column in VIDEO_COLUMNS}
        said: Any = STATUS[status[place]]
        return Extracted(str(features.videos["id"][place]), columns, (name,), found, said, str(reason[place]))

    for place, values in rows:
        with_rows.add(place)
        yield one(place, {name: np.ascontiguousarray(values)})
    for place in np.flatnonzero((status > 0) & ~untold).tolist():
        if place not in with_rows:
            yield one(place, {})
