"""Reads recipes: `workflows/NAME.toml`, checked when they are loaded.

    about = "what it is, in a line"
    source = "TACo, Table 3"              # where the numbers in `expect` are from
    columns = ["R@1", "MdR"]              # of the results table; `recipe.TASKS` has those of each task
    level = "fused"                       # which score of retrieval the table shows; a row may have another one
    seeds = 3                             # runs of each row

    [[steps]]                             # runs once
    name = "extract"
    run = "pipeline run extract --dataset msrvtt --out msrvtt.h5"

    [[steps]]                             # runs for each row and seed, as it has placeholders
    name = "train"
    run = "train --features msrvtt.h5 {losses} --seed {seed} --out {run}"

    [[rows]]
    label = "L1 alone"
    losses = "--parts L1"                 # what {losses} stands for in this row
    expect = { "R@1" = 22.9, MdR = 6 }

`about` and `steps` are all that must be there. Neighbouring steps with placeholders run row by row; a step runs for the
rows that have all its variables, and one with {seed} alone runs once for each seed. {run} is the row's folder,
`runs/NAME/LABEL-SEED`; rows with the same `run = "…"` share theirs. A row's numbers are those that its last command of
`train` writes: results.json of a run, `--out FILE` of `evaluate` and `probe`. Only retrieval has a `level` and a
`direction`; columns of the other tasks may stand in one table, of which each row fills those of its own task.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pipeline.errors import BadSetting, unknown
from workflows.recipe import PROGRAMS, TASKS, Command, Recipe, Row, Step, jobs, results

HERE = Path(__file__).parent
DIRECTIONS = ("t2v", "v2t", "v2t, best")
RECIPE: dict[str, type] = {
    "about": str, "source": str, "columns": list, "level": str, "direction": str, "seeds": int, "steps": list,
    "rows": list,
}  # fmt: skip
STEP: dict[str, type] = {"name": str, "run": str}
ROW: dict[str, type] = {"label": str, "run": str, "level": str, "direction": str, "expect": dict}
"""Keys and their types; a row's other keys are its variables."""
BUILT_IN = frozenset({"run", "seed"})


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in HERE.glob("*.toml"))


def find(name: str) -> Recipe:
    """Return the recipe called `name`, or the one in the file NAME.toml. Raises UnknownName, and what `load` raises."""
    if name.endswith(".toml"):
        return load(Path(name))
    if name not in names():
        raise unknown("recipe", name, names())
    return load(HERE / f"{name}.toml")


def load(path: Path) -> Recipe:
    """Return the recipe in a file. Raises BadSetting, which names file and key, for one that is not as it should be."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_keys("", found, RECIPE, ("about", "steps"))
        for name in ("steps", "rows"):
            if odd := [one for one in found.get(name, ()) if not isinstance(one, dict)]:
                raise BadSetting(f"{name}: {odd[0]!r} is no table; write [[{name}]]")
        _check_columns(found.get("columns", []), bool(found.get("rows")))
        recipe = Recipe(
            path.stem, found["about"], found.get("source", ""), tuple(found.get("columns", ())), found.get("seeds", 1),
            tuple(_step(step) for step in found["steps"]), tuple(_row(row, found) for row in found.get("rows", ())),
        )  # fmt: skip
        _check(recipe)
    except OSError as error:
        raise BadSetting(f"cannot read recipe {path}: {error.strerror}") from error
    except (ValueError, BadSetting) as error:  # tomllib's error is a ValueError
        raise BadSetting(f"{path}: {error}") from error
    return recipe


def _check_keys(where: str, found: dict[str, Any], known: dict[str, type], needed: tuple[str, ...]) -> None:
    for key, value in found.items():
        if key not in known:
            raise BadSetting(f"{where}unknown key '{key}'; there are: {', '.join(known)}")
        if type(value) is not known[key]:
            raise BadSetting(f"{where}{key} = {value!r}: expected {known[key].__name__}")
    for key in needed:
        if not found.get(key):
            raise BadSetting(f"{where}{key} is missing")


def _check_columns(columns: list[Any], rows: bool) -> None:
    """Refuse a table that no results can fill."""
    known = [column for task in TASKS.values() for column in task]
    if odd := [column for column in columns if column not in known]:
        raise BadSetting(f"columns: unknown '{odd[0]}'; there are: {', '.join(known)}")
    if rows and not columns:
        raise BadSetting("columns is missing, and there are rows")
    if _retrieves(columns) and (others := [column for column in columns if column not in TASKS["retrieval"]]):
        raise BadSetting(f"columns: '{others[0]}' is not of retrieval, as others are; make a recipe of its own")


def _retrieves(columns: list[Any]) -> bool:
    return any(column in TASKS["retrieval"] for column in columns)


def _step(found: dict[str, Any]) -> Step:
    where = f"step '{found.get('name', '')}': "
    _check_keys(where, found, STEP, ("name", "run"))
    run = " ".join(found["run"].split())  # it may be written in several lines
    if not run.startswith(tuple(PROGRAMS)):
        raise BadSetting(f"{where}run = '{run}': expected {', '.join(begin.strip() for begin in PROGRAMS)} and words")
    return Step(found["name"], run)


def _row(found: dict[str, Any], recipe: dict[str, Any]) -> Row:
    where = f"row '{found.get('label', '')}': "
    variables = {key: value for key, value in found.items() if key not in ROW}
    given = {key: recipe[key] for key in ("level", "direction") if key in recipe} | found
    columns = recipe["columns"]
    _check_keys(where, given, ROW | dict.fromkeys(variables, str), ("label", "level")[: 1 + _retrieves(columns)])
    level, direction = _score(where, given, _retrieves(columns))
    expect = found.get("expect", {})
    for column, value in expect.items():
        if column not in columns:
            raise BadSetting(f"{where}expect has '{column}', which is not in columns")
        if not isinstance(value, (int, float)):
            raise BadSetting(f"{where}expect, {column} = {value!r}: expected a number")
    return Row(found["label"], _slug(found.get("run", found["label"])), variables, level, direction, expect)


def _score(where: str, given: dict[str, Any], retrieves: bool) -> tuple[str, str]:
    """Return level and direction of a row's score; '' for tasks that have none."""
    if not retrieves and (odd := [key for key in ("level", "direction") if key in given]):
        raise BadSetting(f"{where}{odd[0]} is for columns of retrieval, {', '.join(TASKS['retrieval'])}; leave it out")
    direction = given.get("direction", "t2v") if retrieves else ""
    if retrieves and direction not in DIRECTIONS:
        raise BadSetting(f"{where}direction = {direction!r}: expected {' or '.join(map(repr, DIRECTIONS))}")
    return given.get("level", ""), direction


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9+.]+", "-", text).strip("-")


def _check(recipe: Recipe) -> None:
    if recipe.seeds < 1:
        raise BadSetting(f"seeds = {recipe.seeds}: expected 1 or more")
    for what, values in (("steps", [s.name for s in recipe.steps]), ("rows", [row.label for row in recipe.rows])):
        if twice := {value for value in values if values.count(value) > 1}:
            raise BadSetting(f"{what}: '{twice.pop()}' is there twice")
    _check_variables(recipe)
    _check_runs(recipe)


def _check_variables(recipe: Recipe) -> None:
    known = BUILT_IN.union(*(row.variables for row in recipe.rows))
    used = BUILT_IN.union(*(step.variables for step in recipe.steps))
    for step in recipe.steps:
        for name in sorted(step.variables - known):
            raise BadSetting(f"step '{step.name}': no row has a variable for {{{name}}}")
        if not recipe.rows and "run" in step.variables:
            raise BadSetting(f"step '{step.name}': {{run}} is a row's folder, and there are no rows")
    for row in recipe.rows:
        for name in sorted(set(row.variables) - used):
            raise BadSetting(f"row '{row.label}': no step has a placeholder for '{name}'")
        if "seed" in row.variables:
            raise BadSetting(f"row '{row.label}': seed is set by `seeds`, choose another name")


def _check_runs(recipe: Recipe) -> None:
    """Refuse rows without results, and different runs in one place."""
    made: dict[Path, Command] = {}
    for row in recipe.rows:
        results(recipe, row, 0)
    for job in jobs(recipe, 2):
        for command in job.commands:
            place = command.folder or command.makes
            if place is not None and made.setdefault(place, command) != command:
                raise BadSetting(f"step '{command.step}': two different runs in one place, --out {place}")
    for step in recipe.steps:
        fills = Command(step.name, tuple(step.run.split())).folder is not None
        if fills and step.variables and not re.search(r"--seed[ =]\{seed\}", step.run):
            raise BadSetting(f"step '{step.name}': trains for each seed, but has no --seed {{seed}}")
