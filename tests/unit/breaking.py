"""A store's writer whose calls to the system fail: what is needed to do that to each of them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pipeline.errors import PipelineError
from pipeline.output import Output
from pipeline.records import Manifest, Video
from pipeline.report import verify
from pipeline.store import Features
from tests.unit.features import ATTRS, shard, video

MANIFEST = Manifest("test", (Video("v1", None), Video("v2", None)))
CALLS = ("open", "write", "fsync", "posix_fallocate", "copy_file_range", "replace", "rename", "unlink", "mkdir")


def contents(path: Path) -> dict[str, bytes]:
    """Return all rows of a feature file; none where there is no file."""
    if not path.exists():
        return {}
    with Features.open(path) as features:
        return {f"{name} {v}": r.tobytes() for name in features.streams for v, r in features.all_rows(name)}


def first(path: Path) -> None:
    """A finished run over v1."""
    output = Output(path)
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("a"), video("v1", streams=("a:x", "b:y")))
        output.finish(ATTRS, {})


def second(path: Path) -> None:
    """A run that adds v2."""
    output = Output(path)
    with output.owned():
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("b"), video("v2", seed=5, streams=("a:x", "b:y")))
        output.finish(ATTRS, {})


@contextmanager
def failing(number: int, deed: Callable[[], Any]) -> Iterator[list[str]]:
    """Do `deed` in place of the call number `number`; the list gets the calls that were made."""
    made: list[str] = []

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            made.append(name)
            if len(made) == number:
                deed()
            return real(*args, **named)

        return call

    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(mock.patch.object(os, name, wrap(name, getattr(os, name))))
        stack.enter_context(mock.patch.object(io, "open", wrap("io.open", io.open)))
        yield made


def raising(code: int) -> Callable[[], None]:
    def deed() -> None:
        raise OSError(code, os.strerror(code))

    return deed


def how_many(tmp_path: Path) -> int:
    with failing(0, lambda: None) as made:
        first(tmp_path / "counted.h5")
        made.clear()
        second(tmp_path / "counted.h5")
    assert {"open", "fsync", "replace", "rename", "io.open"} <= set(made)
    return len(made)


class Case:
    """A feature file with v1, to which a run adds v2 while one of its calls fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.calls = how_many(folder)
        self._new = contents(folder / "counted.h5")
        self._old = {name: values for name, values in self._new.items() if name.endswith("v1")}
        first(folder / "first.h5")
        self._data = (folder / "first.h5").read_bytes()

    def fail(self, number: int, code: int) -> None:
        """Have the call number `number` fail with an error, and go on."""
        path = self._place(f"{number} {code}")
        with failing(number, raising(code)):
            try:
                second(path)
            except PipelineError as error:
                assert any(word in str(error) for word in ("cannot write", "is damaged"))  # noqa: PT017
        self._assert_old_or_new_then_new(path)

    def end(self, number: int) -> None:
        """Have the process end at the call number `number`, and go on in another."""
        path = self._place(str(number))
        pid = os.fork()
        if not pid:
            try:
                with failing(number, lambda: os._exit(9)):
                    second(path)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        self._assert_old_or_new_then_new(path)

    def _place(self, name: str) -> Path:
        path = self._folder / name / "features.h5"
        path.parent.mkdir()
        path.write_bytes(self._data)
        return path

    def _assert_old_or_new_then_new(self, path: Path) -> None:
        assert contents(path) in (self._old, self._new), "a mixture"
        second(path)
        assert contents(path) == self._new
        assert verify(path) == []
        assert [f.name for f in path.parent.iterdir()] == [path.name]
