"""Runs beside each other: what differs in their settings, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from train import ranking
from train.config import read_json

COLUMNS = ("R@1", "R@5", "R@10", "MdR")
"""Of each direction."""


def compare(folders: list[Path]) -> list[dict[str, Any]]:
    """Return name, the settings that are not the same in all runs, and results of each. Raises MissingWeights."""
    found = [(read_json(folder / "settings.json"), read_json(folder / "results.json")) for folder in folders]
    flat = [_flat(settings) for settings, _ in found]
    names = sorted({name for one in flat for name in one if any(other.get(name) != one[name] for other in flat)})
    return [
        {"run": str(folder), "differs": {name: one.get(name) for name in names}, "results": results}
        for folder, one, (_, results) in zip(folders, flat, found, strict=True)
    ]


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name != "seen":  # digests are for programs
            found |= _flat(value, f"{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return {name.removeprefix("method_settings."): value for name, value in found.items()}


def show(found: list[dict[str, Any]]) -> None:
    """Print what differs between the runs, and a row for each run and level of score."""
    console = Console()
    for number, run in enumerate(found, start=1):
        said = ", ".join(f"{name} {_plain(value)}" for name, value in run["differs"].items())
        console.print(f"{number}  {run['run']}  {said or 'as the others'}", highlight=False)
    table = Table(title="recall in per cent, text to video and video to text", title_justify="left")
    columns = (*COLUMNS, *COLUMNS)
    for column in ("run", "score", *columns):
        table.add_column(column, justify="left" if column == "score" else "right")
    for number, run in enumerate(found, start=1):
        cells: dict[str, list[str]] = {}
        for level, direction, numbers in ranking.rows(run["results"]):
            if direction in ("t2v", "v2t"):
                chosen = dict(zip(ranking.COLUMNS, numbers, strict=True))
                cells.setdefault(level, []).extend(chosen[column] for column in COLUMNS)
        for level, numbers in cells.items():
            table.add_row(str(number), level, *numbers)
        table.add_section()
    if table.row_count:
        console.print(table)
    _show_numbers(console, [run["results"].get("numbers", {}) for run in found])


def _show_numbers(console: Console, numbers: list[dict[str, float]]) -> None:
    """Print the numbers of runs of other tasks than retrieval: a row for each number, a column for each run."""
    names = dict.fromkeys(name for one in numbers for name in one)
    if not names:
        return
    table = Table(title="per cent", title_justify="left")
    for column in ("", *(f"run {number}" for number, one in enumerate(numbers, start=1) if one)):
        table.add_column(column, justify="right" if column else "left")
    for name in names:
        table.add_row(name, *(f"{100 * one[name]:.1f}" if name in one else "" for one in numbers if one))
    console.print(table)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
