"""The table of a recipe: each row's numbers beside those that were expected, as text, Markdown and picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.errors import BadSetting
from workflows.recipe import TASKS, Recipe, Row, results

OURS, EXPECTED = "#31688e", "#b5442e"
RANKS = ("MdR", "MnR")
"""Columns that are no fractions: less is better."""


@dataclass(frozen=True)
class Line:
    """What is known of a row."""

    row: Row
    ours: dict[str, list[float]]
    """Column to a number for each seed that has one; in per cent, but for ranks."""
    seeds: int
    """Seeds that are asked for."""
    notes: tuple[str, ...]
    """What a reader must know of these numbers."""

    @property
    def done(self) -> int:
        """Return how many seeds have results."""
        return max(map(len, self.ours.values()))


def collect(recipe: Recipe, seeds: int) -> list[Line]:
    """Return a line for each row, of those results that are there. Raises BadSetting for numbers they do not have."""
    lines = []
    for row in recipe.rows:
        paths = [path for path in (results(recipe, row, seed) for seed in range(seeds)) if path.exists()]
        found = [_read(path, row, recipe.columns) for path in paths]
        ours = {
            column: [one[column] * (1 if column in RANKS else 100) for one in found if column in one]
            for column in recipe.columns
        }
        lines.append(Line(row, ours, seeds, _notes(recipe, row, found)))
    return lines


def _notes(recipe: Recipe, row: Row, found: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    unknown = ["expected: not known"] if recipe.source and not row.expect else []
    used = ["uses test queries"] if any(one.get("uses_test_queries") for one in found) else []
    return tuple(dict.fromkeys([*unknown, *used, *(one["note"] for one in found if one.get("note"))]))


def _read(path: Path, row: Row, columns: Sequence[str]) -> dict[str, Any]:
    """Return a row's numbers, and of retrieval what must be known of them. Raises BadSetting where there are none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadSetting(f"{path}: {error}; delete it and run the recipe again") from error
    if row.level:
        return _score_of(path, row, found.get("scores", {}))
    numbers = found.get("numbers", {})
    if not set(numbers) & set(columns):
        known = f"results of {found.get('task', 'an unknown task')}, with {', '.join(numbers) or 'no numbers'}"
        raise BadSetting(f"row '{row.label}': {path} has none of the columns; there are {known}")
    return {name: value for name, value in numbers.items() if value is not None and not isnan(value)}


def _score_of(path: Path, row: Row, there: dict[str, Any]) -> dict[str, Any]:
    """Return the results of the row's score and direction."""
    convention = "best_caption" if row.direction.endswith("best") else ""
    for found in there.get(row.level, ()):
        best = "best_caption" if found["convention"] == "best_caption" else ""
        if (found["direction"], best) == (row.direction[:3], convention):
            return dict(found)
    known = ", ".join(there) or "no scores"
    raise BadSetting(f"row '{row.label}': {path} has no score '{row.level}', {row.direction}; there are: {known}")


def _score(row: Row) -> str:
    return f"{row.level}, {row.direction}" if row.level else ""


def _cells(lines: Sequence[Line], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of all rows, the head first; scores are named where they are not all the same."""
    differ = len({_score(line.row) for line in lines}) > 1
    head = ["", *(["score"] if differ else []), *columns, "runs"]
    rows = [
        [line.row.label, *([_score(line.row)] if differ else []), *(_both(line, c) for c in columns), _runs(line)]
        for line in lines
    ]
    return [head, *rows]


def _both(line: Line, column: str) -> str:
    """Return ours / expected."""
    values, expected = line.ours[column], line.row.expect.get(column)
    ours = f"{mean(values):.1f}" if values else "–"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    beside = f" / {expected:.1f}" if expected is not None else ""
    return f"{ours}{spread}{beside}"


def _runs(line: Line) -> str:
    some = f"{line.done}" if line.done == line.seeds else f"{line.done} of {line.seeds}"
    return "; ".join([some if line.done else "no results yet", *line.notes])


def _said(recipe: Recipe, lines: Sequence[Line]) -> str:
    scores = {_score(line.row) for line in lines}
    score = f" Score: {scores.pop()}." if len(scores) == 1 and scores != {""} else ""
    expected = f" Expected: {recipe.source}." if recipe.source else ""
    what = "recalls in per cent" if set(recipe.columns) & set(TASKS["retrieval"]) else "in per cent"
    return f"{'Ours / expected' if expected else 'Ours'}, mean ± sd over seeds, {what}.{expected}{score}"


def markdown(recipe: Recipe, lines: Sequence[Line]) -> str:
    """Return the table as Markdown."""
    head, *rows = _cells(lines, recipe.columns)
    rule = ["--:" if name in recipe.columns else "---" for name in head]
    escaped = [[cell.replace("|", "\\|") for cell in cells] for cells in rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *escaped))
    return f"# {recipe.name}\n\n{recipe.about}\n\n{_said(recipe, lines)}\n\n{table}\n"


def show(recipe: Recipe, seeds: int) -> None:
    """Print the table, and write it as `results.md` and `results.svg` into the recipe's folder."""
    lines = collect(recipe, seeds)
    head, *rows = _cells(lines, recipe.columns)
    table = Table(title=f"{recipe.name}: {recipe.about}", caption=_said(recipe, lines))
    table.title_justify = table.caption_justify = "left"
    for name in head:
        table.add_column(name, justify="right" if name in recipe.columns else "left", overflow="fold")
    for cells in rows:
        table.add_row(*map(escape, cells))
    Console().print(table)
    recipe.folder.mkdir(parents=True, exist_ok=True)
    (recipe.folder / "results.md").write_text(markdown(recipe, lines), encoding="utf-8")
    draw(recipe, lines, recipe.folder / "results.svg")
    print(f"written to {recipe.folder / 'results.md'} and results.svg")


def draw(recipe: Recipe, lines: Sequence[Line], path: Path) -> None:
    """Draw a panel for each column: ours as dots, with the spread over seeds, beside what was expected."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = [line.row.label + ("" if line.done else " (no results yet)") for line in lines]
    size = (2.5 + 0.07 * max(map(len, names)) + 1.9 * len(recipe.columns), 1.3 + 0.3 * len(lines))
    with mpl.rc_context({"svg.hashsalt": "results", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(recipe.columns), sharey=True, squeeze=False)[0]
        for axis, column in zip(panels, recipe.columns, strict=True):
            _panel(axis, column, lines)
        panels[0].set_yticks(range(len(lines)), names)
        panels[0].invert_yaxis()
        whose = [f"expected: {recipe.source}"] if any(line.row.expect for line in lines) else []
        figure.suptitle(recipe.name, x=0.01, ha="left")
        dots = panels[0].collections[: 1 + len(whose)]
        figure.legend(dots, ["ours", *whose], loc="outside lower left", ncols=2, frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axis: Any, column: str, lines: Sequence[Line]) -> None:
    """Draw one column; every panel has the two clouds of dots, also where they are empty, for the legend."""
    done = [(at, line.ours[column]) for at, line in enumerate(lines) if line.ours[column]]
    known = [(at, line.row.expect[column]) for at, line in enumerate(lines) if column in line.row.expect]
    axis.scatter([mean(values) for _, values in done], [at for at, _ in done], color=OURS, s=28, zorder=3)
    axis.scatter([x for _, x in known], [at for at, _ in known], marker="d", edgecolors=EXPECTED, facecolors="none")
    for at, values in done:
        if len(values) > 1:
            axis.hlines(at, mean(values) - stdev(values), mean(values) + stdev(values), color=OURS, lw=1.5)
    axis.set_title(f"{column} (less is better)" if column in RANKS else f"{column} (%)", fontsize=10)
    axis.set_xlim(0, 1.05 * axis.get_xlim()[1])  # no dot is cut off
    axis.grid(axis="y", lw=0.4)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
