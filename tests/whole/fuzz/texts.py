"""Ways to damage annotations: what they are made of is replaced by what nobody expects there."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np

from tests.whole.fuzz.damage import KINDS

WILD = (
    "", " ", "0", "-1", "1e308", "1e999", "NaN", "nan", "inf", "-inf", "Infinity", "9" * 400, "9" * 5_000, "1_000",
    "٣", "²", "0x10", "true", "null", "None", "[]", "{}", "../../x", "/etc/passwd", "..", "a/../b", ".", "-rf", "a\0b",
    "\u202e\u200b", "\u0085", "'", '"', "\\", ",", "\t", "\n", "\r", "[" * 2_000, "(" * 300, "a" * 70_000, "%s%n{0}",
    "http://127.0.0.1:1/x.mp4", "ftp://x/y", "s3://", "file:///etc/passwd", "http://[", "99:99:99.9", "-->", "é",
    "\ufeff",
)  # fmt: skip
"""For a word or a number in any text."""
_DEEP = "@deep@"
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 10**400, 2**63, 1e308, -0.0, float("nan"), float("inf"), "", "nan", [], {}, [[]], [None],
    {"a": 1}, _DEEP, [0] * 30_000, "x" * 100_000, "\0", "\ud800", "../x", "/x", "..", "9" * 5_000, "9" * 30, [1, "a"],
    [9e99, -9e99], "\n", "-",
)  # fmt: skip
"""For a value in JSON."""
_LAUGHS: list[Any] = []
for _ in range(40):
    _LAUGHS = [_LAUGHS, _LAUGHS]
OPCODES = (
    b"cos\nsystem\n(S'touch harmed'\ntR.",
    b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch harmed\x85R.",
    b"cbuiltins\neval\n(S'1'\ntR.",
    b"c__builtin__\ngetattr\n.",
    b"(S'touch harmed'\nios\nsystem\n.",
    b"\x80\x04Nr\xff\xff\xff\x7f.",  # the 2,147,483,647th value to be kept
    b"\x80\x04Nr\0\0\0\x10.",
    b"\x80\x05\x96\xff\xff\xff\xff\x0f\0\0\0.",  # 64 GB of bytes follow
    b"\x80\x04\x8e\xff\xff\xff\xff\xff\0\0\0.",
    b"\x80\x02\x8b\xff\xff\xff\x7f.",
    b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    b"(" * 100_000,
    b"\x80\x04" + b"]\x94a" * 5_000 + b".",
    b"\x80\x04" + b"(" * 5_000 + b"t" * 5_000 + b".",
    b"0.",
    b"N",
    b"I1\nI2\n}.",
    b"P1\n.",
    b"\x80\x04\x88Q.",
    b"\x80\x02]h\x05.",
    b"cnumpy\nndarray\n(I1000000000\ntR.",
    b"cnumpy\nndarray\n((I1000000000\nI1000\ntS'O'\ntR.",
    b"c__builtin__\nbytearray\n(I99999999999\ntR.",
    b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\xff\xff\xff\x3f\x85U\x01b\x87R.",
    b"cnumpy\ndtype\n(S'O'\ntR.",
    b"cnumpy\ndtype\n}S'a'\nI1\nsb.",
    b"c_codecs\nencode\n(V\xe9\nS'latin1'\ntR.",
    pickle.dumps({"a": _LAUGHS}),
    pickle.dumps({"a": {"start": [_LAUGHS], "end": [1], "text": ["x"]}}),
    pickle.dumps({"a": {"start": [1 << 99_999], "end": [1], "text": [1 << 99_999]}}),
    pickle.dumps({"a": {"start": np.arange(9), "end": np.zeros((9, 9)), "text": np.array(["x"] * 9, "S9")}}),
)
"""Pickles that would run something, take memory, or are none."""


def word(data: bytes, draw: Random) -> bytes:
    """Replace one to three words, numbers or cells."""
    for _ in range(draw.randrange(1, 4)):
        found = list(re.finditer(rb'"[^"\n]*"|[^\s,:;\[\]{}"#\t]+', data))
        if found:
            match = draw.choice(found)
            data = data[: match.start()] + draw.choice(WILD).encode() + data[match.end() :]
    return data


def line(data: bytes, draw: Random) -> bytes:
    """Drop, repeat, join or swap lines, or lose or repeat a cell."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    cells = re.split(rb"([,\t])", lines[at])
    changes: tuple[Callable[[], list[bytes]], ...] = (
        lambda: lines[:at] + lines[at + 1 :],
        lambda: [*lines[:at], lines[at], *lines[at:]],
        lambda: [*lines[:at], b"".join(lines[at : at + 2]), *lines[at + 2 :]],
        lambda: draw.sample(lines, len(lines)),
        lambda: [*lines[:at], b"".join(cells[: draw.randrange(len(cells))]), *lines[at + 1 :]],
        lambda: [*lines[:at], b",".join([lines[at]] * draw.choice((2, 3_000))), *lines[at + 1 :]],
    )
    return b"\n".join(draw.choice(changes)())


def encoding(data: bytes, draw: Random) -> bytes:
    """Bring the text into another encoding, or spoil the one it has."""
    text, at = data.decode("utf-8", "replace"), draw.randrange(len(data) or 1)
    pieces = (b"\xff", b"\0", b"\0" * 5_000, b"\xc3", "\u2028\u0085\x0c\x1c".encode(), b"\xed\xa0\x80")
    whole = (
        b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf" + data, b"\xff\xfe", text.encode("utf-16"),
        text.encode("utf-16-be"), text.encode("utf-32"), text.encode("cp1252", "replace") + b"\xe9\n",
        data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\r"), data + data, b" " * 100_000 + data, bytes(len(data)),
    )  # fmt: skip
    return draw.choice([*whole, *(data[:at] + piece + data[at:] for piece in pieces)])


def value(data: bytes, draw: Random) -> bytes:
    """Replace, drop, rename or repeat values of JSON; of something else, words."""
    parsed = _parsed(data)
    if parsed is None:
        return word(data, draw)
    many, values = parsed
    for _ in range(draw.randrange(1, 3)):
        _change(values, draw)
    deep = draw.choice((50, 900, 1_020, 30_000))
    text = "\n".join(json.dumps(item) for item in (values if many else values[:1]))
    nested = "[" * deep + "]" * deep if draw.random() < 0.5 else '{"a":' * deep + "1" + "}" * deep
    return (text.replace(f'"{_DEEP}"', nested) + "\n" * many).encode()


def _parsed(data: bytes) -> tuple[bool, list[Any]] | None:
    """Return whether the file is JSON Lines, and its values; None for other files."""
    try:
        return False, [json.loads(data)]
    except ValueError:
        pass
    try:
        return True, [json.loads(text) for text in data.splitlines() if text.strip()]
    except ValueError:
        return None


def _change(values: list[Any], draw: Random) -> None:
    """Change one place in nested lists and objects."""
    places = list(_places(values))
    if not places:
        return
    holder, key = draw.choice(places)
    wild = deepcopy(draw.choice(VALUES))
    kind = draw.randrange(5)
    if kind == 0 and holder is not values:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[str(wild)[:200]] = holder.pop(key)
    elif kind == 1:
        holder.insert(key, holder[key])
    else:
        holder[key] = wild


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(values) if isinstance(values, dict) else range(len(values))
    for key in keys:
        yield values, key
        if isinstance(values[key], dict | list):
            yield from _places(values[key])


JSON = "JSON value replaced"
TEXTS: dict[str, Callable[[bytes, Random], bytes]] = {
    **KINDS, "word replaced": word, "lines mixed up": line, "wrong encoding": encoding, JSON: value,
}  # fmt: skip
