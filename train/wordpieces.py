"""Words to word pieces: a word's weight goes to every piece of it, by character offsets (TACo, appendix A).

Tokenizers cut text in other places than a tagger: pieces of a word, and pieces that span two words (spaCy's `do` and
`n't` against `don`, `'`, `t`). Characters are what both have in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spread(
    spans: NDArray[np.integer], values: NDArray[np.floating], offsets: Sequence[tuple[int, int]] | NDArray[np.integer]
) -> NDArray[np.float32]:
    """Return the value of each word piece: that of the word it shares a character with, 0 where it shares none.

    `spans` (W, 2): characters [start, end) of the words of one caption, in order, without overlap. `values` (W,): their
    weights, 0 for words that are not of interest. `offsets` (P): characters [start, end) of each piece, as a fast
    tokenizer's `offset_mapping` gives them; (0, 0) for special tokens and padding. A piece that shares characters with
    several words takes the largest of their values, so that no word of interest loses a piece. Many captions go at once
    if each one's characters are counted on from the last one's.

    >>> spans = np.array([[0, 1], [2, 8]])  # "a guitar" -> a gui ##tar
    >>> spread(spans, np.array([0.0, 1.0]), [(0, 0), (0, 1), (2, 5), (5, 8), (0, 0)]).tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0]
    """
    out = np.zeros(len(offsets), np.float32)
    pieces = np.asarray(offsets, np.int64).reshape(-1, 2)
    if not len(spans):
        return out
    # Words in order without overlap: those that share a character with [a, b) are the ones from the first that ends
    # after a to the last that starts before b.
    first = np.searchsorted(spans[:, 1], pieces[:, 0], side="right")
    last = np.searchsorted(spans[:, 0], pieces[:, 1], side="left")
    at = np.flatnonzero((first < last) & (pieces[:, 0] < pieces[:, 1]))
    if len(at):
        ranges = np.stack([first[at], last[at]], axis=1).ravel()
        out[at] = np.maximum.reduceat(np.append(values, 0), ranges)[::2]
    return out
