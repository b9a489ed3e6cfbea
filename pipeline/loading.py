"""Loading a data set as a command does: what it holds is logged, what was repaired is listed beside the output."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from pipeline import counts, datasets, oddities
from pipeline.output import Output
from pipeline.publish import publish
from pipeline.records import Manifest

log = logging.getLogger(__name__)


def default_root(dataset: str) -> str:
    """Return `$DATA_ROOT/DATASET`, by default `data/DATASET`."""
    return str(Path(os.environ.get("DATA_ROOT") or "data") / dataset)


def load(
    dataset: str, root: str, videos: Path | None = None, dedup: bool = False, allow_pickle: bool = False
) -> Manifest:
    """Load a data set and log what was found in it, and where it is not what its authors say."""
    manifest = datasets.load(dataset, Path(root or default_root(dataset)), videos, allow_pickle)
    if dedup:
        manifest = oddities.without_repeats(manifest)
    for line in [*manifest.notes, *oddities.lines(manifest.oddities)]:
        log.info("%s: %s", dataset, line)
    for line in [] if dedup else counts.differences(counts.counts(manifest), datasets.expected(dataset)):
        log.warning("%s: not the whole data set: %s", dataset, line)
    return manifest


def write_oddities(output: Output, manifest: Manifest) -> None:
    """List every record that a repair rule touched, one line each, beside the output."""
    lines = [
        orjson.dumps({"oddity": o.kind, "rule": o.rule, "record": record})
        for o in manifest.oddities
        for record in o.records
    ]
    write_lines(output.beside("oddities.jsonl"), lines)


def write_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Write a list beside the output; no file where there is nothing to list."""
    if not lines:
        path.unlink(missing_ok=True)
        return
    with publish(path) as temporary:
        temporary.write_bytes(b"\n".join(lines) + b"\n")
