"""Probes: `train probe`, what a linear classifier reads off single rows, raw ones and those a checkpoint makes of them.

Order and distance of equidistant rows of a video (LocVTP, section 4.8), or any labels of clips; `train/probing.py` has
the probes. A checkpoint encodes every row by itself, as the only one of its video, so that no place and no neighbour
tells it anything: what is then known of the order, the row shows.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from pipeline.errors import BadDataset, BadFeatureFile, BadSetting, unknown
from pipeline.store import Features
from train import rows
from train.data import streams_of
from train.exporting import check_encoder
from train.loading import Trained, device_for, opened
from train.probing import (
    Attending,
    Clips,
    Labelled,
    Probe,
    attentive,
    distance,
    equidistant,
    linear,
    order,
    split,
    table,
)
from train.settings import Probing
from train.whole import whole_videos

AT_ONCE = 4096
"""Rows that a checkpoint encodes together."""


@dataclass(frozen=True)
class Probed:
    """One kind of row to be probed: streams as they are, or what a checkpoint makes of them."""

    name: str
    streams: tuple[str, ...]
    trained: Trained | None


def probe(
    features: Path | None, path: Path | None, streams: tuple[str, ...], name: str, settings: Probing
) -> dict[str, Any]:
    """Return the probes of each stream by itself, and of a checkpoint's rows. `name`: of a split; '' draws one."""
    with ExitStack() as stack:
        trained = None if path is None else stack.enter_context(opened(path, features))
        if trained is None and features is None:
            raise BadSetting("--features is needed, or a --checkpoint that has one")
        there = trained.features if trained else stack.enter_context(Features.open(features or Path()))
        if trained:
            check_encoder(trained.run, "rows are encoded")
        names = streams or (trained.run.data.streams if trained else tuple(there.streams))
        kinds = [Probed(one, (one,), None) for one in names]
        if trained:
            kinds.append(Probed(f"{trained.run.method}, step {trained.step}", trained.run.data.streams, trained))
        run = _labelled if settings.labels else _temporal
        found = {kind.name: run(there, kind, name, settings) for kind in kinds}
        last = list(found.values())[-1]
        return {
            "task": "probes",
            "dataset": str(there.parts[0].attrs.get("dataset", "")),
            "features": str(there.parts[0].path),
            "split": name or f"{settings.share:g} of the videos, seed {settings.seed}",
            "probes": {kind: [one.as_dict() for one in probes] for kind, (probes, _) in found.items()},
            "left_out": {kind: left for kind, (_, left) in found.items()},
            "numbers": {one.kind: one.accuracy for one in last[0]},
        }


def _temporal(features: Features, kind: Probed, name: str, settings: Probing) -> tuple[list[Probe], int]:
    """Return the order and the distance probe, and how many videos have too few rows."""
    n, ids = settings.clips, features.videos["id"]
    videos, _ = whole_videos(features, np.arange(len(ids)), kind.streams)
    chosen = [
        (str(ids[place]), x[equidistant(len(x), n)])
        for place, x in zip(videos.places, videos, strict=True)
        if len(x) >= n
    ]
    if not chosen:
        raise BadDataset(f"no video has {n} rows of {', '.join(kind.streams)}; probe with fewer --clips")
    names = [video for video, _ in chosen]
    x = _encoded(kind.trained, torch.stack([one for _, one in chosen]))
    sides = [
        Clips(x[places], [names[at] for at in places.tolist()]) for places in _sides(features, names, name, settings)
    ]
    return [order(*sides), distance(*sides)], len(ids) - len(names)


def _labelled(features: Features, kind: Probed, name: str, settings: Probing) -> tuple[list[Probe], int]:
    """Return the linear and the attentive probe of labels, and how many labelled clips have no rows."""
    clips, labels = features.table("clips"), _labels(features, settings.labels)
    places = np.flatnonzero([label != "" for label in labels])
    if not len(places):
        raise BadFeatureFile(f"{features.parts[0].path}: none of its clips has a label in {settings.labels}")
    spans = tuple(clips[column][places] for column in ("video", "start", "end"))
    found, there = streams_of(features, kind.streams, spans, resident=0)
    own = places[there]
    if not len(own):
        raise BadFeatureFile(f"{features.parts[0].path}: no labelled clip has rows in {', '.join(kind.streams)}")
    x, mask = rows.tokens(found, torch.arange(len(own)), settings.rows, "bins")
    x = _encoded(kind.trained, x) * mask[:, :, None]
    average = x.sum(1) / mask.sum(1, keepdim=True)
    ids = features.videos["id"]
    videos = [str(ids[int(video)]) for video in clips["video"][own]]
    said = [labels[place] for place in own.tolist()]
    probes = []
    for one, there_is in ((average, None), (x, mask)):
        train, test = (
            Labelled(
                one[some], [said[at] for at in some.tolist()], [videos[at] for at in some.tolist()],
                None if there_is is None else there_is[some],
            )
            for some in _sides(features, videos, name, settings)
        )  # fmt: skip
        probes.append(
            linear(train, test) if there_is is None else attentive(train, test, Attending(seed=settings.seed))
        )
    return probes, len(places) - len(own)


def _labels(features: Features, source: str) -> list[str]:
    """Return the label of each clip, '' for none: the data set's, or those of a CSV file by clip or video."""
    clips = features.table("clips")
    if source == "clips":
        return [str(label) for label in clips["label"]]
    found: dict[str, str] = {}
    try:
        with Path(source).open(encoding="utf-8", newline="") as file:
            for row, line in enumerate(csv.reader(file), start=1):
                if len(line) != 2:
                    raise BadSetting(f"--labels {source}, row {row}: {','.join(line):.60}; expected ID,LABEL")
                found[line[0].strip()] = line[1].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"--labels {source}: {error}; expected `clips` or a CSV file of ID,LABEL") from error
    videos = features.videos["id"][clips["video"].astype(np.int64)]
    return [found.get(str(clip), found.get(str(video), "")) for clip, video in zip(clips["id"], videos, strict=True)]


def _sides(features: Features, videos: Sequence[str], name: str, settings: Probing) -> tuple[Tensor, Tensor]:
    """Return the places of items to train on and to test on, by their videos."""
    if not name:
        return split(videos, settings.share, settings.seed)
    there = features.parts_of_splits()
    test = next((part for part in (f"{name}/test", f"{name}/val") if part in there), "")
    if f"{name}/train" not in there or not test:
        raise unknown("split with train and test", name, sorted({part.split("/")[0] for part in there}))
    clips, ids = features.table("clips"), features.videos["id"]
    sides = []
    for part in (f"{name}/train", test):
        own = clips["video"][features.table(f"splits/{part}")["clips"]].astype(np.int64)
        sides.append(_where(videos, {str(video) for video in ids[own]}))
    return sides[0], sides[1]


def _where(videos: Sequence[str], chosen: set[str]) -> Tensor:
    found: NDArray[np.int64] = np.flatnonzero([video in chosen for video in videos])
    return torch.from_numpy(found)


@torch.inference_mode()
def _encoded(trained: Trained | None, x: Tensor) -> Tensor:
    """Return (items, n, d): rows as they are, or each encoded as the only row of a video."""
    if trained is None:
        return x
    device = device_for(trained.run)
    parts = [
        trained.model.video(some.to(device)[:, None], torch.ones(len(some), 1, dtype=torch.bool, device=device))  # type: ignore[operator]
        for some in x.flatten(0, 1).split(AT_ONCE)
    ]
    return torch.cat(parts)[:, 0].float().cpu().view(*x.shape[:2], -1)


def show(found: dict[str, Any]) -> None:
    """Print a row for each probe of each kind of row."""
    console = Console()
    every = [(kind, Probe(**one)) for kind, probes in found["probes"].items() for one in probes]
    console.print(f"{found['dataset']}, split: {found['split']}", highlight=False)
    console.print(table([one for _, one in every], [kind for kind, _ in every]))
    for kind, left in found["left_out"].items():
        if left:
            console.print(f"{kind}: {left:,} are left out, as they have too few rows or none", highlight=False)
