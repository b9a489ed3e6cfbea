"""Benchmarks compare like with like: the sides return the same, and each is run by `make bench`."""

import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import extractors
from benchmarks import extract_child, extract_each, extract_peer, printing, store_child, store_files
from benchmarks.orchestration import Measured, verdicts
from benchmarks.run import SMALL
from benchmarks.store import ROWS, TOKENS, Job
from extractors.embed import Batcher
from extractors.preprocess import pad_row, to_input
from tests.whole.frames import program

HERE = Path(__file__).parents[2] / "benchmarks"


def test_make_bench_runs_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(SMALL) == {file.stem for file in HERE.glob("*.py") if '"--json"' in file.read_text()}
    for name, small in SMALL.items():
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit):
            import_module(f"benchmarks.{name}").main()
        told = capsys.readouterr().out
        assert all(flag in told for flag in ["--json", *re.findall(r"--[a-z-]+", small.words)]), name


def test_figures_without_a_table_are_printed_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    printing.show({"a": {"b": 0.123456, "met": False}, "c": [1, 20.5]})
    lines = [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [("a, b", "0.123"), ("a, met", "no"), ("c", "1 20.50")]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(place=tmp_path_factory.mktemp("store"), videos=60, dim=8, batches=3, clips=16, shard=25, folded=2)
    store_files.write(job)
    return job


@pytest.mark.parametrize("kind", ["whole", "spans"])
def test_all_layouts_hold_the_same_rows(job: Job, kind: str) -> None:
    plan = store_files.plan_of(job)
    flat = np.concatenate(list(store_files.each(job, plan)))
    opening = store_child.Opening(job, plan, kind)
    for videos in store_files.batches_of(job):
        batch = store_child.Batch(torch.from_numpy(videos), plan.spans(kind, videos))
        wanted = np.concatenate([flat[plan.offsets[v] + a : plan.offsets[v] + b] for v, a, b in batch.spans])
        if kind == "spans":
            assert all(2 <= b - a <= 8 for _, a, b in batch.spans)
        found = {}
        for name, side in {**ROWS, **TOKENS}.items():
            with store_child.SIDES[side][0](opening) as read:
                found[name] = read(batch)
        for name in ROWS:
            np.testing.assert_array_equal(np.asarray(found[name]), wanted, err_msg=name)
        (a, there), (b, same) = (found[name] for name in TOKENS)
        assert torch.equal(a, b)
        assert torch.equal(there, same)
        np.testing.assert_array_equal(a[there].numpy(), wanted.astype(np.float32))


def test_few_shards_are_folded_and_copied(job: Job) -> None:
    assert len(store_files.paths(job, "shards")) == 2
    found = store_child.folding(job)
    assert found["shards"] == 2
    assert found["bytes"] == sum(path.stat().st_size for path in store_files.paths(job, "shards"))
    assert not (job.place / "copies").exists()
    assert not (job.place / "folded.h5").exists()


@pytest.mark.parametrize("name", ["resnet152", "i3d_x101", "s3d_howto100m"])
def test_the_peer_of_extraction_makes_the_same_input(name: str) -> None:
    preset = extractors.preset(name)
    frames = np.random.default_rng(0).integers(0, 256, (2 * preset.frames + preset.frames // 2, 32, 32, 3), np.uint8)
    rows = np.stack(
        [pad_row(part, preset.frames) for part in np.split(frames, range(preset.frames, len(frames), preset.frames))]
    )
    found = extract_peer.cut(torch.from_numpy(frames.astype(np.float32)).permute(0, 3, 1, 2), preset)
    torch.testing.assert_close(found, to_input(rows, preset), rtol=1e-6, atol=1e-6)


def drawn(path: Path, size: str, seconds: int) -> Path:
    program("-f", "lavfi", "-i", f"testsrc=size={size}:rate=10:duration={seconds}", "-y", path)
    return path


def test_an_extractor_beside_its_floors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row a second of frames that keep their shape, in batches of eight: a batch for each video."""
    drawn(tmp_path / "a.mp4", "64x48", 3)
    drawn(tmp_path / "b.mp4", "48x64", 2)
    (tmp_path / "c.mp4").write_text("no video, and not looked at: there are 5 seconds before it")
    words = ["--videos", tmp_path, "--extractors", "colors", "--seconds", "4", "--runs", "2", "--json"]
    monkeypatch.setattr(sys, "argv", ["extract_each", *map(str, words)])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    extract_each.main()
    found = json.loads(capsys.readouterr().out)
    assert (found["videos"], found["seconds"], found["runs"]) == (2, pytest.approx(5), 2)
    ((name, one),) = found["extractors"].items()
    assert (name, one["preset"], one["rows"], one["rows of padding"]) == ("colors:resnet152", name, 5, 5 + 6)
    assert all(0 < one[side] < 60 for side in ("wall", "decode floor", "network floor", "Batcher"))
    assert one["network floor"] < one["Batcher"] < one["wall"]  # it also turns the frames into numbers
    assert {ratio: len(runs) for ratio, runs in one["by run"].items()} == dict.fromkeys(one["by run"], 2)
    assert one["wall / floors"] < one["wall / larger floor"]
    assert one["met"] == {"wall / floors, <= 1.15": one["wall / floors"] <= 1.15}
    extract_each.show(found)
    assert re.search(r"colors:resnet152 +│ +5 \+ 11 +│", capsys.readouterr().out)


def test_ratios_are_medians_and_the_batcher_s_is_required_of_three() -> None:
    rounds = [
        {"wall": 12.0, "decode floor": 2.0, "network floor": 6.0, "Batcher": 6.0},
        {"wall": 7.0, "decode floor": 6.0, "network floor": 1.0, "Batcher": 1.5},
        {"wall": 9.0, "decode floor": 2.0, "network floor": 8.0, "Batcher": 10.0},
    ]
    found = extract_each.summary({"preset": "s3d_howto100m:univl", "rows": 3, "rounds": rounds})
    assert found["by run"]["wall / floors"] == [1.5, 1.0, 0.9]
    assert found["by run"]["wall / larger floor"] == [2.0, 7 / 6, 1.125]
    assert (found["wall / floors"], found["wall / larger floor"], found["Batcher / bare"]) == (1.0, 7 / 6, 1.25)
    assert (found["wall"], found["decode floor"], found["network floor"]) == (9.0, 2.0, 6.0)
    assert found["met"] == {"wall / floors, <= 1.15": True, "Batcher / bare, <= 1.1": False}
    assert extract_each.judged(found, "wall / floors") == "1.00 (1.50 1.00 0.90) met"
    assert extract_each.judged(found, "Batcher / bare") == "1.25 (1.00 1.50 1.25) NOT met"
    other = extract_each.summary({"preset": "colors:i3d_x101", "rows": 3, "rounds": rounds})
    assert extract_each.judged(other, "Batcher / bare") == "1.25 (1.00 1.50 1.25)"


def test_the_floor_is_without_the_last_batch_s_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 rows in batches of 4: two batches by each side, of which 5 / 8 count."""
    seen: list[tuple[int, ...]] = []

    class Network(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(tuple(x.shape))
            return x.mean((1, 2, 3, 4))[:, None]

    preset = extractors.preset("colors:i3d_x101")
    monkeypatch.setattr(extract_child, "seconds_of", lambda what: [what(), 1.0][1])
    assert extract_child.forward(Batcher(preset, Network(), preset.batch), (6, 4), 5) == (1.25, 1.25)
    assert seen == [(4, 3, 16, 4, 6)] * 4


def test_extractors_that_cannot_be_measured_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    video, text = drawn(tmp_path / "a.mp4", "64x48", 1), tmp_path / "b.mp4"
    text.write_text("no video")
    failed = extract_child.measured("colors", [text], 1)
    monkeypatch.setitem(sys.modules, "timm", None)
    lacking = extract_child.measured(extract_each.preset_of("timm"), [video], 1)
    about = {"videos": 1, "seconds": 1.0, "runs": 1, "load before": 0.0, "load after": 0.0}
    extract_each.show({**about, "extractors": {"colors": failed, "timm": lacking}})
    told = capsys.readouterr().out
    assert re.search(r"^colors: failed: .*not a video", told, re.MULTILINE)
    assert re.search(r"^timm: left out: it needs something that is not installed: .*timm", told, re.MULTILINE)
    monkeypatch.setattr(sys, "argv", ["extract_each", "--extractors", "colours"])
    with pytest.raises(SystemExit):
        extract_each.main()
    assert "unknown extractor 'colours'; there are: c3d, " in capsys.readouterr().err


def test_orchestration_is_judged_at_a_million_videos() -> None:
    seconds = {"work": 300.0, "dry": 31.0, "run": 200.0, "resume": 17.0}
    one = Measured(1_000_000, seconds, seconds, 927.0)
    assert verdicts(one) == ["ms a video <= 1: met", "peak MB <= 1000: met", "dry, s <= 30: NOT met"]
    assert verdicts(replace(one, videos=100_000)) == []
