"""Pickles read without running what a pickle could run: plain values and numpy arrays come out, all else is refused.

A pickle is a program. Here it may make dicts, lists, tuples, sets, texts, bytes and numbers, and numpy arrays and
scalars of numbers, texts and such values, by stand-ins that check what they are given. It calls nothing else, changes
nothing that was there before, and takes memory in proportion to its size: the library's own reader in C gives tens of
gigabytes to a pickle of eleven bytes, which says that it will keep its 2,147,483,647th value. So this is the one in
Python, four to eight times slower.
"""

from __future__ import annotations

import math
import mmap
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadSetting

SUFFIXES = (".pickle", ".pkl")

_CODE = re.compile(r"[<>=|]?([biufO?]\d{0,2}|[SU]\d{1,6})", re.ASCII)
_LAST_CHARACTER = 0x10FFFF
_ARRAY = "numpy.ndarray"
"""What stands for that class: a name, which nobody can call."""


def permit(path: Path, allowed: bool) -> None:
    """Raise BadSetting for a pickle that nobody has allowed to be read."""
    if path.suffix in SUFFIXES and not allowed:
        raise BadSetting(
            f"{path} is a pickle, which could hold a program: use the json instead, or give --allow-pickle, and its "
            "dicts, lists, texts, numbers and arrays are read"
        )


def unpickle(path: Path) -> Any:
    """Return what is in the pickle at `path`. Raises ValueError, in a line, for what is damaged or not taken; OSError.

    Texts of Python 2 are taken for UTF-8.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Unpickler(data, encoding="utf-8").load()
        except Exception as error:  # bytes that are no pickle raise whatever they like
            said = " ".join(str(error).split())
            raise ValueError(f"{said:.200}" or type(error).__name__) from error


def _refuse(what: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(
        f"it asks for {what}, but only dicts, lists, texts, numbers and numpy arrays are taken: convert it"
    )


def _dtype(code: str, *_: object) -> np.dtype[Any]:
    if not _CODE.fullmatch(code):
        raise _refuse(f"numbers of the kind {code!r:.40}")
    return np.dtype(code, False, True)  # a copy: `_set_order` changes it


def _set_order(dtype: np.dtype[Any], state: Any) -> None:
    """Give a type its byte order; its size is in its code, and it has no fields."""
    _version, order, *fields = state
    if any(field is not None for field in fields[:3]) or len(order) != 1 or order not in "<>=|":
        raise _refuse("records")
    dtype.__setstate__(dtype.newbyteorder(order).__reduce__()[2])  # type: ignore[attr-defined]


def _reconstruct(kind: str, *_: object) -> NDArray[Any]:
    if kind != _ARRAY:
        raise _refuse("another kind of array")
    return np.ndarray(0, np.int8)


def _fill(array: NDArray[Any], state: Any) -> None:
    """Give an array its shape, type and values."""
    _version, shape, dtype, fortran, values = state
    _check(shape, dtype, values)
    array.__setstate__((1, shape, dtype, bool(fortran), values))  # type: ignore[arg-type]


def _check(shape: Any, dtype: Any, values: Any) -> None:
    """Raise for values that are not as many as the shape says: numpy believes it."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    count = math.prod(size if isinstance(size, int) and size >= 0 else math.nan for size in sizes)
    if not isinstance(dtype, np.dtype) or isinstance(values, list) != dtype.hasobject:
        raise _refuse("an array without a type")
    if len(values) != count * (1 if dtype.hasobject else dtype.itemsize):
        raise _refuse("an array of another size than it says")
    if dtype.kind == "U" and len(values):
        letters = np.frombuffer(values, np.dtype("u4").newbyteorder(dtype.byteorder))
        if letters.max() > _LAST_CHARACTER:
            raise _refuse("characters that there are not")


def _from_buffer(values: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    _check(shape, dtype, values)
    return np.frombuffer(values, dtype).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any, values: Any) -> Any:
    _check((), dtype, values)
    return np.frombuffer(values, dtype)[0]


def _latin1(text: str, encoding: str) -> bytes:
    """Stand in for `codecs.encode`, by which old pickles hold bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise _refuse(f"bytes as {encoding!r:.20}")
    return text.encode("latin1")


def _bytearray(values: Any = b"", encoding: str = "latin1") -> bytearray:
    return bytearray(_latin1(values, encoding) if isinstance(values, str) else bytes(memoryview(values)))


def _no_bytes() -> bytes:
    """Stand in for `bytes`, by which old pickles hold none; with a number it would make as many."""
    return b""


_TAKEN: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    ("_codecs", "encode"): _latin1,
    **{(builtins, "bytearray"): _bytearray for builtins in ("builtins", "__builtin__")},
    **{(builtins, "bytes"): _no_bytes for builtins in ("builtins", "__builtin__")},
}


class _Unpickler(pickle._Unpickler):
    """The library's reader, without what makes objects of other classes. A subclass is its only way to say that."""

    stack: list[Any]
    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: method
        for code, method in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (
            pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.PERSID, pickle.BINPERSID, pickle.EXT1,
            pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER,
        )
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _TAKEN:
            raise _refuse(f"{module}.{name}")
        return _TAKEN[module, name]

    def load_build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if isinstance(made, np.ndarray):
            _fill(made, state)
        elif isinstance(made, np.dtype):
            _set_order(made, state)
        else:
            raise _refuse(f"a {type(made).__name__} with attributes")

    dispatch[pickle.BUILD[0]] = load_build

    def load_bytearray8(self) -> None:
        """As there, without giving the bytes that are announced a place before they are there."""
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(min(size, 1 << 62))))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
