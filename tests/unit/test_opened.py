"""Rows that are read again and again: out of maps, fetched in time, refused when they are not finite."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pipeline import opened
from pipeline.errors import BadFeatureFile
from pipeline.parts import read_part
from pipeline.shards import fold
from pipeline.store import Features
from tests.unit.features import ATTRS, head, rows, shard, video
from train.rows import NEAR, Rows, Stored, _finite, read

STREAM = "a:x"


def shards(folder: Path, count: int, dtype: str = "float16") -> Features:
    """Two videos of 3 and 5 rows in each of some shards."""
    files = []
    for number in range(count):
        some = [video(f"v{number}-{i}", 3 + 2 * i, seed=10 * number + i) for i in range(2)]
        files.append(shard(folder / f"s{number}.h5", *some, **{STREAM: head()}))
    return Features([read_part(file) for file in files])


def of(features: Features, place: int, first: int, last: int) -> NDArray[Any]:
    out = np.zeros((last - first, 4), np.float16)
    features.read_rows(STREAM, place, first, out)
    return out


def handles(folder: Path) -> int:
    """Return how many handles this process has on files of a folder."""
    links = list(Path("/proc/self/fd").iterdir())  # that of the folder itself is gone by now
    return sum(str(link.readlink()).startswith(str(folder)) for link in links if link.is_symlink())


@pytest.mark.parametrize("most", [0, 2, 100])
def test_rows_are_the_same_from_a_map_and_from_the_file(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "MOST", most)
    with shards(tmp_path, 5) as features:
        places = np.random.default_rng(0).permutation(10).tolist() * 2
        for place in places:
            whole = rows(3 + 2 * (place % 2), seed=10 * (place // 2) + place % 2)
            features.expect(STREAM, [(place, 1, 3)])
            np.testing.assert_array_equal(of(features, place, 0, len(whole)), whole)
            np.testing.assert_array_equal(of(features, place, 1, 3), whole[1:3])
            np.testing.assert_array_equal(features.rows(STREAM, f"v{place // 2}-{place % 2}"), whole)
        assert handles(tmp_path) == 2 * min(most, 5)  # the file, and its map's
    assert handles(tmp_path) == 0


def test_a_file_that_is_cut_off_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """A map of what a file has no longer ends the process that reads it."""
    with shards(tmp_path, 1) as features:
        expected = of(features, 1, 0, 5)
        path = features.parts[0].path
        os.truncate(path, features.parts[0].streams[STREAM]["at"] + 8)
        for reading in (lambda: features.expect(STREAM, [(1, 0, 5)]), lambda: features.fill(STREAM, 1, 0, expected)):
            with pytest.raises(BadFeatureFile, match=r"s0\.h5 ends inside stream a:x: truncated"):
                reading()
    with pytest.raises(BadFeatureFile, match="truncated"):
        of(features, 1, 0, 5)  # anew


@pytest.mark.parametrize("there", [True, False])
def test_what_is_not_in_memory_is_asked_for_at_once(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, place, size, advice: asked.append((place, size)))
    monkeypatch.setattr(opened.Opened, "_in_memory", lambda *_: there)
    with shards(tmp_path, 1) as features:
        at = features.parts[0].streams[STREAM]["at"]
        features.expect(STREAM, [(1, 0, 5), (0, 1, 2)])
    assert asked == ([] if there else [(at + 3 * 8, 5 * 8), (at + 1 * 8, 1 * 8)])


def test_it_is_seen_what_is_in_memory(tmp_path: Path) -> None:
    with shards(tmp_path, 1) as features:
        of(features, 0, 0, 3)
        at = features.parts[0].streams[STREAM]["at"]
        assert features._opened._in_memory(0, at)
        assert not features._opened._in_memory(0, 1 << 40)  # past the end: nothing is there
        assert not features._opened._in_memory(1, 0)  # of a part that is not open


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_numbers_that_are_not_finite_are_seen(dtype: str) -> None:
    """All of float16; of float32 those whose other bits are all 0, all 1 or one of them."""
    if dtype == "float16":
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    else:
        low = np.array([0, 1, 1 << 22, (1 << 23) - 1], np.uint32)
        every = (np.arange(1 << 9, dtype=np.uint32)[:, None] << 23 | low).ravel().view(np.float32)
    fit = np.isfinite(every)
    assert _finite(every[fit].reshape(-1, 8))
    assert fit.sum() == (63488 if dtype == "float16" else 510 * 4)
    odd = np.zeros((2, 3), dtype)
    for value in every[~fit]:
        odd[1, 2] = value
        assert not _finite(odd), value.view(f"u{value.itemsize}")


def stored(features: Features, clips: int) -> Rows:
    count = features.stream(STREAM).count[:clips]
    spans = np.stack([np.arange(clips), 0 * count, count], axis=1)
    held = Stored(features, spans, np.zeros(clips, bool))
    return Rows(STREAM, None, torch.zeros(clips, dtype=torch.int64), torch.from_numpy(count), 1.0, 4, held)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_batch_with_odd_rows_is_refused_each_time(odd: float, tmp_path: Path) -> None:
    good, bad = video("v0", 3), video("v1", 5, seed=1)
    bad.rows[STREAM][4, 3] = odd
    with Features.open(shard(tmp_path / "s.h5", good, bad)) as features:
        clips = stored(features, 2)
        for _ in range(2):
            np.testing.assert_array_equal(clips.of(torch.tensor([0])).values, rows(3))
            for asked in ([0, 1], [1, 0], [1]):
                with pytest.raises(BadFeatureFile, match="1 rows of a:x are NaN or infinite, the first of video v1"):
                    clips.of(torch.tensor(asked))


def test_rows_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of clips goes with them into a subset."""
    looked: list[int] = []
    monkeypatch.setattr("train.rows._finite", lambda some: looked.append(len(some)) or True)
    with shards(tmp_path, 2) as features:
        clips = stored(features, 4)
        clips.of(torch.tensor([0, 3]))
        clips.of(torch.tensor([3, 0, 3]))
        assert looked == [3 + 5]
        some = clips.subset(torch.tensor([3, 2]))
        np.testing.assert_array_equal(some.of(torch.tensor([0])).values, rows(5, seed=11))
        assert looked == [3 + 5]
        some.of(torch.tensor([0, 1]))
        assert looked == [3 + 5, 5 + 3]


def test_many_rows_are_looked_at_piece_by_piece(tmp_path: Path) -> None:
    """The last number of a batch of several pieces, and one in the midst of it."""
    dim, count = 1024, 300
    assert 4 * count * dim * 2 > 3 * NEAR
    values = {f"v{i}": rows(count, dim, seed=i) for i in range(4)}
    for name, at in (("v3", (count - 1, dim - 1)), ("v1", (7, 0))):
        held = [video(v) for v in values]
        for one in held:
            one.rows[STREAM] = values[one.video].copy()  # type: ignore[index]
            if one.video == name:
                one.rows[STREAM][at] = np.nan
        shard(tmp_path / "s.h5", *held, **{STREAM: head(dim)})
        fold([read_part(tmp_path / "s.h5")], tmp_path / f"{name}.h5", ATTRS)
        with Features.open(tmp_path / f"{name}.h5") as features:
            spans = [(place, 0, count) for place in range(4)]
            for again in (True, False):
                with pytest.raises(
                    BadFeatureFile, match=f"1 rows of a:x are NaN or infinite, the first of video {name}"
                ):
                    read(features, STREAM, spans, again=again)
            good = [span for span in spans if features.videos["id"][span[0]] != name]
            found = read(features, STREAM, good, again=True).numpy()
            np.testing.assert_array_equal(found, np.concatenate([values[features.videos["id"][p]] for p, _, _ in good]))
