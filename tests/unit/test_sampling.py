import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sampling import row_range


@pytest.mark.parametrize(
    ("start", "end", "rate", "rows", "expected"),
    [
        (0.0, None, 1.0, 10, (0, 10)),
        (2.0, 4.0, 1.0, 10, (2, 5)),  # int(4.0) + 1: the row that begins at the end belongs to it, as published
        (2.0, 4.0, 1.5, 100, (3, 7)),
        (0.2, 0.4, 1.0, 10, (0, 1)),
        (9.5, 99.0, 1.0, 10, (9, 10)),
        (50.0, 60.0, 1.0, 10, (9, 10)),  # past the end: the last row, never none
        (-3.0, -1.0, 1.0, 10, (0, 1)),
        (0.0, 5.0, 1.0, 0, (0, 0)),
    ],
)
def test_worked_by_hand(start: float, end: float | None, rate: float, rows: int, expected: tuple[int, int]) -> None:
    assert row_range(start, end, rate, rows) == expected


@given(st.floats(-1e3, 1e5), st.floats(-1e3, 1e5), st.sampled_from([0.5, 1.0, 1.5, 3.0]), st.integers(1, 10_000))
def test_never_empty_and_inside(start: float, end: float, rate: float, rows: int) -> None:
    first, last = row_range(start, end, rate, rows)
    assert 0 <= first < last <= rows
