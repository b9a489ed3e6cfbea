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

PROGRAMS = {
    "pipeline ": "pipeline.cli",
    "train ": "train.cli",
    "python -m workflows.planted ": "workflows.planted",
    "python -m workflows.synthetic ": "workflows.synthetic",
}
"""How a step may begin, and the module that runs then."""
TASKS: dict[str, tuple[str, ...]] = {
    "retrieval": ("R@1", "R@5", "R@10", "R@50", "MdR", "MnR"),
    "grounding": (*(f"R@{n} IoU={m}" for n in (1, 5) for m in (0.1, 0.3, 0.5, 0.7)), "mIoU"),
    "steps": ("recall", "recall with features", "uniform", "uniform with features"),
    "segmentation": (
        "frame accuracy",
        "foreground",
        "mean class",
        "mean class, foreground",
        "majority",
        "majority, foreground",
    ),
    "probes": ("order", "distance", "linear", "attentive"),
}
"""Task to what a table may show of its results."""
RUNS = {"train -": "runs/run", "train ground ": "runs/ground", "train segment ": "runs/segment"}
"""Commands that fill a folder, by how they begin, and which one without --out."""
RESUMED = ("train -", "train ground ")
"""Those of them that `train resume` goes on with."""
MAKERS = (
    "train evaluate ", "train probe ", "train export-features ", "pipeline join ", "python -m workflows.synthetic ",
)  # fmt: skip
"""Commands that write a file, --out, and need not do it again."""


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
    """Of retrieval's scores; both are '' for other tasks."""
    expect: dict[str, float]
    """Column to number; in per cent, but for ranks."""


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
    def text(self) -> str:
        """Return the words in one, with a blank after each."""
        return " ".join(self.words) + " "

    @property
    def program(self) -> tuple[str, ...]:
        """Return the module to run, and its arguments."""
        begin, module = next((begin, module) for begin, module in PROGRAMS.items() if self.text.startswith(begin))
        return module, *self.words[len(begin.split()) :]

    @property
    def folder(self) -> Path | None:
        """Return the folder of the run that the command begins, or None."""
        usual = next((folder for begin, folder in RUNS.items() if self.text.startswith(begin)), None)
        return Path(self._value("--out") or usual) if usual else None

    @property
    def resumes(self) -> bool:
        """Return whether `train resume` goes on with what the command has begun."""
        return self.text.startswith(RESUMED)

    @property
    def makes(self) -> Path | None:
        """Return the file that is there once the command has ended and need not run again; None: it always runs."""
        if self.folder is not None:
            return None if "--force" in self.words else self.folder / "results.json"
        out = self._value("--out")
        return Path(out) if out and self.text.startswith(MAKERS) else None

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
    """Return the file with a row's numbers: what its last `train` command writes, but for `export-features`."""
    steps = [step for step in recipe.steps if step.runs == "row"]
    trains = [command for command in _commands(recipe, row, seed, steps) if command.words[0] == "train"]
    made = [command.makes for command in trains if command.words[1] != "export-features"]
    if not made or made[-1] is None:
        raise BadSetting(
            f"row '{row.label}': its last step is none with results: train, train ground, train segment, or train "
            "evaluate and train probe with --out FILE"
        )
    return made[-1]
