"""Probes on planted cues and on noise; what they must not see, and what they must count."""

import doctest
import json

import pytest
import torch
from rich.console import Console

from pipeline.errors import BadDataset, BadSetting
from train import probing as probes
from train.linear import solve
from train.probing import (
    Attending,
    Clips,
    Labelled,
    attentive,
    distance,
    equidistant,
    linear,
    order,
    sample,
    split,
    table,
)


def _names(count, first=0):
    return [f"v{number:03}" for number in range(first, first + count)]


def _clips(count, first=0, cue=1.0, n=5, dim=4, seed=0):
    """Videos in which the first number of a clip grows with its place, whatever the video; the others are noise."""
    x = torch.randn(count, n, dim, generator=torch.Generator().manual_seed(seed + first))
    x[:, :, 0] = cue * torch.arange(n) + (0.05 if cue else 1.0) * x[:, :, 0]
    return Clips(x, _names(count, first))


def _one_row_tells(count, first=0):
    """Items of 12 rows: in the row whose first number is high the second is the label, elsewhere it is by chance."""
    generator = torch.Generator().manual_seed(first)
    x = 0.1 * torch.randn(count, 12, 3, generator=generator)
    x[:, :, 1] += 2 * torch.randint(0, 2, (count, 12), generator=generator) - 1
    labels = torch.randint(0, 2, (count,), generator=generator)
    at = torch.randint(0, 12, (count,), generator=generator)
    x[range(count), at, 0] += 3
    x[range(count), at, 1] = 2.0 * labels - 1
    return Labelled(x, labels.tolist(), _names(count, first))


def test_examples_of_the_docstrings():
    assert doctest.testmod(probes) == (0, 1)


def test_equidistant_clips_are_in_the_middle_of_equal_parts():
    assert equidistant(5, 5).tolist() == [0, 1, 2, 3, 4]
    assert equidistant(10, 5).tolist() == [1, 3, 5, 7, 9]
    assert equidistant(9, 2).tolist() == [2, 6]
    with pytest.raises(BadSetting, match="5 equidistant clips of a video with 4 rows"):
        equidistant(4, 5)


def test_videos_with_too_few_rows_are_left_out_and_named():
    rows = [torch.arange(float(count))[:, None] for count in (3, 1, 6)]
    clips, short = sample(rows, ["a", "b", "c"], 3)
    assert clips.x[:, :, 0].tolist() == [[0, 1, 2], [1, 3, 5]]
    assert (clips.videos, short) == (["a", "c"], ("b",))
    with pytest.raises(BadDataset, match="no video has 7 rows"):
        sample(rows, ["a", "b", "c"], 7)


def test_a_split_keeps_videos_whole():
    videos = [f"v{n % 10}" for n in range(40)]
    train, test = split(videos, 0.7, seed=3)
    sides = [{videos[place] for place in part} for part in (train.tolist(), test.tolist())]
    assert list(map(len, sides)) == [7, 3]
    assert not sides[0] & sides[1]
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(40))
    backwards = [videos[::-1][place] for place in split(videos[::-1], 0.7, seed=3)[0]]
    assert set(backwards) == sides[0]
    assert any(not torch.equal(split(videos, 0.7, seed)[0], train) for seed in range(3))
    with pytest.raises(BadSetting, match="nothing on one side"):
        split(videos, 0.99)


def test_a_planted_cue_is_read_off():
    train, test = _clips(60), _clips(40, first=60)
    found = order(train, test)
    assert found.accuracy > 0.98
    assert (found.chance, found.majority, found.n, found.classes) == (0.2, 0.2, 5, 5)
    assert (found.train_videos, found.test_videos, found.items, found.unseen) == (60, 40, 200, 0)
    apart = distance(train, test)
    assert apart.accuracy > 0.98
    # Of the ten pairs of five clips four are neighbours.
    assert (apart.chance, apart.majority, apart.classes, apart.items) == (0.25, 0.4, 4, 400)
    assert apart.encoding == "[f_i, f_j, |f_i - f_j|], i < j"


def test_noise_is_read_at_chance():
    train, test = _clips(100, cue=0.0), _clips(100, first=100, cue=0.0)
    assert order(train, test).accuracy == pytest.approx(0.2, abs=0.06)
    apart = distance(train, test)
    assert apart.accuracy == pytest.approx(apart.majority, abs=0.06)


def test_the_distance_of_clips_shows_in_their_difference_alone():
    """Where a video begins is by chance: a linear classifier of two clips side by side could not tell |i - j|."""
    parts = []
    for first in (0, 60):
        clips = _clips(60, first)
        sign = 2.0 * torch.randint(0, 2, (60, 1, 1), generator=torch.Generator().manual_seed(first)) - 1
        parts.append(Clips(clips.x[:, :, :1] * sign, clips.videos))
    assert distance(*parts).accuracy > 0.95
    sides = [Labelled(*one) for one in map(_side_by_side, parts)]
    assert linear(*sides).accuracy < 0.6


def _side_by_side(clips):
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    x = torch.cat([torch.stack([video[i], video[j]]).reshape(1, -1) for video in clips.x for i, j in pairs])
    return x, [j - i for _ in clips.videos for i, j in pairs], [name for name in clips.videos for _ in pairs]


def test_labels_of_any_kind():
    x = torch.tensor([[0.0], [0.2], [1.0], [1.2]])
    train = Labelled(x, ["cook", "cook", "paint", "paint"], ["a", "a", "b", "b"])
    found = linear(train, Labelled(x[1:3], ["cook", "paint"], ["c", "d"]))
    assert (found.accuracy, found.chance, found.majority, found.train_videos) == (1, 0.5, 0.5, 2)


def test_the_majority_is_training_s_commonest_label():
    x = torch.zeros(4, 1)
    train = Labelled(x, ["a", "b", "b", "c"], _names(4))
    found = linear(train, Labelled(x, ["a", "a", "a", "b"], _names(4, 4)))
    assert (found.majority, found.accuracy, found.classes) == (0.25, 0.25, 3)


def test_a_label_that_training_lacks_is_a_miss():
    train, test = _clips(30, n=3), _clips(20, first=30, n=3)
    items = [Labelled(one.x[:, 0], ["early"] * len(one.videos), one.videos) for one in (train, test)]
    late = [Labelled(one.x[:, 2], ["late"] * len(one.videos), one.videos) for one in (train, test)]
    both = [
        Labelled(torch.cat([a.x, b.x]), [*a.labels, *b.labels], [*a.videos, *b.videos])
        for a, b in zip(items, late, strict=True)
    ]
    assert linear(*both).accuracy == 1
    renamed = Labelled(both[1].x, ["early"] * 20 + ["later"] * 20, both[1].videos)
    found = linear(both[0], renamed)
    assert (found.accuracy, found.unseen, found.items, found.classes) == (0.5, 20, 40, 2)
    rows = [Labelled(one.x[:, None], one.labels, one.videos) for one in (both[0], renamed)]
    assert attentive(*rows).accuracy == 0.5


@pytest.mark.parametrize("probe", ["linear", "attentive"])
def test_features_are_standardised_by_training_videos_only(probe):
    """Beside test videos that are far off, the others are seen as they were."""
    train, test = _clips(60), _clips(40, first=60)
    far = torch.cat([test.x[:20], 1e6 + 1e6 * test.x[20:]])
    items = [
        Labelled(x.flatten(0, 1), list(range(5)) * len(x), [v for v in videos for _ in range(5)])
        for x, videos in ((train.x, train.videos), (test.x[:20], test.videos[:20]), (far, test.videos))
    ]
    if probe == "attentive":
        items = [Labelled(one.x[:, None], one.labels, one.videos) for one in items]
    run = {"linear": linear, "attentive": lambda a, b: attentive(a, b, Attending(steps=400))}[probe]
    near = run(items[0], items[1])
    assert near.accuracy > 0.95
    assert run(items[0], items[2]).accuracy * 200 >= near.accuracy * 100
    head = solve(items[0].x.flatten(1), torch.tensor(items[0].labels), 5)
    assert torch.allclose(head.mean, train.x.double().mean((0, 1)))


def test_a_video_on_both_sides():
    train = _clips(10)
    with pytest.raises(BadSetting, match="1 videos are in training and in test, such as v009"):
        order(train, _clips(5, first=9))


def test_nothing_to_probe():
    nothing = Labelled(torch.zeros(0, 4), [], [])
    something = Labelled(torch.zeros(1, 4), ["a"], ["v"])
    for parts in ((nothing, something), (something, nothing)):
        with pytest.raises(BadDataset, match="needs items"):
            linear(*parts)


def test_attention_finds_the_row_that_tells():
    train, test = _one_row_tells(200), _one_row_tells(100, first=200)
    found = attentive(train, test)
    assert found.accuracy > 0.95
    assert (found.n, found.chance, found.items) == (12, 0.5, 100)
    averaged = [Labelled(one.x.mean(1), one.labels, one.videos) for one in (train, test)]
    assert linear(*averaged).accuracy < 0.8


def test_attention_is_at_chance_on_noise():
    train, test = _one_row_tells(200), _one_row_tells(200, first=200)
    noise = [Labelled(torch.randn_like(one.x), one.labels, one.videos) for one in (train, test)]
    assert attentive(*noise, Attending(steps=200)).accuracy == pytest.approx(0.5, abs=0.12)


def test_attention_does_not_see_padding():
    train, test = _one_row_tells(100), _one_row_tells(50, first=100)
    plain = attentive(train, test, Attending(steps=200))

    def padded(one, value):
        wrong = torch.tensor([[[value, 1.0 - 2 * label, 0.0]] * 5 for label in one.labels])
        x = torch.cat([one.x, wrong], dim=1)
        return Labelled(x, one.labels, one.videos, torch.arange(17).expand(len(x), 17) < 12)

    # What pads the test looks like the row that tells, and would mislead.
    found = attentive(padded(train, 0.0), padded(test, 3.0), Attending(steps=200))
    assert found.accuracy == plain.accuracy
    assert found.n == 17
    empty = Labelled(test.x, test.labels, test.videos, torch.zeros(50, 12, dtype=torch.bool))
    with pytest.raises(BadDataset, match="no rows"):
        attentive(train, empty)


def test_the_same_seed_gives_the_same_result():
    train, test = _one_row_tells(60), _one_row_tells(100, first=60)
    settings = Attending(steps=20, seed=4)
    assert attentive(train, test, settings) == attentive(train, test, settings)
    others = {attentive(train, test, Attending(steps=20, seed=seed)).accuracy for seed in range(6)}
    assert len(others) > 1
    assert order(_clips(20), _clips(9, first=20)) == order(_clips(20), _clips(9, first=20))


def test_half_precision_rows():
    train, test = (Clips(one.x.half(), one.videos) for one in (_clips(60), _clips(40, first=60)))
    assert order(train, test).accuracy > 0.98


def test_the_table_has_chance_and_majority_beside_the_accuracy():
    train, test = _clips(30), _clips(10, first=30)
    found = [order(train, test), distance(train, test)]
    console = Console(width=200)
    with console.capture() as text:
        console.print(table(found, ["raw rows", "raw rows"]))
    said = " ".join(text.get().split())
    assert "raw rows │ order, n = 5 │ 100.0 │ 20.0 │ 20.0 │ 30/10 │ 50 │" in said
    assert "read: order f_i; distance [f_i, f_j, |f_i - f_j|], i < j." in said
    assert "unseen" not in said
    assert json.loads(json.dumps(found[0].as_dict()))["chance"] == 0.2
