"""Run a recipe: `python -m workflows NAME [--dry-run] [--from STEP] [--seeds N] [--table]`; without NAME list them all.

Every step runs in a process of its own, and the first that fails ends the recipe. A run that is finished is not trained
again, and one that was begun is resumed: to train one anew, delete its folder. At the end, or by itself with --table,
stands what came of it beside what was expected, in `runs/NAME/results.md` and `.svg` too.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from pipeline.errors import BadSetting, PipelineError, unknown
from workflows import reading
from workflows.recipe import Command, Job, Recipe, jobs


def run(recipe: Recipe, seeds: int, start: str = "", dry: bool = False) -> int:
    """Run the recipe's commands in order, from the step `start` on; return the code of the first that fails, or 0."""
    steps = [step.name for step in recipe.steps]
    if start and start not in steps:
        raise unknown("step", start, steps)
    wanted = steps[steps.index(start) :] if start else steps
    for job in jobs(recipe, seeds):
        todo = [command for command in job.commands if command.step in wanted]
        if todo and _finished(job):
            print(f"\n{job.title or todo[0].step}: finished already")
            continue
        for command in todo:
            if code := _run(command, dry):
                return code
    return 0


def _finished(job: Job) -> bool:
    made = [command.makes for command in job.commands if command.makes is not None]
    return bool(made) and all(path.exists() for path in made)


NOTE = "command.txt"
"""In a run's folder: the command that made it."""


def _run(command: Command, dry: bool) -> int:
    if not dry and "--force" not in command.words:
        _check_command(command)
    if command.makes is not None and command.makes.exists():
        return 0
    if command.resumes and command.makes is not None and command.makes.with_name("settings.json").exists():
        command = Command(command.step, ("train", "resume", str(command.folder)))
    print(f"\n$ {shlex.join(command.words)}", flush=True)
    if dry:
        return 0
    _note(command)
    code = subprocess.run([sys.executable, "-m", *command.program], check=False).returncode
    if code == 1 and command.words[:3] == ("pipeline", "run", "extract"):
        print("some videos failed, as is listed; they count as misses", file=sys.stderr)
        return 0
    return code


def _check_command(command: Command) -> None:
    """Raise BadSetting where a run's folder was made by another command: its results would be taken for this one's."""
    noted = command.folder and command.folder / NOTE
    if noted and noted.exists() and noted.read_text(encoding="utf-8") != shlex.join(command.words):
        raise BadSetting(f"{command.folder} was made by another command, which {noted} tells; delete the folder")


def _note(command: Command) -> None:
    """Keep the command that a run's folder is made by."""
    if command.folder is not None and command.words[:2] != ("train", "resume"):
        command.folder.mkdir(parents=True, exist_ok=True)
        (command.folder / NOTE).write_text(shlex.join(command.words), encoding="utf-8")


def _list() -> int:
    for name in reading.names():
        print(f"{name:18} {reading.find(name).about}")
    return 0


def _main(words: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a recipe, or a file NAME.toml of your own; default: list them"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    parser.add_argument("--from", dest="start", default="", metavar="STEP", help="leave out the steps before this one")
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of each row; default: the recipe's")
    parser.add_argument("--table", action="store_true", help="only draw the table of what is there")
    chosen = parser.parse_args(words)
    if chosen.name is None:
        return _list()
    recipe = reading.find(chosen.name)
    seeds = recipe.seeds if chosen.seeds is None else chosen.seeds
    if seeds < 1:
        raise BadSetting(f"--seeds {seeds}: expected 1 or more")
    if chosen.table and not recipe.rows:
        raise BadSetting(f"--table: recipe {recipe.name} has no rows, so it has no table")
    if not chosen.table and (code := run(recipe, seeds, chosen.start, chosen.dry_run)):
        return code
    if recipe.rows and not chosen.dry_run:
        from workflows import results

        results.show(recipe, seeds)
    return 0


def main(words: list[str] | None = None) -> int:
    """Run `python -m workflows WORDS`; return the exit code, 2 when the command was wrong."""
    try:
        return _main(words)
    except PipelineError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough
        sys.stdout = None
        return 0


if __name__ == "__main__":
    sys.exit(main())
