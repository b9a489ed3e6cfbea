"""Runs a stage: makes chunks, hands them to a plain loop or to Dask, and accounts for every item.

A stage says what is left to do (`items`), how a few items are done (`work`) and how results are saved (`save`). The
runner submits no more chunks than there are worker threads, so that a worker that dies takes one chunk with it. When a
chunk fails as a whole, its items are run again one by one, so that the guilty one is found and no other is blamed.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.errors import PipelineError
from pipeline.progress import Progress
from pipeline.records import Outcome

log = logging.getLogger(__name__)

DEATHS = 2
"""How often an item that runs alone may cost a worker its life before it is called failed."""

SHARES = 16
"""Chunks for each worker at least: durations are often guesses, and the last chunk is what others wait for."""


class Item(Protocol):
    """One unit of work."""

    @property
    def id(self) -> str:
        """Its name in reports."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds of video, known or guessed, by which work is balanced."""
        ...


class Stage(Protocol):
    """One offline step. Three methods and never a fourth."""

    @property
    def chunk_seconds(self) -> float:
        """Seconds of video in one chunk."""
        ...

    def items(self) -> Sequence[Any]:
        """Return what is left to do."""
        ...

    def work(self, chunk: Sequence[Any]) -> list[Outcome]:
        """Do a few items, in a worker; return exactly one outcome for each. Its only effect is its own output."""
        ...

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Put the results in their place, once, in the process that owns the output."""
        ...


@dataclass(frozen=True)
class Chunk:
    """Items that are done together; `deaths` counts the workers that died over it."""

    items: tuple[Any, ...]
    deaths: int = 0


class WorkerDied(Exception):
    """The process that ran a chunk is gone."""


class Pool(Protocol):
    """Where chunks run."""

    def slots(self) -> int:
        """Return how many chunks may be under way."""
        ...

    def submit(self, work: Callable[[Sequence[Any]], list[Outcome]], chunk: Chunk) -> None:
        """Begin a chunk."""
        ...

    def finished(self) -> tuple[Chunk, list[Outcome] | BaseException]:
        """Wait for a chunk and return what came of it: its outcomes, or why there are none."""
        ...


def run(stage: Stage, pool: AbstractContextManager[Pool], unit: str = "videos") -> list[Outcome]:
    """Run a stage to its end and return one outcome for each of its items, in their order.

    `unit` is what items are called in the progress.
    """
    items = stage.items()
    outcomes: dict[str, Outcome] = {}
    if items:
        with pool as open_pool, Progress(len(items), unit) as progress:
            for outcome in work_through(stage, items, open_pool):
                outcomes[outcome.item] = outcome
                progress.add(outcome)
    assert set(outcomes) == {item.id for item in items}, "an item was lost"
    ordered = [outcomes[item.id] for item in items]
    stage.save(ordered)
    return ordered


def make_chunks(items: Sequence[Any], seconds: float) -> list[Chunk]:
    """Divide items into chunks of about `seconds` of video, longest first, deterministically."""
    chunks: list[list[Any]] = []
    room = 0.0
    for item in sorted(items, key=lambda item: (-item.seconds, item.id)):
        if not chunks or item.seconds > room:
            chunks.append([])
            room = seconds
        chunks[-1].append(item)
        room -= item.seconds
    return [Chunk(tuple(chunk)) for chunk in chunks]


def work_through(stage: Stage, items: Sequence[Any], pool: Pool) -> Iterator[Outcome]:
    """Yield one outcome for each item. Raises PipelineError when the fault is not an item's."""
    fair = sum(item.seconds for item in items) / (SHARES * max(1, pool.slots()))
    waiting = deque(make_chunks(items, min(stage.chunk_seconds, fair)))
    running = 0
    strange = Strange()
    while waiting or running:
        while waiting and running < max(1, pool.slots()):
            pool.submit(stage.work, waiting.popleft())
            running += 1
        chunk, result = pool.finished()
        running -= 1
        if isinstance(result, list):
            strange.calm()
            yield from _checked(chunk, result)
        else:
            strange.note(chunk, result)
            again, outcomes = after_failure(chunk, result)
            waiting.extendleft(again)
            yield from outcomes


class Strange:
    """Ends a run in which nothing works: a fault of all items is none of theirs."""

    LIMIT = 5

    def __init__(self) -> None:
        self._seen: list[str] = []

    def calm(self) -> None:
        """Something worked."""
        self._seen.clear()

    def note(self, chunk: Chunk, error: BaseException) -> None:
        """Count an unforeseen error of an item that ran alone. Raises PipelineError when nothing else happens."""
        if len(chunk.items) > 1 or isinstance(error, WorkerDied):
            return
        self._seen.append(f"{type(error).__name__}: {error}")
        if len(self._seen) == self.LIMIT:
            why = self._seen[-1][:300]
            raise PipelineError(f"{self.LIMIT} items in a row failed as nobody foresaw, the last with {why}") from error


def _checked(chunk: Chunk, outcomes: list[Outcome]) -> list[Outcome]:
    assert Counter(o.item for o in outcomes) == Counter(i.id for i in chunk.items), "one outcome for each item"
    return outcomes


def after_failure(chunk: Chunk, error: BaseException) -> tuple[list[Chunk], list[Outcome]]:
    """Decide what becomes of a chunk that gave no outcomes: what is run again, and what has failed."""
    if isinstance(error, PipelineError):
        raise error
    died = isinstance(error, WorkerDied)
    if len(chunk.items) > 1:
        log.warning("%s; its %d items run again one by one", error if died else repr(error), len(chunk.items))
        return [Chunk((item,)) for item in chunk.items], []
    if died and chunk.deaths + 1 < DEATHS:
        return [Chunk(chunk.items, chunk.deaths + 1)], []
    reason = f"{error} ({DEATHS} times)" if died else f"unexpected {type(error).__name__}: {error}"
    log.error("%s: %s", chunk.items[0].id, reason, exc_info=None if died else error)
    return [], [Outcome(chunk.items[0].id, "failed", " ".join(reason.split())[:500])]


class Loop:
    """A pool of none: chunks run here, one after the other."""

    def __init__(self) -> None:
        self._result: tuple[Chunk, list[Outcome] | BaseException] | None = None

    def __enter__(self) -> Loop:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def slots(self) -> int:
        """One at a time."""
        return 1

    def submit(self, work: Callable[[Sequence[Any]], list[Outcome]], chunk: Chunk) -> None:
        """Run the chunk to its end."""
        try:
            self._result = chunk, work(chunk.items)
        except Exception as error:  # noqa: BLE001 — whatever an item raises is that item's outcome
            self._result = chunk, error

    def finished(self) -> tuple[Chunk, list[Outcome] | BaseException]:
        """Return what came of the chunk just run."""
        assert self._result is not None
        return self._result
