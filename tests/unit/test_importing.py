"""What is asked and refused when features of other systems are imported, and how they are matched with a data set."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pipeline import datasets, formats
from pipeline.errors import BadFeatureFile
from pipeline.foreign import Asked
from pipeline.matching import Index, forms
from pipeline.records import Video
from pipeline.report import verify
from pipeline.store import STATUS, Features
from tests.contract import makers
from tests.unit import foreign
from tests.unit.features import rows, shard, video
from tests.unit.foreign import PICKLES, STATED, assert_same, imported
from tests.whole.command import error, inside


@pytest.mark.parametrize("lacking", ["--rate", "--row-seconds", "--no-l2"])
def test_what_is_not_stated_is_named(lacking: str, tmp_path: Path) -> None:
    source, _ = foreign.made("npy", tmp_path)
    pairs = {"--rate": "1", "--row-seconds": "1"}
    given = [word for flag, value in pairs.items() if flag != lacking for word in (flag, value)]
    said = error("import", "npy", source, "--out", tmp_path / "f.h5", *given, *(["--no-l2"] * (lacking != "--no-l2")))
    assert lacking in said
    assert all(flag not in said for flag in {*pairs, "--no-l2"} - {lacking})
    assert not (tmp_path / "f.h5").exists()


def test_a_statement_against_what_is_told(tmp_path: Path) -> None:
    shard(tmp_path / "f.h5", video("a", 4))
    inside("export", "npy", tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e")
    said = error("import", "npy", tmp_path / "e", "--out", tmp_path / "g.h5", "--rate", "2")
    assert "--rate" in said
    assert "1.0" in said
    inside("import", "npy", tmp_path / "e", "--out", tmp_path / "g.h5", "--rate", "1")


@pytest.mark.parametrize(("flag", "value"), [("--rate", "0"), ("--row-seconds", "-1"), ("--rate", "nan")])
def test_a_statement_that_cannot_be(flag: str, value: str, tmp_path: Path) -> None:
    source, _ = foreign.made("npy", tmp_path)
    given = {"--rate": "1", "--row-seconds": "1"} | {flag: value}
    flags = [word for pair in given.items() for word in pair]
    assert flag in error("import", "npy", source, "--out", tmp_path / "f.h5", *flags, "--no-l2")


def test_windows_that_overlap(tmp_path: Path) -> None:
    """C3D as 2D-TAN has it: 16 frames, 8 apart, at 30 a second."""
    source, wanted = foreign.made("hdf5_grouped", tmp_path)
    out = tmp_path / "f.h5"
    inside("import", "hdf5_grouped", source, "--out", out, "--rate", "3.75", "--row-seconds", "0.5333333", "--no-l2")
    with h5py.File(out) as file:
        attrs = file["streams/hdf5_grouped"].attrs
        assert attrs["rows_per_second"] == 3.75
        assert attrs["row_seconds"] == pytest.approx(0.5333333)
    with Features.open(out) as features:
        np.testing.assert_array_equal(features.rows("hdf5_grouped", "x.y z", 0.3, 0.6), wanted["x.y z"][1:3])


def test_normalised_or_not_is_checked(tmp_path: Path) -> None:
    source, _ = foreign.made("npy", tmp_path)
    said = error("import", "npy", source, "--out", tmp_path / "f.h5", *STATED[:4], "--l2")
    assert "v_2-a" in said
    assert "--no-l2" in said
    for file in source.iterdir():
        found = np.load(file).astype(np.float32)
        np.save(file, (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16))
    assert "length 1" in inside("import", "npy", source, "--out", tmp_path / "f.h5", *STATED)[1]
    inside("import", "npy", source, "--out", tmp_path / "g.h5", *STATED[:4], "--l2")


BAD: dict[str, tuple[Any, str]] = {
    "not finite": (np.array([[0, 1], [np.inf, 2]], np.float16), "row 1 is not finite"),
    "beyond float32": (np.full((2, 2), 1e300), "row 0 is not finite"),
    "one vector": (np.zeros(2, np.float16), "(2,)"),
    "three axes": (np.zeros((1, 2, 2), np.float16), "(1, 2, 2)"),
    "whole numbers": (np.zeros((3, 2), np.int64), "int64"),
    "another dim": (np.zeros((3, 3), np.float16), "3 numbers a row"),
    "another type": (np.zeros((3, 2), np.float32), "float32"),
}


@pytest.mark.parametrize("bad", BAD)
def test_rows_that_cannot_be_kept(bad: str, tmp_path: Path) -> None:
    values, why = BAD[bad]
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s/a.npy", np.ones((2, 2), np.float16))
    np.save(tmp_path / "s/b.npy", values)
    np.save(tmp_path / "s/c.npy", np.ones((2, 2), np.float16))
    said = error("import", "npy", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED)
    assert ", b: " in said
    assert why in said
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_wider_numbers_are_cut_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    wide = np.random.default_rng(0).standard_normal((4, 3))
    np.save(tmp_path / "s/a.npy", wide)
    np.save(tmp_path / "s/b.npy", wide.astype(">f4"))
    _, said = inside("import", "npy", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED)
    assert "float64" in said
    assert_same(imported(tmp_path / "f.h5", "npy"), dict.fromkeys("ab", wide.astype(np.float32)))


def test_videos_without_rows_have_failed(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    np.save(tmp_path / "s/a.npy", np.zeros((0, 3), np.float16))
    np.save(tmp_path / "s/b.npy", np.ones((2, 3), np.float16))
    out, _ = inside("import", "npy", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED, code=1)
    assert "1 videos have rows" in out
    with Features.open(tmp_path / "f.h5") as features:
        stream = features.stream("npy")
        told = {str(one): STATUS[code] for one, code in zip(features.videos["id"], stream.status, strict=True)}
    assert told == {"a": "failed", "b": "ok"}
    (failure,) = (tmp_path / "f.failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["item"] == "a"


@pytest.mark.parametrize("own", [str, lambda one: f"{one}.mp4", lambda one: f"s/{one.removeprefix('v_')}.mkv"])
def test_names_are_matched_with_a_data_set(own: Callable[[str], str], tmp_path: Path) -> None:
    root = tmp_path / "anet"
    root.mkdir()
    manifest = datasets.load("activitynet", makers.get("activitynet").make(root, list))
    ids = [one.id for one in manifest.videos]
    for n, one in enumerate([*ids[1:][::-1], "someone else's"]):
        path = tmp_path / f"features/{own(one)}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, rows(n + 1, seed=n))
    out = tmp_path / "f.h5"
    flags = ["--dataset", "activitynet", "--root", root, "--stream", "s3d", *STATED]
    said, _ = inside("import", "npy", tmp_path / "features", "--out", out, *flags, code=1)
    assert f"{len(ids) - 1} of {len(ids)} videos have rows in s3d" in said
    assert "1 have none" in said
    assert "1 names match no video" in said
    with Features.open(out) as features:
        assert list(features.videos["id"]) == ids
        stream = features.stream("s3d")
        assert [STATUS[code] for code in stream.status] == ["failed", *["ok"] * (len(ids) - 1)]
        assert "no features in" in stream.reason[0]
        for n, one in enumerate(ids[1:][::-1]):
            np.testing.assert_array_equal(features.rows("s3d", one), rows(n + 1, seed=n))
        assert list(features.table("captions")["text"]) == [caption.text for caption in manifest.captions]
        assert features.parts_of_splits() == sorted(f"{part.split}/{part.name}" for part in manifest.splits)
    (name,) = (json.loads(line)["name"] for line in (tmp_path / "f.unmatched.jsonl").read_text().splitlines())
    assert "someone else's" in name
    assert (tmp_path / "f.oddities.jsonl").exists()
    assert verify(out) == []


def test_nan_for_rows(tmp_path: Path) -> None:
    (tmp_path / "ce.pkl").write_bytes(pickle.dumps({"a": float("nan"), "b": rows(2)}))
    inside("import", "univl_pickle", tmp_path / "ce.pkl", "--out", tmp_path / "f.h5", *STATED, "--allow-pickle", code=1)
    assert_same(imported(tmp_path / "f.h5", "univl_pickle"), {"b": rows(2)})


def test_names_of_another_data_set(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    source, _ = foreign.made("npy", tmp_path)
    flags = ["--dataset", "tacos", "--root", makers.get("tacos").make(tmp_path / "t", list)]
    said = error("import", "npy", source, "--out", tmp_path / "f.h5", *STATED, *flags)
    assert "none of the 3 names" in said
    assert "v_2-a" in said
    assert "s2-d1" in said


def test_the_nearest_name_counts() -> None:
    index = Index([Video("a_1.5_2.0", None), Video("a_1", None), Video("v_b", None), Video("c", None, original="C C")])
    found = {name: index.find(name) for name in ("a_1.5_2.0", "a_1.5_2.0.mp4", "a_1.npy", "b.webm.npz", "C C", "b_3d")}
    assert found == {
        "a_1.5_2.0": "a_1.5_2.0",
        "a_1.5_2.0.mp4": "a_1.5_2.0",
        "a_1.npy": "a_1",
        "b.webm.npz": "v_b",
        "C C": "c",
        "b_3d": "v_b",
    }
    assert index.find("d") is None
    assert next(forms("x.mp4")) == "x.mp4"


def test_two_names_of_one_video(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    root = makers.get("tacos").make(tmp_path / "t", list)
    (tmp_path / "s").mkdir()
    for name in ("s2-d1", "s2-d1.avi"):
        np.save(tmp_path / f"s/{name}.npy", rows(2))
    flags = ["--dataset", "tacos", "--root", root]
    said = error("import", "npy", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED, *flags)
    assert "s2-d1.avi and s2-d1 are both of video s2-d1" in said


def test_two_kinds_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for number, kind in enumerate(("2d", "3d")):
        np.savez(tmp_path / f"s/a_{kind}.npz", features=rows(2, seed=number))
    said = error("import", "npz", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED)
    assert "--files" in said
    inside("import", "npz", tmp_path / "s", "--out", tmp_path / "f.h5", *STATED, "--files", "*_3d.npz")
    assert_same(imported(tmp_path / "f.h5", "npz"), {"a_3d": rows(2, seed=1)})


def test_one_archive_of_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", **{"2d/b.mp4": rows(2), "2d/a": rows(3, seed=1), "3d/a": rows(4, seed=2)})  # type: ignore[arg-type]
    inside("import", "npz", tmp_path / "all.npz", "--out", tmp_path / "f.h5", *STATED, "--key", "2d")
    assert_same(imported(tmp_path / "f.h5", "npz"), {"a": rows(3, seed=1), "b.mp4": rows(2)})


@pytest.mark.parametrize("name", ["npz", "hdf5_grouped", "mmt"])
def test_one_of_several_arrays_is_chosen(name: str, tmp_path: Path) -> None:
    arrays = {"one": rows(2), "two": rows(3, seed=1)}
    (tmp_path / "s").mkdir()
    if name == "npz":
        np.savez(tmp_path / "s/v.npz", **arrays)  # type: ignore[arg-type]
    with h5py.File(tmp_path / ("s.h5" if name == "hdf5_grouped" else "s/v.h5"), "w") as file:
        for key, values in arrays.items():
            file[f"v/{key}" if name == "hdf5_grouped" else f"features.{key}"] = values
    source = tmp_path / ("s.h5" if name == "hdf5_grouped" else "s")
    said = error("import", name, source, "--out", tmp_path / "f.h5", *STATED)
    assert "one, two" in said
    assert "--key" in said
    assert "three" in error("import", name, source, "--out", tmp_path / "f.h5", *STATED, "--key", "three")
    inside("import", name, source, "--out", tmp_path / "f.h5", *STATED, "--key", "two")
    assert_same(imported(tmp_path / "f.h5", name), {"v": arrays["two"]})


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_are_read_on_request_only(name: str, tmp_path: Path) -> None:
    source, _ = foreign.made(name, tmp_path)
    assert "--allow-pickle" in error("import", name, source, "--out", tmp_path / "f.h5", *STATED)


class Evil:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


@pytest.mark.parametrize("name", PICKLES)
def test_what_a_pickle_would_run_is_not_run(name: str, tmp_path: Path) -> None:
    source, _ = foreign.made(name, tmp_path)
    file = source if source.is_file() else source / "train_meta.pkl"
    file.write_bytes(pickle.dumps({"a": Evil(tmp_path / "mark")}))
    said = error("import", name, source, "--out", tmp_path / "f.h5", *STATED, "--allow-pickle")
    assert "mkdir" in said
    assert not (tmp_path / "mark").exists()


def test_an_expert_without_a_rate_is_no_stream(tmp_path: Path) -> None:
    source, _ = foreign.made("mmt", tmp_path)
    with h5py.File(source / "x/./y/x.y z.h5", "r+") as file:
        file["features_t.rgb"][3, 0] = 3.4
    said = error("import", "mmt", source, "--out", tmp_path / "f.h5", "--no-l2")
    assert "x.y z" in said
    assert "without a rate" in said


def test_shards_that_do_not_fit(tmp_path: Path) -> None:
    source, _ = foreign.made("mmpt", tmp_path)
    np.save(source / "train_1_starts.npy", np.array([0, 4]))
    said = error("import", "mmpt", source, "--out", tmp_path / "f.h5", *STATED, "--allow-pickle")
    assert "train_1_starts.npy" in said


def test_a_frame_that_has_no_row(tmp_path: Path) -> None:
    source, _ = foreign.made("bigfile", tmp_path)
    (source / "video2frames.txt").write_text(str({"v_2-a": ["v_2-a_0", "v_2-a_9"]}))
    assert "v_2-a_9" in error("import", "bigfile", source, "--out", tmp_path / "f.h5", *STATED)


def test_ids_that_a_format_cannot_hold(tmp_path: Path) -> None:
    shard(tmp_path / "f.h5", video("a"), video("a/b"))
    said = error("export", "hdf5", tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e.h5")
    assert "side by side" in said
    shard(tmp_path / "f.h5", video("a"), video("b/.c"))
    assert "b/.c" in error("export", "npy", tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e")
    assert [file.name for file in tmp_path.iterdir()] == ["f.h5"]


def test_names_that_are_not_there(tmp_path: Path) -> None:
    shard(tmp_path / "f.h5", video("a"))
    assert "npy, npz" in error("import", "numpy", tmp_path, "--out", tmp_path / "g.h5", *STATED)
    assert "read only" in error("export", "mmt", tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e")
    assert "a:x" in error("export", "npy", tmp_path / "f.h5", "--stream", "b", "--out", tmp_path / "e")
    (tmp_path / "e").mkdir()
    assert "there already" in error("export", "npy", tmp_path / "f.h5", "--stream", "a:x", "--out", tmp_path / "e")
    assert "/" in error("import", "npy", tmp_path, "--out", tmp_path / "g.h5", *STATED, "--stream", "a/b")


def test_imported_rows_beside_extracted_ones(tmp_path: Path) -> None:
    """An extracted file tells which media file its rows are of; imported ones do not, and count all the same."""
    (tmp_path / "t").mkdir()
    root = makers.get("tacos").make(tmp_path / "t", list)
    (tmp_path / "s").mkdir()
    for n, name in enumerate(("s2-d1", "s9-d1")):
        np.save(tmp_path / f"s/{name}.npy", rows(10, seed=n))
    flags = ["--dataset", "tacos", "--root", root, *STATED]
    inside("import", "npy", tmp_path / "s", "--out", tmp_path / "i.h5", *flags, code=1)
    shard(tmp_path / "x.h5", video("s2-d1", 10, seed=7), video("s9-d1", 10, seed=8))
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file.attrs["dataset"] = "tacos"
        del file.attrs["seal"]
    for order in (["i.h5", "x.h5"], ["x.h5", "i.h5"]):
        out = tmp_path / f"{order[0]}.both.h5"
        inside("join", *(tmp_path / name for name in order), "--out", out)
        assert imported(out, "npy").keys() == {"s2-d1", "s9-d1"}
        np.testing.assert_array_equal(imported(out, "npy")["s9-d1"], rows(10, seed=1))
        np.testing.assert_array_equal(imported(out, "a:x")["s9-d1"], rows(10, seed=8))
        assert verify(out) == []


def test_streams_of_one_model_are_one_stream(tmp_path: Path) -> None:
    """Whatever they were imported from, if it was said to be one model; not otherwise."""
    for name, one, seed in (("npy", "a", 1), ("npz", "b", 2)):
        (tmp_path / name).mkdir()
        foreign.WRITERS[name](tmp_path / name, {one: rows(2, seed=seed)})
        for model in ("", "s3d"):
            flags = [*STATED, "--stream", "s", "--model", model]
            inside("import", name, tmp_path / name, "--out", tmp_path / f"{name}{model}.h5", *flags)
    inside("join", tmp_path / "npys3d.h5", tmp_path / "npzs3d.h5", "--out", tmp_path / "both.h5")
    assert_same(imported(tmp_path / "both.h5", "s"), {"a": rows(2, seed=1), "b": rows(2, seed=2)})
    assert "other settings" in error("join", tmp_path / "npy.h5", tmp_path / "npz.h5", "--out", tmp_path / "no.h5")


def test_names_that_would_escape(tmp_path: Path) -> None:
    (tmp_path / "p.pickle").write_bytes(pickle.dumps({"../a": rows(2)}))
    with pytest.raises(Exception, match="cannot be a video id"):
        list(formats.get("univl_pickle").read(tmp_path / "p.pickle", Asked(allow_pickle=True)))


def test_a_flat_file_is_not_grouped(tmp_path: Path) -> None:
    source, _ = foreign.made("hdf5", tmp_path)
    with pytest.raises(BadFeatureFile, match="import it as hdf5"):
        list(formats.get("hdf5_grouped").read(source, Asked()))
