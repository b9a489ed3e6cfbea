"""Runs beside each other: what differs in their settings, and their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.errors import MissingWeights
from train.tasks import retrieval


def compare(folders: list[Path]) -> list[dict[str, Any]]:
    """Return name, the settings that are not the same in all runs, and results of each. Raises MissingWeights."""
    found = [(_read(folder / "settings.json"), _read(folder / "results.json")) for folder in folders]
    flat = [_flat(settings) for settings, _ in found]
    names = sorted({name for one in flat for name in one if any(other.get(name) != one[name] for other in flat)})
    return [
        {"run": str(folder), "differs": {name: one.get(name) for name in names}, "results": results}
        for folder, one, (_, results) in zip(folders, flat, found, strict=True)
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise MissingWeights(f"{path} is not there; `train resume {path.parent}` brings the run to its end") from None
    return found


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return {name.removeprefix("method_settings."): value for name, value in found.items()}


def show(found: list[dict[str, Any]]) -> None:
    """Print a row for each run and level of score."""
    table = Table(title="runs", title_justify="left")
    for column in ("run", *found[0]["differs"], "score", "direction", *retrieval.COLUMNS):
        table.add_column(column, justify="right" if column in retrieval.COLUMNS else "left")
    for run in found:
        own = [Path(run["run"]).name, *map(str, run["differs"].values())]
        for level, direction, numbers in retrieval.rows(run["results"]):
            table.add_row(*own, level, direction, *numbers)
    Console().print(table)
