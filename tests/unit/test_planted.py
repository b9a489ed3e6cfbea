"""The planted worlds are what they say: what is readable in the features, and what is not."""

import re
from dataclasses import replace

import h5py
import numpy as np
import pytest

from pipeline.report import verify
from pipeline.store import Features
from train import data
from workflows import worlds
from workflows.planted import STREAM, main, truth, write
from workflows.worlds import World, captions_of, directions, rows_of, scenes

ALL = [World(name=name) for name in "ABCD"]


@pytest.fixture(autouse=True)
def _few_videos(monkeypatch):
    """Worlds of a few videos: 60 to train on, 20 to test on."""
    monkeypatch.setitem(worlds.SIZES, "tiny", dict.fromkeys("ABCD", (60, 20)))


def readable(x: np.ndarray, y: np.ndarray) -> float:
    """Return how many of y's signs the best linear function of x gets right, on the half it was not fitted to."""
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(float)
    weights = np.linalg.lstsq(x[::2], y[::2], rcond=None)[0]
    return float((np.sign(x[1::2] @ weights) == y[1::2]).mean())


@pytest.mark.parametrize("world", ALL, ids=lambda world: world.name)
def test_a_world_is_a_legal_file_with_words_and_weights(world, tmp_path):
    write(world, tmp_path / "world.h5")
    assert verify(tmp_path / "world.h5") == []
    with Features.open(tmp_path / "world.h5") as features:
        asked = ["moments/test", "moments/train"] if world.name == "C" else []
        assert features.parts_of_splits() == [*asked, "planted/test", "planted/train"]
        train = data.load(features, "planted/train")
        assert (len(train.clips), train.clip.tolist()) == (60, list(range(60)))
        assert train.streams[0].name == STREAM
        found = truth(tmp_path / "world.h5")
        assert len(found["row_event"]) == features.stream(STREAM).count.sum()
        assert len(found["word_event"]) == features.table("words")["offsets"][len(features.videos["id"])]
    for caption, text in enumerate(train.texts):
        own = slice(train.words.offsets[caption], train.words.offsets[caption + 1])
        words = [text[start:end] for start, end in train.words.spans[own]]
        assert words == text.split()
        assert [bool(re.match("noun|verb", word)) for word in words] == (train.words.weights[own] > 0).tolist()
        assert train.words.weights[own].sum() == pytest.approx(1)


def contents(path) -> dict[str, str]:
    """Return every array and attribute of a file; its bytes hold the time at which it was written."""
    found: dict[str, str] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, thing: found.update({f"{name}@{key}": str(v) for key, v in thing.attrs.items()}))
        arrays: list[str] = []
        file.visititems(lambda name, thing: arrays.append(name) if hasattr(thing, "dtype") else None)
        found |= {name: repr(file[name][()].tolist()) for name in arrays}
        return {**found, **{f"@{key}": str(value) for key, value in file.attrs.items()}}


def test_the_seed_decides_every_array(tmp_path):
    world = World(name="A")
    for name, made in {"a": world, "b": world, "c": replace(world, seed=1)}.items():
        write(made, tmp_path / f"{name}.h5")
    a, b, c = (contents(tmp_path / f"{name}.h5") for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} >= {f"streams/{STREAM}/values", "captions/text", "idf/weight"}


@pytest.mark.parametrize("world", ALL, ids=lambda world: world.name)
def test_worlds_of_one_seed_are_the_same_and_of_another_one_others(world):
    again, other = replace(world), replace(world, seed=1)
    assert scenes(again) == scenes(world) != scenes(other)
    assert captions_of(again, scenes(again)) == captions_of(world, scenes(world))
    a, b, c = (np.concatenate(rows_of(one, scenes(world))) for one in (world, again, other))
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.parametrize(("interest", "tags"), [("function", "D"), ("all", "DNV")])
def test_interest_changes_which_words_count_and_nothing_else(interest, tags, tmp_path):
    world = World(name="A", desc=2)
    write(world, tmp_path / "content.h5")
    write(replace(world, interest=interest), tmp_path / "world.h5")
    with h5py.File(tmp_path / "world.h5") as file, h5py.File(tmp_path / "content.h5") as content:
        words = file["words"]
        marked = {tag[0] for tag in words["tags"].asstr()[()][words["pos"][words["interest"][()]]]}
        assert marked == set(tags)
        assert (file[f"streams/{STREAM}/values"][()] == content[f"streams/{STREAM}/values"][()]).all()
        assert (file["captions/text"][()] == content["captions/text"][()]).all()


def test_nouns_and_verbs_have_a_direction_and_function_words_have_none(monkeypatch):
    monkeypatch.setitem(worlds.SIZES, "tiny", {"A": (1000, 0)})
    world = World(name="A", desc=2)
    made = scenes(world)
    rows = np.stack([video.mean(0) for video in rows_of(world, made)]).astype(float)
    texts = [{word for word, _, _ in caption} for caption in captions_of(world, made)]

    def shift(word: str) -> float:
        """Return how far videos whose caption has the word are from the others; about 1 by chance."""
        said = np.array([word in text for text in texts])
        chance = np.sqrt(rows.var(0).sum() * (1 / said.sum() + 1 / (~said).sum()))
        return float(np.linalg.norm(rows[said].mean(0) - rows[~said].mean(0)) / chance)

    assert min(shift(word) for word in ("noun0", "noun1", "verb0", "verb1")) > 2
    assert max(shift(word) for word in worlds.FUNCTION) < 1.4


def test_a_row_shows_the_event_that_the_truth_names():
    for world in ALL:
        known = directions(world)
        for scene, rows in zip(scenes(world)[:10], rows_of(world, scenes(world))[:10], strict=True):
            events = np.asarray(scene.events)
            templates = known["noun"][events[:, 0]] + known["verb"][events[:, 1]]
            own = (rows.astype(float) @ templates.T).argmax(1) == scene.shown
            assert own.mean() > {"A": 0.6, "B": 0.9, "C": 0.6, "D": 0.2}[world.name]


@pytest.mark.parametrize("desc", [1, 2])
def test_captions_of_world_a_tell_some_of_three_events_in_their_order(desc):
    world = World(name="A", desc=desc)
    for scene, caption in zip(scenes(world), captions_of(world, scenes(world)), strict=True):
        told = [event for _, pos, event in caption if pos == "NOUN"]
        assert len(told) == desc
        assert told == sorted(told)
        assert [pos for _, pos, _ in caption] == ["DET", "NOUN", "DET", "VERB", "DET"] * desc
        assert len({noun for noun, _ in scene.events}) == len({verb for _, verb in scene.events}) == 3


def test_world_b_has_fives_that_differ_in_one_word():
    found: dict[int, list] = {}
    for scene, caption in zip(
        scenes(World(name="B")), captions_of(World(name="B"), scenes(World(name="B"))), strict=True
    ):
        found.setdefault(scene.group, []).append([text for text, pos, _ in caption if pos != "DET"])
    assert len(found) == 16
    for base, *others in found.values():
        assert len(others) == 4
        changed = [[a != b for a, b in zip(base, other, strict=True)] for other in others]
        assert changed == np.eye(4, dtype=bool).tolist()


def test_the_parity_cue_tells_the_half_with_the_noun_and_not_alone():
    world = World(name="C")
    made = scenes(world)
    rows = np.concatenate(rows_of(world, made)).astype(float)
    half = np.tile(np.repeat([1.0, -1.0], 4), len(made))
    odd = np.array([1.0 if scene.events[event][0] % 2 else -1.0 for scene in made for event in scene.shown])
    assert readable(rows, half) < 0.6
    assert readable(rows * odd[:, None], half) > 0.8  # the control: with the parity known it is linear
    assert (
        readable(np.concatenate(rows_of(replace(world, cue="smooth"), scenes(replace(world, cue="smooth")))), half)
        > 0.8
    )
    nothing = replace(world, cue="none")
    assert readable(np.concatenate(rows_of(nothing, scenes(nothing))) * odd[:, None], half) < 0.6


def test_world_c_shows_four_events_twice_in_two_orders():
    made = scenes(World(name="C"))
    for scene in made:
        assert sorted(scene.shown[:4]) == sorted(scene.shown[4:]) == [0, 1, 2, 3]
        assert all(a != b for a, b in zip(scene.shown[:4], scene.shown[4:], strict=True))
        assert sum(noun % 2 for noun, _ in scene.events) == 2
    assert len({scene.events for scene in made}) <= worlds.TASKS


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_hubs_show_twelve_events_and_others_two(share):
    made = scenes(World(name="D", hubs=share))
    assert all(len(scene.events) == (12 if scene.hub else 2) and len(scene.told) == 2 for scene in made)
    assert np.mean([scene.hub for scene in made]) == pytest.approx(share, abs=0.12)


def test_the_command_writes_a_world_and_refuses_what_is_of_no_use_in_it(tmp_path, capsys):
    out = tmp_path / "world.h5"
    assert main(["A", "--desc", "2", "--seed", "3", "--out", str(out)]) == 0
    assert "60 videos to train on" in capsys.readouterr().out
    with h5py.File(out) as file:
        assert file.attrs["dataset"] == "planted-A"
        assert len(file["captions/text"].asstr()[0].split()) == 10
    for words in (["B", "--desc", "1"], ["D", "--hubs", "1.5"], ["A", "--desc", "3"]):
        with pytest.raises(SystemExit):
            main([*words, "--out", str(tmp_path / "other.h5")])
    assert not (tmp_path / "other.h5").exists()
    assert main(["A", "--out", str(out / "under-a-file.h5")]) == 2


def test_moments_ask_for_single_rows_of_world_c(tmp_path):
    write(ALL[2], tmp_path / "world.h5")
    with Features.open(tmp_path / "world.h5") as features:
        train = data.load(features, "moments/train", words=False, whole=True)
        found = truth(tmp_path / "world.h5")
    assert train.asked is not None
    assert (len(train.clips), len(train.captions)) == (60, 480)
    events = found["row_event"].reshape(-1, 8)
    assert train.texts[3].startswith("first ")
    assert train.texts[4].startswith("again ")
    assert train.asked.spans[3, 0].tolist() == [3 / 8, 4 / 8]
    again = 4 + events[0][4:].tolist().index(events[0][3])
    assert train.texts[again].split()[1:] == train.texts[3].split()[1:]  # the same event, later
