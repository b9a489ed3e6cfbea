"""The loop: a run that was stopped goes on as if it had not been; what is learnt can be found again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch

from pipeline.errors import BadSetting, MissingWeights, PipelineError
from tests.unit.corpora import make
from train import checkpoint, config, loading, logbook, loop, ranges, runs
from train.config import Data, Fit, Run
from train.methods import taco
from train.settings import Locvtp, Ncl, Taco
from train.tasks import retrieval

TINY = Taco(negatives=3, norm="l2", tau=0.05)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5")


def run_of(file: Path, steps: int = 12, settings: Taco = TINY, **changes: object) -> Run:
    fit = replace(Fit(steps=steps, batch=9, lr=2e-3, warmup=4, save_every=5), **changes)  # type: ignore[arg-type]
    return Run(Data(features=file, text_encoder="tiny"), fit, "taco", settings, ("s/train", "", "s/test"))


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(e["step"], e["loss"]) for e in logbook.entries(folder / "metrics.jsonl") if "loss" in e]


def stopped(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a run, and interrupt it in its eighth step."""
    real, calls = taco.losses, []

    def stops(*words: object) -> dict[str, torch.Tensor]:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(taco, "losses", stops)
    with pytest.raises(KeyboardInterrupt):
        runs.start(run, folder)


def test_a_stopped_run_goes_on_exactly(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbook, "EVERY", 1)
    whole = runs.start(run_of(file), tmp_path / "whole")
    stopped(run_of(file), tmp_path / "stopped", monkeypatch)
    assert losses(tmp_path / "stopped")[-1][0] == 7  # the checkpoint is of step 5
    torch.manual_seed(123)
    again = runs.resume(tmp_path / "stopped")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    assert again == whole
    one, two = (checkpoint.load(tmp_path / name / "last.pt")["model"] for name in ("whole", "stopped"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_training_finds_the_test_clips(file: Path, tmp_path: Path) -> None:
    """Six clips, colours and shapes seen in other pairs; chance is one in six."""
    found = runs.start(run_of(file, steps=150), tmp_path / "run")
    t2v = {level: lines[0]["R@1"] for level, lines in found["scores"].items()}
    assert found["chance"] == pytest.approx(1 / 6)
    assert t2v["early"] > 0.8
    assert t2v["token"] > 0.8
    assert t2v["fused"] > 0.8
    assert retrieval.evaluate(tmp_path / "run", None, "")["scores"] == found["scores"]
    train = retrieval.evaluate(tmp_path / "run" / "last.pt", file, "s/train")
    assert train["scores"]["early"][0]["R@1"] > 0.8
    assert "<svg" in (tmp_path / "run/curves.svg").read_text()
    assert json.loads((tmp_path / "run/results.json").read_text()) == json.loads(json.dumps(found))


@pytest.mark.parametrize(
    "settings",
    [
        Taco(parts=("L3",), negatives=2, dropout=0.0),
        Taco(parts=("L1",), directions="text"),
        Taco(parts=("L2",), video_layers=0, norm="l2", tau=0.1),
        Taco(cascade="random", negatives=2, fusion_layers=1),
        Taco(cascade="all", aggregate="sum", directions="text"),
        Taco(fusion_chunk=7, video_layers=2),
    ],
)
def test_every_ablation_runs(file: Path, tmp_path: Path, settings: Taco) -> None:
    found = runs.start(run_of(file, steps=2, settings=settings), tmp_path / "run")
    assert list(found["scores"])[-1] == "fused"
    assert ("later" in found["scores"]) == ("L3" in settings.parts)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("locvtp", Locvtp(start=0.3)),
        ("locvtp", Locvtp(correspondence="random", modality="intra", symmetric=True, own_words="keep")),
        ("locvtp", Locvtp(correspondence="2d-topk", mode="multi-stage", same_words="keep", direction=False)),
        ("ncl", Ncl()),
        ("ncl", Ncl(head="transformer", sequence_layers=1, detach=True)),
        ("ncl", Ncl(normalise_training=False)),
    ],
)
def test_other_methods_find_the_test_clips_too(file: Path, tmp_path: Path, method: str, settings: Any) -> None:
    run = replace(run_of(file, steps=120, lr=3e-3), method=method, method_settings=settings)
    run = replace(run, data=replace(run.data, text_pool="mean"))
    found = runs.start(run, tmp_path / "run")
    t2v = [lines[0]["R@1"] for lines in found["scores"].values()]
    assert t2v[-1] > 0.6  # chance is one in six
    assert retrieval.evaluate(tmp_path / "run", None, "")["scores"] == found["scores"]
    assert config.read(tmp_path / "run").method_settings == settings


@pytest.mark.parametrize("how", ["bank", "oracle", "dis", "is", "dsl"])
@pytest.mark.parametrize("method", ["taco", "ncl"])
def test_scores_are_evened_out_at_test_time(file: Path, tmp_path: Path, method: str, how: Any) -> None:
    settings = Ncl() if method == "ncl" else TINY
    run = replace(run_of(file, steps=5), method=method, method_settings=settings)
    plain = runs.start(run, tmp_path / "run")["scores"]
    found = retrieval.evaluate(tmp_path / "run", None, "", 0, retrieval.Evening(how, bank=20))
    assert {level: lines for level, lines in found["scores"].items() if "+" not in level} == plain
    assert set(found["scores"]) == {*plain, *(f"{level} + {how}" for level in plain)}
    lines = [line for level, some in found["scores"].items() if "+" in level for line in some]
    assert all(line["uses_test_queries"] == (how in ("oracle", "dsl")) for line in lines)
    if how == "oracle":
        assert all(max(e["after"]) < max(e["before"]) for e in found["errors"].values())


def test_a_subset_has_its_captions_clips_and_words(file: Path) -> None:
    corpus = runs.data.load(runs.Features.open(file), "s/train")
    part = runs.data.subset(corpus, torch.tensor([5, 8, 9]))
    assert part.texts == tuple(corpus.texts[c] for c in (5, 8, 9))
    assert [part.clips[c] for c in part.clip.tolist()] == [corpus.clips[c] for c in corpus.clip[[5, 8, 9]].tolist()]
    whole, own = (
        runs.data.video_tokens(c, torch.tensor([at]), 48)[0]
        for c, at in ((corpus, int(corpus.clip[5])), (part, int(part.clip[0])))
    )
    assert torch.equal(whole, own)
    assert part.words is not None
    assert corpus.words is not None
    for at, caption in enumerate((5, 8, 9)):
        one, two = (
            w.spans[w.offsets[n] : w.offsets[n + 1]].tolist() for w, n in ((part.words, at), (corpus.words, caption))
        )
        assert one == two


def test_a_chunked_fusion_has_the_gradients_of_the_whole(file: Path) -> None:
    """Activations that are computed again: the same loss and gradients, dropout included."""
    grads = []
    for chunk in (0, 5):
        run = run_of(file, settings=replace(TINY, fusion_chunk=chunk, dropout=0.0))
        features = runs.Features.open(file)
        corpus, words = runs._first(run, features)
        torch.manual_seed(0)
        model = loading.model_of(run, corpus.dim, words)
        loaded = loading.on_device(run, corpus, words, torch.device("cpu"))
        batch = loop.batches.make(corpus, loaded.pieces, torch.arange(9), run.data)
        model.eval()
        taco.losses(model, batch, run.method_settings, torch.Generator())["loss"].backward()
        grads.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, two in zip(*grads, strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_what_was_wrong_is_said_before_a_run_is_replaced(file: Path, tmp_path: Path) -> None:
    runs.start(run_of(file, steps=1), tmp_path / "run")
    with pytest.raises(PipelineError, match="no feature file"):
        runs.start(run_of(tmp_path / "absent.h5", steps=1), tmp_path / "run", force=True)
    assert (tmp_path / "run/results.json").exists()


def test_only_taco_needs_weights_of_words(file: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.h5"
    bare.write_bytes(file.read_bytes())
    with h5py.File(bare, "r+") as found:
        del found["words"], found["idf"]
    run = replace(run_of(bare, steps=1), method="ncl", method_settings=Ncl())
    assert runs.start(run, tmp_path / "ncl")["step"] == 1
    with pytest.raises(PipelineError, match="has no idf weights"):
        runs.start(run_of(bare, steps=1), tmp_path / "taco")


def test_a_frozen_encoder_is_left_as_it_is_and_out_of_the_checkpoint(file: Path, tmp_path: Path) -> None:
    run = run_of(file, steps=3)
    run = replace(run, data=replace(run.data, freeze_text=True))
    found = runs.start(run, tmp_path / "run")
    assert not [name for name in checkpoint.load(tmp_path / "run/last.pt")["model"] if name.startswith("text.")]
    assert retrieval.evaluate(tmp_path / "run", None, "")["scores"] == found["scores"]


def test_a_loss_that_is_no_number_stops_with_its_captions(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taco, "losses", lambda *_: {"loss": torch.tensor(float("nan"), requires_grad=True)})
    with pytest.raises(PipelineError, match=r"step 0: the loss is nan; its captions are in .*not-finite-0.json"):
        runs.start(run_of(file), tmp_path / "run")
    assert len(json.loads((tmp_path / "run/not-finite-0.json").read_text())["captions"]) == 9


def test_validation_chooses_the_step_and_can_end_training(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([0.1, 0.5, 0.3, 0.2, 0.9])
    monkeypatch.setattr(retrieval.ranking, "selection", lambda *_: next(values))
    monkeypatch.setattr(retrieval.weighting, "choose", lambda *_: {})
    run = replace(run_of(file, steps=20, evaluate_every=2, patience=2), parts=("s/train", "s/test", "s/test"))
    assert runs.start(run, tmp_path / "run")["step"] == 4
    assert checkpoint.load(tmp_path / "run/best.pt")["val"] == 0.5
    assert checkpoint.load(tmp_path / "run/last.pt")["step"] == 8
    assert runs.resume(tmp_path / "run")["step"] == 4  # it does not go on: a fifth value is never asked for
    assert next(values) == 0.9


def test_settings_come_back_as_they_were(file: Path, tmp_path: Path) -> None:
    run = run_of(file, settings=Taco(parts=("L1", "L3")))
    (tmp_path / "settings.json").write_text(run.as_json())
    assert config.read(tmp_path) == run


def test_checkpoints_that_cannot_be_used(file: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match="is no run: it has no settings.json"):
        retrieval.evaluate(tmp_path, None, "")
    runs.start(run_of(file, steps=1), tmp_path / "run")
    with pytest.raises(BadSetting, match="holds a run already; `train resume .*--force"):
        runs.start(run_of(file, steps=1), tmp_path / "run")
    assert runs.start(run_of(file, steps=2), tmp_path / "run", force=True)["step"] == 2
    (tmp_path / "run/best.pt").write_bytes((tmp_path / "run/last.pt").read_bytes()[:5000])
    with pytest.raises(MissingWeights, match="best.pt is no checkpoint of this program"):
        retrieval.evaluate(tmp_path / "run", None, "")
    settings = (tmp_path / "run/settings.json").read_text()
    (tmp_path / "run/settings.json").write_text(settings.replace('"video_layers": 1', '"video_layers": 2'))
    with pytest.raises(MissingWeights, match="the checkpoint is of another model: video.* differs"):
        retrieval.evaluate(tmp_path / "run/last.pt", None, "")


def test_numbers_and_names_that_cannot_be(file: Path) -> None:
    for changes, message in (
        ({"steps": 0}, "--steps 0: expected 1 or more"),
        ({"lr": float("nan")}, "--lr nan: expected 0 or more"),
        ({"ema": 1.0}, "--ema 1.0: expected 0 or more, less than 1"),
        ({"text_lr": -1.0}, "--text-lr -1.0: expected 0 or more"),
    ):
        with pytest.raises(BadSetting, match=message):
            config.check(run_of(file, **changes), {})
    for settings, message in (
        (replace(TINY, tau=0.0), "--tau 0.0: expected more than 0"),
        (replace(TINY, dropout=1.5), "--dropout 1.5: expected 0 or more, less than 1"),
        (replace(TINY, negatives=-1), "--negatives -1: expected 1 or more"),
    ):
        with pytest.raises(BadSetting, match=message):
            config.check(run_of(file, settings=settings), {})
    locvtp = replace(run_of(file), method="locvtp", method_settings=Locvtp(delta_max=0))
    with pytest.raises(BadSetting, match="--locvtp.delta-max 0: expected 1 or more"):
        config.check(locvtp, {})
    with pytest.raises(BadSetting, match="--locvtp.top-k is of --method locvtp, not of taco; leave it out"):
        config.check(run_of(file), {"taco": TINY, "locvtp": Locvtp(top_k=2), "ncl": Ncl()})
    config.check(run_of(file), {"taco": TINY, "locvtp": Locvtp(), "ncl": Ncl()})
    for parts in (("L3",), ("L1", "L2")):
        with pytest.raises(BadSetting, match="--rerank 5: it needs TACo with L3 and"):
            config.check(run_of(file, settings=replace(TINY, parts=parts), rerank=5), {})
    lstm = replace(run_of(file), data=Data(features=file, text_encoder="lstm"))
    with pytest.raises(BadSetting, match="--text-encoder lstm is for `train ground`"):
        config.check(lstm, {})
    with pytest.raises(BadSetting, match="--device cuda:9: .* CUDA devices are there"):
        config.device_of("cuda:9")
    for name in ("gpu", "meta"):
        with pytest.raises(BadSetting, match=f"--device {name}: expected auto, cpu"):
            config.device_of(name)


def test_every_setting_has_a_range() -> None:
    """But seeds, and flags that are no numbers."""
    for settings in (Data(features=Path("f.h5")), Fit(text_lr=1.0), Taco(), Locvtp(), Ncl()):
        for name, value in vars(settings).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "seed":
                assert name in ranges.RANGES, name
