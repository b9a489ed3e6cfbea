"""The command `train`: flags to functions, and errors to one line."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter

from pipeline.errors import PipelineError, unknown
from train import cli_tasks
from train.cli_tasks import Json, said
from train.config import Data, Fit, Run, check, device_of, located, parts_of, read
from train.presets import expanded
from train.settings import TASKS, Locvtp, Ncl, Spans, Taco, Tan2d

app = App(
    name="train",
    help="Feature file to checkpoints and scores.",
    version_flags=[],
    default_parameter=Parameter(show_env_var=False, negative_iterable=()),
)

FIT, TACO, LOCVTP, NCL = Fit(), Taco(), Locvtp(), Ncl()
TAN2D, SPANS = Tan2d(), Spans()


@app.default
def _train(  # noqa: PLR0913 - flags
    data: Annotated[Data, Parameter(name="*"), Group("Data")],
    fit: Annotated[Fit, Parameter(name="*")] = FIT,
    taco: Annotated[Taco, Parameter(name="*", group="TACo")] = TACO,
    locvtp: Annotated[Locvtp, Parameter(name="locvtp", group="LocVTP")] = LOCVTP,
    ncl: Annotated[Ncl, Parameter(name="ncl", group="NCL")] = NCL,
    *,
    method: str = "taco",
    preset: str = "",  # noqa: ARG001 - `expanded` has put its flags in its place
    out: Path = Path("runs/run"),
    force: bool = False,
    json_: Json = False,
) -> int:
    """Train on the cached features of a feature file, and evaluate text-video retrieval.

    Parameters
    ----------
    method
        taco, locvtp or ncl. The defaults below are TACo's; locvtp and ncl without a preset take their own paper's.
    preset
        A paper's settings: `train list` names them. Flags beside it win.
    out
        Folder of the run: settings, checkpoints, metrics.jsonl, curves.svg, results.json.
    force
        Begin again where a run is there.

    """
    settings = {"taco": taco, "locvtp": locvtp, "ncl": ncl}
    return _begin(Run(data, fit, method, settings.get(method), ("", "", "")), settings, out, force, json_)


@app.command(name="ground")
def _ground(  # noqa: PLR0913 - flags
    data: Annotated[Data, Parameter(name="*"), Group("Data")],
    fit: Annotated[Fit, Parameter(name="*")] = FIT,
    tan2d: Annotated[Tan2d, Parameter(name="*", group="2D-TAN")] = TAN2D,
    spans: Annotated[Spans, Parameter(name="spans", group="Spans")] = SPANS,
    *,
    method: str = "tan2d",
    preset: str = "",  # noqa: ARG001 - `expanded` has put its flags in its place
    out: Path = Path("runs/ground"),
    force: bool = False,
    json_: Json = False,
) -> int:
    """Train to find the moment of a video that a sentence tells of, on the captions of a split and their spans.

    Parameters
    ----------
    method
        tan2d or spans. Without a preset both take 2D-TAN's settings for ActivityNet Captions.
    preset
        Settings for a data set: `train list` names them. Flags beside it win.
    out
        Folder of the run: settings, checkpoints, metrics.jsonl, curves.svg, results.json.
    force
        Begin again where a run is there.

    """
    settings = {"tan2d": tan2d, "spans": spans}
    run = Run(data, fit, method, settings.get(method), ("", "", ""), "grounding")
    return _begin(run, settings, out, force, json_)


def _begin(run: Run, settings: dict[str, Any], out: Path, force: bool, json_: bool) -> int:
    """Choose the parts of the split, check all settings, train, and print the results."""
    from pipeline.store import Features

    if run.method not in settings:
        raise unknown("method", run.method, settings)
    with Features.open(run.data.features) as features:
        there, weighed = features.parts_of_splits(), features.weighed_over()
    run = located(replace(run, parts=parts_of(run.data, there, weighed.split("/")[0])))
    check(run, settings)
    from train import processes, runs

    with processes.together(device_of(run.fit.device)):
        return said(runs.start(run, out, force), None, json_)


@app.command(name="resume")
def _resume(run: Path, /, *, json_: Json = False) -> int:
    """Go on from the last checkpoint of a run, as if it had never stopped.

    Parameters
    ----------
    run
        Folder of the run.

    """
    from train import processes, runs

    with processes.together(device_of(read(run).fit.device)):
        return said(runs.resume(run), None, json_)


app.command(cli_tasks.evaluate, name="evaluate")
app.command(cli_tasks.export_features, name="export-features")
app.command(cli_tasks.segment, name="segment")
app.command(cli_tasks.probe, name="probe")


@app.command(name="list")
def _list() -> int:
    """List methods and presets."""
    from rich.console import Console
    from rich.table import Table

    from train.presets import PRESETS

    table = Table(title="presets: --preset NAME stands for these flags; one that is given beside it wins")
    table.add_column("name", no_wrap=True)
    table.add_column("flags")
    for name, flags in PRESETS.items():
        table.add_row(name, " ".join(f"{flag} {value}".strip() for flag, value in flags.items()))
    for task, methods in TASKS.items():
        print(f"{task}: {', '.join(methods)}")
    Console().print(table)
    return 0


@app.command(name="compare")
def _compare(runs: Annotated[list[Path], Parameter(required=True)], /, *, json_: Json = False) -> int:
    """Compare the results of runs, and say in which settings they differ.

    Parameters
    ----------
    runs
        Folders of runs.

    """
    from train import comparing

    found = comparing.compare(runs)
    print(json.dumps(found, indent=2)) if json_ else comparing.show(found)
    return 0


def main(words: list[str] | None = None) -> None:
    """Run `train WORDS`; exit code 2 when the command was wrong."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for other in ("httpx", "matplotlib"):  # what they have to say is for their own developers
        logging.getLogger(other).setLevel(logging.WARNING)
    try:
        words = expanded(sys.argv[1:] if words is None else words)
        sys.exit(int(app(words, exit_on_error=False, print_error=False, result_action="return_value") or 0))
    except (PipelineError, CycloptsError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; `train resume` goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
