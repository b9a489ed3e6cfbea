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

from pipeline.cli_formats import COMMANDS
from pipeline.cli_frames import frames
from pipeline.cli_weights import weights
from pipeline.errors import BadSetting, PipelineError
from pipeline.stages.extract import Extract
from pipeline.stages.idf import Idf
from pipeline.stages.merge import Merge
from pipeline.stages.tag import Tag
from pipeline.where import Where

app = App(
    name="pipeline",
    help="Videos and annotations to a feature file.",
    version_flags=[],
    default_parameter=Parameter(negative=(), show_env_var=False),
)
run = App(name="run", help="Run one stage.")
app.command(run)
app.command(weights)
app.command(frames)
for _name, _command in COMMANDS.items():
    app.command(_command, name=_name)

TAG, IDF, MERGE, HERE = Tag(), Idf(), Merge(), Where()
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


@run.command(name="extract")
def _extract(
    stage: Annotated[Extract, Parameter(name="*")],
    *,
    where: Annotated[Where, Parameter(name="*")] = HERE,
    time_limit: str = "",
    dry_run: bool = False,
) -> int:
    """Extract features from the videos of a data set into a feature file.

    Parameters
    ----------
    time_limit
        Minutes, H:MM or H:MM:SS after which what is under way is finished and saved, and the run ends with exit code 3,
        as it does at SIGTERM and SIGUSR1; the same command goes on.
    dry_run
        Print what would be done, with rows, bytes and a guess of the time, and stop.

    """
    from pipeline import dryrun, launch, plan, stopping

    # Workers may stand in another folder.
    stage = replace(stage, extractor=_commas(stage.extractor), out=stage.out.absolute())
    plan.check_flags(stage)
    where.check()
    limit = stopping.seconds_of(time_limit)
    if dry_run:
        return dryrun.print_plan(stage, where.workers)
    return launch.launch(stage, where, limit)


@run.command(name="tag")
def _tag(
    stage: Annotated[Tag, Parameter(name="*")] = TAG,
    *,
    dataset: str = "",
    root: str = "",
    dedup: bool = False,
    workers: int | None = None,
    scheduler: str = "",
) -> int:
    """Tag the captions of a feature file: words, lemmas, parts of speech, by spaCy.

    Parameters
    ----------
    dataset
        Data set whose captions to take first; without a feature file this writes one with captions only.
    root
        Folder of that data set; default $DATA_ROOT/DATASET, data/DATASET.
    dedup
        Leave out captions of that data set that repeat another of their clip.
    workers
        Worker processes; 0 is a plain loop. Default: as many as cores, fewer where there is little to do.
    scheduler
        Address of a Dask scheduler that is already there.

    """
    from pipeline import caption_runs, loading

    _check_workers(workers)
    if (root or dedup) and not dataset:
        raise BadSetting(f"--{'root' if root else 'dedup'} is about --dataset, which is not given")
    stage = replace(stage, features=stage.features.absolute(), interest=_commas(stage.interest))
    manifest = loading.load(dataset, root, None, dedup, stage.allow_pickle) if dataset else None
    return caption_runs.tag(stage, manifest, workers, scheduler)


@run.command(name="idf")
def _idf(
    stage: Annotated[Idf, Parameter(name="*")] = IDF,
    *,
    plot: Path | None = None,
    most: int = 20,
    json_: Json = False,
    workers: int | None = None,
    scheduler: str = "",
) -> int:
    """Weigh the words of a feature file's captions by inverse document frequency. Tags them first if need be.

    Parameters
    ----------
    plot
        Picture of the highest and lowest idf to draw, .svg or .png.
    most
        How many words of each kind are listed.
    workers
        Worker processes; 0 is a plain loop. Default: as many as cores, fewer where there is little to do.
    scheduler
        Address of a Dask scheduler that is already there.

    """
    from pipeline import caption_runs, printing, wordstats

    _check_workers(workers)
    if most < 1:
        raise BadSetting(f"--most {most}: expected 1 or more")
    if plot is not None and plot.suffix not in wordstats.PICTURES:
        raise BadSetting(f"--plot {plot}: expected a name in {' or '.join(wordstats.PICTURES)}")
    stage = replace(stage, features=stage.features.absolute())
    if code := caption_runs.idf(stage, workers, scheduler):
        return code
    found = wordstats.summary(stage.features, most)
    if plot is not None:
        wordstats.plot(found, plot)
    return printing.print_json(found) if json_ else printing.print_all(wordstats.tables(found))


@run.command(name="merge")
def _merge(
    stage: Annotated[Merge, Parameter(name="*")] = MERGE, *, workers: int | None = None, scheduler: str = ""
) -> int:
    """Merge short neighbouring captions of HowTo100M into texts of ten words or more, in a captions-only feature file.

    Parameters
    ----------
    workers
        Worker processes; 0 is a plain loop. Default: as many as cores, fewer where there is little to do.
    scheduler
        Address of a Dask scheduler that is already there.

    """
    from pipeline import caption_runs

    _check_workers(workers)
    return caption_runs.merge(replace(stage, out=stage.out.absolute()), workers, scheduler)


@app.command(name="join")
def _join(files: Annotated[list[Path], Parameter(required=True)], /, *, out: Path) -> int:
    """Join feature files of one data set: the first file's captions, all files' streams.

    Parameters
    ----------
    files
        Feature files or folders of shards. Tables come from the first that has them, rows from the last.
    out
        Feature file to write.

    """
    from pipeline import joining, printing

    return printing.print_lines(joining.join(files, out))


@app.command(name="list")
def _list(*, presets: bool = False, json_: Json = False) -> int:
    """List extractors with their presets, data sets and stages.

    Parameters
    ----------
    presets
        Only the presets, each with what it sees, where its choices come from, and what differs from that.

    """
    from pipeline import printing

    return printing.print_presets(json_) if presets else printing.print_names(json_)


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

    problems, coverage = report.verify(file), [*report.coverage(file), *report.incomplete(file)]
    if json_:
        printing.print_json({"path": str(file), "problems": problems, "coverage": coverage})
    else:
        printing.print_lines([*coverage, *problems, f"{file}: {len(problems) or 'no'} problems"])
    return 1 if problems else 0


@app.command(name="repair")
def _repair(file: Path, /) -> int:
    """Take damaged rows out of a feature file: they count as missing, and the next `pipeline run extract` makes them.

    Parameters
    ----------
    file
        A feature file, a folder of shards, or a shard.

    """
    from pipeline import printing, repairing

    found = repairing.repair(file)
    cure = "; run `pipeline run extract` again" if found else ""
    return printing.print_lines([*found, f"{file}: {len(found) or 'no'} videos taken out{cure}"])


def _commas(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for text in values for name in text.split(",") if name)


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 0:
        raise BadSetting(f"--workers {workers}: expected 0 or more")


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
