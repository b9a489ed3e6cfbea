"""Recipes and the commands that they stand for.

A step without placeholders runs once, one with {seed} alone once for each seed. Neighbouring steps with a row's
placeholders run together, row by row and seed by seed; a step runs for the rows that have all its variables.
"""

from __future__ import annotations

import shlex
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from pipeline.errors import BadSetting

PROGRAMS = {"pipeline ": "pipeline.cli", "train ": "train.cli", "python -m workflows.planted ": "workflows.planted"}
"""How a step may begin, and the module that runs then."""


@dataclass(frozen=True)
class Step:
    """A command with placeholders."""

    name: str
    run: str

    @property
    def variables(self) -> frozenset[str]:
        """Return the names of the placeholders."""
        return frozenset(name for _, name, _, _ in string.Formatter().parse(self.run) if name is not None)

    @property
    def runs(self) -> str:
        """Return what it runs for: `once`, each `seed`, or each `row` and seed."""
        return "row" if self.variables - {"seed"} else "seed" if self.variables else "once"


@dataclass(frozen=True)
class Row:
    """A row of the results table: what its placeholders stand for, which score it shows, what is expected of it."""

    label: str
    folder: str
    variables: dict[str, str]
    level: str
    direction: str
    expect: dict[str, float]
    """Column to number; recalls in per cent."""


@dataclass(frozen=True)
class Recipe:
    """A recipe that has been checked; `workflows/reading.py` says what each part is."""

    name: str
    about: str
    source: str
    columns: tuple[str, ...]
    seeds: int
    steps: tuple[Step, ...]
    rows: tuple[Row, ...]

    @property
    def folder(self) -> Path:
        """Return where its runs and its table are."""
        return Path("runs") / self.name


@dataclass(frozen=True)
class Command:
    """A step's command, its placeholders filled in."""

    step: str
    words: tuple[str, ...]

    @property
    def program(self) -> tuple[str, ...]:
        """Return the module to run, and its arguments."""
        text = " ".join(self.words) + " "
        begin, module = next((begin, module) for begin, module in PROGRAMS.items() if text.startswith(begin))
        return module, *self.words[len(begin.split()) :]

    @property
    def folder(self) -> Path | None:
        """Return the folder of the run that the command begins, or None."""
        begins = self.words[0] == "train" and "".join(self.words[1:2]).startswith("-")
        return Path(self._value("--out") or "runs/run") if begins else None

    @property
    def makes(self) -> Path | None:
        """Return the file that is there once the command has ended and need not run again; None: it always runs."""
        if self.folder is not None:
            return None if "--force" in self.words else self.folder / "results.json"
        out = self._value("--out")
        return Path(out) if out and self.words[:2] in (("train", "evaluate"), ("pipeline", "join")) else None

    def _value(self, flag: str) -> str:
        for word, following in zip(self.words, (*self.words[1:], ""), strict=True):
            if word == flag or word.startswith(f"{flag}="):
                return following if word == flag else word.partition("=")[2]
        return ""


@dataclass(frozen=True)
class Job:
    """Commands that run one after the other: those of a row with a seed, or (`title` '') a step of the whole recipe."""

    title: str
    commands: tuple[Command, ...]


def jobs(recipe: Recipe, seeds: int) -> list[Job]:
    """Return what there is to run, in order; what rows share only once."""
    found: list[Job] = []
    made: set[Command] = set()
    for job in _all(recipe, seeds):
        makers = {command for command in job.commands if command.makes is not None}
        if job.commands and not (makers and makers <= made):
            found.append(replace(job, commands=tuple(command for command in job.commands if command not in made)))
        made |= makers
    return found


def _all(recipe: Recipe, seeds: int) -> Iterator[Job]:
    for kind, group in groupby(recipe.steps, key=lambda step: step.runs):
        steps = list(group)
        if kind == "once":
            yield from (Job("", (_filled(step, {}),)) for step in steps)
        elif kind == "seed":
            for seed in range(seeds):
                yield Job(f"seed {seed}", tuple(_filled(step, {"seed": str(seed)}) for step in steps))
        else:
            for row in recipe.rows:
                for seed in range(seeds):
                    yield Job(f"{row.label}, seed {seed}", _commands(recipe, row, seed, steps))


def _commands(recipe: Recipe, row: Row, seed: int, steps: list[Step]) -> tuple[Command, ...]:
    values = {**row.variables, "seed": str(seed), "run": f"{recipe.folder / row.folder}-{seed}"}
    return tuple(_filled(step, values) for step in steps if step.variables <= set(values))


def _filled(step: Step, values: dict[str, str]) -> Command:
    return Command(step.name, tuple(shlex.split(step.run.format_map(values))))


def results(recipe: Recipe, row: Row, seed: int) -> Path:
    """Return the file with a row's numbers: what its last `train` or `train evaluate --out FILE` writes."""
    steps = [step for step in recipe.steps if step.runs == "row"]
    made = [command.makes for command in _commands(recipe, row, seed, steps) if command.words[0] == "train"]
    if not made or made[-1] is None:
        raise BadSetting(f"row '{row.label}': its last step is neither a `train` nor a `train evaluate --out FILE`")
    return made[-1]
