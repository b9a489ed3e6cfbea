"""The commands of `train` that use what was trained: evaluate, export-features, segment, probe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from pipeline.errors import BadSetting
from train import ranges
from train.settings import Placing, Probing, Segmenting, Windows

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
PlotFormat = Literal["svg", "png"]
PLACING, WINDOWS, SEGMENTING, PROBING = Placing(), Windows(), Segmenting(), Probing()
RANKING = {"rerank": 0, "normalise": "none", "bank": 16_384, "iterations": 4, "beta": 20.0, "weights": ""}
"""Flags of `train evaluate` that are for retrieval, with their defaults."""


def evaluate(  # noqa: PLR0913 - flags
    *,
    checkpoint: Path,
    features: Path | None = None,
    part: str = "",
    task: Literal["", "steps"] = "",
    rerank: int = 0,
    normalise: Literal["none", "bank", "oracle", "dis", "is", "dsl"] = "none",
    bank: int = 16_384,
    iterations: int = 4,
    beta: float = 20.0,
    weights: str = "",
    placing: Annotated[Placing, Parameter(name="*", group="Steps")] = PLACING,
    windows: Annotated[Windows, Parameter(name="*", group="Steps")] = WINDOWS,
    out: Path | None = None,
    plots: Path | None = None,
    plot_format: PlotFormat = "svg",
    json_: Json = False,
) -> int:
    """Evaluate a checkpoint for what it was trained for, on its own feature file or on another one (zero-shot).

    Flags from `rerank` to `weights` are for retrieval.

    Parameters
    ----------
    checkpoint
        A checkpoint, or the folder of a run: its best one, else its last.
    features
        Feature file with the same streams; default: the run's.
    part
        SPLIT/PART to evaluate on, or `all`; default: the run's. With --task steps: where videos are drawn from.
    task
        `steps`: when each step of a task happens in a video, by a retrieval checkpoint (CrossTask).
    rerank
        Fuse only each caption's best M clips by the other scores; 0: all pairs.
    normalise
        Also scores evened out, so that no clip is everybody's answer: by NCL's biases from train queries (bank) or from
        all test queries (oracle), by QB-Norm from train queries (dis, is), by dual softmax from all test queries (dsl).
    bank
        Train captions, drawn by chance, that stand in for the test's.
    iterations
        Of Sinkhorn, for bank and oracle.
    beta
        QB-Norm's inverse temperature, for cosines.
    weights
        Of the levels of score, for a level that is their sum, as in `early=1,token=0.1,later=1`; default: those that
        the run has chosen on its validation clips, if it had any.
    out
        Also write the results to this JSON file.
    plots
        Folder for pictures of some examples: timelines of moments or steps; of LocVTP, which words each clip goes with,
        and how like warped clips are to them.
    plot_format
        svg or png.

    """
    from train import figures
    from train.checkpoint import folder_of
    from train.config import read
    from train.pictures import Album
    from train.tasks import grounding, retrieval, steps

    for name, value, least in (("bank", bank, 1), ("iterations", iterations, 1), ("rerank", rerank, 0)):
        if value < least:
            raise BadSetting(f"--{name} {value}: expected {least} or more")
    trained_for = read(folder_of(checkpoint)).task
    if task == "steps" or trained_for == "grounding":
        given = (rerank, normalise, bank, iterations, beta, weights)
        _unused(dict(zip(RANKING, given, strict=True)), RANKING, "retrieval")
    _check(placing, PLACING, task == "steps", "--task steps")
    _check(windows, WINDOWS, task == "steps", "--task steps")
    make(plots)
    album = None if plots is None else Album(plots, plot_format)
    if task == "steps":
        results = steps.evaluate(checkpoint, features, part, placing, windows, album)
    elif trained_for == "grounding":
        results = grounding.evaluate(checkpoint, features, part, album)
    else:
        if album:
            figures.draw(album, checkpoint, features, part)
        evening = retrieval.Evening(normalise, bank, iterations, beta)
        levels = retrieval.weights_of(weights)
        results = retrieval.evaluate(checkpoint, features, part, rerank, evening, levels)
    return said(results, out, json_)


def export_features(
    *,
    checkpoint: Path,
    out: Path,
    features: Path | None = None,
    name: str = "",
    windows: Annotated[Windows, Parameter(name="*")] = WINDOWS,
    dtype: Literal["float16", "float32"] = "float16",
) -> int:
    """Write what a checkpoint's video encoder makes of all videos, as a new stream of a feature file.

    The new file has the tables of the old one: any command takes it. `pipeline join` puts both streams into one.

    Parameters
    ----------
    checkpoint
        A checkpoint of TACo, LocVTP or NCL, or the folder of a run: its best one, else its last.
    out
        The new feature file.
    features
        Feature file with the same streams; default: the run's.
    name
        Of the stream; default: METHOD:FOLDER of the run.
    dtype
        Type of the stored rows.

    """
    from train import exporting

    _check(windows, WINDOWS)
    for line in exporting.export(checkpoint, features, out, name, windows, dtype):
        print(line)
    return 0


def segment(  # noqa: PLR0913 - flags
    *,
    features: Path | None = None,
    checkpoint: Path | None = None,
    streams: tuple[str, ...] = (),
    split: str = "coin",
    settings: Annotated[Segmenting, Parameter(name="*", group="Head")] = SEGMENTING,
    windows: Annotated[Windows, Parameter(name="*", group="With a checkpoint")] = WINDOWS,
    device: str = "auto",
    out: Path = Path("runs/segment"),
    force: bool = False,
    plot_format: PlotFormat = "svg",
    json_: Json = False,
) -> int:
    """Train a linear head on frozen rows to say which step every second of a video belongs to (COIN), and evaluate it.

    Parameters
    ----------
    features
        Feature file with annotated steps; default: the checkpoint's run's.
    checkpoint
        Rows are what this checkpoint's video encoder makes of them; without one they are taken as they are.
    streams
        Streams to take, separated by commas; default: all there are.
    split
        Its part `train` to train on, its part `test` to report on.
    device
        auto, cpu, cuda or cuda:N.
    out
        Folder for results.json, head.pt, confusion.npy (all classes), and pictures: bars of some videos, and the
        confusion of the classes with most seconds.
    force
        Write over the results that are there.
    plot_format
        svg or png.

    """
    from train.pictures import Album
    from train.tasks import segmentation

    _check(settings, SEGMENTING)
    if settings.zero_shot:
        _unused(vars(settings), vars(SEGMENTING), "a trained head", ("epochs", "batch", "lr", "weight_decay"))
    else:
        _unused(vars(settings), vars(SEGMENTING), "--zero-shot", ("threshold_by",))
    _check(windows, WINDOWS, checkpoint is not None, "--checkpoint")
    if (out / "results.json").exists() and not force:
        raise BadSetting(f"--out {out} holds results already; another folder, or --force")
    make(out)
    where = (features, checkpoint, listed(streams))
    return said(segmentation.segment(where, split, settings, windows, device, Album(out, plot_format)), None, json_)


def probe(  # noqa: PLR0913 - flags
    *,
    features: Path | None = None,
    checkpoint: Path | None = None,
    streams: tuple[str, ...] = (),
    split: str = "",
    settings: Annotated[Probing, Parameter(name="*")] = PROBING,
    out: Path | None = None,
    json_: Json = False,
) -> int:
    """Probe what single rows tell of their place in the video (order and distance, LocVTP), or of labels.

    Parameters
    ----------
    features
        Feature file; default: the checkpoint's run's.
    checkpoint
        Also probe what this checkpoint makes of each row by itself, beside the rows as they are.
    streams
        Streams to probe one by one, separated by commas; default: all there are, or those of the checkpoint.
    split
        Train on its part `train`, test on `test`, else `val`; default: videos drawn by chance, see --share.
    out
        Also write the results to this JSON file.

    """
    from train.tasks import probes

    _check(settings, PROBING)
    given, usual = vars(settings), vars(PROBING)
    if settings.labels:
        _unused(given, usual, "order and distance", ("clips",))
    else:
        _unused(given, usual, "--labels", ("rows",))
    if split:
        _unused(given, usual, "videos that are drawn, without --split", ("share",))
    return said(probes.probe(features, checkpoint, listed(streams), split, settings), out, json_)


def listed(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return names one by one that commas may separate."""
    return tuple(name for word in words for name in word.split(",") if name)


def _check(settings: Any, usual: Any, used: bool = True, by: str = "") -> None:
    """Raise BadSetting for a number that cannot be, and for settings that nothing uses."""
    ranges.check(settings)
    if not used:
        _unused(vars(settings), vars(usual), by)


def _unused(given: Mapping[str, Any], usual: Mapping[str, Any], by: str, names: Sequence[str] = ()) -> None:
    """Raise BadSetting for settings of these names, or of all, that differ from the usual ones: only `by` uses them."""
    for name in names or usual:
        if given[name] != usual[name]:
            raise BadSetting(f"--{name.replace('_', '-')} is for {by}; leave it out")


def make(folder: Path | None) -> None:
    """Make a folder. Raises BadSetting."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"cannot make the folder {folder}: {error.strerror}; choose another one") from error


def said(results: dict[str, Any], out: Path | None, as_json: bool) -> int:
    """Print results, and write them to a file; return the exit code."""
    from train import processes, tasks

    if processes.rank():  # the first one speaks for all
        return 0
    if out:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(results, indent=2), encoding="utf-8")
        except OSError as error:
            raise BadSetting(f"cannot write --out {out}: {error.strerror}; choose another file") from error
    print(json.dumps(results, indent=2)) if as_json else tasks.get(str(results["task"])).show(results)
    return 0
