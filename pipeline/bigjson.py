r"""The members of a JSON object of objects that is too large to load: `{"a": {…}, "b": {…}, …}`, gigabytes of it.

The file is cut into one slice a member, and each slice is parsed by itself. A cut is found by one regular expression,
that is at the speed of memory, and from any byte of the file, so that several workers can each take a range of it.

Why a cut is exact, whatever stands in strings: it is `}`, `,`, a string, `:`, `{` and then a quote that is followed by
something else than a blank or one of `,]}:`. That quote has no backslash before it, so it opens or closes a string; in
JSON only blanks and `,]}:` can follow one that closes. So it opens one, and what lies between it and the key is
outside of strings; so the key's last quote closes the key, and its first one, without a backslash and with no other
between, opens it. The `}` before that is then outside of strings too.

The only `}` of that kind that end no member are inside one, `{"a": {"x": {…}, "y": {"z": …}}}`. Such a file is
refused, at `a`, whose slice is no JSON: never read wrongly.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from pipeline.errors import BadDataset

LARGEST = 256 << 20
"""Bytes of one member; more than that is a file that is damaged, or is of another kind."""

_BLANKS = b" \t\r\n"
_MEMBER = rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+")[ \t\r\n]*+:[ \t\r\n]*+(?=\{[ \t\r\n]*+"[^ \t\r\n,\]}:])'
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+\{" + _MEMBER, re.DOTALL)
_NEXT = re.compile(rb"\}[ \t\r\n]*+," + _MEMBER, re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FORGET = 64 << 20

_Match = re.Match[bytes]


def members(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each member whose key begins in the bytes [start, stop), in the order of the file.

    Ranges that follow each other yield every member once. A key that stands twice is yielded twice. Memory is that of
    one member. Raises BadDataset, with the byte, for what is cut off, damaged, or no object of objects.
    """
    with _mapped(path) as data:
        here = _first(path, data, start)
        forgotten = here.start() if here else 0
        while here and (stop is None or here.start(1) < stop):
            following = _NEXT.search(data, here.end())
            yield _parsed(path, data, here, following)
            here = following
            if here and here.start() - forgotten > _FORGET:
                forgotten = here.start() // mmap.PAGESIZE * mmap.PAGESIZE
                data.madvise(mmap.MADV_DONTNEED, 0, forgotten)


def holds_objects(path: Path) -> bool:
    """Return whether the file begins as an object of objects does."""
    with _mapped(path) as data:
        return _HEAD.match(data) is not None


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except OSError as error:
        raise BadDataset(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        if path.stat().st_size:
            raise
        raise BadDataset(f"{path} is empty; download it again") from error


def _first(path: Path, data: mmap.mmap, start: int) -> _Match | None:
    """Return the first member whose key begins at `start` or later."""
    head: _Match | None = _HEAD.match(data)
    if head is None:
        raise BadDataset(f'{path}: expected an object of objects, {{"VIDEO": {{…}}, …}}; download it again')
    if head.start(1) >= start:
        return head
    here: _Match | None = _NEXT.search(data, max(data.rfind(b"}", 0, start), head.end()))
    while here and here.start(1) < start:
        here = _NEXT.search(data, here.end())
    return here


def _parsed(path: Path, data: mmap.mmap, here: _Match, following: _Match | None) -> tuple[str, Any]:
    where = f"{path}, byte {here.start(1):,}"
    key = _load(where, data[here.start(1) : here.end(1)])
    where = f"{where}, {key!r:.60}"
    stop = following.start() + 1 if following else _last(where, data)
    if stop - here.end() > LARGEST:
        raise BadDataset(f"{where}: no next one in {LARGEST >> 20} MB; the file is damaged, download it again")
    return key, _load(where, data[here.end() : stop])


def _last(where: str, data: mmap.mmap) -> int:
    """Return where the last member ends: before the last `}` of the file."""
    stop = len(data)
    while data[stop - 1] in _BLANKS:
        stop -= 1
    if data[stop - 1] != ord("}"):
        raise BadDataset(f"{where}: the file does not end with '}}'; it is cut off, download it again")
    return stop - 1


def _load(where: str, raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _load_odd(where, raw)


def _load_odd(where: str, raw: bytes) -> Any:
    """Parse what is no strict JSON but what `json.dump` writes: NaN, and halves of characters, which become U+FFFD."""
    try:
        return _whole(json.loads(raw.decode()))
    except (ValueError, RecursionError) as error:
        raise BadDataset(f"{where}: not whole JSON ({error}); the file is damaged, download it again") from error


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
