"""Labels, accuracies and thresholds of action segmentation by hand; heads on planted seconds."""

import doctest
import json
import math

import numpy as np
import pytest
import torch
from rich.console import Console

from pipeline.errors import BadDataset, BadSetting
from train import linear, segments
from train.linear import solve, standard
from train.segments import Fitting, commonest, fit, labels, scores, table, threshold, zero_shot
from train.windows import average, windows

# Ten seconds: [1, 5) is step 3, [4, 8) is step 2 and comes later.
TRUTH = labels(10, np.array([[1.0, 5.0], [4.0, 8.0]]), np.array([3, 2]))
GUESS = np.array([0, 3, 3, 0, 3, 2, 2, 2, 2, 0])


def _planted(count, classes=4, dim=6, noise=0.3, seed=0):
    """Seconds whose class shows in their features, 0 too; features on different scales, far from 0."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (count,), generator=generator)
    x = torch.eye(classes, dim)[y] + noise * torch.randn(count, dim, generator=generator)
    return x * torch.tensor([1.0, 100, 0.01, 1, 1, 1]) + 50 * torch.tensor([1.0, 100, 0.01, 1, 1, 1]), y


def test_examples_of_the_docstrings():
    assert doctest.testmod(segments) == (0, 3)
    assert doctest.testmod(linear) == (0, 1)


def test_labels_by_hand():
    assert TRUTH.tolist() == [0, 3, 3, 3, 2, 2, 2, 2, 0, 0]
    other = labels(10, np.array([[4.0, 8.0], [1.0, 5.0]]), np.array([2, 3]))
    assert other.tolist() == [0, 3, 3, 3, 3, 2, 2, 2, 0, 0]
    # From 1.9 down to 1, from 2.1 up to 3; what lies past the end is cut, or left out.
    assert labels(5, np.array([[1.9, 2.1], [4.5, 9.0], [7.0, 8.0]]), np.array([1, 2, 3])).tolist() == [0, 1, 1, 0, 2]
    assert labels(3, np.zeros((0, 2)), np.zeros(0, int)).tolist() == [0, 0, 0]


def test_a_step_numbered_as_background():
    with pytest.raises(BadDataset, match="0 is background"):
        labels(3, np.array([[0.0, 1.0]]), np.array([0]))


def test_scores_by_hand_with_a_later_segment_over_an_earlier_one():
    # Right: seconds 0, 1, 2, 5, 6, 7, 9. Background 2 of 3, step 3 2 of 3, step 2 3 of 4; class 1 is not there.
    found = scores(GUESS, TRUTH, 4)
    assert found.accuracy.frame == 7 / 10
    assert found.accuracy.foreground == 5 / 7
    assert found.accuracy.mean_class == pytest.approx((2 / 3 + 2 / 3 + 3 / 4) / 3)
    assert found.accuracy.mean_class_foreground == pytest.approx((2 / 3 + 3 / 4) / 2)
    # Always step 2: 4 of 10 seconds, 4 of 7 of the foreground; any class is one of 3, any step one of 2.
    assert (found.best_constant.frame, found.best_constant.foreground) == (4 / 10, 4 / 7)
    assert (found.best_constant.mean_class, found.best_constant.mean_class_foreground) == (1 / 3, 1 / 2)
    assert (found.seconds, found.background, found.classes, found.unpredicted) == (10, 3 / 10, 3, 0)
    assert found.confusion.tolist() == [[2, 0, 1, 0], [0, 0, 0, 0], [0, 0, 3, 1], [1, 0, 0, 2]]


def test_background_everywhere_has_a_frame_accuracy_and_nothing_else():
    found = scores(np.zeros(10, int), np.array([0] * 6 + [1, 1, 2, 2]), 3)
    assert found.accuracy.frame == found.best_constant.frame == 6 / 10
    assert (found.accuracy.foreground, found.accuracy.mean_class_foreground) == (0, 0)
    assert found.accuracy.mean_class == 1 / 3


def test_the_commonest_classes_and_all_others():
    # Class 1 is nowhere; 4 was only said. Seconds: 0 has 6, 2 and 3 have 3, 4 none.
    confusion = np.array([[4, 0, 1, 1, 0], [0] * 5, [0, 0, 2, 0, 1], [1, 0, 0, 2, 0], [0] * 5])
    assert commonest(confusion, 4)[0] == [0, 2, 3, 4]
    assert commonest(confusion, 9)[1].tolist() == [[4, 1, 1, 0], [0, 2, 0, 1], [1, 0, 2, 0], [0, 0, 0, 0]]
    kept, found = commonest(confusion, 2)  # of equally common ones the first
    assert kept == [0, 2]
    assert found.tolist() == [[4, 1, 1], [0, 2, 1], [1, 0, 2]]
    assert found.sum() == confusion.sum()


def test_seconds_without_a_prediction_are_misses():
    found = scores(np.array([-1, -1, 1, 0]), np.array([0, 1, 1, 0]), 2)
    assert (found.accuracy.frame, found.accuracy.foreground, found.unpredicted) == (2 / 4, 1 / 2, 2)
    assert found.confusion.sum() == 2


def test_seconds_of_background_only_have_no_foreground():
    found = scores(np.array([0, 1]), np.array([0, 0]), 2)
    assert (found.accuracy.frame, found.accuracy.mean_class) == (1 / 2, 1 / 2)
    assert math.isnan(found.accuracy.foreground)
    assert math.isnan(found.best_constant.mean_class_foreground)


@pytest.mark.parametrize(("guess", "truth"), [([2], [0]), ([0], [2]), ([-2], [0]), ([0], [-1])])
def test_classes_that_were_not_promised(guess, truth):
    with pytest.raises(BadSetting, match="were promised"):
        scores(np.array(guess), np.array(truth), 2)


def test_nothing_to_evaluate():
    with pytest.raises(BadDataset, match="no second"):
        scores(np.zeros(0, int), np.zeros(0, int), 2)


def test_the_table_never_gives_one_number_alone():
    console = Console(width=160)
    with console.capture() as text:
        console.print(table(scores(GUESS, TRUTH, 4).as_dict()))
    said = " ".join(text.get().split())
    for words in ("(frame accuracy) │ 70.0 │ 40.0", "foreground │ 71.4 │ 57.1", "mean class │ 69.4 │ 33.3"):
        assert words in said
    assert "mean class, foreground │ 70.8 │ 50.0" in said
    assert "10 seconds, 30.0 % of them background, of 3 classes; 0 without a prediction" in said


def test_values_for_json():
    found = json.loads(json.dumps(scores(GUESS, TRUTH, 4).as_dict()))
    assert found["accuracy"]["frame"] == 0.7
    assert found["best_constant"]["frame"] == 0.4
    assert (found["background"], found["unpredicted"]) == (0.3, 0)


def test_a_head_finds_planted_classes_background_too_whatever_the_features_scales():
    head = fit(*_planted(1000), 4, Fitting(epochs=8, batch=64, lr=1e-2))
    x, y = _planted(500, seed=1)
    found = scores(head.logits(x).argmax(1).numpy(), y.numpy(), 4)
    assert found.accuracy.frame > 0.95
    assert (found.confusion.diagonal() / found.confusion.sum(1)).min() > 0.9
    exact = solve(*_planted(1000), 4, penalty=0.0).logits(x).argmax(1)
    assert (exact == head.logits(x).argmax(1)).double().mean() > 0.97


def test_a_head_on_noise_says_the_commonest_class():
    y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 2, 3, 3]).repeat(100)
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(0))
    head = fit(x, y, 4, Fitting(epochs=20, batch=100, lr=1e-2))
    shares = head.bias.softmax(0)
    np.testing.assert_allclose(shares, [0.6, 0.1, 0.1, 0.2], atol=0.04)


def test_a_head_is_the_same_for_the_same_seed_and_takes_half_precision():
    x, y = _planted(300)
    one, two, other = (fit(x.half(), y, 4, Fitting(epochs=2, batch=32, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)
    assert not torch.equal(one.weight, other.weight)
    assert one.weight.dtype == torch.float32


def test_features_are_standardised_in_pieces_and_what_does_not_vary_is_left(monkeypatch):
    monkeypatch.setattr(linear, "CHUNK", 7)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * 3 + 1000
    x[:, 1] = 0.1
    mean, sd = standard(x)
    np.testing.assert_allclose(mean, x.double().mean(0), rtol=1e-12)
    np.testing.assert_allclose(sd, [x[:, 0].double().std(), 1, x[:, 2].double().std()], rtol=1e-9)


def test_softmax_regression_is_at_its_optimum():
    x, y = _planted(60, noise=1.0)
    head = solve(x, y, 4, penalty=0.05)
    weight, bias = (one.clone().requires_grad_() for one in (head.weight, head.bias))
    total = 0.0
    for row, label in zip((x.double() - x.double().mean(0)) / x.double().std(0), y, strict=True):
        logits = [sum(row[d] * weight[d, c] for d in range(6)) + bias[c] for c in range(4)]
        total = total + torch.stack(logits).logsumexp(0) - logits[label]
    loss = total / len(x) + 0.05 * (weight**2).sum()
    loss.backward()
    assert weight.grad.abs().max() < 1e-6
    assert bias.grad.abs().max() < 1e-6
    assert weight.abs().max() > 0.1


def test_zero_shot_by_hand():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5**0.5, 0.5**0.5], [-1.0, 0.0]])
    found = zero_shot(rows, torch.tensor([[5.0, 0.0], [0.0, 0.1]]), 0.8)
    assert found.argmax(1).tolist() == [1, 2, 0, 0]
    np.testing.assert_allclose(found[2], [0.8, 0.5**0.5, 0.5**0.5], rtol=1e-6)
    assert zero_shot(rows, torch.eye(2), 1.0).argmax(1).tolist() == [0, 0, 0, 0]  # not above it


@pytest.mark.parametrize("by", ["balanced", "frame"])
@pytest.mark.parametrize("seed", range(10))
def test_the_threshold_is_the_best_there_is(by, seed):
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randn(3, 4, generator=generator)
    y = torch.randint(0, 4, (60,), generator=generator) * (torch.rand(60, generator=generator) < 0.5)
    rows = torch.randn(60, 4, generator=generator) + texts[(y - 1).clamp(min=0)] * (y > 0)[:, None]
    rows = torch.nn.functional.normalize(rows, dim=1)
    rows = torch.cat([rows, rows[:10]])  # some cosines are equal
    y = torch.cat([y, y[:5], 0 * y[:5]])

    def value(cut):
        guess = zero_shot(rows, texts, cut).argmax(1)
        if by == "frame":
            return float((guess == y).double().mean())
        return float((guess == y)[y > 0].double().mean() + (guess == y)[y == 0].double().mean())

    best = max(value(float(cut)) for cut in [2.0, *(zero_shot(rows, texts, 0.0)[:, 1:].amax(1) - 1e-5)])
    assert value(threshold(rows, texts, y, by)) >= best - 1e-12


def test_frame_accuracy_may_want_background_everywhere_which_balance_does_not():
    # Steps are called rightly half of the time and every second second is background, like the steps themselves.
    rows = torch.eye(2).repeat(4, 1)
    y = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0])
    assert threshold(rows, torch.eye(2), y, "frame") == 2
    rows[2:, :] = torch.tensor([[0.6, 0.8]])
    assert threshold(rows, torch.eye(2), y, "balanced") == pytest.approx(0.9)
    with pytest.raises(BadDataset, match="of steps and of background"):
        threshold(rows, torch.eye(2), torch.ones(8, dtype=torch.int64))


def test_a_video_goes_through_windows_into_accuracies():
    rows = torch.eye(3)[torch.from_numpy(labels(70, np.array([[10.0, 30.0], [40.0, 66.5]]), np.array([1, 2])))]
    texts = torch.eye(3)[1:]
    spans = windows(70, 32, 8)
    logits = average([zero_shot(rows[a:b], texts, 0.5).numpy() for a, b in spans], spans)
    assert (logits.argmax(1) == rows.argmax(1).numpy()).all()


def test_likeness_to_averaged_rows_is_the_average_of_the_windows_cosines():
    generator, spans = torch.Generator().manual_seed(0), windows(70, 32, 8)
    parts = [torch.nn.functional.normalize(torch.randn(b - a, 4, generator=generator), dim=1) for a, b in spans]
    texts = torch.randn(3, 4, generator=generator)
    together = torch.from_numpy(average([one.numpy() for one in parts], spans))
    cosines = average([zero_shot(one, texts, 0.5).numpy() for one in parts], spans)
    np.testing.assert_allclose(zero_shot(together, texts, 0.5), cosines, atol=1e-6)


def test_the_share_of_background_in_coin(shared):
    """The share of background that a published frame accuracy of 58.9 % is."""
    database = json.loads((shared / "data/coin/COIN.testing_subset.json").read_text())["database"]
    truth = []
    for video in database.values():
        spans = np.array([step["segment"] for step in video["annotation"]], float)
        truth.append(labels(math.ceil(video["duration"]), spans, np.array([int(s["id"]) for s in video["annotation"]])))
    found = scores(np.zeros(sum(map(len, truth)), int), np.concatenate(truth), 779)
    assert len(truth) == 2797
    assert found.accuracy.frame == found.background == pytest.approx(0.588, abs=0.001)
    assert found.accuracy.foreground == 0
