"""Ways to damage a file of bytes, the same with the same random numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

HEAD = 512
"""Bytes in which a file's header, or a box of it, is taken to lie."""


def flip(data: bytes, draw: Random) -> bytes:
    """Flip one to sixty-four bits anywhere."""
    changed = bytearray(data)
    for _ in range(2 ** draw.randrange(7)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(data: bytes, draw: Random) -> bytes:
    """End at any byte."""
    return data[: draw.randrange(len(data))]


def head(data: bytes, draw: Random) -> bytes:
    """Overwrite up to sixteen bytes of the first or the last half kilobyte, where most indices stand."""
    changed = bytearray(data)
    begin = 0 if draw.random() < 0.7 else max(0, len(data) - HEAD)
    for _ in range(draw.randrange(1, 17)):
        at = min(len(data) - 1, begin + draw.randrange(HEAD))
        changed[at] = draw.choice((0, 0xFF, 0x7F, 0x80, draw.randrange(256)))
    return bytes(changed)


def number(data: bytes, draw: Random) -> bytes:
    """Overwrite four or eight bytes by a number that is too large, or none: sizes, counts, times."""
    width = draw.choice((4, 8))
    value = draw.choice((b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7, b"\0\0\0\1" * 2))
    at = draw.randrange(min(len(data), draw.choice((64, 1_024, len(data)))))
    return data[:at] + value[:width] + data[at + width :]


def zero(data: bytes, draw: Random) -> bytes:
    """Blank a block, as a bad sector or a hole in a download does."""
    begin = draw.randrange(len(data))
    size = min(len(data) - begin, draw.choice((16, 512, 4_096)))
    return data[:begin] + bytes(size) + data[begin + size :]


def shift(data: bytes, draw: Random) -> bytes:
    """Lose or repeat a piece: all that follows stands elsewhere than its index says."""
    begin = draw.randrange(len(data))
    piece = data[begin : begin + draw.randrange(1, 600)]
    return (
        data[:begin] + piece + piece + data[begin:]
        if draw.random() < 0.5
        else data[:begin] + data[begin + len(piece) :]
    )


def splice(data: bytes, other: bytes, draw: Random) -> bytes:
    """Begin as one file and go on as another."""
    return data[: draw.randrange(len(data))] + other[draw.randrange(len(other)) :]


KINDS: dict[str, Callable[[bytes, Random], bytes]] = {
    "bits flipped": flip, "cut off": cut, "header overwritten": head, "wild number": number, "block zeroed": zero,
    "piece lost or repeated": shift,
}  # fmt: skip
