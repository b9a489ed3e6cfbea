"""Runs that end before their work is done: at a signal, or when their time is up."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from pipeline.errors import BadSetting
from pipeline.records import Outcome
from pipeline.runner import Loop, run
from pipeline.stopping import SAME, Stop, seconds_of, watched


@dataclass(frozen=True)
class Piece:
    id: str
    seconds: float = 1.0


@dataclass
class Slow:
    """Ten items, one a chunk; what `during` says happens while the third is worked on."""

    during: object
    chunk_seconds: float = 1.0
    saved: list[Outcome] = field(default_factory=list)
    worked: list[str] = field(default_factory=list)

    def items(self) -> list[Piece]:
        return [Piece(f"i{n}") for n in range(10)]

    def work(self, chunk: Sequence[Piece]) -> list[Outcome]:
        self.worked += [piece.id for piece in chunk]
        if len(self.worked) == 3:
            self.during()  # type: ignore[operator]
        return [Outcome(piece.id, "ok") for piece in chunk]

    def save(self, outcomes: Sequence[Outcome]) -> None:
        self.saved += outcomes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_what_is_under_way_is_finished_and_saved(number: signal.Signals) -> None:
    stage, before = Slow(lambda: os.kill(os.getpid(), number)), signal.getsignal(number)
    with watched() as stop:
        outcomes = run(stage, Loop(), stop=stop)
        assert stop.why() == number.name
    assert [o.item for o in outcomes] == sorted(stage.worked) == ["i0", "i1", "i2"]
    assert stage.saved == outcomes
    assert signal.getsignal(number) == before


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    """As `timeout` sends it, to a process and to its group."""

    def both() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    stage = Slow(both)
    with watched() as stop:
        outcomes = run(stage, Loop(), stop=stop)
        assert stop.why() == "SIGTERM"
    assert [o.item for o in outcomes] == ["i0", "i1", "i2"]
    assert stage.saved == outcomes


def test_what_fails_while_stopping_is_nobodys_fault() -> None:
    def taken_away() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("its worker got the signal too")

    stage = Slow(taken_away)
    with watched() as stop:
        outcomes = run(stage, Loop(), stop=stop)
    assert [o.item for o in outcomes] == ["i0", "i1"]


def test_a_limit_leaves_time_for_the_longest_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    stop = Stop(100)
    assert stop.why() == ""
    stop.took(60)
    assert stop.why() == ""  # 20 + 60
    assert stop.why() == ""
    assert stop.why() == ""
    assert stop.why() == "the time limit"  # 50 + 60


def test_a_second_sigterm_ends_the_process() -> None:
    pid = os.fork()
    if pid == 0:
        with watched():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SAME + 0.1)
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM


@pytest.mark.parametrize("text", ["0", "1:2:3:4", "-5", "soon", "1:", "0:00"])
def test_a_limit_that_is_no_time(text: str) -> None:
    with pytest.raises(BadSetting, match=f"--time-limit {text}: expected minutes, H:MM or H:MM:SS"):
        seconds_of(text)
