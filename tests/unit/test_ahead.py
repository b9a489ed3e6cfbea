"""Iterators read by threads: all that they give, each in its order, and nothing that goes on after an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator

import pytest

from pipeline import ahead as module
from pipeline.ahead import ahead


def counting(begin: int, size: int) -> Generator[int]:
    yield from range(begin, begin + size)


@pytest.mark.parametrize("threads", [0, 1, 2, 5, 50])
def test_each_work_gives_all_it_has_in_its_order(threads: int) -> None:
    works = [lambda n=n: counting(100 * n, n) for n in range(7)]
    found: dict[int, list[int]] = {}
    for number, one in ahead(works, threads):
        found.setdefault(number, []).append(one)
    assert found == {n: list(range(100 * n, 101 * n)) for n in range(1, 7)}
    assert list(ahead([], threads)) == []


def test_works_run_at_the_same_time() -> None:
    """Each waits for the other before it gives anything: one after the other they would wait for ever."""
    both = threading.Barrier(2, timeout=20)

    def work() -> Generator[int]:
        yield both.wait()

    assert {number for number, _ in ahead([work, work], 2)} == {0, 1}


def test_no_more_is_made_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 3)
    made = []

    def work() -> Generator[int]:
        for number in range(100):
            made.append(number)
            yield number

    things = ahead([work, work], 2)
    next(things)
    time.sleep(0.5)
    assert len(made) <= 2 * 3 + 2 + 1  # in the queue, in the hands of two threads, and taken
    assert len(list(things)) == 199


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_raised_and_closes_the_others(threads: int) -> None:
    closed = []

    def endless(number: int) -> Generator[int]:
        try:
            while True:
                yield number
        finally:
            closed.append(number)

    def bad() -> Generator[int]:
        yield 0
        raise RuntimeError("spoilt")

    works = [bad, lambda: endless(1), lambda: endless(2)]
    with pytest.raises(RuntimeError, match="spoilt"):
        list(ahead(works, threads))
    assert sorted(closed) == ([] if threads == 1 else [1, 2])


@pytest.mark.parametrize("threads", [1, 3])
def test_closing_closes_all_that_run_and_begins_no_other(threads: int) -> None:
    begun, closed = [], []

    def work(number: int) -> Generator[int]:
        begun.append(number)
        try:
            while True:
                yield number
        finally:
            closed.append(number)

    before = threading.active_count()
    things = ahead([lambda n=n: work(n) for n in range(9)], threads)
    for _ in range(5):
        next(things)
    things.close()
    assert sorted(begun) == sorted(closed)
    assert len(begun) == threads
    assert threading.active_count() == before
