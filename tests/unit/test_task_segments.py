"""`train segment`: accuracies by hand, with a head and by text; what is counted, written and drawn; wrong commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.records import Clip, Manifest, Part, Step, Video
from pipeline.store import Features
from pipeline.tables import write_tables
from tests.unit import stepped
from tests.unit.commands import Command, inside
from tests.unit.editing import edited
from tests.unit.features import ATTRS
from train import segments
from train.config import Data, Fit, Run
from train.loading import Trained
from train.pictures import Album
from train.settings import Locvtp, Segmenting, Windows
from train.tasks import segmentation

KINDS = {"p": 1, "q": 2, "r": 4}
ROW = {
    **{kind: np.eye(4)[place].tolist() for place, kind in enumerate("pqr-")},
    "s": [0, 0, 0.6, 0.8],
    "u": [0, 0.2, 0, 0.98],
}
"""What a second shows: a step, nothing, an r that is hard to see, and a q that is hardly to be seen."""
SHOWN = {"train": "p-q-rs-", "t1": "ppqu-p", "t3": "r-"}
ANNOTATED = {
    "train": [("p", 0.0, 1.0), ("q", 2.0, 3.0), ("r", 4.0, 6.0)],
    "t1": [("p", 0.0, 2.0), ("q", 2.0, 4.0)],  # labels 1 1 2 2 0 0, shown are 1 1 2 0 0 1
    "t2": [("q", 1.0, 3.0)],  # without rows: 3 seconds are known of it, 0 2 2
    "t3": [("p", 8.0, 9.0)],  # past the end: labels 0 0, shown are 4 0
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "160")
    return inside(capsys)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    return stepped.trained(stepped.captions(folder / "c.h5"), folder / "run")


def by_hand(path: Path, rate: int = 1) -> Path:
    """The file of `SHOWN` and `ANNOTATED`."""
    ids = list(ANNOTATED)
    manifest = Manifest(
        "hand",
        tuple(Video(name, None) for name in ids),
        tuple(Clip(name, name) for name in ids),
        splits=(Part("h", "train", ("train",), ()), Part("h", "test", tuple(ids[1:]), ())),
        steps=tuple(
            Step(f"{name}#{at}", name, kind, start, end, KINDS[kind])
            for name, own in ANNOTATED.items()
            for at, (kind, start, end) in enumerate(own)
        ),
    )
    rows = {name: np.array([ROW[one] for one in text for _ in range(rate)]) for name, text in SHOWN.items()}
    return stepped.stored(path, manifest, rows, rate)


def check(found: dict[str, Any]) -> None:
    """Of 11 seconds 4 + 0 + 1 are right; background 2 of 5, step 1 2 of 2, step 2 1 of 4."""
    assert found["numbers"] == pytest.approx(
        {
            "frame accuracy": 5 / 11,
            "foreground": 3 / 6,
            "mean class": (2 / 5 + 1 + 1 / 4) / 3,
            "mean class, foreground": (1 + 1 / 4) / 2,
            "majority": 5 / 11,
            "majority, foreground": 4 / 6,
        }
    )
    assert (found["seconds"], found["unpredicted"], found["classes"]) == (11, 3, 3)
    assert found["background"] == pytest.approx(5 / 11)
    assert found["parts"] == {
        "train": {
            "part": "h/train", "videos": 1, "without_features": 0, "seconds": 7, "steps": 3, "past_end": 0, "classes": 3
        },
        "test": {
            "part": "h/test", "videos": 3, "without_features": 1, "seconds": 11, "steps": 4, "past_end": 1, "classes": 2
        },
    }  # fmt: skip


@pytest.mark.parametrize("rate", [1, 2])
def test_a_head_by_hand(rate: int, tmp_path: Path, run: Command) -> None:
    path, out = by_hand(tmp_path / "f.h5", rate), tmp_path / "o"
    words = ["segment", "--features", path, "--split", "h", "--epochs", 60, "--batch", 3, "--lr", 0.1]
    found = json.loads(run(*words, "--out", out, "--json"))
    check(found)
    assert found == json.loads((out / "results.json").read_text())
    assert (found["method"], found["streams"], found["step"]) == ("", ["a:x"], 0)
    made = torch.load(out / "head.pt", weights_only=True)
    assert {name: tuple(values.shape) for name, values in made.items()} == {
        "weight": (4, 5), "bias": (5,), "mean": (4,), "sd": (4,)
    }  # fmt: skip
    matrix = np.load(out / "confusion.npy")
    assert {(int(a), int(b)): int(matrix[a, b]) for a, b in np.argwhere(matrix)} == {
        (0, 0): 2, (0, 1): 1, (0, 4): 1, (1, 1): 2, (2, 2): 1, (2, 0): 1
    }  # fmt: skip
    assert sorted(file.name for file in out.glob("*.svg")) == ["bars-t1.svg", "confusion.svg"]
    bars, map_ = ((out / f"{name}.svg").read_text() for name in ("bars-t1", "confusion"))
    assert all(f">{text}<" in bars for text in ("t1", "truth", "found", "p", "q", "background", "seconds"))
    # Class r was never there, but it was said once: it has a row without seconds.
    assert all(f">{text}<" in map_ for text in ("all classes", "background (4)", "p (2)", "q (2)", "r (0)"))
    said = run(*words, "--out", out, "--force")
    assert "all seconds (frame accuracy) │     45.5 │             45.5" in said
    assert (
        "test: h/test, 3 videos with 4 steps of 2 kinds in 11 seconds; 1 videos without features count as wrong;"
        in said
    )
    assert "always one class" in said


@pytest.mark.parametrize("by", ["balanced", "frame"])
def test_by_text_by_hand(by: segments.By, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seconds, by the cosine of rows and texts, which are p, q and r as they are shown."""

    @contextmanager
    def opened(_: Path, features: Path) -> Iterator[Trained]:
        data = Data(features=features, streams=("a:x",), max_video_tokens=3)
        run = Run(data, Fit(device="cpu"), "locvtp", Locvtp(), ("", "", ""))
        words: Any = SimpleNamespace(encoder=SimpleNamespace(dim=4))
        model: Any = SimpleNamespace(video=lambda x, _: x)
        with Features.open(features) as there:
            yield Trained(run, run, 7, words, model, there)

    def embedded(_: Trained, texts: list[str]) -> Tensor:
        return torch.tensor([ROW[text] for text in texts])

    asked, threshold = list[str](), segments.threshold

    def watched(rows: Tensor, texts: Tensor, y: Tensor, by: segments.By) -> float:
        asked.append(by)
        return threshold(rows, texts, y, by)

    monkeypatch.setattr(segments, "threshold", watched)
    monkeypatch.setattr(segmentation, "opened", opened)
    monkeypatch.setattr(segmentation, "embedded", embedded)
    where = (by_hand(tmp_path / "f.h5"), Path("run"), ())
    album = Album(tmp_path)
    found = segmentation.segment(where, "h", Segmenting(zero_shot=True, threshold_by=by), Windows(), "auto", album)
    check(found)
    assert (found["method"], found["step"], found["threshold_by"]) == ("locvtp", 7, by)
    assert asked == [by]
    assert found["threshold"] == pytest.approx(0.3, abs=1e-3)  # halfway between the r that is hard to see and nothing
    assert found["steps_only"] == 4 / 6  # with the q that is hardly to be seen
    assert not (tmp_path / "head.pt").exists()


def test_a_head_and_texts_beat_the_majority_on_the_foreground(checkpoint: Path, tmp_path: Path, run: Command) -> None:
    file, out = stepped.coin(tmp_path / "n.h5"), tmp_path / "o"
    fit = ["--epochs", 40, "--batch", 16, "--lr", 0.03]
    made = {}
    for name, words in {
        "rows": ["--features", file, *fit],
        "checkpoint": ["--features", file, "--checkpoint", checkpoint, *fit],
        "text": ["--features", file, "--checkpoint", checkpoint, "--zero-shot"],
        "share": ["--features", file, "--train-share", 0.7, *fit],
    }.items():
        found = made[name] = json.loads(run("segment", *words, "--out", out / name, "--json"))
        assert found["numbers"]["foreground"] > found["numbers"]["majority, foreground"], name
        assert found["numbers"]["frame accuracy"] > found["numbers"]["majority"] + 0.1, name
    for name in ("rows", "text"):
        test = made[name]["parts"]["test"]
        assert (test["videos"], test["without_features"], test["past_end"], test["steps"]) == (6, 1, 1, 13)
    share = made["share"]["parts"]
    assert [share[side]["part"] for side in share] == ["0.7 of coin/test, seed 0", "the rest of coin/test"]
    assert [share[side]["videos"] for side in share] == [4, 2]
    said = run("segment", "--features", file, "--checkpoint", checkpoint, "--zero-shot", "--out", out / "more")
    assert "background is below a cosine of 0." in said
    assert "of the foreground is right" in said
    assert "coin-like: synthetic:words, locvtp, step 60" in said


def test_videos_are_on_one_side_of_a_share(tmp_path: Path) -> None:
    """Clips of one video go together."""
    path = by_hand(tmp_path / "f.h5")
    with edited(path) as file:
        file["clips/video"][:] = [0, 1, 1, 1]
    with (
        Features.open(path) as features,
        pytest.raises(Exception, match=r"0\.5 of 1 videos leaves nothing on one side"),
    ):
        segmentation._clips(features, "h", Segmenting(train_share=0.5))


def test_wrong_commands(checkpoint: Path, tmp_path: Path, run: Command) -> None:
    file = by_hand(tmp_path / "f.h5")
    bare, empty, zero = tmp_path / "bare.h5", tmp_path / "empty.h5", tmp_path / "zero.h5"
    for path, number in ((empty, 1), (zero, 0)):
        path.write_bytes(file.read_bytes())
        with edited(path) as opened:
            opened["steps/number"][0] = number
            if path == empty:
                del opened["splits/h/test/clips"]
                opened["splits/h/test/clips"] = np.zeros(0, np.int64)
    write_tables(
        bare, ATTRS, Manifest("hand", (Video("v", None),), (Clip("v", "v"),), steps=(Step("s", "v", "p", 0, 1, 1),))
    )
    out = tmp_path / "o"
    of = ["--features", file, "--split", "h"]
    for words, message in (
        ([], "--features is needed, or a --checkpoint that has one"),
        (["--features", file, "--split", "i"], "--split i: the file has h/test, h/train; to train on a share"),
        (
            ["--features", file, "--split", "i", "--train-share", 0.5],
            "unknown part of a split 'i/train'; there are: all",
        ),
        ([*of, "--train-share", 0.1], "a share of 0.1 of 3 videos leaves nothing on one side"),
        ([*of, "--train-share", 1], "--train-share 1.0: expected 0 or more, less than 1"),
        (["--checkpoint", checkpoint, "--split", "s"], "c.h5 has no annotated steps; extract a data set that has some"),
        (["--features", bare], "bare.h5 has no streams; `pipeline join`"),
        (["--features", empty, "--split", "h"], "empty.h5: h/test has no clips; choose another part"),
        (
            ["--features", zero, "--split", "h"],
            "a step has the number 0: they begin at 1, as 0 is background; CrossTask",
        ),
        ([*of, "--streams", "b:y"], "unknown stream 'b:y'; there are: a:x"),
        ([*of, "--zero-shot"], "--zero-shot compares rows with texts: it needs a --checkpoint"),
        ([*of, "--zero-shot", "--lr", 1], "--lr is for a trained head; leave it out"),
        ([*of, "--threshold-by", "frame"], "--threshold-by is for --zero-shot; leave it out"),
        ([*of, "--window", 2], "--window is for --checkpoint; leave it out"),
        ([*of, "--device", "tpu"], "--device tpu: expected auto, cpu, cuda or cuda:N"),
        (["--checkpoint", checkpoint, "--streams", "a:x"], "--streams: the checkpoint takes those it was trained on"),
        (["--checkpoint", checkpoint, "--device", "cpu"], "--device cpu: the checkpoint's run has one, auto; leave"),
        (["--checkpoint", checkpoint, "--features", file], "unknown stream 'synthetic:words'; there are: a:x"),
        ([*of, "--out", file], "cannot make the folder"),
    ):
        assert message in run("segment", *words, *([] if "--out" in words else ["--out", out]), code=2)
    assert not list(out.iterdir())
    (out / "results.json").write_text("{}")
    assert "holds results already; another folder, or --force" in run(
        "segment", "--features", file, "--out", out, code=2
    )
