"""`train evaluate --task steps`: recall by hand, what is counted, what is drawn, and commands that are wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.records import Clip, Manifest, Part, Step, Task, Video
from pipeline.store import Features
from tests.unit import corpora, longvideos, stepped
from tests.unit.commands import Command, inside
from tests.unit.editing import edited
from train import placement
from train.cli import main
from train.config import Data, Fit, Run
from train.loading import Trained
from train.pictures import Album
from train.settings import Locvtp, Placing, Windows
from train.tasks import steps

ROW = {"x": 0, "y": 1, "z": 0, "w": 1, "-": 3}
"""What a second shows, as the place of the 1 in its row: texts of a task's steps are unit vectors too."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "160")
    return inside(capsys)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Feature files with steps and without, and runs that were trained on their words."""
    folder = tmp_path_factory.mktemp("steps")
    found = {name: getattr(stepped, name)(folder / f"{name}.h5") for name in ("captions", "crosstask", "coin")}
    found["ground file"] = longvideos.make(folder / "g.h5", 8)
    found["taco file"] = corpora.make(folder / "t.h5")
    usual = ["--text-encoder", "tiny", "--warmup", 5, "--evaluate-every", 0, "--lr", 2e-3]
    words = ["--features", found["captions"], "--batch", 16, "--max-video-tokens", 8, *usual]
    commands = {
        "windows": ["--method", "ncl", "--ncl.head", "transformer", "--ncl.sequence-layers", 1, "--steps", 2, *words],
        "taco": ["--features", found["taco file"], "--steps", 1, "--batch", 4, "--negatives", 1, *usual],
        "ground": [
            "ground", "--features", found["ground file"], "--method", "spans", "--spans.dim", 64, "--steps", 1,
            "--batch", 2, *usual,
        ],
    }  # fmt: skip
    found["rows"] = stepped.trained(found["captions"], folder / "rows")
    for name, command in commands.items():
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, [*command, "--out", folder / name])))
        assert ended.value.code == 0
        found[name] = folder / name
    return found


def clips(
    shown: dict[str, str], steps_of: dict[str, Sequence[tuple[int, float, float]]], path: Path, rate: int
) -> Path:
    """A file with a clip TASK_VIDEO for each of `steps_of`; `shown`: a letter for each second of a video."""
    videos = list(dict.fromkeys(name.split("_")[1] for name in steps_of))
    tasks = (Task("A", "The first", ("x", "y")), Task("B", "The second", ("z", "w")), Task("C", "No", ("z",), False))
    texts = {task.id: task.steps for task in tasks}
    manifest = Manifest(
        "hand",
        tuple(Video(name, None) for name in videos),
        tuple(Clip(name, name.split("_")[1], label=name.split("_")[0]) for name in steps_of),
        splits=(Part("h", "train", tuple(steps_of), ()),),
        steps=tuple(
            Step(f"{name}#{at}", name, texts[name[0]][step], start, end, step)
            for name, own in steps_of.items()
            for at, (step, start, end) in enumerate(own)
        ),
        tasks=tasks,
    )
    rows = {name: np.eye(4)[[ROW[one] for one in text for _ in range(rate)]] for name, text in shown.items()}
    return stepped.stored(path, manifest, rows, rate)


@pytest.mark.parametrize("rate", [1, 2])
def test_recall_by_hand(rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are texts or nothing; one video of each task chooses the temperature, whichever is drawn."""
    ids = {"A": ["A_0", "A_1", "A_2"], "B": ["B_3", "B_4", "B_5", "B_6"]}
    drawn = placement.split(ids, 1, 0)
    one, two, short, gone, late = drawn.test
    shown = {one: "-x-y--", two: "yx--", short: "z", late: "zw-", **dict.fromkeys(drawn.train, "----")}
    annotated: dict[str, Sequence[tuple[int, float, float]]] = {
        one: [(0, 1.0, 2.0), (1, 3.2, 3.9)],  # both are found
        two: [(1, 0.0, 1.0), (0, 1.0, 2.0)],  # not in the task's order: one can be found
        short: [(0, 0.0, 1.0), (1, 0.0, 1.0)],  # one second for two steps
        gone: [(0, 0.0, 1.0)],
        late: [
            (0, 0.0, 1.0),
            (0, 2.0, 3.0),
            (1, 7.0, 8.0),
        ],  # the first one twice, of which one will do; one past the end
        **{name: [(0, 0.0, 1.0)] for name in drawn.train},
        "A_bare": [],
        f"C_{one[2:]}": [(0, 0.0, 1.0)],  # the same video under a task that is not evaluated
    }
    path = clips({name[2:]: text for name, text in shown.items()}, annotated, tmp_path / "f.h5", rate)
    result = judged(path, Placing(splits=1, per_task=1), monkeypatch, Album(tmp_path))
    # A: 2 of 2 and 1 of 2. B: 0 of 2, 0 of 1, 1 of 2; with features 0 of 2, 1 of 2.
    assert result["numbers"] == pytest.approx(
        {"recall": (3 / 4 + 1 / 5) / 2, "recall with features": (3 / 4 + 1 / 4) / 2}
        # At equal distances seconds 1 and 4 of 6, 1 and 3 of 4, 0 and 2 of 3.
        | {"uniform": (2 / 4 + 1 / 5) / 2, "uniform with features": (2 / 4 + 1 / 4) / 2}
    )
    split = result["splits"][0]
    assert split["tasks"] == pytest.approx({"A": 3 / 4, "B": 1 / 5})
    assert {name: split[name] for name in ("videos", "used", "without_features", "too_short", "steps", "past_end")} == {
        "videos": 5, "used": 3, "without_features": 1, "too_short": 1, "steps": 9, "past_end": 1
    }  # fmt: skip
    assert (result["annotated"], result["not_annotated"], result["without_features"]) == (7, 1, [gone[2:]])
    assert (result["names"], result["spread"]) == ({"A": "The first", "B": "The second"}, {})
    assert {file.stem for file in tmp_path.glob("*.svg")} <= {
        f"steps-{name}" for name in (one, two, late, *drawn.train)
    }


def judged(path: Path, placing: Placing, monkeypatch: pytest.MonkeyPatch, album: Album | None = None) -> dict[str, Any]:
    """Results of a model whose tokens are the rows themselves."""
    texts = {"x": [1.0, 0, 0, 0], "y": [0.0, 1, 0, 0], "z": [1.0, 0, 0, 0], "w": [0.0, 1, 0, 0]}

    @contextmanager
    def opened(_: Path, features: Path) -> Iterator[Trained]:
        data = Data(features=features, streams=("a:x",), max_video_tokens=3)
        run = Run(data, Fit(device="cpu"), "locvtp", Locvtp(), ("", "", ""))
        model: Any = SimpleNamespace(video=lambda x, _: x)
        words: Any = SimpleNamespace()
        with Features.open(features) as there:
            yield Trained(run, run, 7, words, model, there)

    def embedded(_: Trained, some: list[str]) -> Tensor:
        return torch.tensor([texts[text] for text in some])

    monkeypatch.setattr(steps, "opened", opened)
    monkeypatch.setattr(steps, "embedded", embedded)
    return steps.evaluate(Path("run"), path, "", placing, Windows(), album)


def test_steps_are_found_by_what_was_trained_on_their_words(
    files: dict[str, Path], tmp_path: Path, run: Command
) -> None:
    words = ["evaluate", "--checkpoint", files["rows"], "--features", files["crosstask"], "--task", "steps"]
    words += ["--per-task", 2, "--splits", 3]
    out = run(*words, "--plots", tmp_path / "p", "--out", tmp_path / "o" / "r.json")
    found = json.loads((tmp_path / "o" / "r.json").read_text())
    assert json.loads(run(*words, "--json")) == found
    assert (found["task"], found["method"], found["step"], found["part"]) == ("steps", "locvtp", 60, "ct/train")
    assert found["numbers"]["recall"] > found["numbers"]["uniform"] + 0.3
    assert found["spread"].keys() == found["numbers"].keys()
    # 6 videos of each task, `short`, `gone` and `late`; `bare` has no step. Of the task's 8 and 7 videos 2 are drawn.
    assert (found["annotated"], found["not_annotated"], found["without_features"]) == (15, 1, ["gone"])
    assert [one["videos"] for one in found["splits"]] == [11] * 3
    drawn = [set(placement.split({"1": ONES, "2": TWOS}, 2, seed).test) for seed in range(3)]
    assert [one["too_short"] for one in found["splits"]] == ["1_short" in test for test in drawn]
    assert [one["without_features"] for one in found["splits"]] == ["1_gone" in test for test in drawn]
    assert [one["past_end"] for one in found["splits"]] == ["2_late" in test for test in drawn]
    for text in (
        "Make Tea",
        "Make Soup",
        "mean of 2 tasks ",
        "steps at equal distances",
        "15 annotated videos; 1 others",
    ):
        assert text in out
    pictures = sorted(file.name for file in (tmp_path / "p").iterdir())
    assert len(pictures) == 4
    assert not {"steps-1_short.svg", "steps-1_gone.svg"} & set(pictures)
    tea = (tmp_path / "p" / "steps-1_v10.svg").read_text()
    assert all(
        f">{text}<" in tea for text in ("Make Tea, 1_v10", "1 boil water", "3 pour tea", "truth", "found", "score")
    )


ONES, TWOS = [*(f"1_v1{n}" for n in range(6)), "1_short", "1_gone"], [*(f"2_v2{n}" for n in range(6)), "2_late"]


def test_windows_and_one_split(files: dict[str, Path], run: Command) -> None:
    words = ["evaluate", "--checkpoint", files["windows"], "--features", files["crosstask"], "--task", "steps"]
    words += ["--per-task", 2, "--splits", 1, "--json"]
    usual, narrow = (json.loads(run(*words, *more)) for more in ([], ["--window", 2, "--stride", 1]))
    assert usual["spread"] == {}
    assert usual["splits"][0]["videos"] == 11
    assert usual["numbers"] != narrow["numbers"]
    assert usual == json.loads(run(*words, "--window", 8, "--stride", 4))


def changed(path: Path, out: Path, column: str, at: int, value: float) -> Path:
    out.write_bytes(path.read_bytes())
    with edited(out) as file:
        file[column][at] = value
    return out


def test_wrong_commands(files: dict[str, Path], tmp_path: Path, run: Command) -> None:
    ct, task, tmp = files["crosstask"], ["--task", "steps", "--features"], tmp_path
    two, odd, cut = (changed(ct, tmp / f"{name}.h5", *how) for name, how in CHANGES.items())
    with edited(two) as file:
        file.copy(file["splits/ct"], file["splits"], "other")
    for name, words, message in (
        ("rows", [*task, ct, "--part", "t"], "unknown part of a split 't'; there are: all, ct/train, ct/val"),
        ("rows", [*task, ct], "task 1 has 8 videos: 30 to train on leave none; fewer --per-task do"),
        ("rows", [*task, ct, "--part", "ct/val", "--per-task", 1], "task 2 has 1 videos: 1 to train on leave none"),
        ("rows", [*task, ct, "--per-task", 0], "--per-task 0: expected 1 or more"),
        ("rows", [*task, ct, "--rerank", 5], "--rerank is for retrieval; leave it out"),
        ("ground", ["--beta", 5], "--beta is for retrieval; leave it out"),
        ("rows", ["--splits", 2], "--splits is for --task steps; leave it out"),
        ("rows", ["--window", 2], "--window is for --task steps; leave it out"),
        (
            "rows",
            ["--task", "steps", "--part", "all"],
            "captions.h5 has no tasks with steps in order; extract crosstask",
        ),
        ("rows", [*task, two], "--part is needed: the file has ct/train, ct/val, other/train"),
        (
            "windows",
            [*task, ct, "--window", 9],
            "--window 9.0: 9 video tokens at 1 a second, and the encoder takes 1 to 8",
        ),
        ("windows", [*task, ct, "--window", 4, "--stride", 5], "--stride 5.0: 5 video tokens; expected 1 to 4"),
        (
            "ground",
            ["--task", "steps"],
            "a checkpoint of --method spans: steps are placed by the likeness of taco, locvtp",
        ),
        ("taco", ["--plots", tmp / "p"], "--plots: taco has no pictures of clips and words; leave it out"),
        ("taco", ["--plots", ct], "cannot make the folder"),
        ("rows", [*task, odd, "--per-task", 2], "steps 0 to 3 of a task that has 3, from 0; extract it again"),
        ("rows", [*task, cut], "clip 1_v10 has steps and is not a whole video; annotate them in clips that are"),
        ("rows", [*task, files["taco file"]], "unknown stream 'synthetic:words'; there are: a:x"),
    ):
        assert message in run("evaluate", "--checkpoint", files[name], *words, code=2)


CHANGES: dict[str, tuple[str, int, float]] = {
    "two": ("steps/number", 0, 0),
    "odd": ("steps/number", 1, 3),
    "cut": ("clips/start", 0, 1),
}


def test_pictures_of_clips_and_words_and_of_moments(files: dict[str, Path], tmp_path: Path, run: Command) -> None:
    run("evaluate", "--checkpoint", files["rows"], "--plots", tmp_path / "l", "--json")
    assert sorted(file.name for file in (tmp_path / "l").iterdir()) == [
        "warping.svg",
        *(f"words-{n}.svg" for n in range(4)),
    ]
    first = (tmp_path / "l" / "words-0.svg").read_text()
    assert all(f">{text}<" in first for text in ("boil water", "boil", "water", "clip"))
    assert all(
        name in (tmp_path / "l" / "warping.svg").read_text() for name in ("reference (", "biased (", "projected (")
    )
    run("evaluate", "--checkpoint", files["ground"], "--plots", tmp_path / "g", "--plot-format", "png", "--json")
    assert (tmp_path / "g" / "moments.png").read_bytes()[:4] == b"\x89PNG"
