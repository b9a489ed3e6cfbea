"""Small feature files for tests: streams and videos with known rows."""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.layout import StreamHead
from pipeline.records import Status
from pipeline.shards import Extracted, write_shard
from pipeline.store import STATUS

ATTRS = {"dataset": "test", "created_by": "{}"}


def head(dim: int = 4, fps: float = 1.0, frames: int = 1, dtype: str = "float16") -> StreamHead:
    return StreamHead(
        settings={"chain": {"fps": fps}, "frames": frames, "weights": {"file": "w", "sha256": "0" * 64}},
        provenance={"torch": "test"},
        dim=dim,
        dtype=np.dtype(dtype),
        count=np.zeros(0, np.int64),
        status=np.zeros(0, np.uint8),
        crc32=np.zeros(0, np.uint32),
        reason=np.zeros(0, object),
    )


def rows(count: int, dim: int = 4, seed: int = 0, dtype: str = "float16") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(dtype)


def video(
    name: str, count: int = 3, status: Status = "ok", streams: tuple[str, ...] = ("a:x",), seed: int = 0, **columns: Any
) -> Extracted:
    assert status in STATUS
    held = {} if status == "failed" else {s: rows(count, seed=seed + i) for i, s in enumerate(streams)}
    known = {"source_size": 1, "source_mtime": 1, "decoded": float(count), **columns}
    return Extracted(name, known, streams, held, status, "" if status == "ok" else f"{name} was {status}")


def shard(path: Path, *videos: Extracted, **heads: StreamHead) -> Path:
    names = {name for v in videos for name in v.wanted}
    write_shard(path, ATTRS, {name: heads.get(name, head()) for name in names}, videos)
    return path
