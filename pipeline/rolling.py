"""What captions repeat of the one before them, found for thousands of them at once.

Recognised speech is shown in lines that roll: a caption often begins with the end of the one before it. What it repeats
is the longest run of words that ends the one before, as it stood in the file, and begins this one, if it is of `RUN`
words or more, or all of either caption.

A run begins with the same few bytes in both, which is looked for first: one number for each word, compared for all
captions together. The few pairs that are left are then compared whole, eight bytes at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

END = "\0"
"""Ends a caption here. No text holds it when it is tidy: control characters are blanks."""
RUN = 3
"""Words of a repeated run, at least, unless it is all of either caption."""
BLANK = 32
_SHORTEST_RUN = 5
"""Bytes of three words: "a b c"."""
_HEAD = np.uint64((1 << 8 * _SHORTEST_RUN) - 1)
"""The first `_SHORTEST_RUN` of eight bytes."""

Numbers = NDArray[np.int64]


class Lines:
    """Captions as lines of words, tidy and each with `END` after it, and what each repeats of the one before it."""

    def __init__(self, text: bytes) -> None:
        characters = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(characters <= BLANK)
        last = np.flatnonzero(characters[ends] == 0)
        self.text = text
        self.words = np.diff(last, prepend=-1)
        """(C,) words of each line; a line without any counts as one."""
        self.word = np.append(0, ends[:-1] + 1) if len(ends) else ends
        """(W,) where each word begins."""
        self.begin, self.stop = self.word[last - self.words + 1], ends[last]
        self.eights = np.ndarray(len(text), "<u8", text + bytes(8), strides=(1,))
        """(B,) the eight bytes that begin at each byte."""

    def repeats(self, may: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
        """Return (2, C) bytes and words of what each line repeats of the line before it, of those that `may`."""
        after = np.cumsum(self.words)
        word, line = self._alike(after)
        left, size = self.word[word], self.stop[line - 1] - self.word[word]
        count, whole = after[line - 1] - word, self.stop[line] - self.begin[line]
        fits = may[line] & (size > 0) & (size <= whole)
        fits &= (count >= RUN) | (left == self.begin[line - 1]) | (size == whole)
        fits[fits] = self._at(self.begin[line[fits]] + size[fits]) <= BLANK
        fits[fits] = self._same(left[fits], self.begin[line[fits]], size[fits])
        lines, longest = np.unique(line[fits], return_index=True)
        found = np.zeros((2, len(self.words)), np.int64)
        found[:, lines] = size[fits][longest], count[fits][longest]
        return found[0], found[1]

    def _at(self, places: Numbers) -> NDArray[np.uint8]:
        """Return the bytes at these places."""
        return np.frombuffer(self.text, np.uint8)[places]

    def _alike(self, after: Numbers) -> tuple[Numbers, Numbers]:
        """Return words with which the next line may begin, by their first bytes, and that line, in order."""
        if len(after) < 2:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        keys = self.eights[self.word] & _HEAD
        alike = keys[: after[-2]] == np.repeat(keys[after[:-1]], self.words[:-1])
        short = self.stop - self.begin < _SHORTEST_RUN
        if short.any():
            alike |= np.repeat(short[1:] | short[:-1], self.words[:-1])
        words = np.flatnonzero(alike)
        return words, np.searchsorted(after, words, side="right") + 1

    def _same(self, left: Numbers, right: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        """Return whether so many bytes are the same at two places."""
        same = np.ones(len(sizes), np.bool_)
        for at in range(0, int(sizes.max(initial=0)), 8):
            rows = np.flatnonzero(same & (sizes > at))
            differs = self.eights[left[rows] + at] ^ self.eights[right[rows] + at]
            beyond = np.maximum(8 - (sizes[rows] - at), 0).astype(np.uint64)
            same[rows] = differs << beyond * np.uint64(8) == 0
        return same

    def without(self, cut: Numbers, words: Numbers) -> tuple[NDArray[np.uint8], Numbers, Numbers]:
        """Return `text`, `words` and `lengths` as Captions has them, of the lines without so much of their heads."""
        begin = np.where(cut, np.minimum(self.begin + cut + 1, self.stop), self.begin)
        empty = begin == self.stop
        left = np.where(empty, self.stop + 1, begin)
        changed = np.flatnonzero(left > self.begin)
        gaps = zip([0, *left[changed].tolist()], [*self.begin[changed].tolist(), len(self.text)], strict=True)
        text = b"".join([self.text[start:stop] for start, stop in gaps]).replace(END.encode(), b" ")
        words = np.where(empty, 0, self.words - words)
        return np.frombuffer(text, np.uint8), words, np.where(empty, 0, self.stop - begin + 1)
