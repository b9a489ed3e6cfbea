"""Action segmentation (COIN): which step every second of a video belongs to, from frozen rows.

    y = labels(seconds, spans, numbers)                     # (T,), 0 is background
    head = fit(x, y, classes=779, settings=Fitting())       # or `threshold` and `zero_shot`, by text
    result = scores(head.logits(x_test).argmax(1).numpy(), y_test, classes=779)
    print(table(result.as_dict()))

Source: Tang et al., "COIN", CVPR 2019, with the protocol of VideoCLIP (Xu et al., EMNLP 2021): 778 steps and
background, a label for every second of the whole video, frame accuracy over all seconds of all test videos.
Nearly 59 % of these seconds are background, so a model that never sees a step reaches a frame accuracy of 0.59, as one
published one does. Frame accuracy is therefore given together with what the best single class reaches, and with the
accuracies on the foreground and of the mean class. A network that looks at several seconds goes over a video in
`train.windows` of 32 s every 8 s, whose logits are averaged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64, Shaped
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from pipeline.errors import BadDataset, BadSetting
from train.linear import CHUNK, Head, standard

By = Literal["balanced", "frame"]
"""What a threshold is chosen by: the mean of the accuracies on background and on the foreground, or frame accuracy."""


@dataclass(frozen=True)
class Accuracies:
    """Fractions of seconds; NaN for the foreground where there is none."""

    frame: float
    """Of all seconds, background included: the published number."""
    foreground: float
    """Of the seconds that are not background."""
    mean_class: float
    """Mean over the classes that there are, background being one of them."""
    mean_class_foreground: float
    """Mean over the classes that there are but for background."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Segmentation:
    """Action segmentation, evaluated."""

    accuracy: Accuracies
    best_constant: Accuracies
    """What the one class reaches that serves a measure best, if all seconds are said to be of it: the majority."""
    seconds: int
    background: float
    """Share of the seconds."""
    classes: int
    """How many there are among the seconds, background included."""
    unpredicted: int
    """Seconds without a prediction: misses."""
    confusion: Int64[np.ndarray, "classes classes"]
    """Seconds by (true class, predicted class), those without a prediction left out."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON, all but the confusion matrix, which is an array to be stored."""
        found: dict[str, Any] = {
            name: {key: None if math.isnan(value) else value for key, value in dataclasses.asdict(one).items()}
            for name, one in (("accuracy", self.accuracy), ("best_constant", self.best_constant))
        }
        names = ("seconds", "background", "classes", "unpredicted")
        return found | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How a head is fitted."""

    epochs: int = 10
    batch: int = 1024
    lr: float = 3e-3
    """Adam's rate at the beginning; it falls to 0 linearly."""
    weight_decay: float = 0.0
    seed: int = 0
    """Of the order of the rows."""


def labels(
    seconds: int, spans: Float[np.ndarray, "spans 2"], numbers: Int[np.ndarray, " spans"]
) -> Int64[np.ndarray, " seconds"]:
    """Return the label of each second: 0 is background, a span lasts from floor(start) to ceil(end).

    Where spans meet, the later one in the given order counts, which is that of time in a feature file. What lies past
    the last second is left out. Raises BadDataset for a number below 1: 0 is background.

    >>> labels(6, np.array([[0.5, 2.5], [2.1, 4.0]]), np.array([7, 9])).tolist()
    [7, 7, 9, 9, 0, 0]
    """
    if len(numbers) and numbers.min() < 1:
        raise BadDataset(
            f"a step has the number {numbers.min()}: they begin at 1, as 0 is background; CrossTask's, which begin "
            "again in each task, are for `train evaluate --task steps`"
        )
    found = np.zeros(seconds, np.int64)
    for (start, end), number in zip(spans, numbers, strict=True):
        found[int(np.floor(start)) : int(np.ceil(end))] = number
    return found


def scores(predicted: Int[np.ndarray, " seconds"], truth: Int[np.ndarray, " seconds"], classes: int) -> Segmentation:
    """Evaluate all seconds of all videos, one video after the other: a second counts the same in any of them.

    `predicted`: -1 where nothing was predicted, as for a video without features: a miss.
    Raises BadDataset if there is no second, BadSetting for classes outside [0, classes).
    """
    if not len(truth):
        raise BadDataset("there is no second to evaluate; choose a part of the data set that has features")
    if truth.min() < 0 or predicted.min() < -1 or max(truth.max(), predicted.max()) >= classes:
        raise BadSetting(f"classes up to {max(truth.max(), predicted.max())}: {classes} were promised, from 0")
    known = predicted >= 0
    confusion = np.bincount(truth[known] * classes + predicted[known], minlength=classes**2).reshape(classes, classes)
    count = np.bincount(truth, minlength=classes)
    constants = _measures(np.diag(count), count)  # row c: what is right where all seconds are said to be of class c
    return Segmentation(
        accuracy=Accuracies(*map(float, _measures(confusion.diagonal(), count))),
        best_constant=Accuracies(*map(float, constants.max(0))),
        seconds=len(truth),
        background=float(count[0] / len(truth)),
        classes=int((count > 0).sum()),
        unpredicted=int((~known).sum()),
        confusion=confusion,
    )


def _measures(
    right: Int[np.ndarray, "*some classes"], count: Int[np.ndarray, " classes"]
) -> Float64[np.ndarray, "*some measures"]:
    """Return the accuracies, as in `Accuracies`, of `right` seconds out of `count`, by class."""
    share, there = right / np.maximum(count, 1), count > 0
    parts = (
        (right, count.sum()),
        (right[..., 1:], count[1:].sum()),
        (share, there.sum()),
        (share[..., 1:], there[1:].sum()),
    )
    return np.stack([part.sum(-1) / (size or np.nan) for part, size in parts], axis=-1)


def commonest(confusion: Int[np.ndarray, "classes classes"], most: int) -> tuple[list[int], Int64[np.ndarray, "_ _"]]:
    """Return the classes with most seconds, truly or predicted, and their confusion.

    If there are more than `most`, a last row and column are all the others, so that no second is lost.

    >>> commonest(np.array([[5, 0, 1], [0, 0, 0], [2, 0, 3]]), 1)[1].tolist()
    [[5, 1], [2, 3]]
    """
    count = confusion.sum(1)
    ranked = sorted(np.flatnonzero(count + confusion.sum(0)).tolist(), key=lambda one: (-count[one], one))
    kept = sorted(ranked[:most])
    place = np.full(len(confusion), len(kept))
    place[kept] = np.arange(len(kept))
    size = len(kept) + (len(ranked) > len(kept))
    found = np.zeros((len(kept) + 1, len(kept) + 1), np.int64)
    np.add.at(found, (place[:, None], place[None]), confusion)
    return kept, found[:size, :size]


def table(result: dict[str, Any]) -> Table:
    """Return a table of `Segmentation.as_dict()`: all accuracies, beside what one class reaches, and of what."""
    found = Table(title="action segmentation, accuracy in %", title_justify="left", caption_justify="left")
    found.add_column("")
    found.add_column("accuracy", justify="right")
    found.add_column("always one class", justify="right")
    names = ("all seconds (frame accuracy)", "foreground", "mean class", "mean class, foreground")
    values = (result[of].values() for of in ("accuracy", "best_constant"))
    for name, own, best in zip(names, *values, strict=True):
        found.add_row(name, *("–" if value is None else f"{100 * value:.1f}" for value in (own, best)))
    found.caption = (
        f"{result['seconds']:,} seconds, {100 * result['background']:.1f} % of them background, of {result['classes']} "
        f"classes; {result['unpredicted']:,} without a prediction count as wrong"
    )
    return found


def fit(
    x: Shaped[Tensor, "seconds dim"], y: Int[Tensor, " seconds"], classes: int, settings: Fitting | None = None
) -> Head:
    """Return softmax regression of all classes, background (0) too, on seconds' frozen features of training videos.

    Features are standardised by these seconds. Minibatches of Adam, as there are more than a million seconds, from the
    classes' shares (one second is added to each, so that none is impossible); classes are not weighed. The same on one
    kind of machine for one seed.
    """
    settings = settings or Fitting()
    mean, sd = (one.float() for one in standard(x))
    weight = x.new_zeros(x.shape[1], classes, dtype=torch.float32, requires_grad=True)
    count = torch.bincount(y.long(), minlength=classes) + 1
    bias = (count / count.sum()).log().requires_grad_()
    head = Head(weight, bias, mean, sd)
    optimiser = torch.optim.Adam([weight, bias], settings.lr, weight_decay=settings.weight_decay)
    steps = settings.epochs * -(-len(x) // settings.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / max(1, steps))
    for some in _batches(len(x), settings, x.device):
        optimiser.zero_grad()
        functional.cross_entropy(head.logits(x[some]), y[some].long()).backward()
        optimiser.step()
        schedule.step()
    return Head(weight.detach(), bias.detach(), mean, sd)


def _batches(count: int, settings: Fitting, device: torch.device) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(settings.seed)
    for _ in range(settings.epochs):
        yield from torch.randperm(count, generator=generator).to(device).split(settings.batch)


def zero_shot(
    rows: Float[Tensor, "seconds dim"], texts: Float[Tensor, "steps dim"], threshold: float
) -> Float[Tensor, "seconds classes"]:
    """Return logits without any training: the cosine of each second and each step's text, the threshold for background.

    Rows and texts come from one space, such as a model's of `train`; text 0 is step 1. A second is of the step it is
    most like if their cosine is above the threshold, else background. Rows have length 1, or are averages of such:
    their likeness to a text is then the average of the cosines, which averages a second's logits over its windows.

    >>> zero_shot(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.eye(2), threshold=0.9).argmax(1).tolist()
    [1, 0]
    """
    cosine = rows.float() @ functional.normalize(texts.float(), dim=1).T
    return torch.cat([torch.full_like(cosine[:, :1], threshold), cosine], dim=1)


def threshold(
    rows: Shaped[Tensor, "seconds dim"],
    texts: Float[Tensor, "steps dim"],
    y: Int[Tensor, " seconds"],
    by: By = "balanced",
) -> float:
    """Return the best threshold of `zero_shot` on seconds of training videos; never choose it on those reported on.

    By frame accuracy the best threshold is often one that nothing reaches, background everywhere; "balanced" counts
    background and foreground alike. Halfway between two cosines; 2 if all is background, -2 if nothing is; the highest
    of equally good ones. Raises BadDataset unless there are seconds of both kinds.
    """
    steps = y > 0
    if steps.all() or not steps.any():
        raise BadDataset("a threshold needs training seconds of steps and of background; choose another part")
    best = [zero_shot(some.float(), texts, -2.0)[:, 1:].max(1) for some in rows.split(CHUNK)]
    top, order = torch.cat([one.values for one in best]).double().sort(descending=True, stable=True)
    label, guess = y[order], torch.cat([one.indices for one in best])[order] + 1
    right = functional.pad((guess == label).cumsum(0), (1, 0))  # steps that are right, of the first n called steps
    spared = (label == 0).sum() - functional.pad((label == 0).cumsum(0), (1, 0))
    of_steps, of_rest = (steps.sum(), (~steps).sum()) if by == "balanced" else (1, 1)
    value = right.double() / of_steps + spared.double() / of_rest
    cuts = torch.cat([top.new_tensor([2.0]), (top[:-1] + top[1:]) / 2, top.new_tensor([-2.0])])
    apart = functional.pad(top[:-1] > top[1:], (1, 1), value=True)  # equal cosines stay together
    return float(cuts[value.masked_fill(~apart, -1).argmax()])
