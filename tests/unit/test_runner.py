from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cluster import local
from pipeline.errors import MissingWeights, PipelineError
from pipeline.runner import Loop, chunk_length, make_chunks, run
from tests.unit.toystage import Number, Numbers, times_run


def test_chunks_are_longest_first_and_bounded() -> None:
    items = [Number(name, seconds) for name, seconds in (("a", 1), ("b", 9), ("c", 4), ("d", 4), ("e", 30))]
    chunks = make_chunks(items, 10)
    assert [[i.id for i in c.items] for c in chunks] == [["e"], ["b"], ["c", "d", "a"]]


@given(st.lists(st.floats(0, 1e4), max_size=40), st.floats(1, 1e3))
def test_chunks_are_a_partition(seconds: list[float], size: float) -> None:
    items = [Number(str(i), s) for i, s in enumerate(seconds)]
    chunks = make_chunks(items, size)
    assert sorted(i.id for c in chunks for i in c.items) == sorted(i.id for i in items)
    assert all(len(c.items) == 1 or sum(i.seconds for i in c.items) <= size * (1 + 1e-9) for c in chunks)
    assert make_chunks(items[::-1], size) == chunks


def test_an_item_that_raises_is_the_only_one_to_fail(tmp_path: Path) -> None:
    numbers = tuple(Number(str(i), 1, "raise" if i == 3 else "ok") for i in range(6))
    outcomes = run(Numbers(numbers, tmp_path), Loop())
    assert [o.status for o in outcomes] == ["ok", "ok", "ok", "failed", "ok", "ok"]
    assert outcomes[3].reason == "unexpected ValueError: odd"
    assert (tmp_path / "saved").read_text() == "0 1 2 3 4 5"


def test_a_fault_that_is_no_items_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match="no weights"):
        run(Numbers((Number("a", 1), Number("b", 1, "weights")), tmp_path), Loop())
    assert not (tmp_path / "saved").exists()


def test_nothing_to_do_starts_no_pool(tmp_path: Path) -> None:
    assert run(Numbers((), tmp_path), Loop()) == []
    assert (tmp_path / "saved").read_text() == ""


def test_a_dead_worker_costs_one_retry_and_blames_no_other(tmp_path: Path) -> None:
    deeds = {"2": "die", "5": "die once", "8": "raise"}
    numbers = tuple(Number(str(i), 3.0, deeds.get(str(i), "ok")) for i in range(10))
    outcomes = run(Numbers(numbers, tmp_path), local(2, gpu=False))
    failed = {o.item: o.reason for o in outcomes if o.status == "failed"}
    assert failed == {"2": "the worker died (2 times)", "8": "unexpected ValueError: odd"}
    assert all(times_run(tmp_path, str(i)) <= 2 for i in range(10) if i not in {2})
    assert times_run(tmp_path, "2") <= 3  # with its chunk, and twice alone


def test_a_run_in_which_nothing_works_ends(tmp_path: Path) -> None:
    numbers = tuple(Number(str(i), 20, "raise") for i in range(9))
    with pytest.raises(PipelineError, match="5 items in a row failed"):
        run(Numbers(numbers, tmp_path), Loop())


@pytest.mark.parametrize(
    ("asked", "hours", "slots", "expected"),
    [
        (0.0, 100, 1, 120),
        (0.0, 2000, 1, 360),  # 20,000 chunks
        (0.0, 134_000, 64, 3600),
        (50.0, 134_000, 64, 50),
        (5000.0, 134_000, 64, 5000),
        (0.0, 2000, 4500, 100),  # a sixteenth of a worker's share
        (0.0, 100, 0, 120),
    ],
)
def test_chunks_grow_with_the_data_set(asked: float, hours: int, slots: int, expected: float) -> None:
    """Each chunk makes a shard, and every resume opens all of them."""
    assert chunk_length(asked, hours * 3600, slots) == pytest.approx(expected)
