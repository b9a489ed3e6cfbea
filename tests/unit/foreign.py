"""Features in the layouts of other systems, written from the description of each: `WRITERS[name](place, videos)`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.store import Features

Videos = Mapping[str, NDArray[Any]]
PICKLES = ("univl_pickle", "mmpt")
STATED = ("--rate", "1", "--row-seconds", "1", "--no-l2")
DIM = 8


def videos(dtype: str = "float16", dim: int = DIM) -> dict[str, NDArray[Any]]:
    """Three videos of three, one and five rows, whose names are in natural order."""
    rng = np.random.default_rng(5)
    counts = {"v_2-a": 3, "v_10_b": 1, "x.y z": 5}
    return {name: rng.standard_normal((count, dim)).astype(dtype) for name, count in counts.items()}


def npy(place: Path, some: Videos) -> Path:
    for name, rows in some.items():
        np.save(place / f"{name}.npy", rows)
    return place


def npz(place: Path, some: Videos) -> Path:
    for name, rows in some.items():
        np.savez(place / f"{name}.npz", features=rows, other=np.zeros(3))
    return place


def hdf5(place: Path, some: Videos) -> Path:
    with h5py.File(place / "flat.hdf5", "w") as file:
        for name, rows in some.items():
            file[name] = rows
    return place / "flat.hdf5"


def hdf5_grouped(place: Path, some: Videos) -> Path:
    with h5py.File(place / "grouped.h5", "w") as file:
        for name, rows in some.items():
            file[f"{name}/c3d_features"] = rows
    return place / "grouped.h5"


def univl_pickle(place: Path, some: Videos) -> Path:
    (place / "features.pickle").write_bytes(pickle.dumps(dict(some)))
    return place / "features.pickle"


def mmt(place: Path, some: Videos) -> Path:
    for name, rows in some.items():
        path = place.joinpath(*name[:3], f"{name}.h5")
        path.parent.mkdir(parents=True)
        begins = np.arange(len(rows), dtype=np.float32)
        with h5py.File(path, "w") as file:
            file["features.rgb"] = rows
            file["features_t.rgb"] = np.stack([begins, begins + 1], axis=1)
            file["raw_captions.0"] = np.array([b"a", b"caption"])
    return place


def mmpt(place: Path, some: Videos) -> Path:
    names = list(some)
    shards = {0: names[:2], 1: names[2:]}
    (place / "train_meta.pkl").write_bytes(pickle.dumps(shards))
    for shard, ids in shards.items():
        np.save(place / f"train_{shard}_data.npy", np.concatenate([some[name] for name in ids]))
        np.save(place / f"train_{shard}_starts.npy", np.cumsum([0, *(len(some[name]) for name in ids)]))
    return place


def bigfile(place: Path, some: Videos) -> Path:
    """Frames stand in another order than their videos'; names have no blanks."""
    rows = {f"{name.replace(' ', '')}_{k}": row for name, found in some.items() for k, row in enumerate(found)}
    names = sorted(rows, reverse=True)
    frames = {name: [f"{name.replace(' ', '')}_{k}" for k in range(len(found))] for name, found in some.items()}
    np.stack([rows[name] for name in names]).astype("<f4").tofile(place / "feature.bin")
    (place / "id.txt").write_text(" ".join(names))
    (place / "shape.txt").write_text(f"{len(names)} {len(rows[names[0]])}")
    (place / "video2frames.txt").write_text(str(frames))
    return place


WRITERS: dict[str, Callable[[Path, Videos], Path]] = {
    "npy": npy,
    "npz": npz,
    "hdf5": hdf5,
    "hdf5_grouped": hdf5_grouped,
    "univl_pickle": univl_pickle,
    "mmt": mmt,
    "mmpt": mmpt,
    "bigfile": bigfile,
    "crosstask": npy,
}
DIMS = {"crosstask": 3200}
DTYPES = {"bigfile": "float32"}


def made(name: str, place: Path) -> tuple[Path, dict[str, NDArray[Any]]]:
    """Write the three videos in the layout called `name`; return the source and the rows."""
    some = videos(DTYPES.get(name, "float16"), DIMS.get(name, DIM))
    (place / "source").mkdir()
    return WRITERS[name](place / "source", some), some


def imported(out: Path, stream: str) -> dict[str, Any]:
    with Features.open(out) as features:
        return {name: found.copy() for name, found in features.all_rows(stream)}


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert sorted(found) == sorted(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name].view(np.uint8), values.view(np.uint8), err_msg=name)
