"""Runs a stage: makes chunks, hands them to a plain loop or to Dask, and accounts for every item.

A stage says what is left to do (`items`), how a few items are done (`work`) and how results are saved (`save`). The
runner submits no more chunks than there are worker threads, so that a worker that dies takes one chunk with it. When a
chunk fails as a whole, its items are run again one by one, so that the guilty one is found and no other is blamed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from errno import ENOMEM
from typing import Any, Protocol

from pipeline.errors import PipelineError
from pipeline.progress import Progress
from pipeline.records import Outcome
from pipeline.stopping import Stop

log = logging.getLogger(__name__)

DEATHS = 2
"""How often an item that runs alone may cost a worker its life before it is called failed."""

SHARES = 16
"""Chunks for each worker at least: durations are often guesses, and the last chunk is what others wait for."""


SHORTEST, LONGEST, MOST = 120.0, 3600.0, 20_000
"""Seconds of a chunk, where nobody chose: as short as a kill may cost on a CPU; no more chunks than so many, as each
leaves a file that every resume opens; and as long as a shard of a few hundred megabytes."""


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
        """Seconds of video in one chunk; 0 for what suits the number of items."""
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


def run(
    stage: Stage, pool: AbstractContextManager[Pool], unit: str = "videos", stop: Stop | None = None
) -> list[Outcome]:
    """Run a stage to its end and return one outcome for each of its items, in their order.

    `unit` is what items are called in the progress. `stop`: when it says so no more work is begun, what is under way is
    finished and saved, and items that were not done have no outcome.
    """
    stop = stop or Stop()
    items = stage.items()
    outcomes: list[Outcome] = []
    if items:
        with pool as open_pool, Progress(len(items), unit) as progress:
            for outcome in work_through(stage, items, open_pool, stop):
                outcomes.append(outcome)
                progress.add(outcome)
    if len(outcomes) < len(items) and stop.why():
        done = {outcome.item for outcome in outcomes}
        items = [item for item in items if item.id in done]
    ordered = _in_order(items, outcomes)
    del outcomes
    stage.save(ordered)
    return ordered


def _in_order(items: Sequence[Any], outcomes: list[Outcome]) -> list[Outcome]:
    """Return outcomes in the order of their items; for a million of them without a table of names."""
    places = sorted(range(len(items)), key=lambda place: str(items[place].id))
    outcomes.sort(key=lambda outcome: outcome.item)
    assert len(places) == len(outcomes), "an item was lost"
    found: list[Outcome] = list(outcomes)
    for place, outcome in zip(places, outcomes, strict=True):
        assert items[place].id == outcome.item, "an item was lost"
        found[place] = outcome
    return found


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


def chunk_length(asked: float, total: float, slots: int) -> float:
    """Return the seconds of a chunk, of `total` in all: those asked for, or what suits; and enough for all workers."""
    wanted = asked or min(max(SHORTEST, total / MOST), LONGEST)
    return min(wanted, total / (SHARES * max(1, slots)))


def work_through(stage: Stage, items: Sequence[Any], pool: Pool, stop: Stop) -> Iterator[Outcome]:
    """Yield one outcome for each item, until `stop`. Raises PipelineError when the fault is not an item's."""
    length = chunk_length(stage.chunk_seconds, sum(item.seconds for item in items), pool.slots())
    waiting = deque(make_chunks(items, length))
    running: dict[int, float] = {}
    strange = Strange()
    while running or (waiting and not stop.why()):
        while waiting and len(running) < max(1, pool.slots()) and not stop.why():
            chunk = waiting.popleft()
            running[id(chunk.items)] = time.monotonic()
            pool.submit(stage.work, chunk)
        chunk, result = pool.finished()
        stop.took(time.monotonic() - running.pop(id(chunk.items)))
        if stop.why() and not isinstance(result, list):
            continue  # a worker that was taken away, too: its videos are not done, and nobody's fault
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
    died = isinstance(error, WorkerDied) or _no_memory(error)
    if len(chunk.items) > 1:
        log.warning("%s; its %d items run again one by one", error if died else repr(error), len(chunk.items))
        return [Chunk((item,)) for item in chunk.items], []
    if died and chunk.deaths + 1 < DEATHS:
        return [Chunk(chunk.items, chunk.deaths + 1)], []
    said = str(error) or "out of memory"
    reason = f"{said} ({DEATHS} times)" if died else f"unexpected {type(error).__name__}: {error}"
    log.error("%s: %s", chunk.items[0].id, reason, exc_info=None if died else error)
    return [], [Outcome(chunk.items[0].id, "failed", " ".join(reason.split())[:500])]


def _no_memory(error: BaseException) -> bool:
    """Return whether the machine was short of memory, which may be another process's doing."""
    # torch raises a RuntimeError for it
    return isinstance(error, MemoryError) or getattr(error, "errno", 0) == ENOMEM or "allocate memory" in str(error)


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
