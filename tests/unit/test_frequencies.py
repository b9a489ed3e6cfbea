"""TACo's equation 7, with numbers worked by hand."""

import math

import h5py
import numpy as np
import pytest

from pipeline.caption_runs import _write_captions, idf, tag
from pipeline.captions import Block
from pipeline.errors import BadFeatureFile, BadSetting, UnknownName
from pipeline.frequencies import count, training_split, weights
from pipeline.output import Output
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.stages.idf import Idf
from pipeline.stages.tag import Tag
from pipeline.wordstats import summary

TEXTS = {"a": "a man sings", "b": "Man and dog", "c": "a dog runs", "d": "the cat sings", "t": "a zebra runs"}


@pytest.fixture
def file(tmp_path):
    """Five captions, the last one of the test."""
    clips = tuple(Clip(name, name) for name in TEXTS)
    captions = tuple(Caption(f"{name}0", name, text) for name, text in TEXTS.items())
    train, test = tuple("abcd"), ("t",)
    parts = [Part("s", "train", train, tuple(f"{n}0" for n in train)), Part("s", "test", test, ("t0",))]
    manifest = Manifest("files", tuple(Video(n, None) for n in TEXTS), clips, captions, tuple(parts))
    output = Output(tmp_path / "f.h5")
    with output.owned():
        _write_captions(output, manifest)
    return tmp_path / "f.h5"


def _table(path):
    with h5py.File(path) as f:
        g = f["idf"]
        return dict(zip(g["type"].asstr()[()], zip(g["df"][()], g["idf"][()], strict=True), strict=True))


def test_equation_seven_over_the_training_captions(file):
    assert idf(Idf(features=file), 0, "") == 0
    found = _table(file)
    expected = {"a": 2, "man": 2, "sings": 2, "and": 1, "dog": 2, "runs": 1, "the": 1, "cat": 1, "zebra": 0}
    assert {word: int(df) for word, (df, _) in found.items()} == expected  # case is folded; `zebra` is in no training
    for word, df in expected.items():
        assert found[word][1] == pytest.approx(max(0.0, math.log(4 / (1 + df)))), word


def test_weights_of_a_caption_sum_to_one_over_its_nouns_and_verbs(file):
    idf(Idf(features=file), 0, "")
    with h5py.File(file) as f:
        weight = np.split(f["idf/weight"][()], f["words/offsets"][1:-1])
    man, runs, dog, unseen = math.log(4 / 3), math.log(4 / 2), math.log(4 / 3), math.log(4)
    assert weight[0] == pytest.approx([0, 0.5, 0.5])  # man and sings are equally rare
    assert weight[2] == pytest.approx([0, dog / (dog + runs), runs / (dog + runs)])
    assert weight[4] == pytest.approx([0, unseen / (unseen + runs), runs / (unseen + runs)])
    assert man == dog


def test_a_minimum_count_takes_rare_words_weight(file):
    idf(Idf(features=file, min_count=2), 0, "")
    with h5py.File(file) as f:
        weight = np.split(f["idf/weight"][()], f["words/offsets"][1:-1])
    assert weight[2] == pytest.approx([0, 1, 0])
    assert weight[4] == pytest.approx([0, 0, 0])  # neither counts
    assert summary(file)["captions with equal weights"] == 0


def test_lemmas_put_forms_together(file):
    idf(Idf(features=file, form="lemma"), 0, "")
    assert {"sing", "run"} <= set(_table(file))
    assert "sings" not in _table(file)


def test_all_captions_and_parts_by_name(file):
    idf(Idf(features=file, split="all"), 0, "")
    assert _table(file)["runs"][0] == 2
    assert summary(file)["captions"] == 5
    idf(Idf(features=file, split="s/test"), 0, "")
    assert _table(file)["runs"][0] == 1


def test_blocks_add_up_to_the_whole(file):
    tag(Tag(features=file), None, 0, "")
    whole = count(file, Block(0, 5), "s/train", "surface")
    halves = [count(file, block, "s/train", "surface") for block in (Block(0, 2), Block(2, 5))]
    for key, value in (("type", "df"), ("type_tag", "uses")):
        summed = {}
        for half in halves:
            for name, number in zip(half[key], half[value], strict=True):
                summed[int(name)] = summed.get(int(name), 0) + int(number)
        assert summed == dict(zip(whole[key].tolist(), whole[value].tolist(), strict=True))
    assert (halves[0]["totals"] + halves[1]["totals"]).tolist() == whole["totals"].tolist() == [4, 12]


def test_the_summary_says_what_taco_s_tables_say(file):
    idf(Idf(features=file), 0, "")
    found = summary(file, most=1)
    assert (found["captions"], found["tokens"], found["types"]) == (4, 12, 8)
    assert (found["nouns"], found["verbs"]) == (3, 2)  # man, dog, cat; sings, runs
    assert found["highest"]["nouns"] == [{"word": "cat", "df": 1, "idf": pytest.approx(math.log(2))}]
    assert found["lowest"]["verbs"][0]["word"] == "sings"


def test_other_tokens_of_interest_without_tagging_again(file):
    tag(Tag(features=file), None, 0, "")
    idf(Idf(features=file), 0, "")
    with h5py.File(file) as f:
        before = f["words/pos"][()]
    tag(Tag(features=file, interest=("DET",)), None, 0, "")
    with h5py.File(file) as f:
        assert np.array_equal(f["words/pos"][()], before)
        words = f["words/texts"].asstr()[()][f["words/text"][()]]
        assert set(words[f["words/interest"][()]]) == {"a", "the"}
        assert "idf" not in f  # its weights were the nouns' and verbs'


def test_which_captions_are_the_training_ones(file):
    assert training_split(file, "", "") == "s/train"
    assert training_split(file, "s", "") == "s/train"
    assert training_split(file, "s/test", "") == "s/test"
    with pytest.raises(UnknownName, match="unknown split 'x'; there are: all, s/test, s/train"):
        training_split(file, "x", "")
    with h5py.File(file, "r+") as f:
        f.copy("splits/s", "splits/r")
    with pytest.raises(BadSetting, match="say which are the training captions, or `all`"):
        training_split(file, "", "")
    assert training_split(file, "", "r") == "r/train"


def test_no_words_no_captions(tmp_path, file):
    with pytest.raises(BadFeatureFile, match="has no words; run `pipeline run tag"):
        Idf(features=file).items()
    with pytest.raises(BadFeatureFile, match="no feature file .*; or name another with --features"):
        idf(Idf(features=tmp_path / "absent.h5"), 0, "")


def test_weights_without_any_words():
    values, equal = weights(np.array([0, 0, 0]), np.zeros(0), np.zeros(0, bool))
    assert (len(values), equal) == (0, 0)
