"""Write a raw_caption.json of HowTo100M's shape, at any size, to measure with: made words, the same for one seed.

    python -m benchmarks.make_raw_caption OUT [--videos 100000] [--seed 0]

About 110 captions a video, each of 3 to 12 words and 2 to 8 seconds; four of five begin where the one before is still
shown or just ended, some after a pause. Every tenth repeats the end of the one before it, as rolling captions do. A
third of the words are function words, the others are drawn from 4,000 by Zipf's law. Quotes, backslashes, accents and
line breaks are there, escaped as `json.dump` does it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

COMMON = "the a and to you of it is in that this we so on i for with your just be are have can going if"
FUNCTION = tuple(COMMON.split())
ODD = ['"mix"', "back\\slash", "café", "it’s", "5},", "line\nbreak", "{bowl}", "😀"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def vocabulary(random: np.random.Generator, size: int = 4_000) -> np.ndarray:
    """Made words of 3 to 9 letters."""
    letters = random.integers(0, 26, (size, 9))
    lengths = random.integers(3, 10, size)
    return np.array(["".join(LETTERS[i] for i in row[:n]) for row, n in zip(letters, lengths, strict=True)], object)


def words(random: np.random.Generator, made: np.ndarray, count: int) -> list[str]:
    """Draw `count` words."""
    share = np.cumsum(1 / (np.arange(len(made)) + 2.7))
    drawn = made[np.searchsorted(share, random.random(count) * share[-1])]
    kind = random.random(count)
    drawn[kind < 0.36] = np.array(FUNCTION, object)[random.integers(0, len(FUNCTION), int((kind < 0.36).sum()))]
    odd = kind > 0.9995
    drawn[odd] = np.array(ODD, object)[random.integers(0, len(ODD), int(odd.sum()))]
    return drawn.tolist()


def times(random: np.random.Generator, count: int) -> tuple[list[float], list[float]]:
    """Draw starts and ends, in order, with overlaps, gaps and pauses."""
    lasts = random.uniform(2, 8, count)
    gap = random.choice([-1.5, 0.0, 0.3, 4.0, 12.0], count, p=[0.3, 0.3, 0.25, 0.1, 0.05])
    start = np.concatenate([[0.0], np.cumsum(lasts + gap)[:-1]]) + random.uniform(0, 3)
    return start.round(2).tolist(), (start + lasts).round(2).tolist()


def video(random: np.random.Generator, made: np.ndarray) -> dict[str, list]:
    """Make the captions of one video."""
    count = int(random.integers(20, 201))
    sizes = random.integers(3, 13, count)
    drawn = words(random, made, int(sizes.sum()))
    stops = np.cumsum(sizes).tolist()
    texts = [drawn[stop - size : stop] for stop, size in zip(stops, sizes.tolist(), strict=True)]
    for i in (np.flatnonzero(random.random(count - 1) < 0.1) + 1).tolist():
        texts[i] = texts[i - 1][-4:] + texts[i]
    start, end = times(random, count)
    return {"start": start, "end": end, "text": [" ".join(text) for text in texts]}


def main() -> None:
    """Write the file, video by video."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--videos", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    made = vocabulary(random)
    with args.out.open("w") as file:
        for number in range(args.videos):
            name = "".join(SYMBOLS[i] for i in random.integers(0, 64, 7)) + f"{number:04x}"[-4:]
            file.write(f"{', ' if number else '{'}{json.dumps(name)}: {json.dumps(video(random, made))}")
        file.write("}")


if __name__ == "__main__":
    main()
