"""Step localisation: `train evaluate --task steps`, when each step of a task happens in a video (CrossTask).

A checkpoint's likeness of each second to the text of each step, through `train/placement.py`. No step's annotation is
trained on: the training videos of a split only choose the temperature.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pipeline.errors import BadFeatureFile, BadSetting
from train import methods
from train.annotated import Annotated, Task, clips_of, embedded, tasks_of
from train.exporting import check_encoder
from train.loading import Trained, made_from, opened
from train.pictures import Album, Query, timeline
from train.placement import Found, Result, Video, best_temperature, log_shares, over_seeds, place, split
from train.placement import evaluate as judged
from train.settings import Placing, Windows
from train.whole import by_second, sight, videos_with_rows, windowed

TEMPERATURES = tuple(10.0**power for power in np.arange(-2, 2.01, 0.5))
"""Tried on training videos, in standard deviations of the likeness."""
DRAWN = 4
"""Videos of which a timeline is drawn."""


def evaluate(
    path: Path, features: Path | None, part: str, placing: Placing, windows: Windows, album: Album | None = None
) -> dict[str, Any]:
    """Return recall on the videos of a part that are not drawn to choose the temperature, over several draws."""
    with opened(path, features) as found:
        check_encoder(found.run, "steps are placed by the likeness")
        part = part or _only_part(found)
        tasks, names = tasks_of(found.features), found.features.videos["id"]
        of_tasks = [clip for clip in clips_of(found.features, part) if clip.label in tasks]
        clips = [clip for clip in of_tasks if len(clip.spans)]
        if not clips:
            raise BadFeatureFile(f"{found.run.data.features}: no clip of {part} has annotated steps of a primary task")
        likeness = _likeness(found, clips, tasks, windows)
        by_clip = {
            clip.id: (Video(clip.label, len(tasks[clip.label].steps), clip.spans, clip.numbers), one)
            for clip, one in zip(clips, likeness, strict=True)
        }
        results = [_on_split(clips, by_clip, placing.per_task, seed) for seed in range(placing.splits)]
        if album:
            _draw(album, clips, tasks, by_clip, results[0].temperature)
        spread = over_seeds(results)
        return {
            **made_from(found.run),
            "task": "steps",
            "checkpoint": str(path),
            "step": found.step,
            "dataset": str(found.features.parts[0].attrs.get("dataset", "")),
            "part": part,
            "annotated": len(clips),
            "not_annotated": len(of_tasks) - len(clips),
            "per_task": placing.per_task,
            "names": {task.id: task.name for task in tasks.values()},
            "numbers": {name.replace("_", " "): one.mean for name, one in spread.items()},
            "spread": {name.replace("_", " "): one.sd for name, one in spread.items() if placing.splits > 1},
            "splits": [one.as_dict() for one in results],
            "without_features": sorted({str(names[c.video]) for c in clips if by_clip[c.id][1] is None}),
        }


def _only_part(found: Trained) -> str:
    """Return the part to draw from where none is named: the only `train` there is."""
    there = [part for part in found.features.parts_of_splits() if part.endswith("/train")]
    if len(there) != 1:
        raise BadSetting(f"--part is needed: the file has {', '.join(found.features.parts_of_splits()) or 'no split'}")
    return there[0]


def _likeness(
    found: Trained, clips: list[Annotated], tasks: dict[str, Task], windows: Windows
) -> list[NDArray[np.float64] | None]:
    """Return (seconds, steps) of each clip, in standard deviations over all; None without features."""
    run, model = found.run, found.model
    texts = {task.id: embedded(found, list(task.steps)) for task in tasks.values()}
    alike = methods.get(run.method).alike
    places = np.array([clip.video for clip in clips])
    videos, there = videos_with_rows(found.features, places, run.data.streams)
    if not len(videos):
        raise BadFeatureFile(f"{run.data.features}: no annotated video has rows in {', '.join(run.data.streams)}")
    own = [clip for clip, is_there in zip(clips, there, strict=True) if is_there]
    every = windowed(
        found, videos, sight(run, videos.rate, windows),
        lambda at, tokens: alike(model, tokens, texts[own[at].label], run.method_settings),
    )  # fmt: skip
    found_ones = [by_second(x, videos.rate) for x in every]
    unit = float(np.concatenate([x.ravel() for x in found_ones]).std()) or 1.0
    left = iter(found_ones)
    return [next(left) / unit if is_there else None for is_there in there]


def _on_split(clips: list[Annotated], by_clip: dict[str, Found], per_task: int, seed: int) -> Result:
    of_task: dict[str, list[str]] = {}
    for clip in clips:
        of_task.setdefault(clip.label, []).append(clip.id)
    drawn = split(of_task, per_task, seed)
    temperature = best_temperature([by_clip[name] for name in drawn.train], TEMPERATURES)
    return judged([by_clip[name] for name in drawn.test], temperature)


def _draw(
    album: Album, clips: list[Annotated], tasks: dict[str, Task], by_clip: dict[str, Found], temperature: float
) -> None:
    """Draw a timeline of all steps of some of the clips that are as long as their steps."""
    there = [(clip, one) for clip in clips if (one := by_clip[clip.id][1]) is not None]
    long = [(clip, one, tasks[clip.label]) for clip, one in there if len(one) >= one.shape[1]]
    for clip, likeness, task in long[:: max(1, len(long) // DRAWN)][:DRAWN]:
        logs = log_shares(likeness, temperature)
        queries = [
            Query(
                f"{number + 1} {step}", float(len(likeness)),
                [(float(a), float(b)) for a, b in clip.spans[clip.numbers == number]],
                [(float(at), float(at) + 1, float(likeness[at, number]))],
            )
            for number, (step, at) in enumerate(zip(task.steps, place(logs).tolist(), strict=True))
        ]  # fmt: skip
        timeline(album.file(f"steps-{clip.id}"), queries, f"{task.name}, {clip.id}")


def show(found: dict[str, Any]) -> None:
    """Print the recall of each task and their mean, over the splits, beside steps at equal distances."""
    console, splits = Console(), found["splits"]
    title = f"{found['dataset']}, {found['part']}, step {found['step']}: step localisation, recall in %"
    table = Table(title=title, title_justify="left", caption_justify="left")
    for column, side in (("", "left"), ("recall", "right"), ("± over splits", "right")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for task in sorted({name for one in splits for name in one["tasks"]}):
        values = [one["tasks"][task] for one in splits if task in one["tasks"]]
        table.add_row(found["names"].get(task, task), f"{100 * fmean(values):.1f}", "")
    table.add_section()
    judged, known = len(splits[0]["tasks"]), len(found["names"])
    said = {
        "recall": f"mean of {judged} tasks" + f", {known - judged} others have no video" * (judged < known),
        "recall with features": "  of videos with features",
        "uniform": "steps at equal distances",
        "uniform with features": "  of videos with features",
    }
    for name, words in said.items():
        spread = f"{100 * found['spread'][name]:.1f}" if name in found["spread"] else ""
        table.add_row(words, f"{100 * found['numbers'][name]:.1f}", spread)
    console.print(table)
    one = splits[0]
    console.print(
        f"{found['annotated']:,} annotated videos; {found['not_annotated']:,} others of these tasks have no steps. "
        f"Each of {len(splits)} splits draws {found['per_task']} of a task to choose the temperature (first split: "
        f"{one['temperature']:.3g} standard deviations) and tests on the others: "
        f"{one['videos']:,} videos with {one['steps']:,} steps, of which {one['past_end']:,} begin past the last row; "
        f"{one['without_features']:,} videos without features and {one['too_short']:,} shorter than their steps are "
        "missed",
        highlight=False,
    )
