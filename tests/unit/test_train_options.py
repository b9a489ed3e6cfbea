"""What a run can do besides: rows in the file, held-out clips, averages, other runs' weights, chosen weights."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pipeline.errors import BadSetting, MissingWeights, PipelineError
from pipeline.store import Features
from tests.unit.corpora import make
from tests.unit.editing import edited
from tests.unit.test_train_loop import TINY, losses, run_of, stopped
from train import batches, checkpoint, data, loading, logbook, runs, text, weighting
from train.config import Data, Run
from train.methods import taco
from train.settings import Ncl
from train.tasks import retrieval


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5", streams=("a:x", "b:y"))


def with_data(run: Run, **changes: object) -> Run:
    return dataclasses.replace(run, data=dataclasses.replace(run.data, **changes))  # type: ignore[arg-type]


def test_rows_that_stay_in_the_file_train_alike(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbook, "EVERY", 1)
    found = [runs.start(with_data(run_of(file), resident=how), tmp_path / how) for how in ("yes", "no")]
    assert losses(tmp_path / "yes") == losses(tmp_path / "no")
    assert found[0] == found[1]


@pytest.mark.parametrize("long", ["truncate", "uniform", "bins"])
def test_rows_in_the_file_are_the_resident_ones(file: Path, long: str) -> None:
    features = Features.open(file)
    held, left = (data.load(features, "s/train", resident=room) for room in (1e9, 0))
    assert all(rows.values is None for rows in left.streams)
    assert data.load(features, "s/train", resident=18 * 100).streams[0].values is None  # too many bytes
    for some in (torch.tensor([3, 0, 3]), torch.arange(18)):
        one, two = (data.video_tokens(corpus, some, 4, long) for corpus in (held, left))  # type: ignore[arg-type]
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
    part = data.subset(left, torch.tensor([5, 9]))
    assert torch.equal(
        data.video_tokens(part, torch.arange(2), 48)[0], data.video_tokens(held, left.clip[[5, 9]].sort().values, 48)[0]
    )


def test_a_row_in_the_file_that_is_no_number_is_named(file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.h5"
    bad.write_bytes(file.read_bytes())
    with edited(bad) as opened:
        opened["streams/b:y/values"][17] = float("nan")
    corpus = data.load(Features.open(bad), "all", resident=0)
    with pytest.raises(PipelineError, match="1 rows of b:y are NaN or infinite, the first of video v"):
        data.video_tokens(corpus, torch.arange(24), 48)


def test_batches_ahead_are_those_in_order(file: Path) -> None:
    corpus = data.load(Features.open(file), "s/train", resident=0)
    words = text.load("tiny", corpus.texts)
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    order, settings = batches.Order.of(corpus, 5, seed=1), Data(features=file)
    ahead = list(batches.ahead(corpus, found, order, settings, range(2, 9)))
    assert [batch.step for batch in ahead] == [(step, 9) for step in range(2, 9)]
    for step, batch in zip(range(2, 9), ahead, strict=True):
        assert torch.equal(batch.captions, order.at(step))
        assert torch.equal(batch.video, batches.make(corpus, found, order.at(step), settings).video)


def test_clips_that_are_held_out_choose_the_step_and_the_weights(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"early": 1.0, "token": 2.0, "later": 0.0}
    monkeypatch.setattr(weighting, "choose", lambda *_: chosen)
    run = with_data(run_of(file, steps=20, evaluate_every=5), hold_out=0.3)
    found = runs.start(run, tmp_path / "run")
    values = [entry for entry in logbook.entries(tmp_path / "run/metrics.jsonl") if "val" in entry]
    assert [entry["step"] for entry in values] == [5, 10, 15, 20]
    assert found["weights"] == chosen
    assert list(found["scores"])[-1] == "chosen"
    assert retrieval.evaluate(tmp_path / "run", None, "")["scores"] == found["scores"]
    assert (
        retrieval.evaluate(tmp_path / "run", None, "", 0, retrieval.Evening("bank"))["scores"].keys()
        > found["scores"].keys()
    )


def test_held_out_clips_are_not_trained_on(file: Path) -> None:
    corpus = data.load(Features.open(file), "s/train")
    rest, held = data.hold_out(corpus, 3, 0.25)
    assert held is not None
    assert (len(rest.clips), len(held.clips)) == (14, 4)
    assert not set(rest.clips) & set(held.clips)
    assert sorted(rest.captions + held.captions) == sorted(corpus.captions)
    assert data.hold_out(corpus, 3, 0.25)[1].clips == held.clips  # type: ignore[union-attr]
    assert data.hold_out(corpus, 4, 0.25)[1].clips != held.clips  # type: ignore[union-attr]
    assert data.hold_out(corpus, 3, 0.0) == (corpus, None)
    with pytest.raises(BadSetting, match="--hold-out 0.99: 18 of 18 clips leave nothing"):
        data.hold_out(corpus, 3, 0.99)


def test_the_weights_of_levels_are_those_that_retrieve_best(file: Path) -> None:
    """The first level is noise, the second knows the clip, the third knows it and shouts the wrong one louder."""
    corpus = data.load(Features.open(file), "s/test")
    own = torch.nn.functional.one_hot(corpus.clip, 6).float()
    noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(0))
    scores = {"early": 3 * noise, "token": own, "later": 5 * own.roll(1, 1), "fused": noise}
    chosen = weighting.choose(scores, corpus)
    assert chosen == {"early": 0.0, "token": 0.25, "later": 0.0}
    assert torch.equal(weighting.with_chosen(scores, chosen)["chosen"], 0.25 * own)
    assert weighting.choose({"coarse": own}, corpus) == {}
    assert weighting.choose({"early": own, "token": own, "fused": own}, corpus) == {}  # no better than the method's own
    with pytest.raises(PipelineError, match="unknown level of score 'late'; there are: early, fused, later, token"):
        weighting.with_chosen(scores, {"early": 1.0, "late": 1.0})
    assert weighting.with_chosen(scores, {}) == scores


def test_an_average_of_the_weights_is_evaluated_and_resumed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logbook, "EVERY", 1)
    run = run_of(file, ema=0.8)
    whole = runs.start(run, tmp_path / "whole")
    found = checkpoint.load(tmp_path / "whole/last.pt")
    assert found["averaged"]["count"] == 12
    assert not torch.equal(found["model"]["video.project.weight"], found["averaged"]["learnt"]["video.project.weight"])
    assert retrieval.evaluate(tmp_path / "whole", None, "")["scores"] == whole["scores"]
    plain = runs.start(run_of(file), tmp_path / "plain")
    learnt = checkpoint.load(tmp_path / "plain/last.pt")["model"]
    assert all(torch.equal(learnt[name], found["averaged"]["learnt"][name]) for name in learnt)
    assert plain["step"] == 12
    stopped(run, tmp_path / "stopped", monkeypatch)
    assert runs.resume(tmp_path / "stopped") == whole
    again = checkpoint.load(tmp_path / "stopped/last.pt")["model"]
    assert all(torch.equal(again[name], found["model"][name]) for name in again)


def test_the_average_is_exponential(file: Path, tmp_path: Path) -> None:
    expected = None
    for steps in range(1, 5):  # a run of few steps is the beginning of a longer one only without decay of the rate
        run = run_of(file, steps=steps, ema=0.6, warmup=10)
        runs.start(run, tmp_path / f"{steps}")
        found = checkpoint.load(tmp_path / f"{steps}/last.pt")
        learnt = found["averaged"]["learnt"]["video.project.weight"]
        expected = learnt if expected is None else 0.6 * expected + 0.4 * learnt
        torch.testing.assert_close(found["model"]["video.project.weight"], expected)


def test_training_begins_with_another_runs_weights(file: Path, tmp_path: Path) -> None:
    runs.start(run_of(file, steps=20), tmp_path / "first")
    for start in (tmp_path / "first", tmp_path / "first/last.pt"):
        run = run_of(file, steps=1, start_from=start, lr=0.0)
        found = runs.start(run, tmp_path / "second", force=True)
        assert found["scores"] == retrieval.evaluate(tmp_path / "first", None, "")["scores"]
    with pytest.raises(MissingWeights, match="no checkpoint yet; `train resume"):
        runs.start(run_of(file, start_from=tmp_path), tmp_path / "third")
    with pytest.raises(MissingWeights, match="the checkpoint is of another model"):
        runs.start(with_data(run_of(file, start_from=tmp_path / "first"), streams=("a:x",)), tmp_path / "third")


@pytest.mark.parametrize("levels", [("L1",), ("L1", "L2", "L3")])
def test_taco_with_ncls_biases(file: Path, tmp_path: Path, levels: tuple[str, ...]) -> None:
    settings = dataclasses.replace(TINY, normalise=levels, detach=levels == ("L1",))
    found = runs.start(run_of(file, steps=60, settings=settings), tmp_path / "run")
    assert max(lines[0]["R@1"] for lines in found["scores"].values()) > 0.6  # chance is one in six


def test_ncls_biases_are_those_of_each_level(file: Path) -> None:
    """L1 of a batch, the biases by Sinkhorn's iterations written as loops."""
    run = run_of(file, settings=dataclasses.replace(TINY, parts=("L1",), normalise=("L1",), dropout=0.0))
    corpus, words = runs._first(run, Features.open(file))
    model = loading.model_of(run, corpus.dim, words).eval()
    loaded = loading.on_device(run, corpus, words, torch.device("cpu"))
    batch = batches.make(corpus, loaded.pieces, torch.arange(0, 18, 2), run.data)
    video, said = taco._gathered(model, batch)
    s = taco._scaled(model, run.method_settings, said.whole, video.whole).double()
    a, b = torch.zeros(9, 1), -s.logsumexp(0)
    for _ in range(4):
        a = -(s + b).logsumexp(1, keepdim=True)
        b = -(s + a).logsumexp(0)
    to_video = sum(-(s + b)[i].log_softmax(0)[i] for i in range(9)) / 9
    to_text = sum(-(s + a)[:, i].log_softmax(0)[i] for i in range(9)) / 9
    found = taco.losses(model, batch, run.method_settings, torch.Generator())["L1"]
    torch.testing.assert_close(found.double(), (to_video + to_text) / 2, atol=1e-5, rtol=1e-5)


def test_two_passes_keep_little_for_the_gradients(file: Path) -> None:
    """Bytes that the fusion keeps for the backward pass: with chunks no more than a fraction."""
    kept = []
    for chunk in (0, 8):
        settings = dataclasses.replace(TINY, negatives=8, parts=("L3",), fusion_chunk=chunk)
        run = run_of(file, settings=settings)
        corpus, words = runs._first(run, Features.open(file))
        model = loading.model_of(run, corpus.dim, words)
        loaded = loading.on_device(run, corpus, words, torch.device("cpu"))
        batch = batches.make(corpus, loaded.pieces, torch.arange(0, 36, 2), run.data)
        video, said = taco._gathered(model, batch)
        pairs = torch.cartesian_prod(torch.arange(18), torch.arange(18))
        found: list[int] = []

        def keep(x: Tensor, found: list[int] = found) -> Tensor:
            found.append(x.numel() * x.element_size())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            taco._logits(model, said, video, pairs, chunk)
        kept.append(sum(found))
    assert kept[1] < kept[0] / 50


def test_the_gallery_is_held_against_what_the_data_set_says(file: Path, tmp_path: Path) -> None:
    declared = tmp_path / "f.h5"
    declared.write_bytes(file.read_bytes())
    with edited(declared) as opened:
        opened.attrs["declared"] = json.dumps({"s/test": {"clips": 8, "gallery": 8}})
    found = runs.start(run_of(declared, steps=1), tmp_path / "run")
    lines = found["scores"]["early"]
    assert lines[0]["expected"] == 8
    assert lines[0]["note"] == "a gallery of 6, 8 are declared"


def test_events_for_tensorboard(file: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs.start(run_of(file, steps=20, tensorboard=True), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    wanted = {e["step"]: e["L2"] for e in logbook.entries(tmp_path / "run/metrics.jsonl")}
    assert {e.step: pytest.approx(e.value) for e in events.Scalars("L2")} == wanted


def test_clip_compares_by_its_last_token(file: Path, tmp_path: Path) -> None:
    """A folder with a small CLIP: the vector of a caption is CLIP's own text embedding; frames of its size meet it."""
    from tests.unit.clips import save

    model = save(tmp_path / "clip")
    corpus = data.load(Features.open(file), "s/train")
    words = text.load(str(tmp_path / "clip"), corpus.texts)
    assert words.encoder.pool == "last"
    encoder = words.encoder.eval()
    batch = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30).batch(torch.arange(5))
    found = encoder.whole(encoder(batch), batch.mask)
    expected = model.get_text_features(input_ids=batch.ids, attention_mask=batch.mask.long())
    torch.testing.assert_close(found, getattr(expected, "pooler_output", expected))
    run = Run(
        Data(features=file, text_encoder=str(tmp_path / "clip")), run_of(file, steps=2).fit, "ncl", Ncl(),
        ("s/train", "", "s/test"),
    )  # fmt: skip
    assert runs.start(run, tmp_path / "run")["step"] == 2


def test_only_the_best_are_fused(file: Path) -> None:
    """What is fused is scored as without; the rest comes behind, in the order of the scores before."""
    run = run_of(file)
    corpus, words = runs._first(run, Features.open(file))
    model = loading.model_of(run, corpus.dim, words).eval()
    loaded = loading.on_device(run, corpus, words, torch.device("cpu"))
    whole, some = (taco.scores(model, corpus, loaded.pieces, run.method_settings, m) for m in (0, 4))
    before = whole["early"] + 0.5 * whole["token"]
    for row in range(len(corpus.texts)):
        best = set(before[row].topk(4).indices.tolist())
        best |= {clip for clip in range(18) if row in before[:, clip].topk(4).indices.tolist()}
        for clip in range(18):
            if clip in best:
                assert some["later"][row, clip] == pytest.approx(float(whole["later"][row, clip]), abs=1e-4)
        rest = sorted(set(range(18)) - best, key=lambda clip: float(before[row, clip]))
        behind = some["later"][row, rest]
        assert (behind.diff() >= 0).all()
        assert not rest or float(behind.max()) < float(whole["later"].min()) - 0.9


def test_a_bank_that_holds_the_test_is_an_oracle(file: Path, tmp_path: Path) -> None:
    run = dataclasses.replace(run_of(file, steps=3), method="ncl", method_settings=Ncl())
    runs.start(run, tmp_path / "run")
    for part, oracle in (("s/test", False), ("s/train", True), ("all", True)):
        found = retrieval.evaluate(tmp_path / "run", None, part, 0, retrieval.Evening("bank"))
        assert found["scores"]["similarity + bank"][0]["uses_test_queries"] is oracle


def test_another_networks_features_are_refused(file: Path, tmp_path: Path) -> None:
    runs.start(run_of(file, steps=2), tmp_path / "run")
    other = tmp_path / "other.h5"
    other.write_bytes(file.read_bytes())
    with edited(other) as opened:
        settings = json.loads(opened["streams/b:y"].attrs["settings"])
        opened["streams/b:y"].attrs["settings"] = json.dumps({**settings, "weights": "others"})
    with pytest.raises(PipelineError, match="stream b:y was made with other settings or weights"):
        retrieval.evaluate(tmp_path / "run", other, "")
    one = make(tmp_path / "one.h5", streams=("a:x",))
    with pytest.raises(PipelineError, match="unknown stream 'b:y'"):
        retrieval.evaluate(tmp_path / "run", one, "")


def test_a_file_that_changed_is_noticed_when_a_run_goes_on(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.h5"
    own.write_bytes(file.read_bytes())
    runs.start(run_of(own, steps=2), tmp_path / "run")
    make(own, seed=5, streams=("a:x", "b:y"))
    with pytest.raises(PipelineError, match="own.h5 has changed since the run began: rows a:x, rows b:y; train anew"):
        runs.resume(tmp_path / "run")


def test_captions_that_cannot_be_encoded(file: Path, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    from tests.unit.clips import save

    save(tmp_path / "vit")
    ViTModel(ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(tmp_path / "vit")
    corpus = data.load(Features.open(file), "s/train")
    with pytest.raises(PipelineError, match="vit: it encodes no text"):
        text.load(str(tmp_path / "vit"), corpus.texts)
    for name, bad in (("odd.pt", {"weights": 1}), ("list.pt", [1])):
        torch.save(bad, tmp_path / name)
        with pytest.raises(MissingWeights, match="is no checkpoint of this program"):
            checkpoint.load(tmp_path / name)
    (tmp_path / "text.pt").write_text("#!/bin/sh")
    with pytest.raises(MissingWeights, match="text.pt is no checkpoint of this program"):
        checkpoint.load(tmp_path / "text.pt")
