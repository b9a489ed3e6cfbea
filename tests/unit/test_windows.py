"""Windows and their average, by hand."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadSetting
from train import windows as module
from train.windows import average, windows


def test_examples_of_the_docstrings():
    assert doctest.testmod(module) == (0, 1)


@pytest.mark.parametrize(
    ("seconds", "size", "stride", "expected"),
    [
        (0, 4, 2, []),
        (1, 4, 2, [(0, 1)]),
        (4, 4, 2, [(0, 4)]),
        (5, 4, 2, [(0, 4), (2, 5)]),
        (6, 4, 2, [(0, 4), (2, 6)]),
        (7, 4, 4, [(0, 4), (4, 7)]),
        (70, 32, 8, [(0, 32), (8, 40), (16, 48), (24, 56), (32, 64), (40, 70)]),
        (70, 32, 16, [(0, 32), (16, 48), (32, 64), (48, 70)]),
    ],
)
def test_windows_by_hand(seconds, size, stride, expected):
    assert windows(seconds, size, stride) == expected


@given(st.integers(1, 200), st.integers(1, 40), st.data())
def test_windows_cover_every_second_and_the_first_that_reaches_the_end_is_the_last(seconds, size, data):
    stride = data.draw(st.integers(1, size))
    found = windows(seconds, size, stride)
    assert {t for first, last in found for t in range(first, last)} == set(range(seconds))
    assert [last == seconds for _, last in found] == [False] * (len(found) - 1) + [True]
    assert all(first == n * stride and last - first <= size for n, (first, last) in enumerate(found))


@pytest.mark.parametrize(("size", "stride"), [(4, 5), (4, 0), (0, 0)])
def test_windows_that_would_leave_seconds_out(size, stride):
    with pytest.raises(BadSetting, match="the stride must be"):
        windows(10, size, stride)


def test_average_by_hand():
    parts = [np.array([[1.0, 0], [3, 0], [5, 2]]), np.array([[7.0, 4], [9, 9]]), np.array([[1.0, 1]])]
    found = average(parts, [(0, 3), (2, 4), (3, 4)])
    assert found.tolist() == [[1, 0], [3, 0], [6, 3], [5, 5]]


def test_what_does_not_depend_on_the_window_is_left_as_it_is():
    logits = np.random.default_rng(0).standard_normal((70, 3))
    spans = windows(70, 32, 8)
    np.testing.assert_allclose(average([logits[a:b] for a, b in spans], spans), logits, rtol=1e-12)


@pytest.mark.parametrize("spans", [[], [(1, 3)], [(0, 2), (3, 4)]])
def test_average_of_windows_with_gaps(spans):
    with pytest.raises(BadSetting, match="leave seconds out"):
        average([np.zeros((b - a, 1)) for a, b in spans], spans)
