"""Taking out of a feature file what is damaged, so that a run makes it again: `pipeline repair`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.output import Output
from pipeline.parts import Part, part_files, read_part
from pipeline.shards import damaged, fold

SHARDS = "shard-*.h5"


def repair(path: Path) -> list[str]:
    """Take rows that do not match their checksum out of a feature file, a folder of shards, or a shard.

    Returns a line for each video of a stream that counts as missing from now on. Raises BadFeatureFile where it cannot
    be read what the file holds, or where a run is writing it.
    """
    files = part_files(path)
    with Output(path.parent if path.match(SHARDS) else path).owned():
        return [line for file in files for line in _repair(file)]


def _repair(file: Path) -> Iterator[str]:
    part = read_part(file)
    bad = list(damaged(file))
    if bad:
        fold([_without(part, bad)], file, part.attrs)
    for stream, video in bad:
        yield f"{file}: stream {stream}, video {video}: its rows were damaged; it counts as missing"


def _without(part: Part, bad: Sequence[tuple[str, str]]) -> Part:
    """Return `part` as if it said nothing of these videos in these streams."""
    place = {video: at for at, video in enumerate(part.videos["id"])}
    streams = {name: {**stream, "status": stream["status"].copy()} for name, stream in part.streams.items()}
    for stream, video in bad:
        streams[stream]["status"][place[video]] = 0
    return replace(part, streams=streams)
