"""The command `pipeline`: flags to functions, and errors to one line."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from pipeline.errors import BadSetting, PipelineError
from pipeline.stages.extract import Extract

app = App(
    name="pipeline",
    help="Videos and annotations to a feature file.",
    version_flags=[],
    default_parameter=Parameter(negative=(), show_env_var=False),
)
run = App(name="run", help="Run one stage.")
app.command(run)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


@run.command(name="extract")
def _extract(
    stage: Annotated[Extract, Parameter(name="*")],
    *,
    workers: int | None = None,
    scheduler: str = "",
    dry_run: bool = False,
) -> int:
    """Extract features from the videos of a data set into a feature file.

    Parameters
    ----------
    workers
        Worker processes of one thread each; 0 is a plain loop. Default: as many as cores and memory allow,
        or one for each GPU.
    scheduler
        Address of a Dask scheduler that is already there.
    dry_run
        Print what would be done, with rows, bytes and a guess of the time, and stop.

    """
    from pipeline import dryrun, launch, plan

    extractor = tuple(name for text in stage.extractor for name in text.split(",") if name)
    stage = replace(stage, extractor=extractor, out=stage.out.absolute())  # workers may stand in another folder
    plan.check_flags(stage)
    if workers is not None and workers < 0:
        raise BadSetting(f"--workers {workers}: expected 0 or more")
    if dry_run:
        return dryrun.print_plan(stage, workers)
    return launch.launch(stage, workers, scheduler)


@app.command(name="list")
def _list(*, json_: Json = False) -> int:
    """List extractors with their presets, data sets and stages."""
    from pipeline import printing

    return printing.print_names(json_)


@app.command(name="show")
def _show(file: Path, /, *, json_: Json = False) -> int:
    """Show what a feature file holds: streams, counts, presets, provenance, failures.

    Parameters
    ----------
    file
        A feature file or a folder of shards.

    """
    from pipeline import printing, report

    found = report.show(file)
    return printing.print_json(found) if json_ else printing.print_features(found)


@app.command(name="verify")
def _verify(file: Path, /, *, json_: Json = False) -> int:
    """Verify a feature file: checksums, NaN, row counts against durations, coverage. Exit code 1 if not sound.

    Parameters
    ----------
    file
        A feature file or a folder of shards.

    """
    from pipeline import printing, report

    problems, coverage = report.verify(file), report.coverage(file)
    if json_:
        printing.print_json({"path": str(file), "problems": problems, "coverage": coverage})
    else:
        printing.print_lines([*coverage, *problems, f"{file}: {len(problems) or 'no'} problems"])
    return 1 if problems else 0


def main(words: list[str] | None = None) -> None:
    """Run `pipeline WORDS`; exit code 0 all done, 1 some items failed, 2 the command was wrong."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(_main(words))


def _main(words: list[str] | None) -> int:
    try:
        return int(app(words, exit_on_error=False, print_error=False, result_action="return_value") or 0)
    except (PipelineError, CycloptsError) as error:
        return _complain(" ".join(str(error).split()))
    except BrokenPipeError:  # `pipeline show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _complain("interrupted; what was finished is kept, run the same command again to go on")
        return 130


def _complain(message: str) -> int:
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]error:[/] {_escape(message)}")
    return 2


def _escape(message: str) -> str:
    from rich.markup import escape

    return escape(message)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
