"""The steps that are annotated in the clips of a feature file, and the tasks that these are of."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from pipeline.errors import BadFeatureFile, unknown
from pipeline.store import Features
from train import text
from train.config import Run
from train.loading import Trained, device_for


@dataclass(frozen=True, eq=False)
class Annotated:
    """One clip, which is a whole video, with its steps in the order of time."""

    id: str
    video: int
    """Place in the feature file."""
    label: str
    """What the data set says the clip is: of CrossTask, its task."""
    spans: Float64[np.ndarray, "spans 2"]
    """Seconds [start, end) in the video."""
    numbers: Int64[np.ndarray, " spans"]
    """Which step each is: of CrossTask by its place in the task, from 0; of COIN the data set's number, from 1."""


@dataclass(frozen=True)
class Task:
    """A task, such as a recipe, and its steps in order."""

    id: str
    name: str
    steps: tuple[str, ...]


def clips_of(features: Features, part: str) -> list[Annotated]:
    """Return the clips of SPLIT/PART, or of `all`. Raises BadFeatureFile without any step, and UnknownName.

    Raises BadFeatureFile for steps of a clip that is not a whole video, as rows are taken of whole ones.
    """
    path, clips, steps = features.parts[0].path, features.table("clips"), features.table("steps")
    if not len(steps.get("clip", ())):
        raise BadFeatureFile(f"{path} has no annotated steps; extract a data set that has some: crosstask or coin")
    chosen = features.table(f"splits/{part}")
    if not chosen and part != "all":
        raise unknown("part of a split", part, [*features.parts_of_splits(), "all"])
    places = chosen["clips"] if chosen else np.arange(len(clips["id"]))
    if not len(places):
        raise BadFeatureFile(f"{path}: {part} has no clips; choose another part")
    cut = np.flatnonzero((clips["start"] > 0) | ~np.isnan(clips["end"]))
    odd = np.intersect1d(cut, np.intersect1d(places, steps["clip"]))
    if len(odd):
        raise BadFeatureFile(
            f"{path}: clip {clips['id'][odd[0]]} has steps and is not a whole video; annotate them in clips that are"
        )
    order = steps["clip"].argsort(kind="stable")
    bounds = np.searchsorted(steps["clip"][order], [places, places + 1])
    found = []
    for place, first, last in zip(places, *bounds, strict=True):
        own = order[first:last]
        spans = np.stack([steps["start"][own], steps["end"][own]], axis=1).astype(np.float64)
        numbers = steps["number"][own].astype(np.int64)
        found.append(
            Annotated(str(clips["id"][place]), int(clips["video"][place]), str(clips["label"][place]), spans, numbers)
        )
    return found


def tasks_of(features: Features) -> dict[str, Task]:
    """Return the tasks that are evaluated, by id. Raises BadFeatureFile where there are none."""
    table = features.table("tasks")
    if not len(table.get("id", ())):
        raise BadFeatureFile(f"{features.parts[0].path} has no tasks with steps in order; extract crosstask")
    rows = zip(table["id"], table["name"], table["steps"], table["primary"], strict=True)
    return {str(id_): Task(str(id_), str(name), tuple(json.loads(steps))) for id_, name, steps, ok in rows if ok}


def names_of(features: Features) -> dict[int, str]:
    """Return the text of each step by its number."""
    steps = features.table("steps")
    return {int(number): str(label) for number, label in zip(steps["number"], steps["label"], strict=True)}


@torch.inference_mode()
def embedded(found: Trained, texts: list[str]) -> Tensor:
    """Return (texts, d) what the checkpoint makes of texts."""
    run: Run = found.run
    cut = text.pieces(found.words.tokenizer, texts, None, run.data.max_text_tokens).to(device_for(run))
    every = torch.arange(len(texts), device=cut.ids.device)
    made: Tensor = torch.cat([found.model.texts(cut.batch(some)) for some in every.split(256)])  # type: ignore[operator]
    return made
