"""Action segmentation: `train segment`, which step every second of a video belongs to (COIN).

A linear head on the frozen rows of training videos, or a checkpoint's likeness of each second to the text of each step;
`train/segments.py` has both, and what is measured. Both are linear, in the features and in features of length 1:
averaging logits where windows overlap is the same as averaging what they are of, which `train/whole.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.errors import BadDataset, BadSetting
from pipeline.store import Features
from train import segments
from train.annotated import Annotated, clips_of, embedded, names_of
from train.config import device_of
from train.exporting import check_encoder
from train.linear import Head
from train.loading import Trained, opened
from train.pictures import Album, colour_bars, confusion
from train.probing import split
from train.settings import Segmenting, Windows
from train.whole import Videos, by_second, check_room, sight, streams_in, videos_with_rows, windowed

BARS, SHOWN = 4, 40
"""Videos whose bars are drawn; classes that the picture of the confusion has at most."""


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    features: Features
    streams: tuple[str, ...]
    trained: Trained | None
    windows: Windows
    device: torch.device
    unit: bool
    """Whether rows are made of length 1 before windows are averaged."""

    @property
    def kind(self) -> torch.dtype:
        """Return the precision that rows are held in: as they are stored, if they are taken as they are."""
        small = all(self.features.stream(name).dtype == np.float16 for name in self.streams)
        return torch.float16 if small and self.trained is None else torch.float32


@dataclass(frozen=True, eq=False)
class Part:
    """Clips with their rows and labels by second."""

    clips: list[Annotated]
    x: list[Tensor | None]
    """(T, D) float16 or float32; None without features."""
    y: list[NDArray[np.int64]]
    """(T,) 0 is background. Of a video without features as many seconds as are known of it."""
    past_end: int
    """Steps that begin after the last row."""

    def together(self) -> tuple[Tensor, Tensor]:
        """Return all seconds that have features, one video after the other, and their labels."""
        there = [(x, torch.from_numpy(y)) for x, y in zip(self.x, self.y, strict=True) if x is not None]
        if not there:
            raise BadDataset("no video of a part has features; extract them, or choose other --streams")
        return torch.cat([x for x, _ in there]), torch.cat([y for _, y in there])


def segment(
    where: tuple[Path | None, Path | None, tuple[str, ...]],
    name: str,
    settings: Segmenting,
    windows: Windows,
    device: str,
    album: Album,
) -> dict[str, Any]:
    """Train a head, or use texts, and return the accuracies on the test videos; write them and pictures to `album`.

    `where`: feature file, checkpoint whose encoder makes its rows, streams. `name`: of the split.
    """
    with ExitStack() as stack:
        source = _source(where, windows, device, settings.zero_shot, stack)
        names = {0: "background", **names_of(source.features)}
        classes = 1 + max(names)
        train_clips, test_clips, parts = _clips(source.features, name, settings)
        train, test = _part(source, train_clips, copies=2), _part(source, test_clips)
        if settings.zero_shot:
            predicted, how = _by_text(source, names, (train, test), settings)
        else:
            head = _fit(train, classes, settings, source.device)
            predicted, how = (
                [None if x is None else head.classes(x.to(source.device)).cpu().numpy() for x in test.x],
                {},
            )
            torch.save(vars(head), album.folder / "head.pt")
        truth = np.concatenate(test.y)
        said = [np.full(len(y), -1) if one is None else one for one, y in zip(predicted, test.y, strict=True)]
        result = segments.scores(np.concatenate(said), truth, classes)
        found = _told(source, (train, test), parts, result) | how
    every = [names.get(number, "") for number in range(classes)]
    _draw(album, every, (test, predicted), result)
    (album.folder / "results.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    return found


def _source(
    where: tuple[Path | None, Path | None, tuple[str, ...]],
    windows: Windows,
    device: str,
    unit: bool,
    stack: ExitStack,
) -> Source:
    features, path, streams = where
    if path is not None:
        trained = stack.enter_context(opened(path, features))
        check_encoder(trained.run, "segments are made")
        if streams:
            raise BadSetting("--streams: the checkpoint takes those it was trained on; leave it out")
        if device != "auto":
            raise BadSetting(f"--device {device}: the checkpoint's run has one, {trained.run.fit.device}; leave it out")
        kind = device_of(trained.run.fit.device)
        return Source(trained.features, trained.run.data.streams, trained, windows, kind, unit)
    if features is None:
        raise BadSetting("--features is needed, or a --checkpoint that has one")
    there = stack.enter_context(Features.open(features))
    return Source(there, streams_in(there, streams), None, windows, device_of(device), unit)


def _clips(
    features: Features, name: str, settings: Segmenting
) -> tuple[list[Annotated], list[Annotated], tuple[str, str]]:
    """Return the clips to train on, those to test on, and what these are called."""
    there = features.parts_of_splits()
    share = settings.train_share
    test = next((part for part in (f"{name}/test", f"{name}/val") if part in there), "")
    if share:
        part = test or f"{name}/train"
        clips = clips_of(features, part)
        places = split([str(features.videos["id"][clip.video]) for clip in clips], share, settings.seed)
        train_clips, test_clips = ([clips[at] for at in some.tolist()] for some in places)
        return train_clips, test_clips, (f"{share:g} of {part}, seed {settings.seed}", f"the rest of {part}")
    if f"{name}/train" not in there or not test:
        raise BadSetting(
            f"--split {name}: the file has {', '.join(there) or 'no split'}; to train on a share of the videos of one "
            "part and test on the others give --train-share 0.7"
        )
    return clips_of(features, f"{name}/train"), clips_of(features, test), (f"{name}/train", test)


def _part(source: Source, clips: list[Annotated], copies: int = 1) -> Part:
    """Return clips with their rows and labels; `copies`: of the rows that there are to be, as `together` makes one."""
    places = np.array([clip.video for clip in clips])
    videos, there = videos_with_rows(source.features, places, source.streams)
    dim = source.trained.words.encoder.dim if source.trained else sum(one.dim for one in videos.streams)
    check_room(videos, copies * dim * source.kind.itemsize)
    rows = _rows(source, videos)
    x = [next(rows) if is_there else None for is_there in there]
    known = np.maximum(source.features.videos["decoded"], source.features.videos["duration"])
    y, past_end = [], 0
    for clip, one in zip(clips, x, strict=True):
        last = float(clip.spans.max(initial=0))
        seconds = int(np.ceil(max(float(known[clip.video]), last))) if one is None else len(one)
        y.append(segments.labels(seconds, clip.spans, clip.numbers))
        past_end += int((clip.spans[:, 0] >= seconds).sum())
    return Part(clips, x, y, past_end)


def _rows(source: Source, videos: Videos) -> Iterator[Tensor]:
    """Yield the rows of each video, one a second."""
    if not len(videos):
        return
    every: Iterable[NDArray[np.float64]] = (raw.double().numpy() for raw in videos)
    if source.trained is not None:
        seen = sight(source.trained.run, videos.rate, source.windows)
        every = windowed(source.trained, videos, seen, lambda _, x: normalize(x, dim=-1) if source.unit else x)
    for x in every:
        yield torch.from_numpy(by_second(x, videos.rate)).to(source.kind)


def _fit(train: Part, classes: int, settings: Segmenting, device: torch.device) -> Head:
    x, y = train.together()
    fitting = segments.Fitting(
        epochs=settings.epochs, batch=settings.batch, lr=settings.lr, weight_decay=settings.weight_decay,
        seed=settings.seed,
    )  # fmt: skip
    return segments.fit(x.to(device), y.to(device), classes, fitting)


def _by_text(
    source: Source, names: dict[int, str], parts: tuple[Part, Part], settings: Segmenting
) -> tuple[list[NDArray[np.int64] | None], dict[str, Any]]:
    """Return the classes of the test's seconds by their texts, and the threshold for background."""
    if source.trained is None:
        raise BadSetting("--zero-shot compares rows with texts: it needs a --checkpoint")
    numbers = sorted(number for number in names if number)
    texts = embedded(source.trained, [names[number] for number in numbers]).cpu()
    place = np.array([0, *numbers])
    x, y = parts[0].together()
    at = torch.from_numpy(np.searchsorted(place, y.numpy()))
    threshold = segments.threshold(x, texts, at, settings.threshold_by)

    def classes(one: Tensor | None, least: float) -> NDArray[np.int64] | None:
        return None if one is None else place[segments.zero_shot(one.float(), texts, least).argmax(1).numpy()]

    forced = [(classes(one, -2.0), label) for one, label in zip(parts[1].x, parts[1].y, strict=True)]
    right = sum(int(((one == label) & (label > 0)).sum()) for one, label in forced if one is not None)
    steps = sum(int((label > 0).sum()) for _, label in forced)
    how = {"threshold": threshold, "threshold_by": settings.threshold_by, "steps_only": right / max(1, steps)}
    return [classes(one, threshold) for one in parts[1].x], how


def _told(
    source: Source, both: tuple[Part, Part], names: tuple[str, str], result: segments.Segmentation
) -> dict[str, Any]:
    train, test = both
    trained = source.trained
    told = result.as_dict()
    own, majority = told["accuracy"], told["best_constant"]
    return {
        "task": "segmentation",
        "dataset": str(source.features.parts[0].attrs.get("dataset", "")),
        "features": str(source.features.parts[0].path),
        "streams": list(source.streams),
        "method": trained.run.method if trained else "",
        "step": trained.step if trained else 0,
        "parts": {
            side: {
                "part": name,
                "videos": len(part.clips),
                "without_features": sum(x is None for x in part.x),
                "seconds": sum(map(len, part.y)),
                "steps": sum(len(clip.spans) for clip in part.clips),
                "past_end": part.past_end,
                "classes": len({int(n) for clip in part.clips for n in clip.numbers}),
            }
            for side, name, part in zip(("train", "test"), names, (train, test), strict=True)
        },
        "numbers": {
            "frame accuracy": own["frame"],
            "foreground": own["foreground"],
            "mean class": own["mean_class"],
            "mean class, foreground": own["mean_class_foreground"],
            "majority": majority["frame"],
            "majority, foreground": majority["foreground"],
        },
        **told,
    }


def _draw(
    album: Album, names: list[str], found: tuple[Part, list[NDArray[np.int64] | None]], result: segments.Segmentation
) -> None:
    """Draw bars of some videos, and which class is taken for which, of those that there are."""
    test, predicted = found
    there = [at for at, one in enumerate(predicted) if one is not None and test.y[at].any()]
    for at in there[:: max(1, len(there) // BARS)][:BARS]:
        said = predicted[at]
        assert said is not None
        clip = test.clips[at]
        colour_bars(album.file(f"bars-{clip.id}"), {"truth": test.y[at], "found": said}, names, title=clip.id)
    np.save(album.folder / "confusion.npy", result.confusion)
    kept, matrix = segments.commonest(result.confusion, SHOWN)
    title = f"the {len(kept)} classes with most seconds" if len(matrix) > len(kept) else "all classes"
    shown = [*(names[number] for number in kept), "all others"][: len(matrix)]
    confusion(album.file("confusion"), matrix, shown, title)


def show(found: dict[str, Any]) -> None:
    """Print all accuracies together, beside what one class reaches, and what they are of."""
    console = Console()
    by = f"{found['method']}, step {found['step']}" if found["method"] else "rows as they are"
    console.print(f"{found['dataset']}: {' + '.join(found['streams'])}, {by}", highlight=False)
    console.print(segments.table(found))
    for side, part in found["parts"].items():
        console.print(
            f"{side}: {part['part']}, {part['videos']:,} videos with {part['steps']:,} steps of {part['classes']:,} "
            f"kinds in {part['seconds']:,} seconds; {part['without_features']:,} videos without features"
            + (" count as wrong" if side == "test" else " are left out")
            + f"; {part['past_end']:,} steps begin past the last row",
            highlight=False,
        )
    if "threshold" in found:
        console.print(
            f"background is below a cosine of {found['threshold']:.3f}, chosen on training videos by "
            f"{found['threshold_by']} accuracy; without any background {100 * found['steps_only']:.1f} % of the "
            "foreground is right",
            highlight=False,
        )
