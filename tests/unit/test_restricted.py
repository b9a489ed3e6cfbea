"""Pickles: what is taken comes out as it was, nothing is run, and memory is that of the file."""

from __future__ import annotations

import codecs
import contextlib
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.restricted import unpickle
from tests.unit.test_shown import laughs


def written(folder: Path, raw: bytes) -> Path:
    path = folder / "a.pickle"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_and_arrays(tmp_path: Path, protocol: int) -> None:
    value = {"a": [1, 2.5, None, True, "é", b"\xff", (1, 2), {"b": -(2**70)}], "c": bytearray(b"xyz")}
    assert unpickle(written(tmp_path, pickle.dumps(value, protocol))) == value
    arrays = [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", "wörd"]),
        np.array([b"a", b"bc"]),
        np.array([True, False]),
        np.array([["x", 1], [None, 2.5]], object),
        np.zeros((0, 4), np.float16),
        np.arange(4, dtype=">i4"),  # a type that was met before
        np.float32(1.5),
    ]
    raw = pickle.dumps(arrays, protocol)
    for found, wanted in zip(unpickle(written(tmp_path, raw)), pickle.loads(raw), strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)


class Runs:
    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


class Plain:
    x = 1


DEEDS = [
    Runs(subprocess.check_call, ["touch", "harmed"]),
    Runs(eval, "open('harmed', 'w')"),
    Runs(getattr, Path, "touch"),
    Runs(codecs.encode, "x", "rot13"),
    Runs(np.ndarray, (10**9,)),
    Runs(bytearray, 10**12),
    Runs(bytes, 10**12),
    Runs(np.dtype, [("a", "i4")]),
    Plain(),
    {complex(1)},
    np.zeros(3, [("a", "i4"), ("b", "f8")]),
    np.array(["2020-01-01"], "M8[D]"),
]


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("deed", DEEDS)
def test_nothing_else_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: Any, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, pickle.dumps({"a": deed}, protocol))
    with pytest.raises(ValueError, match=r"\S") as caught:
        unpickle(path)
    assert len(str(caught.value).splitlines()) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["a.pickle"]


@pytest.mark.parametrize(
    "program",
    [
        b"(S'touch harmed'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch harmed'\no.",  # OBJ
        b"cnumpy\ndtype\n(S'f8'\nt\x81.",  # NEWOBJ
        b"P1\n.", b"\x80\x04\x88Q.",  # persistent ids
        b"\x80\x04\x82\x01.",  # the registry of extensions
        b"\x80\x05\x97.",  # a buffer from elsewhere
        b"cnumpy\ndtype\n}S'a'\nI1\nsb.",  # attributes of a function of ours
        b"]}S'a'\nI1\nsb.",
        b"cnumpy\nndarray\n(I9\ntR.",
        b"c_codecs\nencode\n(V\xe9\nS'utf8'\ntR.",
        b"", b"N", b"I1", b"hello", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    ],
)  # fmt: skip
def test_programs_and_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"\S"):
        unpickle(written(tmp_path, program))
    assert [one.name for one in tmp_path.iterdir()] == ["a.pickle"]


def damaged(array: Any, old: bytes, new: bytes) -> bytes:
    raw = pickle.dumps(array, 3)
    assert raw.count(old) == 1
    return raw.replace(old, new)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (damaged(np.arange(7, dtype="i1"), b"K\x07\x85", b"K\x08\x85"), "of another size than it says"),
        (damaged(np.arange(7, dtype="i1"), b"K\x07\x85", b"J\xff\xff\xff\x7f\x85"), "of another size than it says"),
        (damaged(np.arange(7, dtype="i1"), b"K\x07\x85", b"J\xff\xff\xff\xff\x85"), "of another size than it says"),
        (damaged(np.array(["a"]), b"a\0\0\0", b"\xff\xff\xff\x7f"), "characters that there are not"),
        (damaged(np.array(["ab"], object), b"O8", b"U9"), "without a type"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, raw: bytes, why: str) -> None:
    """numpy believes a shape and reads beyond its bytes, or makes texts that no other program takes."""
    with pytest.raises(ValueError, match=why):
        unpickle(written(tmp_path, raw))


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x04Nr\xff\xff\xff\x01.",  # the 33,554,431st value to be kept: half a gigabyte in the library's C reader
        b"\x80\x05\x96\xff\xff\xff\x1f\0\0\0\0.",  # half a gigabyte of bytes follow
        b"\x80\x04\x8e\xff\xff\xff\x1f\0\0\0\0.",
        pickle.dumps(laughs(40)),
    ],
)
def test_memory_is_that_of_the_file(tmp_path: Path, program: bytes) -> None:
    path = written(tmp_path, program)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    before = kilobytes("VmRSS")
    with contextlib.suppress(ValueError):
        unpickle(path)
    assert kilobytes("VmHWM") - before < 50_000


def kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
