"""Batches put together by index arithmetic, against rows read one clip at a time."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import BadFeatureFile, BadSetting, UnknownName
from pipeline.store import Features
from tests.unit.corpora import add_words, make
from tests.unit.editing import edited
from train import batches, data, text
from train.config import Data, parts_of
from train.data import Corpus
from train.wordpieces import spread


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5", streams=("a:x", "b:y"), missing=("v3",))


@pytest.fixture(scope="module")
def corpus(file: Path) -> Corpus:
    return data.load(Features.open(file), "s/train")


def test_what_is_loaded(corpus: Corpus) -> None:
    assert corpus.lacking == ("v3",)
    assert corpus.lacking_captions == 2
    assert len(corpus.clips) == 17
    assert [corpus.clips[c] for c in corpus.clip.tolist()] == [name.split("#")[0] for name in corpus.captions]
    assert corpus.dim == 32


@pytest.mark.parametrize("most", [1, 4, 5, 48])
@pytest.mark.parametrize("long", ["truncate", "uniform", "bins"])
def test_tokens_are_the_rows_at_their_places(file: Path, corpus: Corpus, most: int, long: str) -> None:
    """The grid has the rate of the first stream, 1 a second; the second one has 1.5."""
    features = Features.open(file)
    clips = torch.tensor([0, 3, 7, 16])
    x, mask = data.video_tokens(corpus, clips, most, long)  # type: ignore[arg-type]
    assert x.shape[1] == mask.shape[1] == max(min(most, len(features.rows("a:x", corpus.clips[c]))) for c in clips)
    for row, clip in enumerate(clips.tolist()):
        a, b = (features.rows(name, corpus.clips[clip]).astype(np.float32) for name in ("a:x", "b:y"))
        taken = min(most, len(a))
        assert int(mask[row].sum()) == taken
        assert not x[row, taken:].any()
        for j in range(taken):
            first, stop = j, j + 1
            if long == "uniform":
                first = math.floor((j + 0.5) * len(a) / taken)
                stop = first + 1
            elif long == "bins":
                first, stop = j * len(a) // taken, (j + 1) * len(a) // taken
            begin, end = min(int(first * 1.5), len(b) - 1), min(int(stop * 1.5), len(b))
            other = b[begin : max(end, begin + 1)].mean(0)
            if long != "bins" or len(a) <= most == 48:
                middle = min(int((first + 0.5) * 1.5), len(b) - 1)
                other = b[middle] if long != "bins" or not _cut(corpus, clips, most) else other
            expected = np.concatenate([a[first:stop].mean(0), other])
            np.testing.assert_allclose(x[row, j].numpy(), expected, atol=1e-3)


def _cut(corpus: Corpus, clips: torch.Tensor, most: int) -> bool:
    return bool((data.lengths(corpus)[clips] > most).any())


def test_an_epoch_has_every_clip_once_and_is_the_same_again(corpus: Corpus) -> None:
    order = batches.Order.of(corpus, 4, seed=1)
    assert order.steps == 4
    epoch = torch.cat([order.at(step) for step in range(4)])
    assert len(set(corpus.clip[epoch].tolist())) == 16
    assert torch.equal(order.at(2), batches.Order.of(corpus, 4, seed=1).at(2))
    assert not torch.equal(torch.cat([order.at(step) for step in range(4, 8)]), epoch)
    assert not torch.equal(batches.Order.of(corpus, 4, seed=2).at(2), order.at(2))
    seen = {int(c) for step in range(400) for c in order.at(step)}
    assert seen == set(range(len(corpus.texts)))
    assert batches.Order.of(corpus, 1_000, seed=1).size == 17


def test_pieces_carry_the_weights_of_their_words(corpus: Corpus) -> None:
    words = text.load("tiny", corpus.texts)
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    batch = found.batch(torch.tensor([0, 1]))
    tokens = [words.tokenizer.convert_ids_to_tokens(row) for row in batch.ids.tolist()]
    assert tokens[0] == ["[CLS]", "a", "red", "square", "[SEP]", "[PAD]", "[PAD]"]
    assert tokens[1] == ["[CLS]", "the", "red", "square", "is", "here", "[SEP]"]
    assert batch.weights.tolist() == [[0, 0, 0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0, 0]]
    assert batch.mask.sum(1).tolist() == [5, 7]
    short = text.pieces(words.tokenizer, corpus.texts, corpus.words, 4).batch(torch.tensor([1]))
    assert words.tokenizer.convert_ids_to_tokens(short.ids[0].tolist()) == ["[CLS]", "the", "red", "[SEP]"]


def test_a_frozen_encoders_features_are_those_it_gives(corpus: Corpus) -> None:
    words = text.load("tiny", corpus.texts)
    words.encoder.eval()
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    frozen = text.Pieces(found.ids, found.weights, found.offsets, text.freeze(words.encoder, found, batch=5))
    some = torch.tensor([9, 2, 30])
    cached, now = words.encoder(frozen.batch(some)), words.encoder(found.batch(some))
    mask = found.batch(some).mask
    assert torch.allclose(cached[mask], now[mask], atol=5e-3)


def damage(file: Path, tmp_path: Path, name: str) -> Path:
    copy = tmp_path / "g.h5"
    copy.write_bytes(file.read_bytes())
    with edited(copy) as found:
        if name == "nan":
            found["streams/a:x/values"][found["streams/a:x/offsets"][2] - 1] = np.nan  # the last row of v1
        elif name == "interest":
            pass
        else:
            del found[name]
            if name == "captions":
                found.create_group(name)
    if name == "interest":
        add_words(copy, interest=())
    return copy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nan", "1 rows of a:x are NaN or infinite, the first of video v1; `pipeline verify`"),
        ("captions", "has no captions; extract a data set that has some"),
        ("words", "has no idf weights; run `pipeline run idf"),
        ("idf", "has no idf weights; run `pipeline run idf"),
        ("interest", "has no token of interest; run `pipeline run tag --interest NOUN,VERB`"),
        ("streams", "has captions only; `pipeline join` puts it together with features"),
    ],
)
def test_files_that_cannot_be_trained_on(file: Path, tmp_path: Path, name: str, message: str) -> None:
    path = file.with_suffix(".tables.h5") if name == "streams" else damage(file, tmp_path, name)
    with pytest.raises(BadFeatureFile, match=message):
        data.load(Features.open(path), "s/train")


def SPLIT(name: str, **parts: str) -> Data:  # noqa: N802
    return Data(features=Path("f.h5"), split=name, **parts)


def test_names_that_are_not_there(file: Path) -> None:
    with pytest.raises(UnknownName, match="unknown part of a split 's/val'; there are: all, s/test, s/train"):
        data.load(Features.open(file), "s/val")
    with pytest.raises(UnknownName, match="unknown stream 'c:z'; there are: a:x, b:y"):
        data.load(Features.open(file), "s/train", ["c:z"])
    assert parts_of(SPLIT(""), ["s/test", "s/train"]) == ("s/train", "", "s/test")
    assert parts_of(SPLIT("s"), ["s/test", "s/train", "s/val", "t/train"]) == ("s/train", "s/val", "s/test")
    named = SPLIT("s", val="val_1", test="t/val")
    assert parts_of(named, ["s/train", "s/val_1", "t/val"]) == ("s/train", "s/val_1", "t/val")
    assert parts_of(SPLIT("all"), ["s/train"]) == ("all", "", "all")
    with pytest.raises(BadSetting, match="--test s/val_2: the file has s/train, s/test"):
        parts_of(SPLIT("s", test="val_2"), ["s/train", "s/test"])
    assert parts_of(SPLIT(""), ["s/train", "t/train", "t/test"], "t") == ("t/train", "", "t/test")
    with pytest.raises(BadSetting, match="--split is needed: the file has s, t"):
        parts_of(SPLIT(""), ["s/train", "t/train"])
    with pytest.raises(BadSetting, match="--split u: the file has s"):
        parts_of(SPLIT("u"), ["s/train"])


def test_no_clip_has_rows(tmp_path: Path) -> None:
    path = make(tmp_path / "f.h5", missing=tuple(f"v{n}" for n in range(1, 24)))
    with pytest.raises(BadFeatureFile, match="s/train: no clip has rows in a:x"):
        data.load(Features.open(path), "s/train")


def test_a_batch(corpus: Corpus) -> None:
    words = text.load("tiny", corpus.texts)
    found = text.pieces(words.tokenizer, corpus.texts, corpus.words, 30)
    batch = batches.make(corpus, found, torch.tensor([4, 8]), Data(features=Path("f.h5"), max_video_tokens=2))
    assert batch.captions.tolist() == [4, 8]
    assert batch.own.tolist() == [0, 1]
    assert batch.video.shape == (2, 2, 32)
    assert batch.text.ids.shape == batch.text.mask.shape


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_weights_of_many_captions_are_those_of_each(
    corpus: Corpus, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK", block)
    tokenizer, words = text.load("tiny", corpus.texts).tokenizer, corpus.words
    assert words is not None
    by_word, by_piece = (text.pieces(tokenizer, corpus.texts, words, 30, norm) for norm in ("word", "piece"))
    for caption, said in enumerate(corpus.texts):
        own = slice(words.offsets[caption], words.offsets[caption + 1])
        offsets = tokenizer(said, return_offsets_mapping=True)["offset_mapping"]
        wanted = spread(words.spans[own], words.weights[own], offsets)
        at = slice(int(by_word.offsets[caption]), int(by_word.offsets[caption + 1]))
        assert by_word.ids[at].tolist() == tokenizer(said)["input_ids"]
        np.testing.assert_array_equal(by_word.weights[at].numpy(), wanted)
        np.testing.assert_allclose(by_piece.weights[at].numpy(), wanted / (wanted.sum() or 1), atol=1e-7)
