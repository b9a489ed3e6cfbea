"""Shards of many videos in one array: MMPT (VideoCLIP, VLM) and Norton.

`SPLIT_meta.pkl` is a pickled dict {shard: [VIDEO, …]}; for each shard `SPLIT_SHARD_data.npy` holds the rows of its
videos after one another, and `SPLIT_SHARD_starts.npy` where each begins, and at last where they end. --key SPLIT reads
one split of several; ids must not be in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.foreign import Asked, foreign
from pipeline.restricted import unpickle
from pipeline.sources import check_id

SOURCE = "a folder with SPLIT_meta.pkl, SPLIT_SHARD_data.npy and SPLIT_SHARD_starts.npy; needs --allow-pickle"
META = "_meta.pkl"


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows) of each video, by split and shard. Raises BadSetting without leave, BadFeatureFile."""
    metas = sorted(source.glob(f"{asked.key or '*'}{META}"))
    if not metas:
        raise BadFeatureFile(f"{source}: no {asked.key or 'SPLIT'}{META}; expected {SOURCE}")
    if not asked.allow_pickle:
        raise BadSetting(f"{metas[0]} is a pickle; --allow-pickle reads it, of dicts, lists, texts and numbers only")
    for meta in metas:
        with foreign(meta, "a pickle of lists"):
            shards = unpickle(meta)
        if not isinstance(shards, dict) or not all(isinstance(ids, (list, tuple)) for ids in shards.values()):
            raise BadFeatureFile(f"{meta}: expected a dict {{shard: [video, …]}}")
        for shard, ids in shards.items():
            yield from _shard(source, f"{meta.name.removesuffix(META)}_{shard}", ids)


def _shard(source: Path, name: str, ids: Sequence[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    path = source / f"{name}_data.npy"
    with foreign(path, "rows of a shard"):
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    with foreign(path.with_name(f"{name}_starts.npy"), "starts of a shard"):
        starts = np.load(path.with_name(f"{name}_starts.npy"), allow_pickle=False)
    whole = starts.shape == (len(ids) + 1,) and starts[0] == 0 and starts[-1] == len(data)
    if not whole or (np.diff(starts) < 0).any():
        raise BadFeatureFile(
            f"{path}: {len(data)} rows of {len(ids)} videos do not fit {name}_starts.npy; download both again"
        )
    for video, start, end in zip(ids, starts[:-1], starts[1:], strict=True):
        yield check_id(str(video), str(path)), np.array(data[start:end])


def fits(source: Path) -> bool:
    """Return whether it is a folder with a meta file of shards."""
    return source.is_dir() and any(source.glob(f"*{META}"))
