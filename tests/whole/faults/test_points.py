"""A fault at each named point of a run, the first and the second time that the run comes there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.whole.faults.conftest import Ground
from tests.whole.faults.forked import fork

pytestmark = pytest.mark.slow
POINTS = {
    "shard-*.h5": (
        "write.before", "rows.before", "rows.one", "fsync.before", "rename.before", "rename.after", "fsync.after",
    ),
    "tables.h5": ("write.before", "fsync.before", "rename.before", "rename.after", "fsync.after"),
    "manifest.jsonl": ("append.before", "append.written", "append.after"),
    "features.h5": (
        "write.before", "verify.before", "fsync.before", "rename.before", "rename.after", "fsync.after",
        "away.before", "away.after",
    ),
    "features.oddities.jsonl": ("write.before", "fsync.before", "rename.before", "rename.after", "fsync.after"),
    "features.failures.jsonl": ("write.before", "fsync.before", "rename.before", "rename.after", "fsync.after"),
}  # fmt: skip
EVERY = [(file, step) for file, steps in POINTS.items() for step in steps]


@pytest.fixture(scope="module")
def met(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[str, str]]:
    """How often an undisturbed run comes to each point."""
    place = tmp_path_factory.mktemp("met")
    log = place / "points"
    assert fork(ground.words(place / "features.h5"), place / "run.log", f"*:*:0:none:{log}").wait() == 1
    found: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        name, _, step = line.rpartition(":")
        found["shard-*.h5" if name.startswith("shard-") else name, step] += 1
    return found


def test_every_point_of_a_run_is_tested(met: Counter[tuple[str, str]]) -> None:
    assert set(met) == set(EVERY)


@pytest.mark.parametrize(("file", "step"), EVERY)
@pytest.mark.parametrize("deed", ["kill", "enospc", "eio"])
def test_fault_and_resume(
    ground: Ground, met: Counter[tuple[str, str]], out: Path, file: str, step: str, deed: str
) -> None:
    most = 2 if deed == "kill" else 1
    for count in range(1, min(met[file, step], most) + 1):
        place = out.parent / str(count)
        place.mkdir()
        log = out.parent / f"{count}.log"
        run = fork(ground.words(place / out.name), place / "run.log", f"{file}:{step}:{count}:{deed}:{log}")
        code = run.wait()
        assert len(log.read_text().splitlines()) == count, "the fault did not happen"
        if deed == "kill":
            assert code == -9
        else:
            assert code == 2, run.said()
            assert "Traceback" not in run.said()
            assert "error: cannot write" in run.said()
        ground.check(f"{deed} at a named point", place / out.name)


@pytest.mark.parametrize("file", ["shard-*.h5", "features.h5"])
def test_out_of_memory_costs_no_rows(ground: Ground, out: Path, file: str) -> None:
    log = out.parent / "fault.log"
    fork(ground.words(out), out.parent / "run.log", f"{file}:write.before:1:memory:{log}").wait()
    ground.check("MemoryError at a named point", out)
