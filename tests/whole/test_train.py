"""The command `train` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.corpora import make
from tests.whole.command import ENVIRONMENT
from train.cli import main

TINY = [
    "--text-encoder", "tiny", "--norm", "l2", "--tau", "0.05", "--negatives", "2", "--batch", "9", "--lr", "2e-3",
    "--warmup", "4", "--save-every", "3",
]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5")


def start(*words: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "train.cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**ENVIRONMENT, "COLUMNS": "160", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def train(*words: str | Path, code: int = 0) -> tuple[str, str]:
    with start(*words) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return out, err


Inside = Callable[..., tuple[str, str]]


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Run `train WORDS` in this process, which spares importing torch each time."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert ended.value.code == code, (out, err)
        return out, err

    return run


def losses(folder: Path) -> list[list[float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [[entry["step"], entry["loss"]] for entry in lines]


def test_trained_evaluated_compared(file: Path, tmp_path: Path, inside: Inside) -> None:
    runs = [tmp_path / "one", tmp_path / "two"]
    out, err = train("--features", file, *TINY, "--steps", 40, "--out", runs[0])
    assert "taco on s/train: 18 clips, 36 captions, a:x (16)" in err
    assert "weighed over" not in err
    assert "chance R@1 is 16.7" in out
    inside("--features", file, *TINY, "--steps", 40, "--out", runs[1], "--parts", "L1,L2")
    out, _ = inside("evaluate", "--checkpoint", runs[0], "--json")
    found = json.loads(out)
    assert found.pop("checkpoint") == str(runs[0])
    assert found == json.loads((runs[0] / "results.json").read_text())
    out, _ = inside("evaluate", "--checkpoint", runs[0], "--part", "s/train", "--rerank", 3, "--json")
    found = json.loads(out)
    assert (found["part"], found["rerank"]) == ("s/train", 3)
    assert list(found["scores"]) == ["early", "token", "later, best 3", "fused, best 3"]
    out, _ = inside("evaluate", "--checkpoint", runs[0], "--weights", "early=1,token=0.1", "--json")
    assert list(json.loads(out)["scores"]) == ["early", "token", "later", "fused", "chosen"]
    out, _ = inside("compare", *runs)
    assert f"2  {runs[1]}  parts L1, L2" in out.replace("\n", " ")
    differs = json.loads(inside("compare", *runs, "--json")[0])[1]["differs"]
    assert differs == {"parts": ["L1", "L2"]}
    assert "taco-msrvtt-split1" in inside("list")[0]


def test_killed_and_resumed(file: Path, tmp_path: Path, inside: Inside) -> None:
    """After kill -9 the losses from the resume on are those of a run that nobody killed."""
    words = ["--features", file, *TINY, "--steps", 60]
    inside(*words, "--out", tmp_path / "whole")
    with start(*words, "--out", tmp_path / "killed") as process:
        while len(_steps(tmp_path / "killed")) < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    train("resume", tmp_path / "killed")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    one, two = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed"))
    assert one == two


def _steps(folder: Path) -> list[str]:
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_wrong_inputs(file: Path, tmp_path: Path, inside: Inside) -> None:
    out = ["--out", tmp_path / "run"]
    for words, message in (
        (["--features", tmp_path / "no.h5"], "no feature file"),
        (
            ["--features", file.with_suffix(".tables.h5"), "--text-encoder", "tiny"],
            "has captions only; `pipeline join`",
        ),
        (["--features", file, "--streams", "b:y"], "unknown stream 'b:y'; there are: a:x"),
        (["--features", file, "--split", "t"], "--split t: the file has s"),
        (["--features", file, "--method", "tac"], "unknown method 'tac'; there are: "),
        (["--features", file, "--preset", "tac"], "unknown preset 'tac'; there are: "),
        (["--features", file, "--batch", "0"], "--batch 0: expected 1 or more"),
        (["--features", file, "--text-encoder", str(tmp_path)], f"--text-encoder {tmp_path}: the folder holds no"),
        (["resume", tmp_path], "is no run: it has no settings.json"),
        (["compare", tmp_path], "settings.json is not there"),
    ):
        _, err = inside(*words, *(out if words[0] == "--features" else []), code=2)
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith("error:")
        assert message in err
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_text_encoder(file: Path, tmp_path: Path, inside: Inside) -> None:
    inside("--features", file, *TINY, "--steps", 2, "--out", tmp_path / "run")
    settings = tmp_path / "run/settings.json"
    settings.write_text(settings.read_text().replace('"text_encoder": "tiny"', '"text_encoder": "minilm"'))
    _, err = inside("evaluate", "--checkpoint", tmp_path / "run", code=2)
    assert "the checkpoint is of another model" in err
    assert "use the text encoder, streams and layers that it was trained with" in err
