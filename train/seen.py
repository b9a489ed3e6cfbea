"""What a run was trained on, in a few digests: other networks' features are refused, files that change are noticed."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence

from pipeline.errors import BadFeatureFile, PresetMismatch
from pipeline.store import Features

Seen = dict[str, str]
"""Digests by what they are of: `settings STREAM`, `rows STREAM`, `captions`, `idf`, `SPLIT/PART`."""


def seen(features: Features, streams: Sequence[str], parts: Sequence[str]) -> Seen:
    """Return the digests of streams, captions, their weights and parts of splits."""
    found = {f"settings {name}": _settings(features, name) for name in streams}
    for name in streams:
        found[f"rows {name}"] = f"{zlib.crc32(features.stream(name).crc32.tobytes()):08x}"
    found["captions"] = _digest("\0".join(features.table("captions").get("text", ())).encode())
    weights = features.table("idf").get("weight")
    found["idf"] = "" if weights is None else _digest(weights.tobytes())
    for part in parts:
        columns = features.table(f"splits/{part}") if part else {}
        found |= {part: _digest(b"".join(values.tobytes() for values in columns.values()))} if columns else {}
    return found


def _settings(features: Features, stream: str) -> str:
    return _digest(json.dumps(features.stream(stream).settings, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def check_same(before: Seen, features: Features, streams: Sequence[str], parts: Sequence[str]) -> None:
    """Raise BadFeatureFile where the file is not the one that a run began with."""
    now = seen(features, streams, parts)
    changed = [name for name, value in before.items() if now.get(name) != value]
    if changed:
        raise BadFeatureFile(
            f"{features.parts[0].path} has changed since the run began: {', '.join(changed)}; train anew with --force"
        )


def check_streams(before: Seen, features: Features, streams: Sequence[str]) -> None:
    """Raise PresetMismatch where a stream was not made as the one that a checkpoint was trained on."""
    for name in streams:
        if before and _settings(features, name) != before.get(f"settings {name}"):
            raise PresetMismatch(
                f"{features.parts[0].path}: stream {name} was made with other settings or weights than the one that "
                "the checkpoint was trained on; extract it alike (`pipeline show` tells the settings)"
            )
