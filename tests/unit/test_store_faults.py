"""The store's writer under faults: each call to the system fails once, files are cut off and bits flipped."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.output import Output
from pipeline.parts import read_ledger
from pipeline.report import verify
from pipeline.store import Features
from tests.unit.breaking import MANIFEST, Case, contents, first, second
from tests.unit.features import ATTRS, rows, shard, video


def test_calls_of_the_writer_fail_and_it_goes_on(tmp_path: Path) -> None:
    """Every twentieth; `make slow` does it to each."""
    case = Case(tmp_path)
    for number in range(1, case.calls + 1, 20):
        case.fail(number, errno.ENOSPC)
        case.end(number)


def test_what_a_dead_run_left_is_no_hindrance(tmp_path: Path) -> None:
    """Temporary files, a lock, half a shard and half a line of the ledger of a dead process."""
    output = Output(tmp_path / "features.h5")
    shard(output.shard("good"), video("v1"))
    dead = f"{os.uname().nodename}-4194305"
    for folder, name in ((output.folder, "shard-x.h5"), (output.folder, "tables.h5"), (tmp_path, "features.h5")):
        (folder / f".{name}.{dead}.tmp").write_bytes(b"half")
    (tmp_path / f".features.shards.{dead}.tmp").mkdir()
    (tmp_path / ".features.h5.shards.folded-4194305").mkdir()
    (output.folder / ".lock").touch()
    (output.folder / "shard-half.h5").write_bytes(output.shard("good").read_bytes()[:900])
    (output.folder / "manifest.jsonl").write_bytes(b'{"shard": "shard-\xff')
    second(output.path)
    with Features.open(output.path) as features:
        np.testing.assert_array_equal(features.rows("a:x", "v1"), rows(3))
        np.testing.assert_array_equal(features.rows("a:x", "v2"), rows(3, seed=5))
    assert [f.name for f in tmp_path.iterdir()] == ["features.h5"]


def test_a_shard_counts_although_the_line_before_it_is_torn(tmp_path: Path) -> None:
    output = Output(tmp_path / "features")
    output.path.mkdir()
    (output.path / "manifest.jsonl").write_text('{"shard": "shard-tw')
    with output.owned():
        shard(output.shard("one"), video("v1"))
        output.adopt()
        assert read_ledger(output.path) == ["shard-one.h5"]


def test_the_last_listed_shard_counts_when_the_clock_is_set_back(tmp_path: Path) -> None:
    output = Output(tmp_path / "features")
    with output.owned():
        shard(output.shard("a"), video("v1", status="failed"), video("v2", seed=1))
        output.adopt()
    with output.owned(), mock.patch("time.time_ns", return_value=1):
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("b"), video("v1", 4))
        output.finish(ATTRS, {})
    with output.owned(), mock.patch("time.time_ns", return_value=2):
        output.begin(MANIFEST, ATTRS)
        shard(output.shard("c"), video("v2", 2, seed=2))
        output.finish(ATTRS, {})
    assert read_ledger(output.path) == ["shard-a.h5", "shard-b.h5", "shard-c.h5"]
    with Features.open(output.path) as features:
        assert features.stream("a:x").status.tolist() == [1, 1]
        np.testing.assert_array_equal(features.rows("a:x", "v2"), rows(2, seed=2))


def test_a_run_that_ends_does_not_take_the_lock_of_the_next_one(tmp_path: Path) -> None:
    """The first has put its folder away, but has not ended yet, when the second begins."""
    one, two, three = (Output(tmp_path / "features.h5") for _ in range(3))
    with one.owned():
        one.begin(MANIFEST, ATTRS)
        shard(one.shard("a"), video("v1"))
        one.finish(ATTRS, {})
        held = two.owned()
        held.__enter__()
    with pytest.raises(PipelineError, match="another run is writing"), three.owned():
        pass
    held.__exit__(None, None, None)
    assert [f.name for f in tmp_path.iterdir()] == ["features.h5"]


def all_of(path: Path) -> dict[str, Any]:
    """Return all that a program reads in a feature file. Raises PipelineError when it is not sound."""
    problems = verify(path)
    if problems:
        raise PipelineError(problems[0])
    found: dict[str, Any] = dict(contents(path))
    with Features.open(path) as features:
        found |= {f"videos/{name}": values.tolist() for name, values in features.videos.items()}
        found |= {f"captions/{name}": values.tolist() for name, values in features.table("captions").items()}
        for name, stream in features.streams.items():
            found[name] = (stream.settings, stream.status.tolist(), stream.reason.tolist(), stream.dtype.str)
    return found


def read_each(files: Sequence[bytes], path: Path, expected: dict[str, Any]) -> Counter[str]:
    """Read damaged files in a child, for five seconds each; return how many were `found` out, `same`, other or hung."""
    told: list[str] = []
    while len(told) < len(files):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                for data in files[len(told) :]:
                    path.write_bytes(data)
                    os.write(writing, _told(path, expected))
            finally:
                os._exit(0)
        os.close(writing)
        while select.select([reading], [], [], 5)[0] and (letter := os.read(reading, 1)):
            told.append({b"f": "found", b"s": "same", b"o": "other"}[letter])
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or len(told) < len(files):
            told += ["hung"] * (len(told) < len(files))
    return Counter(told)


def _told(path: Path, expected: dict[str, Any]) -> bytes:
    try:
        return b"s" if all_of(path) == expected else b"o"
    except PipelineError:
        return b"f"


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    first(tmp_path / "sound.h5")
    return tmp_path / "sound.h5"


def test_a_file_that_is_cut_off_anywhere_is_refused(sound: Path) -> None:
    data, expected = sound.read_bytes(), all_of(sound)
    places = np.random.default_rng(1).integers(0, len(data), 200)
    assert read_each([data[:at] for at in places], sound.with_name("cut.h5"), expected) == {"found": 200}


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_flipped_bits_are_found_or_change_nothing(sound: Path, count: int) -> None:
    """Many bytes of so small a file are of no use. HDF5 itself loops for ever on a few kinds of damage to its heaps."""
    data, expected = sound.read_bytes(), all_of(sound)
    rng = np.random.default_rng(2)
    used = np.flatnonzero(np.frombuffer(data, np.uint8))
    files = []
    for at, bit in zip(rng.choice(used, count), rng.integers(0, 8, count), strict=True):
        changed = bytearray(data)
        changed[at] ^= 1 << int(bit)
        files.append(bytes(changed))
    said = read_each(files, sound.with_name("flipped.h5"), expected)
    assert said["other"] == 0
    assert said["found"] > count / 2
    assert said["hung"] <= count / 100
