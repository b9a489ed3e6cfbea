"""Values in messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.shown import shown


def laughs(deep: int) -> Any:
    """A list in which each list stands twice: few lists, more than memory holds when they are written."""
    value: list[Any] = []
    for _ in range(deep):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "value", [None, True, 12, -0.5, "a'b", b"\xff", [], {}, [1, "a", None], {"a": [{"b": 1.5}], "c": (1, 2)}]
)
def test_as_python_writes_it(value: Any) -> None:
    assert shown(value) == repr(value)
    assert shown(value, 3) == repr(value)[:3]


def test_no_more_than_the_beginning() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "[" * 200
    assert shown(laughs(60), 50) == "[" * 50
    assert len(shown("x" * 10**7)) == 200
    assert shown([1] * 10**7) == ("[" + "1, " * 100)[:200]
    assert shown({"a": 1 << 99_999}) == "{'a': a number of many digits}"
    assert shown({1}) == "a set"
    assert "\n" not in shown(np.zeros((9, 9)))
