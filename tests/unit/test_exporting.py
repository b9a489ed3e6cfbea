"""Exported features: what the encoder makes of every video, by hand; what is kept of the file; what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pipeline.cli import main as pipeline_main
from pipeline.derived import of_features
from pipeline.parts import read_column, read_part
from pipeline.shards import Extracted, fold, write_shard
from pipeline.store import STATUS, Features
from pipeline.tables import digest, training_of
from tests.unit import longvideos
from tests.unit.commands import Command, inside
from tests.unit.corpora import DIM, make
from tests.unit.editing import edited
from tests.unit.features import ATTRS, head, rows
from train import checkpoint, whole
from train.cli import main
from train.loading import opened
from train.windows import windows

STREAMS = ("a:x", "b:y")
HEADS = {"a:x": head(dim=DIM, fps=1.0), "b:y": head(dim=DIM, fps=1.5)}
MOST = 4
FLAGS = {
    "taco": ("--video-layers", 0),
    "taco, layers": ("--video-layers", 1),
    "locvtp": (),
    "locvtp, layers": ("--locvtp.clip-layers", 1),
    "ncl": (),
    "ncl, layers": ("--ncl.head", "transformer", "--ncl.sequence-layers", 1),
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return inside(capsys)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 videos: v3 is missing, v5 failed, v6 is there in part, v7 has one of the two streams only."""
    folder = tmp_path_factory.mktemp("corpus")
    most, odd, path = make(folder / "w.h5", 0, STREAMS, ("v3", "v5", "v6", "v7")), folder / "odd.h5", folder / "f.h5"
    with edited(most) as made:  # as `pipeline run tag` and `idf` write them
        own = digest(made["captions/text"].asstr()[()])
        made["words"].attrs.update({"captions": own, "settings": "s", "interest": "i"})
        of = {"words": json.dumps("s i"), "split": "s/train", "training": training_of(made, "s/train")}
        made["idf"].attrs.update({"captions": own, **of})
    known = {"source_size": 1, "source_mtime": 1, "decoded": 3.0}
    in_part = {"a:x": rows(3, DIM, 1), "b:y": rows(4, DIM, 2)}
    videos = [
        Extracted("v5", {**known, "decoded": 0.0}, STREAMS, {}, "failed", "no video in it"),
        Extracted("v6", known, STREAMS, in_part, "partial", "it ends early"),
        Extracted("v7", known, ("a:x",), {"a:x": rows(3, DIM, 3)}, "ok"),
    ]
    write_shard(odd, ATTRS, HEADS, videos)
    fold([read_part(most), read_part(odd)], path, ATTRS)
    return path


@pytest.fixture(scope="module")
def runs(file: Path) -> Callable[[str], Path]:
    """Runs of one step, made when they are asked for."""

    def made(name: str) -> Path:
        out = file.parent / name.replace(", ", "-")
        if not out.exists():
            words = [
                "--features",
                file,
                "--method",
                name.split(",", maxsplit=1)[0],
                "--text-encoder",
                "tiny",
                "--steps",
                1,
            ]
            words += ["--batch", 4, "--max-video-tokens", MOST, *FLAGS[name], "--out", out]
            with pytest.raises(SystemExit) as ended:
                main(list(map(str, words)))
            assert ended.value.code == 0
        return out

    return made


def scaled(path: Path, out: Path, name: str, by: float) -> Path:
    """A copy of a run with other weights."""
    shutil.copytree(path, out)
    found = checkpoint.load(checkpoint.best(out))
    found["model"][name] *= by
    checkpoint.save(checkpoint.best(out), found)
    return out


@torch.inference_mode()
def by_hand(path: Path, features: Features, video: str, seen: tuple[int, int]) -> NDArray[Any]:
    """What the model makes of one video: b:y has 1.5 rows a second, token j is the row at its middle."""
    a, b = (features.rows(name, video).astype(np.float32) for name in STREAMS)
    faster = [min(int(1.5 * (token + 0.5)), len(b) - 1) for token in range(len(a))]
    x = torch.from_numpy(np.concatenate([a, b[faster]], axis=1))
    with opened(path, None) as found:
        spans = windows(len(x), *seen)
        total, count = torch.zeros(len(x), 128), torch.zeros(len(x), 1)
        for first, last in spans:
            there = torch.ones(1, last - first, dtype=torch.bool)
            total[first:last] += found.model.video(x[None, first:last], there)[0]  # type: ignore[operator]
            count[first:last] += 1
    return (total / count).numpy()


@pytest.mark.parametrize("name", FLAGS)
def test_rows_are_what_the_encoder_makes_of_each_video(
    name: str, file: Path, runs: Callable[[str], Path], tmp_path: Path, run: Command
) -> None:
    path, contextual = runs(name), ", layers" in name
    given = ["--window", 3, "--stride", 1] if contextual else []
    said = run(
        "export-features", "--checkpoint", path, "--out", tmp_path / "e.h5", "--dtype", "float32", "--name", "n", *given
    )
    assert "stream n of 21 of 24 videos, 128 numbers a row, 1 rows a second; `train --streams n`" in said
    with Features.open(file) as before, Features.open(tmp_path / "e.h5") as features:
        stream = features.stream("n")
        assert list(features.streams) == ["n"]
        assert (stream.dim, str(stream.dtype), stream.rows_per_second) == (128, "float32", 1.0)
        assert stream.settings["window"] == ({"tokens": 3, "stride": 1} if contextual else {})
        assert stream.settings["sources"] == {one: before.stream(one).settings for one in STREAMS}
        for video in ("v0", "v6", "v10", "v23"):  # 3, 3, 7 and 8 rows
            expected = by_hand(path, before, video, (3, 1) if contextual else (MOST, MOST))
            np.testing.assert_allclose(features.rows("n", video), expected, atol=2e-6)
        np.testing.assert_array_equal(stream.count, np.where(before.stream("b:y").count, before.stream("a:x").count, 0))


def test_the_usual_windows_and_type(file: Path, runs: Callable[[str], Path], tmp_path: Path, run: Command) -> None:
    said = run("export-features", "--checkpoint", runs("taco, layers"), "--out", tmp_path / "new" / "e.h5")
    assert "stream taco:taco-layers of 21" in said
    with Features.open(file) as before, Features.open(tmp_path / "new" / "e.h5") as features:
        stream = features.stream("taco:taco-layers")
        assert (str(stream.dtype), stream.settings["window"]) == ("float16", {"tokens": 4, "stride": 2})
        expected = by_hand(runs("taco, layers"), before, "v23", (4, 2))
        np.testing.assert_allclose(features.rows(stream.name, "v23"), expected, atol=2e-3)


def columns(path: Path) -> dict[str, Any]:
    """Everything in a file but streams, and what became of its videos."""
    found: dict[str, Any] = {}

    def visit(name: str, thing: Any) -> None:
        said = {key: str(value) for key, value in thing.attrs.items() if key != "seal"}
        found[f"{name} attributes"] = said
        if isinstance(thing, h5py.Dataset):
            found[name] = list(map(str, read_column(thing).tolist()))

    with h5py.File(path) as file:
        file.visititems(visit)
    return {name: value for name, value in found.items() if not name.startswith(("streams", "videos/reason"))}


def test_tables_are_kept_and_what_became_of_videos_is_told(
    file: Path, runs: Callable[[str], Path], tmp_path: Path, run: Command
) -> None:
    run("export-features", "--checkpoint", runs("locvtp"), "--out", tmp_path / "e.h5")
    before, after = columns(file), columns(tmp_path / "e.h5")
    assert {"words/start", "captions/text", "idf/weight", "splits/s/test/clips", "videos/decoded"} <= before.keys()
    assert before.pop("videos/status") == [{3: "0", 5: "3", 6: "2"}.get(place, "1") for place in range(24)]
    # v7 is not ok in the new stream: one of its sources was never extracted.
    assert after.pop("videos/status") == [{3: "0", 5: "3", 6: "2", 7: "0"}.get(place, "1") for place in range(24)]
    assert after == before
    with Features.open(tmp_path / "e.h5") as features:
        stream = features.stream("locvtp:locvtp")
        told = [
            (STATUS[stream.status[place]], stream.reason[place], int(stream.count[place])) for place in (3, 5, 6, 7)
        ]
    assert told == [
        ("missing", "", 0),
        ("failed", "no video in it", 0),
        ("partial", "it ends early", 3),
        ("missing", "", 0),
    ]


def test_the_new_file_is_trained_on_probed_joined_and_exported_from(
    file: Path, runs: Callable[[str], Path], tmp_path: Path, run: Command
) -> None:
    new, both, path = tmp_path / "e.h5", tmp_path / "both.h5", runs("locvtp")
    run("export-features", "--checkpoint", path, "--out", new)
    run("export-features", "--checkpoint", path, "--out", tmp_path / "again.h5")
    one, two = (Features.open(some).stream("locvtp:locvtp") for some in (new, tmp_path / "again.h5"))
    assert one.settings == two.settings
    np.testing.assert_array_equal(one.crc32, two.crc32)
    assert one.crc32.any()
    said = run("join", file, new, "--out", both, of=pipeline_main)
    assert "streams: a:x (22 videos), b:y (21 videos), locvtp:locvtp (21 videos)" in said
    words = ["--method", "ncl", "--text-encoder", "tiny", "--steps", 1, "--batch", 4]
    run("--features", both, "--streams", "a:x,locvtp:locvtp", *words, "--out", tmp_path / "on-both")
    run("--features", new, *words, "--out", tmp_path / "on-new")
    run("export-features", "--checkpoint", tmp_path / "on-new", "--out", tmp_path / "twice.h5")
    assert run("evaluate", "--checkpoint", path, "--features", both, "--json") == run(
        "evaluate", "--checkpoint", path, "--json"
    ).replace(str(file), str(both))
    found = json.loads(run("probe", "--features", new, "--clips", 3, "--json"))
    assert found["left_out"] == {"locvtp:locvtp": 3}
    # Features of other weights are another stream, whatever it is called.
    other = scaled(path, tmp_path / "locvtp", "video.project.weight", 2)
    run("export-features", "--checkpoint", other, "--out", tmp_path / "t.h5")
    said = run("join", new, tmp_path / "t.h5", "--out", tmp_path / "j.h5", code=2, of=pipeline_main)
    assert "holds stream locvtp:locvtp with other settings" in said
    said = run("evaluate", "--checkpoint", tmp_path / "on-new", "--features", tmp_path / "t.h5", code=2)
    assert "stream locvtp:locvtp was made with other settings or weights" in said


def test_another_feature_file_with_the_same_streams(runs: Callable[[str], Path], tmp_path: Path, run: Command) -> None:
    other = make(tmp_path / "o.h5", 5, STREAMS)
    with edited(other) as made:
        del made["words"], made["idf"]
    run("export-features", "--checkpoint", runs("ncl"), "--features", other, "--out", tmp_path / "e.h5")
    with Features.open(other) as before, Features.open(tmp_path / "e.h5") as features:
        expected = by_hand(runs("ncl"), before, "v7", (MOST, MOST))
        np.testing.assert_allclose(features.rows("ncl:ncl", "v7"), expected, rtol=1e-3, atol=1e-3)
        assert features.stream("ncl:ncl").count.all()
    assert "e.h5: no problems" in run("verify", tmp_path / "e.h5", of=pipeline_main)


def test_what_is_refused(file: Path, runs: Callable[[str], Path], tmp_path: Path, run: Command) -> None:
    path, there, out = runs("locvtp, layers"), tmp_path / "there.h5", tmp_path / "out.h5"
    there.write_text("mine")
    words = ["export-features", "--checkpoint", path]
    for given, message in (
        (["--out", there], "there.h5 is there already; move it away, or choose another"),
        (["--out", file], "f.h5 is there already"),
        (["--out", tmp_path / "e.txt"], "e.txt: expected a name in .h5 or .hdf5"),
        (["--out", out, "--name", "a/b"], "--name a/b: expected a name without / and commas"),
        (["--out", out, "--name", "a,b"], "--name a,b: expected a name without / and commas"),
        (["--out", out, "--window", 5], "--window 5.0: 5 video tokens at 1 a second, and the encoder takes 1 to 4"),
        (["--out", out, "--stride", -1], "--stride -1.0: expected 0 or more"),
        (["--out", out, "--features", there], "there.h5 is damaged or not a feature file"),
    ):
        assert message in run(*words, *given, code=2)
    assert there.read_text() == "mine"
    videos = longvideos.make(tmp_path / "g.h5", 8)
    ground = ["ground", "--features", videos, "--method", "spans", "--spans.dim", 64, "--text-encoder", "tiny"]
    run(*ground, "--steps", 1, "--batch", 2, "--out", tmp_path / "ground")
    said = run("export-features", "--checkpoint", tmp_path / "ground", "--out", out, code=2)
    assert said == "a checkpoint of --method spans: exported features are of taco, locvtp, ncl; choose another"
    assert not list(tmp_path.glob("*out.h5*"))


@pytest.mark.parametrize(
    ("by", "of_type", "message"),
    [
        (1e6, "float16", "v0: a row is beyond the range of float16; give --dtype float32"),
        (1e6, "float32", ""),
        (np.nan, "float32", "v0: a row is NaN or infinite; look for NaN in the checkpoint's weights"),
    ],
)
def test_rows_that_cannot_be_stored_leave_nothing_behind(
    by: float, of_type: str, message: str, runs: Callable[[str], Path], tmp_path: Path, run: Command
) -> None:
    path, out = scaled(runs("ncl"), tmp_path / "run", "project.weight", by), tmp_path / "out" / "e.h5"
    words = ["export-features", "--checkpoint", path, "--out", out, "--dtype", of_type]
    said = run(*words, code=2 if message else 0)
    assert said == message if message else "stream ncl:run" in said
    assert [file.name for file in out.parent.iterdir()] == ["e.h5"] * (not message)


def test_a_video_is_read_when_its_turn_comes(
    file: Path, runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    read, made = list[str](), list[str]()
    fill = Features.read_rows

    def reading(self: Features, stream: str, video: int, first: int, out: NDArray[Any]) -> None:
        read.append(str(self.videos["id"][video]))
        fill(self, stream, video, first, out)

    def watching(features: Features, out: Path, stream: Any, sources: Any, made_of: Iterator[Any]) -> None:
        def each() -> Iterator[Any]:
            for place, values in made_of:
                made.append(str(features.videos["id"][place]))
                assert len(set(read) - set(made)) < 4, "rows are read long before they are written"
                yield place, values

        of_features(features, out, stream, sources, each())

    monkeypatch.setattr(whole, "AT_ONCE", 4)
    monkeypatch.setattr(Features, "read_rows", reading)
    monkeypatch.setattr("train.exporting.of_features", watching)
    run("export-features", "--checkpoint", runs("locvtp"), "--out", tmp_path / "e.h5")
    assert made == [f"v{video}" for video in range(24) if video not in (3, 5, 7)]
    assert read == [name for name in made for _ in STREAMS]
