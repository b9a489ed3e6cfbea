"""Benchmarks compare like with like: the sides return the same, and each is run by `make bench`."""

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import extractors
from benchmarks import extract_peer, printing, store_child, store_files
from benchmarks.run import SMALL
from benchmarks.store import ROWS, TOKENS, Job
from extractors.preprocess import pad_row, to_input

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
