"""A value in a message: cut off, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_BITS = 1_000
"""Of a number that is written out; Python refuses to write some thousands of digits."""


def shown(value: Any, most: int = 200) -> str:
    """Return the first `most` characters of a value as Python writes it.

    No more work is done than that: a record of a damaged file can be as long as the file, and lists can lie in lists
    deeper than `repr` goes.
    """
    found = ""
    for piece in _pieces(value, most):
        found += piece
        if len(found) > most:
            break
    return found[:most]


def _pieces(value: Any, most: int) -> Iterator[str]:
    match value:
        case str() | bytes():
            yield repr(value[:most])
        case dict():
            yield "{"
            for number, (key, item) in enumerate(value.items()):
                yield ", " if number else ""
                yield from _pieces(key, most)
                yield ": "
                yield from _pieces(item, most)
            yield "}"
        case list() | tuple():
            yield "[" if isinstance(value, list) else "("
            for number, item in enumerate(value):
                yield ", " if number else ""
                yield from _pieces(item, most)
            yield "]" if isinstance(value, list) else ")"
        case int() if value.bit_length() > _BITS:
            yield "a number of many digits"
        case set() | frozenset():
            yield "a set"
        case _:
            yield " ".join(repr(value).split())  # an array's has lines
