"""Pictures of results for people, as SVG or PNG by the name's end; the same values give the same bytes.

Colours are Okabe and Ito's, which colour-blind readers tell apart; where they do not suffice, stripes tell more. The
text in an SVG is text. Nothing here computes a result: functions take plain arrays, in seconds and class numbers.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadSetting

BLUE, ORANGE = "#0072b2", "#e69f00"
PALETTE = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
STRIPES = ("", "////", "....", "xxxx")
"""One for each round through the palette."""
TRACK = "#e6e6e6"
"""Of a video where nothing is, and of background."""
HEAT = "cividis"
NUMBERED = 20
"""Classes up to which a confusion matrix has its shares as numbers."""
CHARACTER = 0.55
"""Width of an average character by its size."""

Span = tuple[float, float]


@dataclass(frozen=True)
class Album:
    """A folder for pictures."""

    folder: Path
    kind: str = "svg"
    """Or png."""

    def file(self, name: str) -> Path:
        """Return the file for the picture called `name`, which may be any id."""
        return self.folder / f"{name.replace('/', '_')}.{self.kind}"


@dataclass(frozen=True)
class Query:
    """A row of a timeline: a query, or a step of a task."""

    text: str
    seconds: float
    """Length of the video."""
    truth: Sequence[Span]
    """(start, end) in seconds, of which there may be several."""
    predictions: Sequence[tuple[float, float, float]]
    """(start, end, score), best first. Those without a length or a finite score are left out."""


def timeline(path: Path, queries: Sequence[Query], title: str = "") -> None:
    """Draw what was asked, where it is and where it was found, along each query's video."""
    found = [[one for one in q.predictions if one[0] < one[1] and np.isfinite(one[2])] for q in queries]
    rows = [1 + max(1, len(some)) for some in found]
    last = [q.seconds != after.seconds for q, after in pairwise(queries)] + [True]
    height = 0.6 + 0.2 * sum(rows) + 0.3 * len(rows) + 0.25 * sum(last)
    with _figure(path, (8, height), title) as figure:
        if not queries:
            _say(figure, "no queries")
            return
        panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
        for axis, query, some, with_seconds in zip(panels, queries, found, last, strict=True):
            _track(axis, query, some)
            axis.tick_params(labelbottom=with_seconds, bottom=with_seconds)
        panels[-1].set_xlabel("seconds")


def _track(axis: Any, query: Query, found: Sequence[tuple[float, float, float]]) -> None:
    """Draw one query: the truth above, what was found below it, scores at the right."""
    rows = max(1, len(found))
    axis.barh(range(rows + 1), query.seconds, 0.72, color=TRACK)
    axis.broken_barh([(start, end - start) for start, end in query.truth], (-0.36, 0.72), color=ORANGE)
    for row, (start, end, _) in enumerate(found, start=1):
        axis.broken_barh([(start, end - start)], (row - 0.36, 0.72), color=BLUE, alpha=1 if row == 1 else 0.5)
    notes = [
        (1.01, row, said) for row, said in enumerate(["score", *(f"{one[2]:.2f}" for one in found)] if found else ())
    ]
    for x, row, said in notes or [(0.01, 1, "nothing")]:
        axis.text(x, row, said, transform=axis.get_yaxis_transform(), va="center", fontsize=8, color="0.3")
    axis.set_yticks(range(rows + 1), ["truth", *(map(str, range(1, rows + 1)) if rows > 1 else ["found"])], fontsize=8)
    axis.set(xlim=(0, max(query.seconds, 1e-9)), ylim=(rows + 0.5, -0.5))
    axis.set_title(_cut(query.text, 104), loc="left", fontsize=9)
    _bare(axis)


def colour_bars(
    path: Path,
    bars: Mapping[str, NDArray[np.int64]],
    names: Sequence[str],
    step: float = 1.0,
    background: int = 0,
    title: str = "",
) -> None:
    """Draw the class of each moment as bars of coloured segments, one under the other; `background` in grey.

    `bars`: a name, such as "truth", to the class number (T,) of each `step` seconds. `names`: of the classes.
    """
    order = dict.fromkeys(int(value) for values in bars.values() for value in values)
    classes = [value for value in order if value != background]
    looks = {value: (PALETTE[i % len(PALETTE)], STRIPES[i // len(PALETTE) % 4]) for i, value in enumerate(classes)}
    looks[background] = (TRACK, "")
    labels = [_cut(names[value], 40) for value in classes] + ["background"] * (background in order)
    columns = max(1, int(8 / (0.6 + 0.085 * max(map(_width, labels), default=0))))
    height = 0.9 + 0.4 * len(bars) + 0.2 * -(-len(labels) // columns)
    with _figure(path, (8, height), title) as figure:
        if not labels:
            _say(figure, "no segments")
            return
        axis = figure.subplots()
        for row, values in enumerate(bars.values()):
            for start, end in _runs(values):
                colour, stripes = looks[int(values[start])]
                where = [(start * step, (end - start) * step)]
                axis.broken_barh(where, (row - 0.4, 0.8), facecolors=colour, hatch=stripes, ec="white", lw=0)
        axis.set_yticks(range(len(bars)), [_cut(name, 20) for name in bars])
        axis.set(xlabel="seconds", xlim=(0, step * max(map(len, bars.values()))), ylim=(len(bars) - 0.5, -0.5))
        _bare(axis)
        shown = [looks[value] for value in (*classes, background)[: len(labels)]]
        _legend(figure, shown, labels, columns)


def confusion(path: Path, matrix: NDArray[Any], names: Sequence[str], title: str = "") -> None:
    """Draw which class (row) was taken for which (column), as shares of each row; `matrix` (C, C) are counts.

    Rows without any are grey. Names, with a row's count, stand where letters of five points fit; else class numbers.
    Colours are stretched (by the square root), so that small shares are seen.
    """
    classes, total = len(names), np.asarray(matrix).sum(1, keepdims=True)
    shares = np.divide(matrix, total, where=total > 0, out=np.full((classes, classes), np.nan))
    cell = min(0.42, 11.5 / max(1, classes))
    letters = min(9.0, 0.8 * 72 * cell)
    named = letters >= 5
    beside = named * max((min(_width(name), 20) for name in names), default=0)
    width, height = (cell * classes + CHARACTER * letters / 72 * (beside + more) for more in (7, 0))
    with _figure(path, (max(4, width + 1.6), max(2, height + 0.9)), title) as figure:
        if not classes:
            _say(figure, "no classes")
            return
        axis = figure.subplots()
        _heat(figure, axis, shares, "share of the row", (0, 1))
        axis.set(xlabel="prediction", ylabel="truth")
        if named:
            rows = [f"{_cut(name, 20)} ({int(count)})" for name, count in zip(names, total[:, 0], strict=True)]
            axis.set_yticks(range(classes), rows, fontsize=letters)
            axis.set_xticks(range(classes), [_cut(name, 20) for name in names], fontsize=letters, rotation=90)
        for row, column in np.argwhere(shares >= 0.005) if classes <= NUMBERED else ():
            colour = "black" if shares[row, column] > 0.3 else "white"
            share = f"{100 * shares[row, column]:.0f}"
            axis.text(column, row, share, ha="center", va="center", fontsize=8, color=colour)


def similarity(
    path: Path, matrix: NDArray[Any], words: Sequence[str], chosen: NDArray[np.bool_], title: str = ""
) -> None:
    """Draw how like each clip is to each word, with the words that it goes with marked (LocVTP, Figure 5b).

    `matrix` and `chosen` are (clips, words).
    """
    clips, count = np.shape(matrix)
    size = (max(4, 2 + 0.36 * count), max(2, 1.4 + 0.24 * clips))
    with _figure(path, size, title) as figure:
        if not clips or not count:
            _say(figure, "no clips" if count else "no words")
            return
        axis = figure.subplots()
        _heat(figure, axis, matrix, "similarity", None)
        axis.set(aspect="auto", ylabel="clip", xlabel="dots: words that the clip goes with")
        y, x = np.nonzero(chosen)
        axis.scatter(x, y, s=26, color="white", edgecolors="black", linewidths=1)
        axis.set_xticks(
            range(count), [_cut(word, 16) for word in words], rotation=60, ha="right", rotation_mode="anchor"
        )
        every = range(0, clips, 1 + (clips - 1) // 25)
        axis.set_yticks(every, [str(clip + 1) for clip in every])


def histograms(path: Path, similarities: Mapping[str, NDArray[Any]], title: str = "") -> None:
    """Draw how like pairs of several kinds are (LocVTP, Figure 5c), each as a density. NaN is left out."""
    found = {
        name: (values[np.isfinite(values)], colour)
        for (name, values), colour in zip(similarities.items(), PALETTE, strict=False)
    }
    everything = np.concatenate([values.ravel() for values, _ in found.values()])
    with _figure(path, (5.5, 3.2), title) as figure:
        if not len(everything):
            _say(figure, "no pairs")
            return
        axis = figure.subplots()
        edges = np.histogram_bin_edges(everything, 40)
        for name, (values, colour) in found.items():
            if len(values):
                label = f"{name} ({len(values)}), mean {values.mean():.2f}"
                axis.hist(values, edges, density=True, color=colour, alpha=0.35)
                axis.hist(values, edges, density=True, color=colour, histtype="step", lw=1.5, label=label)
                axis.axvline(values.mean(), color=colour, lw=1, ls="--")
        axis.set(xlabel="similarity", ylabel="density")
        axis.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower left", ncols=2, frameon=False)


@contextmanager
def _figure(path: Path, size: tuple[float, float], title: str) -> Iterator[Any]:
    """Give a figure and save it. Raises BadSetting for a name that ends otherwise than in .svg or .png."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if path.suffix not in (".svg", ".png"):
        raise BadSetting(f"{path}: a picture's name ends in .svg or .png")
    # Captions have dollars, which are no mathematics here.
    rules: Any = {"svg.hashsalt": "pictures", "svg.fonttype": "none", "text.parse_math": False, "font.size": 9}
    with mpl.rc_context(rules), warnings.catch_warnings():
        if path.suffix == ".svg":  # where a reader's own fonts are used
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        if title:
            figure.suptitle(_cut(title, int(12 * size[0])), x=0.01, ha="left", fontsize=10, fontweight="bold")
        yield figure
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _heat(figure: Any, axis: Any, values: NDArray[Any], what: str, limits: tuple[float, float] | None) -> None:
    """Draw a map; with `limits` between these, stretched, else from its least to its greatest value."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    colours = colormaps[HEAT].with_extremes(bad=TRACK)
    shown = axis.imshow(values, cmap=colours, norm=None if limits is None else PowerNorm(0.5, *limits))
    axis.tick_params(length=0)
    figure.colorbar(shown, ax=axis, label=what, shrink=0.8, aspect=25)


def _legend(figure: Any, looks: Sequence[tuple[str, str]], labels: Sequence[str], columns: int) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, hatch=stripes, ec="white", lw=0) for colour, stripes in looks]
    figure.legend(patches, labels, loc="outside lower left", ncols=columns, frameon=False)


def _bare(axis: Any) -> None:
    axis.spines[:].set_visible(False)
    axis.tick_params(axis="y", length=0)


def _say(figure: Any, text: str) -> None:
    figure.text(0.5, 0.5, text, ha="center", va="center", color="0.4")


def _runs(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return [start, end) of each run of one value.

    >>> _runs(np.array([3, 3, 0, 3]))
    [(0, 2), (2, 3), (3, 4)]
    """
    edges = [0, *(1 + np.flatnonzero(np.diff(values))).tolist(), len(values)]
    return [(start, end) for start, end in pairwise(edges) if start < end]


def _width(text: str) -> int:
    """Return the letters that a text is wide; those of East Asia count twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _cut(text: str, most: int) -> str:
    """Return a text in one line, cut with … where it is wider than `most` letters.

    >>> _cut("a  long\\nway", 6)
    'a lon…'
    """
    text = " ".join(text.split())
    if _width(text) <= most:
        return text
    while _width(text) >= most:
        text = text[:-1]
    return f"{text.rstrip()}…"
