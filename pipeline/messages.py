"""What ffmpeg says on stderr while it decodes: which lines tell of damage to the video, and which do not."""

from __future__ import annotations

import re
from collections import deque

import av

_KEPT = 50
"""Lines kept from the beginning, and from the end: a damaged file can say millions."""
_LINE = re.compile(r"(?P<context>(?:\[[^\]]*\] )*)\[(?P<level>panic|fatal|error|warning)\] (?P<text>.*)")
_ADDRESS = re.compile(r" @ (0x)?[0-9a-f]+|\[NULL[^\]]*\] ")
_DAMAGE = ("corrupt decoded frame",)
"""Warnings that tell of damage: ffmpeg rates them no higher."""
_SECOND_HAND = ("[vist#", "[vost#", "[fc#", "[out#", *_DAMAGE)
"""Parts of the program that repeat what a decoder said, in a thread of their own: sometimes before it."""
_LONGEST = 120


class Messages:
    """The lines of one run: bounded, with the errors counted. Made for `-loglevel repeat+level+warning`."""

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self._first: dict[bool, str] = {}
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=_KEPT)

    def take(self, line: str) -> None:
        """Add one line."""
        self.count += 1
        (self._head if len(self._head) < _KEPT else self._tail).append(line)
        error = damage(line)
        if error:
            self.errors += 1
            self._first.setdefault(any(words in error for words in _SECOND_HAND), error)

    @property
    def first(self) -> str:
        """The first error, without memory addresses; '' when there is none."""
        return self._first.get(False) or self._first.get(True, "")

    def kept(self) -> list[str]:
        """Return the first and the last lines, with the number of those left out between them."""
        left_out = self.count - len(self._head) - len(self._tail)
        return [*self._head, *([f"... {left_out} lines ..."] if left_out else []), *self._tail]

    def summary(self) -> str:
        """Return the errors as a reason, '' when there are none."""
        if not self.errors:
            return ""
        return f"{self.errors} decoder error{'s' if self.errors > 1 else ''}, first: {self.first}"


def damage(line: str) -> str:
    """Return a line as a short message when it tells of damage to the video, else ''."""
    match = _LINE.match(line)
    if match is None:
        return ""
    context, level, text = _ADDRESS.sub("", match["context"]), match["level"], match["text"].strip()
    if level == "warning" and not any(words in text for words in _DAMAGE):
        return ""
    if _of_audio(context):
        return ""
    message = f"{context}{text}"
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"


def _of_audio(context: str) -> bool:
    """Say whether an audio decoder speaks: ffmpeg tries all streams when it opens a file, and decodes only ours."""
    try:
        return av.Codec(context.strip("[] "), "r").type == "audio"
    except ValueError:  # PyAV's UnknownCodecError: not a decoder
        return False
