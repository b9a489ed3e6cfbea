"""Files with a stream that was made of others: what is told of each video, and how much is held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline import derived
from pipeline.derived import NewStream, of_features
from pipeline.records import Status
from pipeline.shards import Extracted, write_shard
from pipeline.store import STATUS, Features
from tests.unit.features import ATTRS, head, rows

STREAM = NewStream("n", {"chain": {"fps": 1.0}, "frames": 1}, {}, 4, np.dtype("float16"))
KNOWN = {"source_size": 1, "source_mtime": 1, "decoded": 3.0}


def extracted(name: str, status: Status, streams: tuple[str, ...], count: int = 0) -> Extracted:
    held = {stream: rows(count) for stream in streams} if count else {}
    return Extracted(name, KNOWN, streams, held, status, "" if status == "ok" else f"{name} {status}")


def test_what_became_of_a_video_in_its_sources(tmp_path: Path) -> None:
    both = ("a:x", "b:y")
    videos = [
        extracted("good", "ok", both, 3),
        extracted("cut", "partial", both, 2),
        extracted("bad", "failed", both),
        extracted("bad in one", "failed", ("b:y",)),
        extracted("cut in one", "partial", ("a:x",), 3),
        extracted("good in one", "ok", ("a:x",), 3),
        extracted("elsewhere", "ok", ("c:z",), 3),
    ]
    write_shard(tmp_path / "f.h5", ATTRS, {name: head() for name in (*both, "c:z")}, videos)
    made = {place: rows(2, seed=place) for place in (0, 1)}
    with Features.open(tmp_path / "f.h5") as features:
        of_features(features, tmp_path / "e.h5", STREAM, both, made.items())
    with Features.open(tmp_path / "e.h5") as features:
        assert list(features.streams) == ["n"]
        stream = features.stream("n")
        told = [(STATUS[status], reason) for status, reason in zip(stream.status, stream.reason, strict=True)]
        assert told[:4] == [
            ("ok", ""),
            ("partial", "cut partial"),
            ("failed", "bad failed"),
            ("failed", "bad in one failed"),
        ]
        assert told[4:] == [("missing", "")] * 3  # neither ok nor there in part: they have no rows
        assert stream.count.tolist() == [2, 2, 0, 0, 0, 0, 0]
        for place, values in made.items():
            np.testing.assert_array_equal(features.rows("n", videos[place].video), values)
        assert features.videos["decoded"].tolist() == [3.0] * 7


@pytest.mark.parametrize(("count", "size"), [(0, derived.COLUMNS), (30, derived.COLUMNS + 30 * 4 * 2)])
def test_shards_are_written_as_rows_come(
    count: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but a shard's videos is held; videos without rows take memory, too."""
    videos = [extracted(f"v{number}", "ok" if count else "failed", ("a:x",), count) for number in range(25)]
    write_shard(tmp_path / "f.h5", ATTRS, {"a:x": head()}, videos)
    sizes, given = list[int](), list[int]()

    def writing(path: Path, attrs: Any, heads: Any, some: Any) -> None:
        sizes.append(len(some))
        assert len(given) in (sum(sizes), 0)
        write_shard(path, attrs, heads, some)

    monkeypatch.setattr(derived, "write_shard", writing)
    monkeypatch.setattr(derived, "SHARD", 10 * size)

    def made() -> Iterator[tuple[int, NDArray[Any]]]:
        for place in range(25 if count else 0):
            given.append(place)
            yield place, rows(count, seed=place)

    with Features.open(tmp_path / "f.h5") as features:
        of_features(features, tmp_path / "e.h5", STREAM, ["a:x"], made())
    assert sizes == [10, 10, 5]
    with Features.open(tmp_path / "e.h5") as features:
        assert features.stream("n").status.tolist() == [1 if count else 3] * 25
        for place in given:
            np.testing.assert_array_equal(features.rows("n", f"v{place}"), rows(count, seed=place))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["e.h5", "f.h5"]


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard(tmp_path / "f.h5", ATTRS, {"a:x": head()}, [extracted(f"v{n}", "ok", ("a:x",), 3) for n in range(3)])
    monkeypatch.setattr(derived, "SHARD", 1)

    def made() -> Iterator[tuple[int, NDArray[Any]]]:
        yield 0, rows(3)
        yield 1, rows(3)
        raise ZeroDivisionError

    with Features.open(tmp_path / "f.h5") as features, pytest.raises(ZeroDivisionError):
        of_features(features, tmp_path / "e.h5", STREAM, ["a:x"], made())
    assert [file.name for file in tmp_path.iterdir()] == ["f.h5"]
