"""Grounding as a task: what is asked, what is dropped and clamped, and that `train ground` finds it."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from pipeline.store import Features
from tests.unit.editing import edited
from tests.unit.longvideos import make
from train import batches, checkpoint, data, scratch, text
from train.cli import main
from train.config import Data


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("long") / "g.h5")


def test_what_queries_ask_for(file: Path) -> None:
    corpus = data.load(Features.open(file), "g/train", words=False, whole=True)
    assert corpus.asked is not None
    assert len(corpus.clips) == 120
    assert len(corpus.captions) == 239  # v001#1 asks for what begins behind its video
    assert (corpus.asked.dropped, corpus.asked.clamped) == (1, 2)
    at = corpus.captions.index("v000#1")
    with h5py.File(file) as opened:
        start = float(opened["clips/start"][1])
    assert corpus.asked.spans[at, 0].tolist() == pytest.approx([start / 20, 1])
    assert corpus.clips[int(corpus.clip[at])] == "v000"
    batch_of = text.pieces(text.load("lstm", corpus.texts).tokenizer, corpus.texts, None, 10)
    batch = batches.make(
        corpus, batch_of, torch.tensor([at, 5]), Data(features=file, max_video_tokens=256, long="bins")
    )
    assert batch.spans is not None
    assert torch.equal(batch.spans, corpus.asked.spans[[at, 5], 0])
    assert batch.video_mask.sum(1).tolist() == [int(corpus.streams[0].count[c]) for c in corpus.clip[[at, 5]]]
    order = batches.Order.of(corpus, 32, 0)
    epoch = torch.cat([order.at(step) for step in range(order.steps)])
    assert len(set(epoch.tolist())) == 7 * 32  # each query once


def test_queries_to_videos_that_nobody_has_are_missing_not_dropped(tmp_path: Path) -> None:
    gone = ("v000", "v001", "v007", "v149")
    features = Features.open(make(tmp_path / "g.h5", missing=gone))
    for part, queries, lacking in (("g/train", 234, 6), ("g/test", 58, 2)):
        corpus = data.load(features, part, words=False, whole=True)
        assert corpus.asked is not None
        assert (len(corpus.captions), corpus.lacking_captions) == (queries, lacking)
        assert (corpus.asked.dropped, corpus.asked.clamped) == (0, 0)  # v000 and v001 have the odd ones


def test_any_window_will_do(file: Path, tmp_path: Path) -> None:
    several = tmp_path / "w.h5"
    several.write_bytes(file.read_bytes())
    with edited(several) as opened:
        del opened["windows"]
        table = opened.create_group("windows")
        table["caption"], table["start"], table["end"] = [4, 4, 7], [2.0, 9.0, 1.0], [4.0, 12.0, 3.0]
    asked = data.load(Features.open(several), "g/train", words=False, whole=True).asked
    assert asked is not None
    assert asked.spans.shape == (239, 2, 2)
    seconds = float(asked.seconds[2])
    found = asked.spans[3] * seconds  # v002#0 is caption 4, and one before it was dropped
    assert found.flatten().tolist() == pytest.approx([2, 4, 9, 12], abs=1e-4)
    assert asked.of(torch.tensor([3]), 1).flatten().tolist() == pytest.approx([9 / seconds, 12 / seconds])
    assert (asked.spans[6, 0] == asked.spans[6, 1]).all()  # a query with fewer repeats its first


def test_trained_and_evaluated(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def train(*words: str | Path) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out

    found = {}
    for steps in (1, 120):
        train(
            "ground", "--features", file, "--method", "spans", "--spans.dim", 64, "--text-encoder", "tiny", "--steps",
            steps, "--lr", 2e-3, "--out", tmp_path / f"{steps}",
        )  # fmt: skip
        found[steps] = json.loads((tmp_path / f"{steps}/results.json").read_text())
    model, constant = found[120]["moments"]["model"], found[120]["moments"]["constant"]
    assert (model["queries"], found[120]["dropped"]) == (60, 0)
    assert model["R@1 IoU=0.5"] > max(constant["R@1 IoU=0.5"], found[1]["moments"]["model"]["R@1 IoU=0.5"]) + 0.15
    again = json.loads(train("evaluate", "--checkpoint", tmp_path / "120", "--json"))
    assert again["moments"]["model"] == model
    out = train(
        "ground", "--features", file, "--clips", 16, "--kernel", 3, "--layers", 1, "--hidden", 32, "--steps", 3,
        "--out", tmp_path / "tan",
    )  # fmt: skip
    assert "constant: the span that most training queries agree with" in out
    assert "words.weight" in "".join(checkpoint.load(tmp_path / "tan/last.pt")["model"])


def test_word_vectors_that_are_given(file: Path, tmp_path: Path) -> None:
    corpus = data.load(Features.open(file), "g/train", words=False, whole=True)
    path = tmp_path / "glove.txt"
    path.write_text("red 1 2 3\nwhen 4 5 6\n. . 7 8 9\n", encoding="utf-8")
    words = text.load("lstm", corpus.texts, glove=path)
    table = words.encoder.net.words  # type: ignore[union-attr]
    assert table.weight[words.tokenizer.vocab["red"]].tolist() == [1, 2, 3]  # type: ignore[union-attr,index,operator]
    assert not table.weight[words.tokenizer.vocab["blue"]].any()  # type: ignore[union-attr,index,operator]
    assert not table.weight.requires_grad  # type: ignore[union-attr]
    found = words.encoder(text.pieces(words.tokenizer, ["red", "when is it red"], None, 9).batch(torch.arange(2)))
    assert found.shape == (2, 4, scratch.HIDDEN)
    np.testing.assert_array_equal(found[0, 1:].detach(), 0)
    for content, message in (("red 1 2 x\n", "is not a word and its numbers"), ("crimson 1 2\n", "none of our words")):
        path.write_text(content)
        with pytest.raises(Exception, match=message):
            text.load("lstm", corpus.texts, glove=path)
