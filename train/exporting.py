"""`train export-features`: what a checkpoint's video encoder makes of all videos, a new stream of a feature file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.derived import NewStream, check_out, of_features
from pipeline.errors import BadFeatureFile, BadSetting, PipelineError
from pipeline.progress import Progress
from pipeline.records import Outcome
from train import checkpoint
from train.config import Run
from train.loading import Trained, device_for, opened
from train.settings import TASKS, Windows
from train.whole import Videos, sight, videos_with_rows, windowed


def export(
    path: Path,
    features: Path | None,
    out: Path,
    name: str = "",
    windows: Windows | None = None,
    dtype: Literal["float16", "float32"] = "float16",
) -> list[str]:
    """Write the new stream and the tables of the feature file to `out`; return lines on what is there.

    A row for each video token, on the grid of the slowest stream: the encoder's output, where texts are. An encoder
    that sees rows one by one gives each its own; another one goes over the video in windows, and what these share is
    averaged. `name`: of the stream; by default METHOD:FOLDER of the run. Raises BadSetting, and what reading raises.
    """
    check_out(out)
    with opened(path, features) as found:
        run = found.run
        check_encoder(run, "exported features are")
        name = name or f"{run.method}:{checkpoint.folder_of(path).resolve().name}"
        check_name(name)
        ids = found.features.videos["id"]
        videos, _ = videos_with_rows(found.features, np.arange(len(ids)), run.data.streams)
        if not len(videos):
            raise BadFeatureFile(f"{run.data.features}: no video has rows in {', '.join(run.data.streams)}")
        seen = sight(run, videos.rate, windows or Windows())
        settings = _settings(found, checkpoint.best(path), videos.rate, seen)
        made_with = {"torch": torch.__version__, "device": str(device_for(run))}
        stream = NewStream(name, settings, made_with, int(found.words.encoder.dim), np.dtype(dtype))
        of_features(found.features, out, stream, run.data.streams, _rows(found, videos, stream, seen))
        return [
            f"{out}: stream {name} of {len(videos):,} of {len(ids):,} videos, {stream.dim} numbers a row, "
            f"{videos.rate:g} rows a second; `train --streams {name}` trains on it, `pipeline join` adds others"
        ]


def check_name(name: str) -> None:
    """Raise BadSetting for a name that no stream can have: a feature file has folders, and --streams has commas."""
    if not name.strip() or set(name) & set("/,") or name == ".":
        raise BadSetting(f"--name {name}: expected a name without / and commas, such as locvtp:run")


def check_encoder(run: Run, what: str) -> None:
    """Raise BadSetting unless the run has a video encoder whose tokens are where texts are."""
    if run.method not in TASKS["retrieval"]:
        raise BadSetting(
            f"a checkpoint of --method {run.method}: {what} of {', '.join(TASKS['retrieval'])}; choose another"
        )


def _settings(found: Trained, file: Path, rate: float, seen: tuple[int, int]) -> dict[str, Any]:
    """Return everything that rows depend on."""
    run = found.run
    with file.open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    return {
        "chain": {"fps": rate},
        "frames": 1,
        "method": run.method,
        "method_settings": dataclasses.asdict(run.method_settings),
        "sources": {source: found.features.stream(source).settings for source in run.data.streams},
        "window": dict(zip(("tokens", "stride"), seen, strict=True)) if run.method_settings.contextual else {},
        "step": found.step,
        "weights": {"file": file.name, "sha256": digest},
    }


def _rows(
    found: Trained, videos: Videos, stream: NewStream, seen: tuple[int, int]
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (place, rows) of each video."""
    ids = found.features.videos["id"]
    with Progress(len(videos)) as progress:
        for place, x in zip(videos.places, windowed(found, videos, seen, lambda _, tokens: tokens), strict=True):
            with np.errstate(over="ignore"):
                rows = x.astype(stream.dtype)
            if not np.isfinite(x).all():
                raise PipelineError(f"{ids[place]}: a row is NaN or infinite; look for NaN in the checkpoint's weights")
            if not np.isfinite(rows).all():
                raise BadSetting(f"{ids[place]}: a row is beyond the range of {stream.dtype}; give --dtype float32")
            progress.add(Outcome(str(ids[place]), "ok"))
            yield int(place), rows
