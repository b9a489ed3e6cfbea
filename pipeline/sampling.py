"""Seconds and rows: the one rule by which a span of video becomes row numbers."""


def row_range(start: float, end: float | None, rate: float, rows: int) -> tuple[int, int]:
    """Return (first, last + 1) of the rows that a span of seconds touches.

    `int(start * rate)` to `int(end * rate) + 1`, clamped to the video, never empty when it has rows; the rule of the
    published consumers (HowTo100M, UniVL, MMPT). `end` None means to the end of the video.

    >>> row_range(2.0, 4.0, rate=1.5, rows=100)
    (3, 7)
    >>> row_range(50.0, 60.0, rate=1.0, rows=10)
    (9, 10)
    """
    if rows == 0:
        return 0, 0
    first = min(max(int(start * rate), 0), rows - 1)
    last = rows if end is None else min(max(int(end * rate) + 1, first + 1), rows)
    return first, last
