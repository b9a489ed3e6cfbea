"""Step localisation (CrossTask): when each step of a task happens in a video, from seconds' likeness to steps' texts.

    logs = log_shares(similarity, temperature)              # (T, K)
    seconds = place(logs)                                   # (K,)
    result = evaluate([(video, similarity), …], temperature)

Source: Zhukov et al., "Cross-task weakly supervised learning from instructional videos", CVPR 2019, as its code and
VideoCLIP's have it. T seconds, one row of features each; K steps of the task, in order. Each of the K steps is placed
on exactly one second, in strict order, whether it happens or not: a hit, if the second lies in one of its annotated
spans. The recall of a task is its hits through its (video, step) pairs that were annotated; the result is the plain
mean over tasks, 18 in the paper.

What the published code leaves to chance or drops is stated here. Videos without features and those with fewer seconds
than steps count with all their annotated steps missed, and so does a step annotated past the last row; how many there
are is in the result. Beside it stands the recall among videos with features, which is what published figures are.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train.metrics import Spread, spread


@dataclass(frozen=True, eq=False)
class Video:
    """What was annotated of one video under one task."""

    task: str
    steps: int
    """K: steps of the task."""
    spans: Float[np.ndarray, "spans 2"]
    """Seconds [start, end); a step may have several spans, or none."""
    numbers: Int[np.ndarray, " spans"]
    """Which step each span is of, from 0."""


Found = tuple[Video, Float[np.ndarray, "_ _"] | None]
"""A video with the similarity (T, K) of its seconds to its task's steps; None without features."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One video, evaluated."""

    task: str
    seconds: int
    """Rows of features; 0 without any."""
    placed: bool
    """Whether it has features, and as many seconds as its task has steps."""
    present: Bool[np.ndarray, " steps"]
    """Which steps were annotated."""
    hit: Bool[np.ndarray, " steps"]
    past_end: int = 0
    """Annotated steps that begin after the last row, of a video that was placed."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Step localisation on a part of the data; recalls are fractions."""

    recall: float
    """Mean over tasks of all annotated videos' recall: what is missing is missed."""
    recall_with_features: float
    """The same without the videos, and tasks, that have no features; those that are too short stay, as missed."""
    uniform: float
    """`recall` of steps placed at equal distances, that look at nothing."""
    uniform_with_features: float
    tasks: dict[str, float]
    """`recall` of each task."""
    temperature: float
    videos: int
    """Annotated videos; `used` of them were placed."""
    used: int
    without_features: int
    too_short: int
    """Videos with fewer seconds than their task has steps: each annotated step is a miss."""
    steps: int
    """(video, step) pairs that were annotated: what is recalled."""
    past_end: int
    """Those of `used` videos that begin after the last row: misses that no placement can avoid."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Split:
    """Videos to fit and choose on, and those to report on."""

    train: tuple[str, ...]
    test: tuple[str, ...]


def log_shares(
    similarity: Float[np.ndarray, "seconds steps"], temperature: float
) -> Float64[np.ndarray, "seconds steps"]:
    """Return the log-softmax over the steps of each second, of similarity / temperature.

    Shares compare steps within a second, so what is like all steps is like none. The temperature decides how much a
    second that is sure outweighs several that are not, hence the best placement depends on it: choose it on training
    videos (`best_temperature`) and report it. Raises BadSetting for a temperature that is not above 0.

    >>> np.exp(log_shares(np.log([[1.0, 3.0]]), 1.0)).round(6).tolist()
    [[0.25, 0.75]]
    """
    if not temperature > 0:
        raise BadSetting(f"a temperature of {temperature}: it must be more than 0")
    logits = similarity.astype(np.float64) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    logs: Float64[np.ndarray, "seconds steps"] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logs


def place(scores: Float[np.ndarray, "seconds steps"]) -> Int64[np.ndarray, " steps"]:
    """Return the second of each step: strictly in order, with the greatest sum of scores.

    The dynamic programme of CrossTask with exactly one second a step and background at no cost, over states background,
    step 1, background, …, step K, background: only background may last, and a step may follow the step before at once.
    Among placements with the same sum it is the one that has every step as early as any of them has it.
    Raises BadSetting if there are fewer seconds than steps, PipelineError for scores that are not finite.

    >>> place(np.array([[0.0, 9.0], [2.0, 1.0], [2.0, 3.0], [0.0, 3.0]])).tolist()
    [1, 2]
    """
    seconds, steps = scores.shape
    if seconds < steps:
        raise BadSetting(f"{steps} steps in {seconds} seconds: each needs one of its own; leave the video out")
    if not np.isfinite(scores).all():
        raise PipelineError("scores of steps are NaN or infinite; look for NaN in the features and in the weights")
    sums = np.empty((steps, seconds))
    before = np.zeros(seconds)  # the best sum of the steps so far, all of them before each second
    for step in range(steps):
        sums[step] = before + scores[:, step]
        before = np.concatenate([[-np.inf], np.maximum.accumulate(sums[step])[:-1]])
    places = np.empty(steps, np.int64)
    end = seconds
    for step in reversed(range(steps)):
        places[step] = end = int(sums[step, :end].argmax())  # the first of equal ones
    return places


def uniform(seconds: int, steps: int) -> Int64[np.ndarray, " steps"]:
    """Return each step in the middle of its share of the video: the baseline that looks at nothing.

    Raises BadSetting if there are fewer seconds than steps.

    >>> uniform(10, 3).tolist()
    [1, 5, 8]
    """
    if seconds < steps:
        raise BadSetting(f"{steps} steps in {seconds} seconds: each needs one of its own; leave the video out")
    return (2 * np.arange(steps) + 1) * seconds // (2 * steps)


def truth(
    seconds: int, spans: Float[np.ndarray, "spans 2"], numbers: Int[np.ndarray, " spans"], steps: int
) -> Bool[np.ndarray, "seconds steps"]:
    """Return in which seconds each step happens: from floor(start) to ceil(end), as far as there are rows.

    Raises BadDataset for a number that is not one of the task's steps, from 0.

    >>> truth(4, np.array([[0.9, 2.1]]), np.array([1]), 2).astype(int).tolist()
    [[0, 1], [0, 1], [0, 1], [0, 0]]
    """
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < steps):
        raise BadDataset(
            f"steps {numbers.min()} to {numbers.max()} of a task that has {steps}, from 0; extract it again"
        )
    found = np.zeros((seconds, steps), bool)
    for (start, end), number in zip(spans, numbers, strict=True):
        found[int(np.floor(start)) : int(np.ceil(end)), number] = True
    return found


def judge(video: Video, seconds: int, places: Int[np.ndarray, " steps"] | None) -> Judged:
    """Return which annotated steps the places hit; without places, none. `seconds`: rows of features, 0 without any."""
    happens = truth(seconds, video.spans, video.numbers, video.steps)
    present = np.bincount(video.numbers, minlength=video.steps) > 0
    if places is None:
        return Judged(video.task, seconds, False, present, np.zeros_like(present))
    hit = happens[places, np.arange(video.steps)]
    return Judged(video.task, seconds, True, present, hit, int((present & ~happens.any(0)).sum()))


def recall(judged: Sequence[Judged]) -> dict[str, float]:
    """Return the recall of each task: its videos' hits through their steps that were annotated.

    A task without any such step is left out. Raises BadDataset if none is left. The published number is the mean of the
    values, in which a task counts the same whatever its videos and steps.
    """
    hits: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for one in judged:
        hits[one.task] += int(one.hit.sum())
        present[one.task] += int(one.present.sum())
    found = {task: hits[task] / count for task, count in present.items() if count}
    if not found:
        raise BadDataset("no video has both features and annotated steps; choose a part of the data set that has some")
    return found


def evaluate(found: Sequence[Found], temperature: float) -> Result:
    """Evaluate videos by their similarities. Raises what `log_shares`, `place` and `recall` raise, and BadSetting."""
    placed = [_placed(video, similarity, temperature) for video, similarity in found]
    evenly = [
        judge(video, one.seconds, uniform(one.seconds, video.steps) if one.placed else None)
        for (video, _), one in zip(found, placed, strict=True)
    ]
    tasks = recall(placed)
    return Result(
        recall=statistics.fmean(tasks.values()),
        recall_with_features=_mean(one for one in placed if one.seconds),
        uniform=_mean(evenly),
        uniform_with_features=_mean(one for one in evenly if one.seconds),
        tasks=tasks,
        temperature=temperature,
        videos=len(placed),
        used=sum(one.placed for one in placed),
        without_features=sum(not one.seconds for one in placed),
        too_short=sum(one.seconds > 0 and not one.placed for one in placed),
        steps=sum(int(one.present.sum()) for one in placed),
        past_end=sum(one.past_end for one in placed),
    )


def _placed(video: Video, similarity: Float[np.ndarray, "seconds steps"] | None, temperature: float) -> Judged:
    if similarity is None or not len(similarity):
        return judge(video, 0, None)
    if similarity.shape[1] != video.steps:
        raise BadSetting(f"similarity to {similarity.shape[1]} steps, but task {video.task} has {video.steps}")
    if len(similarity) < video.steps:
        return judge(video, len(similarity), None)
    return judge(video, len(similarity), place(log_shares(similarity, temperature)))


def _mean(judged: Iterable[Judged]) -> float:
    return statistics.fmean(recall(list(judged)).values())


def best_temperature(train: Sequence[Found], temperatures: Sequence[float]) -> float:
    """Return the temperature with the best mean recall on training videos; the first of equal ones."""
    return max(temperatures, key=lambda temperature: _mean(_placed(*one, temperature) for one in train))


def split(videos: Mapping[str, Sequence[str]], per_task: int = 30, seed: int = 0) -> Split:
    """Return a random split: `per_task` videos of each task to train on, the others to test on.

    `videos`: the annotated clips of each primary task, of the part `train`: `videos_val.csv` is no part of the draw.
    Draw among all annotated clips and not only among those with features, else the split depends on what could be
    downloaded, as VideoCLIP's does. The published code draws without a seed: report a spread over several. What one
    task draws depends on the seed and on its own clips, in any order. (No video stands under two primary tasks.)
    Raises BadSetting for a task that would have nothing left to test on.
    """
    train, test = list[str](), list[str]()
    for task in sorted(videos):
        names = sorted(videos[task])
        if len(names) <= per_task:
            raise BadSetting(
                f"task {task} has {len(names)} videos: {per_task} to train on leave none; fewer --per-task do"
            )
        order = np.random.default_rng([seed, *task.encode()]).permutation(len(names))
        train += [names[place] for place in sorted(order[:per_task])]
        test += [names[place] for place in sorted(order[per_task:])]
    return Split(tuple(train), tuple(test))


def over_seeds(results: Sequence[Result]) -> dict[str, Spread]:
    """Return mean and standard deviation of the recalls over the splits of several seeds."""
    names = "recall", "recall_with_features", "uniform", "uniform_with_features"
    return {name: spread([getattr(result, name) for result in results]) for name in names}
