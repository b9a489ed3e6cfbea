"""Damaged annotations: the data set loads and can be written, or one line says which file is wrong."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from pipeline import caption_runs
from pipeline.errors import PipelineError
from pipeline.loading import load
from pipeline.records import Manifest
from pipeline.sources import CONTROL
from pipeline.stages import merge
from pipeline.tables import write_tables
from tests.unit.features import ATTRS
from tests.whole.fuzz import damage, roots, texts
from tests.whole.fuzz.conftest import Tally
from tests.whole.fuzz.roots import Root
from tests.whole.fuzz.watched import watched

pytestmark = pytest.mark.slow

LEAST = 1_600
"""Inputs."""
LIMIT = 10.0
"""Seconds after which an input hangs."""
MEGABYTES = 150
"""By which a process may grow over one input."""
LONGEST = 1_500
"""Characters of a message, with paths."""
SPLICED = "two files spliced"
EACH, OF_JSON = 2, 12
"""Inputs of each kind for each file, and of JSON values for each file of JSON: there are many ways to change them."""


@dataclass(frozen=True)
class Input:
    """A data set of which one file is damaged."""

    root: Root
    file: str
    kind: str
    number: int

    def data(self, others: list[bytes]) -> bytes:
        """Return what is written in the file's place."""
        whole, draw = self.root.files[self.file], Random(f"{self}")
        if self.kind == SPLICED:
            return damage.splice(whole, draw.choice(others), draw)
        if self.kind == PROGRAM:
            return texts.OPCODES[self.number]
        return texts.TEXTS[self.kind](whole, draw)

    def __str__(self) -> str:
        return f"{self.root.dataset}, {self.root.kind} {self.file}, {self.kind} {self.number}"


PROGRAM = "pickle with a program"


def inputs(every: list[Root]) -> Iterator[Input]:
    for root in every:
        for file in (name for name, data in root.files.items() if data):
            for kind in (*texts.TEXTS, SPLICED):
                times = OF_JSON if kind == texts.JSON and file.endswith((".json", ".jsonl")) else EACH
                yield from (Input(root, file, kind, number) for number in range(times))
            if file.endswith((".pickle", ".pkl")):
                yield from (Input(root, file, PROGRAM, number) for number in range(len(texts.OPCODES)))


@pytest.fixture(scope="module")
def every(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Root]:
    place = tmp_path_factory.mktemp("annotations")
    for name in ("small", "native", "whole"):
        (place / name).mkdir()
    found = [*roots.small(place / "small"), *roots.native(shared / "data", place / "native")]
    logging.getLogger().setLevel(logging.ERROR)
    for number, root in enumerate(found):
        _use(root, place / "whole" / str(number))  # all of them load when nothing is damaged
    return found


def _use(root: Root, folder: Path) -> None:
    """Load a data set as the commands do, and write its tables."""
    place = root.write(folder)
    if root.dataset == "merge":
        merge.place_of.cache_clear()
        assert (
            caption_runs.merge(merge.Merge(root=str(place), out=folder / "captions.h5", allow_pickle=True), 0, "") == 0
        )
        return
    manifest = load(root.dataset, str(place), allow_pickle=True)
    _check(manifest)
    write_tables(folder / "tables.h5", ATTRS, manifest)


def _check(manifest: Manifest) -> None:
    """Assert that there is nothing in a data set that no data set has."""
    assert all(0 <= video.duration < float("inf") for video in manifest.videos)
    for span in [*manifest.clips, *manifest.steps]:
        assert 0 <= span.start < (float("inf") if span.end is None else span.end)
        assert span.end != float("inf")
    for records in (manifest.videos, manifest.clips, manifest.captions):
        ids = [record.id for record in records]
        assert len(set(ids)) == len(ids)
        assert not any(name.startswith("/") or ".." in name.split("/") or CONTROL.search(name) for name in ids)


def _work(folder: Path, others: list[bytes], given: Input) -> tuple[str, str]:
    shutil.rmtree(folder, ignore_errors=True)
    damaged = replace(given.root, files={**given.root.files, given.file: given.data(others)})
    try:
        _use(damaged, folder)
    except PipelineError as error:
        message = str(error)
        assert len(message.splitlines()) == 1, message
        assert len(message) < LONGEST, f"{len(message)} characters: {message:.300}"
        assert any(Path(name).name in message for name in damaged.files), message
        return "refused", message
    finally:
        assert not Path("harmed").exists(), "a pickle ran a program"
    return "loaded", ""


def test_each_loads_or_is_refused(
    every: list[Root], tmp_path: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = list(inputs(every))
    assert len(given) >= LEAST
    others = [data for root in every for data in root.files.values() if data]
    wrong = []
    results = watched(given, partial(_work, tmp_path / "data", others), LIMIT)
    for one, result in zip(given, results, strict=True):
        tally.add("annotations", one.kind, result.outcome)
        if result.outcome not in ("loaded", "refused") or result.seconds > LIMIT or result.megabytes > MEGABYTES:
            wrong.append(f"{one}: {result}")
    assert not wrong, "\n".join(wrong)


def test_damage_is_the_same_each_time(every: list[Root]) -> None:
    others = [data for root in every for data in root.files.values() if data]
    some = list(inputs(every))[::17]
    first = [one.data(others) for one in some]
    assert first == [one.data(others) for one in some]
    changed = sum(data != one.root.files[one.file] for one, data in zip(some, first, strict=True))
    assert changed > 0.9 * len(some), json.dumps([str(one) for one in some])
