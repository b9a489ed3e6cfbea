"""Placing steps against every placement there is, and recall, splits and what is missing by hand."""

import doctest
import itertools
import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train import placement as steps
from train.placement import (
    Judged,
    Video,
    best_temperature,
    evaluate,
    judge,
    log_shares,
    over_seeds,
    place,
    recall,
    split,
    truth,
    uniform,
)

SMALL = [(T, K) for T in range(1, 9) for K in range(1, 4) if T >= K]


def _all(scores):
    """Every placement in strict order, with its sum."""
    T, K = scores.shape
    return {places: sum(scores[t, k] for k, t in enumerate(places)) for places in itertools.combinations(range(T), K)}


def _states(scores):
    """The best sum over paths through background, step 1, background, …, step K, background, a second at a time."""
    T, K = scores.shape

    def best(t, state):
        own = scores[t, state // 2] if state % 2 else 0.0
        if t == 0:
            return own if state in (0, 1) else -math.inf
        earlier = [state - 1] + [state] * (state % 2 == 0) + [state - 2] * (state % 2 == 1)
        return own + max((best(t - 1, one) for one in earlier if one >= 0), default=-math.inf)

    return max(best(T - 1, 2 * K - 1), best(T - 1, 2 * K))


def _video(task, spans, steps=2):
    return Video(
        task, steps, np.array([s[:2] for s in spans], float).reshape(-1, 2), np.array([s[2] for s in spans], int)
    )


def _pointing(*places, seconds, steps=None):
    """Similarity that puts step k into its place."""
    found = np.zeros((seconds, steps or len(places)))
    found[list(places), range(len(places))] = 5
    return found


def test_examples_of_the_docstrings():
    assert doctest.testmod(steps) == (0, 4)


@pytest.mark.parametrize(("seconds", "count"), SMALL)
def test_the_best_of_all_placements(seconds, count):
    for scores in np.random.default_rng(0).standard_normal((20, seconds, count)):
        every = _all(scores)
        assert tuple(place(scores)) == max(every, key=every.get)
        assert max(every.values()) == pytest.approx(_states(scores))


@pytest.mark.parametrize(("seconds", "count"), SMALL)
def test_of_equally_good_placements_every_step_comes_as_early_as_it_can(seconds, count):
    for scores in np.random.default_rng(0).integers(0, 2, (40, seconds, count)).astype(float):
        every = _all(scores)
        best = [places for places, total in every.items() if total == max(every.values())]
        assert tuple(place(scores)) == tuple(min(places[k] for places in best) for k in range(count))


def test_without_any_difference_the_steps_come_first():
    assert place(np.zeros((5, 3))).tolist() == [0, 1, 2]


def test_a_greedy_choice_would_go_wrong():
    # Step 1 is most likely last, where step 2 would have no room: 3 + 1 is the best of all.
    scores = np.array([[3.0, 0.0], [0.0, 0.5], [4.0, 1.0]])
    assert place(scores).tolist() == [0, 2]
    # As many seconds as steps leave no choice.
    assert place(np.array([[0.0, 9.0], [9.0, 0.0]])).tolist() == [0, 1]


@given(st.integers(0, 10_000), st.floats(-50, 50))
def test_what_is_added_to_a_step_everywhere_changes_nothing(seed, bias):
    scores = np.random.default_rng(seed).integers(-8, 8, (8, 3)).astype(float)
    shifted = scores + np.array([0, round(bias), 0])
    assert place(shifted).tolist() == place(scores).tolist()


def test_fewer_seconds_than_steps():
    with pytest.raises(BadSetting, match="3 steps in 2 seconds"):
        place(np.zeros((2, 3)))
    with pytest.raises(BadSetting, match="3 steps in 2 seconds"):
        uniform(2, 3)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite(odd):
    scores = np.zeros((4, 2))
    scores[1, 1] = odd
    with pytest.raises(PipelineError, match="NaN or infinite"):
        place(scores)


def test_a_long_video_is_placed_at_once():
    scores = np.random.default_rng(0).standard_normal((600, 20))
    place(scores)
    start = time.perf_counter()
    for _ in range(20):
        found = place(scores)
    assert (time.perf_counter() - start) / 20 < 0.02
    assert (np.diff(found) > 0).all()


def test_shares_by_hand():
    similarity = np.array([[0.0, math.log(3)], [5.0, 5.0]])
    np.testing.assert_allclose(np.exp(log_shares(similarity, 1.0)), [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(np.exp(log_shares(similarity, 0.5)), [[0.1, 0.9], [0.5, 0.5]])
    # Steps are compared within a second: what is like all steps is like none.
    np.testing.assert_allclose(log_shares(similarity + np.array([[7.0], [-3.0]]), 1.0), log_shares(similarity, 1.0))
    assert np.isfinite(log_shares(np.array([[1.0, -1.0]], np.float16), 1e-4)).all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_cannot_be(temperature):
    with pytest.raises(BadSetting, match="temperature"):
        log_shares(np.zeros((2, 2)), temperature)


def test_the_temperature_changes_the_placement_and_is_chosen_on_what_is_given():
    # Where the right one of two steps is ahead by d, its log share is -log(1 + e^(-d/t)). Cold: seconds 0 and 1 cost
    # 2 log(1 + e^-5) = 0.01, seconds 2 and 3 cost 5, by the last one. Hot: 2 log(1 + e^-0.2) = 1.20 against
    # log(1 + e^-1.2) + log(1 + e^0.2) = 1.06.
    similarity = np.array([[1.0, 0.0], [0.0, 1.0], [6.0, 0.0], [1.0, 0.0]])
    assert place(log_shares(similarity, 0.2)).tolist() == [0, 1]
    assert place(log_shares(similarity, 5.0)).tolist() == [2, 3]
    late = _video("a", [(2, 3, 0)])
    assert best_temperature([(late, similarity)], [0.2, 5.0]) == 5.0
    early = _video("a", [(0, 1, 0)])
    assert best_temperature([(early, similarity)], [5.0, 0.2]) == 0.2
    both = _video("a", [(1, 2, 1), (3, 4, 1)])
    assert best_temperature([(both, similarity)], [5.0, 0.2]) == 5.0  # the first of equal ones


def test_truth_by_hand():
    spans, numbers = np.array([[0.0, 1.0], [1.5, 2.1], [4.9, 5.0], [3.0, 9.0]]), np.array([0, 1, 0, 1])
    assert truth(6, spans, numbers, 3).T.astype(int).tolist() == [
        [1, 0, 0, 0, 1, 0],
        [0, 1, 1, 1, 1, 1],  # 1.5 to 2.1 is seconds 1 and 2; 9 is past the end
        [0, 0, 0, 0, 0, 0],
    ]
    assert truth(3, np.zeros((0, 2)), np.zeros(0, int), 2).sum() == 0


@pytest.mark.parametrize("number", [-1, 2])
def test_a_step_that_the_task_does_not_have(number):
    with pytest.raises(BadDataset, match="a task that has 2"):
        truth(4, np.array([[0.0, 1.0]]), np.array([number]), 2)


@given(st.integers(1, 300), st.data())
def test_uniform_is_in_order_and_inside(seconds, data):
    found = uniform(seconds, data.draw(st.integers(1, seconds)))
    assert (np.diff(found) > 0).all()
    assert found[0] >= 0
    assert found[-1] < seconds
    assert found.tolist() == [math.floor((k + 0.5) * seconds / len(found) + 1e-9) for k in range(len(found))]


def test_recall_of_two_tasks_by_hand():
    # Task a, 3 steps. Video 1 has steps 1 and 3 and hits both; video 2 has all three and hits one: 3 of 5.
    # Task b, 2 steps. One video has step 2 and misses: 0 of 1. A video without annotated steps adds nothing.
    # Mean of tasks: (3/5 + 0) / 2 = 0.3; over all steps it would be 3 of 6.
    one = judge(_video("a", [(0, 2, 0), (5, 6, 2)], 3), 6, np.array([1, 2, 5]))
    two = judge(_video("a", [(0, 1, 0), (1, 2, 1), (2, 3, 2), (4, 5, 2)], 3), 6, np.array([1, 3, 4]))
    three = judge(_video("b", [(3, 4, 1)]), 6, np.array([3, 4]))
    nothing = judge(_video("b", []), 6, np.array([3, 4]))
    assert [list(map(int, judged.hit)) for judged in (one, two, three, nothing)] == [
        [1, 0, 1],
        [0, 0, 1],
        [0, 0],
        [0, 0],
    ]
    assert recall([one, two, three, nothing]) == {"a": 3 / 5, "b": 0.0}
    assert recall([one, nothing]) == {"a": 1.0}
    with pytest.raises(BadDataset, match="annotated steps"):
        recall([nothing])


def test_what_is_missing_counts_as_missed_and_is_counted():
    spans = [(0, 1, 0), (3, 4, 1)]
    found = [
        (_video("a", spans), _pointing(0, 3, seconds=4)),  # both hit
        (_video("a", spans), None),  # no features
        (_video("a", spans), np.zeros((0, 2))),  # nor here
        (_video("a", spans), np.zeros((1, 2))),  # one second for two steps
        (_video("b", [(0, 1, 0), (9.2, 12, 1)]), _pointing(0, 1, seconds=4)),  # step 2 begins after the last row
    ]
    result = evaluate(found, 1.0)
    assert result.tasks == {"a": 2 / 8, "b": 1 / 2}
    assert result.recall == (2 / 8 + 1 / 2) / 2
    assert result.recall_with_features == (2 / 4 + 1 / 2) / 2
    # At equal distances: seconds 1 and 3 of 4. Of a: step 2 of the first video; of b: nothing.
    assert result.uniform == (1 / 8) / 2
    assert result.uniform_with_features == (1 / 4) / 2
    assert (result.videos, result.used, result.without_features, result.too_short) == (5, 2, 2, 1)
    assert (result.steps, result.past_end) == (10, 1)
    assert json.loads(json.dumps(result.as_dict()))["tasks"] == {"a": 0.25, "b": 0.5}


def test_similarity_to_other_steps():
    with pytest.raises(BadSetting, match="similarity to 3 steps"):
        evaluate([(_video("a", [(0, 1, 0)]), np.zeros((4, 3)))], 1.0)


def test_planted_steps_are_found_where_equal_distances_find_few():
    generator = np.random.default_rng(0)
    found = []
    for _ in range(30):
        starts = np.sort(generator.choice(50, 4, replace=False))
        similarity = 0.3 * generator.standard_normal((60, 4))
        similarity[starts, range(4)] += 2
        found.append((_video("a", [(s, s + 1, k) for k, s in enumerate(starts)], 4), similarity))
    result = evaluate(found, 0.2)
    assert result.recall > 0.95
    assert result.uniform < 0.15


def test_a_split_by_hand():
    videos = {"a": [f"a_{n}" for n in range(40)], "b": [f"b_{n}" for n in range(35)]}
    found = split(videos, 30, seed=1)
    assert [sum(name.startswith(task) for name in found.train) for task in "ab"] == [30, 30]
    assert [sum(name.startswith(task) for name in found.test) for task in "ab"] == [10, 5]
    assert sorted(found.train + found.test) == sorted(videos["a"] + videos["b"])
    backwards = {task: videos[task][::-1] for task in "ba"}
    assert split(backwards, 30, seed=1) == found
    assert split(videos, 30, seed=2) != found
    alone = split({"a": videos["a"]}, 30, seed=1)
    assert alone.test == tuple(name for name in found.test if name.startswith("a"))
    drawn = {name for seed in range(200) for name in split(videos, 30, seed).test}
    assert drawn == set(videos["a"] + videos["b"])


def test_a_task_with_too_few_videos_to_split():
    with pytest.raises(BadSetting, match="task a has 7 videos"):
        split({"a": [f"a_{n}" for n in range(7)]})


def test_several_seeds():
    video = _video("a", [(0, 1, 0), (3, 4, 1)])
    good, half = (evaluate([(video, _pointing(*at, seconds=4))], 1.0) for at in ((0, 3), (0, 1)))
    found = over_seeds([good, half])
    assert (found["recall"].mean, found["recall"].seeds) == (0.75, 2)
    assert found["recall"].sd == pytest.approx(math.sqrt(0.125))
    assert found["uniform"].sd == 0


def test_a_judged_video_without_features_has_no_hits():
    found = judge(_video("a", [(0, 1, 0)]), 0, None)
    assert isinstance(found, Judged)
    assert (found.placed, found.hit.any(), found.present.tolist()) == (False, False, [True, False])
