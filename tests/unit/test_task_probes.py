"""`train probe`: what single rows tell of their place, by rows that do and do not; labels; what is left out; errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.store import Features
from tests.unit import stepped
from tests.unit.commands import Command, inside
from tests.unit.corpora import make
from tests.unit.editing import edited
from train.data import streams_of
from train.loading import opened
from train.tasks import probes

TRAIN, TEST = tuple(f"v{n}" for n in range(8)), ("w0", "w1", "w2", "short", "gone")
LABELS = ("red", "blue")
STREAMS = ("a:x", "b:y")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "200")
    return inside(capsys)


def rows(count: int, label: int, seed: int) -> NDArray[Any]:
    """Rows of 5 numbers: which third of the video they are in, their label, and noise."""
    x = 0.05 * np.random.default_rng(seed).standard_normal((count, 5))
    x[np.arange(count), (3 * np.arange(count)) // count] += 1
    x[:, 3 + label] += 1
    return x


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 videos to train on and 3 to test on, of 5 to 7 rows; one has 2 rows, one none, and `out` is in no part."""
    ids = (*TRAIN, *TEST, "out", "out-gone")
    manifest = Manifest(
        "probed",
        tuple(Video(name, None) for name in ids),
        tuple(Clip(f"{name}.c", name, label=LABELS[n % 2]) for n, name in enumerate(ids)),
        tuple(Caption(name, f"{name}.c", "a text") for name in ids),
        tuple(
            Part("s", part, tuple(f"{name}.c" for name in own), own) for part, own in (("train", TRAIN), ("val", TEST))
        ),
    )
    held = {n: name for n, name in enumerate(ids) if "gone" not in name}
    found = {name: rows(2 if name == "short" else 5 + n % 3, n % 2, n) for n, name in held.items()}
    return stepped.stored(tmp_path_factory.mktemp("probed") / "f.h5", manifest, found)


def test_rows_that_tell_their_place(file: Path, tmp_path: Path, run: Command) -> None:
    words = ["probe", "--features", file, "--split", "s", "--clips", 3]
    said = run(*words, "--out", tmp_path / "o" / "r.json")
    found = json.loads((tmp_path / "o" / "r.json").read_text())
    assert json.loads(run(*words, "--json")) == found
    order, distance = found["probes"]["a:x"]
    assert (order["accuracy"], distance["accuracy"]) == (1.0, 1.0)
    assert (order["chance"], order["majority"]) == pytest.approx((1 / 3, 1 / 3))
    assert (distance["classes"], distance["majority"]) == (2, pytest.approx(2 / 3))  # 1 apart twice, 2 apart once
    assert [one["encoding"] for one in (order, distance)] == ["f_i", "[f_i, f_j, |f_i - f_j|], i < j"]
    assert [(one["train_videos"], one["test_videos"], one["items"]) for one in (order, distance)] == [(8, 3, 9)] * 2
    # `short` and `gone` are missing of the split; what is in neither part is not.
    assert (found["left_out"], found["split"], found["task"]) == ({"a:x": 2}, "s", "probes")
    assert found["numbers"] == {"order": 1.0, "distance": 1.0}
    assert "a:x: 2 are left out, as they have too few rows or none" in said
    assert "order, n = 3" in said
    assert "classifiers read: f_i" not in said  # it says of which probe that is
    assert "order f_i; distance [f_i, f_j, |f_i - f_j|], i < j" in said


def test_videos_that_are_drawn(file: Path, run: Command) -> None:
    words = ["probe", "--features", file, "--clips", 3, "--json", "--share", 0.5]
    one, again, other = (json.loads(run(*words, "--seed", seed)) for seed in (1, 1, 2))
    assert one == again
    assert one["split"] == "0.5 of the videos, seed 1"
    assert one["left_out"] == {"a:x": 3}  # short, gone, out-gone
    assert [(p["train_videos"], p["test_videos"]) for p in one["probes"]["a:x"]] == [(6, 6)] * 2
    assert other["split"] == "0.5 of the videos, seed 2"


def test_labels_of_clips_and_of_a_table(file: Path, tmp_path: Path, run: Command) -> None:
    words = ["probe", "--features", file, "--split", "s", "--json", "--labels"]
    found = json.loads(run(*words, "clips", "--rows", 4))
    linear, attentive = found["probes"]["a:x"]
    assert [one["accuracy"] for one in (linear, attentive)] == [1.0, 1.0]
    assert (linear["n"], attentive["n"], linear["items"], linear["classes"]) == (1, 4, 4, 2)
    assert (found["left_out"], found["unmatched"]) == ({"a:x": 1}, 0)
    table = tmp_path / "l.csv"
    # By video or by clip, the clip's own first; w1's label is not in training, `nobody` is nobody, w2 has no label.
    lines = [
        *(f"{name},{LABELS[n % 2]}" for n, name in enumerate(TRAIN)),
        "w0.c,red",
        "w0,blue",
        "w1, green ",
        "w2,",
        "",
    ]
    table.write_text("\n".join([*lines, 'nobody,"a, b"', "gone,red"]), encoding="utf-8-sig")
    found = json.loads(run(*words, table))
    (linear, _), unmatched = found["probes"]["a:x"], found["unmatched"]
    assert (linear["items"], linear["unseen"], linear["accuracy"], unmatched) == (2, 1, 0.5, 1)
    assert found["left_out"] == {"a:x": 1}
    said = run(*[word for word in words if word != "--json"], table)
    assert "1 ids of --labels are no clips or videos of the file" in said


def test_rows_of_long_clips_are_averaged_some_clips_at_a_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "CLIPS", 2)
    with Features.open(file) as features:
        places = np.array([2, 1, 0, 11])  # of 7, 6, 5 and 2 rows
        found, _ = streams_of(features, ["a:x"], (places, np.zeros(4), np.full(4, np.nan)), resident=0)
        x, mask = probes._rows(None, found, 3)
        assert (x.shape, mask.sum(1).tolist()) == ((4, 3, 5), [3, 3, 3, 2])
        seven = features.rows("a:x", "v2").astype(np.float32)
        # Thirds of 7 rows: [0, 2), [2, 4), [4, 7).
        averages = [seven[:2].mean(0), seven[2:4].mean(0), seven[4:].mean(0)]
        np.testing.assert_allclose(x[0], averages, rtol=1e-5)
        np.testing.assert_allclose(x[3, :2], features.rows("a:x", "short").astype(np.float32))
        assert not x[3, 2].any()


def test_a_checkpoint_sees_each_row_by_itself(tmp_path: Path, run: Command) -> None:
    """An encoder with positions would know the order of rows that have none."""
    two = make(tmp_path / "f.h5", streams=STREAMS)
    words = ["--features", two, "--video-layers", 2, "--negatives", 1, "--text-encoder", "tiny", "--steps", 1]
    run(*words, "--batch", 4, "--out", tmp_path / "run")
    found = json.loads(run("probe", "--checkpoint", tmp_path / "run", "--clips", 3, "--json"))
    assert list(found["probes"]) == ["a:x", "b:y", "taco, step 1"]
    assert found["numbers"]["order"] == found["probes"]["taco, step 1"][0]["accuracy"]
    assert list(json.loads(run("probe", "--checkpoint", tmp_path / "run", "--streams", "b:y", "--clips", 3, "--json"))[
        "probes"
    ]) == ["b:y", "taco, step 1"]  # fmt: skip
    with opened(tmp_path / "run", None) as trained:
        x = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(0))
        x[:, 1] = x[:, 0]
        made = probes._encoded(trained, x)
        assert torch.allclose(made[:, 0], made[:, 1], atol=1e-6)
        alone = trained.model.video(x[2:, 3:], torch.ones(1, 1, dtype=torch.bool))[0, 0]  # type: ignore[operator]
        assert torch.allclose(made[2, 3], alone, atol=1e-5)
        assert not torch.allclose(made[2, 3], made[2, 2], atol=1e-3)
        spans = (np.array([0, 5]), np.zeros(2), np.full(2, np.nan))  # of 3 and 8 rows
        x, mask = probes._rows(trained, streams_of(trained.features, STREAMS, spans, resident=0)[0], 64)
        assert (x.shape, mask.sum(1).tolist()) == ((2, 8, 128), [3, 8])
        assert x[mask].all(dim=1).all()
        assert not x[~mask].any()  # what the encoder makes of padding is no row


def test_wrong_commands(file: Path, tmp_path: Path, run: Command) -> None:
    tables = {"three": "v0,red\nv1,red,blue\n", "two": "v0,red\nv0,blue\n", "none": "nobody,red\n", "odd": "v0,\0\n"}
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    bare = tmp_path / "bare.h5"
    bare.write_bytes(file.read_bytes())
    with edited(bare) as opened_file:
        del opened_file["streams/a:x"]
        opened_file["clips/label"][:] = ""
    of = ["--features", file]
    for words, message in (
        ([], "--features is needed, or a --checkpoint that has one"),
        (["--features", tmp_path / "no.h5"], "no feature file"),
        (["--features", bare], "bare.h5 has no streams; `pipeline join` puts it together with features"),
        ([*of, "--streams", "b:y"], "unknown stream 'b:y'; there are: a:x"),
        ([*of, "--clips", 9], "no video has 9 rows of a:x; probe with fewer --clips"),
        ([*of, "--clips", 1], "--clips 1: one clip has neither order nor distance; expected 2 or more"),
        ([*of, "--split", "t"], "unknown split with train and test 't'; there are: s"),
        ([*of, "--share", 0.01], "a share of 0.01 of 12 videos leaves nothing on one side"),
        ([*of, "--share", 1], "--share 1.0: expected more than 0, less than 1"),
        ([*of, "--split", "s", "--share", 0.5], "--share is for videos that are drawn, without --split; leave it out"),
        ([*of, "--rows", 5], "--rows is for --labels; leave it out"),
        ([*of, "--labels", "clips", "--clips", 3], "--clips is for order and distance; leave it out"),
        ([*of, "--labels", tmp_path / "no.csv"], "No such file or directory: "),
        ([*of, "--labels", tmp_path / "three.csv"], "three.csv, row 2: v1,red,blue; expected ID,LABEL"),
        ([*of, "--labels", tmp_path / "two.csv"], "two.csv, row 2: v0 has another label above; give it one"),
        ([*of, "--labels", tmp_path / "none.csv"], "none of its clips has a label in"),
        ([*of, "--labels", file], "expected `clips` or a CSV file of ID,LABEL"),
        (["--checkpoint", tmp_path / "nowhere"], "no checkpoint"),
    ):
        assert message in run("probe", *words, code=2), words
