"""Features of other systems: each format read from its own layout, written as others read it, and read again."""

from __future__ import annotations

import json
import pickle
import pickletools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from pipeline import formats
from pipeline.cli_formats import import_
from pipeline.report import show, verify
from pipeline.store import Features
from tests.unit import foreign
from tests.unit.features import head, rows, shard, video
from tests.unit.foreign import PICKLES, STATED, assert_same, imported
from tests.whole.command import error, inside

each = pytest.mark.parametrize("name", formats.names())
written = pytest.mark.parametrize("name", formats.written())


def words(name: str) -> tuple[str, ...]:
    """What must be said of a source in the layout called `name`."""
    said = STATED[-1:] if name == "mmt" else STATED
    return (*said, "--allow-pickle") if name in PICKLES else said


def test_each_format_is_in_these_tests() -> None:
    assert sorted(foreign.WRITERS) == formats.names()
    assert all(name in str(import_.__doc__) for name in formats.names())
    assert formats.written() == ["hdf5", "hdf5_grouped", "npy", "npz", "univl_pickle"]


@each
def test_says_what_it_is(name: str) -> None:
    module = formats.get(name)
    assert module.__doc__
    assert module.SOURCE
    assert "\n" not in module.SOURCE


@each
def test_rows_come_as_they_are(name: str, tmp_path: Path) -> None:
    source, wanted = foreign.made(name, tmp_path)
    out = tmp_path / "f.h5"
    inside("import", name, source, "--out", out, *words(name))
    parts = formats.streams(name) or {"": foreign.DIM}
    begin = 0
    for part, dim in parts.items():
        stream = f"{name}+{part}" if part else name
        assert_same(imported(out, stream), {video: r[:, begin : begin + dim].copy() for video, r in wanted.items()})
        begin += dim
    assert verify(out) == []
    told = show(out)
    assert told["videos"] == {"total": 3, "ok": 3, "partial": 0, "failed": 0, "missing": 0}
    assert [stream["rows_per_second"] for stream in told["streams"]] == [1.0] * len(parts)
    assert f"imported ({name}), raw" in inside("show", out)[0]


@each
def test_a_source_is_recognised(name: str, tmp_path: Path) -> None:
    source, _ = foreign.made(name, tmp_path)
    assert [other for other in formats.names() if formats.get(other).fits(source)] == [
        "npy" if name == "crosstask" else name
    ]


@each
def test_a_source_that_is_not_there(name: str, tmp_path: Path) -> None:
    said = error("import", name, tmp_path / "none", "--out", tmp_path / "f.h5", *words(name))
    assert "none" in said
    assert not formats.get(name).fits(tmp_path / "none")


@each
def test_damage_is_one_line(name: str, tmp_path: Path) -> None:
    """Every file of a source cut to half its bytes, one after the other."""
    source, _ = foreign.made(name, tmp_path)
    files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        error("import", name, source, "--out", tmp_path / "f.h5", *words(name))
        file.write_bytes(whole)
    assert [file.name for file in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@written
def test_what_is_exported_comes_back_the_same(name: str, dtype: str, tmp_path: Path) -> None:
    ids = ["v_x.mp4", "video10", "video9", "a folder/ü [1]", "-x", "1e5"]
    held = {one: rows(n + 1, seed=n, dtype=dtype) for n, one in enumerate(ids)}
    videos = [video(one, streams=("a:x",)) for one in held]
    for made in videos:
        made.rows["a:x"] = held[made.video]  # type: ignore[index]
    gone = video("gone", status="failed")
    shard(tmp_path / "f.h5", *videos, gone, **{"a:x": head(dtype=dtype, fps=24.0, frames=16)})
    inside("export", name, tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e")
    more = ["--allow-pickle"] if name in PICKLES else []
    inside("import", name, tmp_path / "e", "--out", tmp_path / "g.h5", *more)
    with Features.open(tmp_path / "g.h5") as features:
        assert list(features.videos["id"]) == ids
        assert features.stream(name).rows_per_second == 1.5
    assert_same(imported(tmp_path / "g.h5", name), held)
    with h5py.File(tmp_path / "g.h5") as file:
        attrs = dict(file[f"streams/{name}"].attrs)
    assert attrs["row_seconds"] == pytest.approx(16 / 24)
    assert not attrs["l2"]
    assert json.loads(attrs["settings"])["imported"]["model"] == "a:x"
    about = tmp_path / ("e/about.json" if (tmp_path / "e").is_dir() else "e.about.json")
    assert json.loads(about.read_text())["without_rows"] == {"gone": "gone was failed"}


@written
def test_normalised_rows(name: str, tmp_path: Path) -> None:
    shard(tmp_path / "f.h5", video("a", 4), video("b", 2, seed=3))
    inside("export", name, tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e", "--l2")
    inside("import", name, tmp_path / "e", "--out", tmp_path / "g.h5", "--allow-pickle")
    raw, found = imported(tmp_path / "f.h5", "a:x"), imported(tmp_path / "g.h5", name)
    for one in ("a", "b"):
        wide = raw[one].astype(np.float64)
        np.testing.assert_allclose(found[one], wide / np.linalg.norm(wide, axis=1, keepdims=True), rtol=1e-3, atol=1e-6)
    with h5py.File(tmp_path / "g.h5") as file:
        assert file[f"streams/{name}"].attrs["l2"]
    assert "L2-normalised" in inside("show", tmp_path / "g.h5")[0]


def exported(name: str, place: Path) -> tuple[Path, dict[str, Any]]:
    shard(place / "f.h5", video("s17-d69.avi", 40, seed=1), video("v_q", 7, seed=2))
    inside("export", name, place / "f.h5", "--stream", "a:x", "--out", place / "out.h5")
    return place / "out.h5", imported(place / "f.h5", "a:x")


def test_as_2d_tan_reads_a_flat_file(tmp_path: Path) -> None:
    path, wanted = exported("hdf5", tmp_path)
    with h5py.File(path, "r") as hdf5_file:
        features = torch.from_numpy(hdf5_file["s17-d69.avi"][:]).float()
    vis_mask = torch.ones((features.shape[0], 1))
    pooled = torch.nn.functional.avg_pool1d(features.t()[None], 4, 4)
    assert vis_mask.shape == (40, 1)
    expected = wanted["s17-d69.avi"].astype(np.float32).reshape(10, 4, -1).mean(1)
    np.testing.assert_allclose(pooled[0].t().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_as_2d_tan_reads_a_grouped_file(tmp_path: Path) -> None:
    path, wanted = exported("hdf5_grouped", tmp_path)
    with h5py.File(path, "r") as hdf5_file:
        features = torch.from_numpy(hdf5_file["v_q"]["c3d_features"][:])
    np.testing.assert_array_equal(features.numpy(), wanted["v_q"])


def test_as_univl_reads_a_pickle(tmp_path: Path) -> None:
    path, wanted = exported("univl_pickle", tmp_path)
    with path.open("rb") as file:
        feature_dict = pickle.load(file)
    video_features = feature_dict["s17-d69.avi"]
    padded = np.zeros((2, 5, video_features.shape[-1]), dtype=np.float32)
    for i, (start, end) in enumerate([(3, 7), (38, 40)]):
        video_slice = video_features[start : end + 1]
        padded[i, : video_slice.shape[0]] = video_slice
    assert list(feature_dict) == ["s17-d69.avi", "v_q"]
    np.testing.assert_array_equal(padded[0], wanted["s17-d69.avi"][3:8])
    assert not padded[1, 2:].any()
    video_features[0] = 0  # of its own


def test_a_pickle_for_any_numpy(tmp_path: Path) -> None:
    """Names that numpy had before 2 and Python 3.4 had too."""
    path, _ = exported("univl_pickle", tmp_path)
    asked, strings = set(), list[str]()
    for op, argument, _ in pickletools.genops(path.read_bytes()):
        assert op.proto <= 4
        if op.name == "GLOBAL":
            asked.add(argument)
        elif op.name == "STACK_GLOBAL":
            asked.add(" ".join(strings[-2:]))
        elif "UNICODE" in op.name:
            strings.append(str(argument))
    assert asked <= {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"}
    assert "numpy.core.multiarray _reconstruct" in asked


def test_as_lighthouse_reads_a_folder(tmp_path: Path) -> None:
    path, wanted = exported("npz", tmp_path)
    with np.load(path / "v_q.npz") as found:
        np.testing.assert_array_equal(found["features"], wanted["v_q"])
