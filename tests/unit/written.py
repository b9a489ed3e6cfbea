"""What tests of data sets write, and how they read what was found odd."""

from pathlib import Path
from typing import Any

import orjson

from pipeline.records import Manifest


def write(folder: Path, **files: Any) -> Path:
    """Write each value as JSON, or text or bytes as they are, under its name: `__` stands for `.`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else orjson.dumps(value)
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def records(manifest: Manifest) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the records that were touched, by the kind of oddity and the rule."""
    return {(oddity.kind, oddity.rule): oddity.records for oddity in manifest.oddities}
