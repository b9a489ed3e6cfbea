"""Several iterators read at once, by threads, so that who uses what they give need not wait for each in turn.

A worker that has a GPU decodes several videos at once this way: one ffmpeg keeps a processor busy, and a GPU takes what
dozens of them give. A thread does little: it reads pipes, while its ffmpeg works in a process of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")
Work = Callable[[], Generator[T, None, None]]

ROOM = 8
"""Things that are made and not yet used, at most, for each thread."""
_TURN = 0.1
"""Seconds after which a thread that finds no room sees whether anybody still wants what it has."""


class _End:
    """A thread has nothing more, or `error` ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(works: Sequence[Work[T]], threads: int) -> Generator[tuple[int, T]]:
    """Yield (number of the work, what it gives): of one work in its order, of several as they come.

    Without threads, one work after the other. An error of a work is raised here, and ends all others; they are closed,
    too, when this iterator is.
    """
    if threads < 2:
        for number, work in enumerate(works):
            yield from ((number, one) for one in work())
        return
    count = min(threads, len(works))
    made: queue.Queue[tuple[int, T] | _End] = queue.Queue(ROOM * count)
    waiting, unwanted = iter(enumerate(works)), threading.Event()
    lock = threading.Lock()

    def following() -> tuple[int, Work[T]] | None:
        with lock:
            return None if unwanted.is_set() else next(waiting, None)

    running = [threading.Thread(target=_serve, args=(following, made, unwanted)) for _ in range(count)]
    for thread in running:
        thread.start()
    try:
        yield from _taken(made, count)
    finally:
        unwanted.set()
        for thread in running:
            thread.join()


def _taken(made: queue.Queue[tuple[int, T] | _End], threads: int) -> Iterator[tuple[int, T]]:
    while threads:
        one = made.get()
        if not isinstance(one, _End):
            yield one
        elif one.error is not None:
            raise one.error
        else:
            threads -= 1


def _serve(
    following: Callable[[], tuple[int, Work[T]] | None],
    made: queue.Queue[tuple[int, T] | _End],
    unwanted: threading.Event,
) -> None:
    end = _End()
    try:
        while (task := following()) is not None:
            number, work = task
            with closing(work()) as things:
                for thing in things:
                    if not _put(made, (number, thing), unwanted):
                        return
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where things are used
        end = _End(error)
    finally:
        _put(made, end, unwanted)


def _put(made: queue.Queue[tuple[int, T] | _End], thing: tuple[int, T] | _End, unwanted: threading.Event) -> bool:
    """Wait for room. Returns whether it is wanted."""
    while not unwanted.is_set():
        try:
            made.put(thing, timeout=_TURN)
        except queue.Full:
            continue
        return True
    return False
