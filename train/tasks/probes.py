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
from train.rows import Rows
from train.settings import Probing
from train.whole import streams_in, videos_with_rows

AT_ONCE = 4096
"""Rows that a checkpoint encodes together."""
CLIPS = 256
"""Labelled clips whose rows are read together."""


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
        if settings.clips < 2:
            raise BadSetting(f"--clips {settings.clips}: one clip has neither order nor distance; expected 2 or more")
        there = trained.features if trained else stack.enter_context(Features.open(features or Path()))
        if trained:
            check_encoder(trained.run, "rows are encoded")
        names = streams or (trained.run.data.streams if trained else streams_in(there, ()))
        kinds = [Probed(one, (one,), None) for one in names]
        if trained:
            kinds.append(Probed(f"{trained.run.method}, step {trained.step}", trained.run.data.streams, trained))
        labels, unmatched = _labels(there, settings.labels) if settings.labels else ([], 0)
        found = {
            kind.name: _labelled(there, kind, name, labels, settings)
            if settings.labels
            else _temporal(there, kind, name, settings)
            for kind in kinds
        }
        last = list(found.values())[-1]
        return {
            "task": "probes",
            "dataset": str(there.parts[0].attrs.get("dataset", "")),
            "features": str(there.parts[0].path),
            "split": name or f"{settings.share:g} of the videos, seed {settings.seed}",
            "probes": {kind: [one.as_dict() for one in probes] for kind, (probes, _) in found.items()},
            "unmatched": unmatched,
            "left_out": {kind: left for kind, (_, left) in found.items()},
            "numbers": {one.kind: one.accuracy for one in last[0]},
        }


def _temporal(features: Features, kind: Probed, name: str, settings: Probing) -> tuple[list[Probe], int]:
    """Return the order and the distance probe, and how many videos of the split have too few rows."""
    n, ids = settings.clips, features.videos["id"]
    places = np.flatnonzero(_wanted(features, name))
    videos, _ = videos_with_rows(features, places, kind.streams)
    chosen = [
        (str(ids[place]), x[equidistant(len(x), n)])
        for place, x in zip(videos.places, videos, strict=True)
        if len(x) >= n
    ]
    if not chosen:
        raise BadDataset(f"no video has {n} rows of {', '.join(kind.streams)}; probe with fewer --clips")
    names = [video for video, _ in chosen]
    x = _encoded(kind.trained, torch.stack([one for _, one in chosen]))
    sides = [Clips(x[some], [names[at] for at in some.tolist()]) for some in _sides(features, names, name, settings)]
    return [order(*sides), distance(*sides)], len(places) - len(names)


def _labelled(
    features: Features, kind: Probed, name: str, labels: Sequence[str], settings: Probing
) -> tuple[list[Probe], int]:
    """Return the linear and the attentive probe of labels, and how many labelled clips of the split have no rows."""
    clips, ids = features.table("clips"), features.videos["id"]
    wanted = _wanted(features, name)[clips["video"].astype(np.int64)]
    places = np.flatnonzero(wanted & (np.array(labels, dtype=object) != ""))
    if not len(places):
        raise BadFeatureFile(f"{features.parts[0].path}: none of its clips has a label in {settings.labels}")
    spans = tuple(clips[column][places] for column in ("video", "start", "end"))
    found, there = streams_of(features, kind.streams, spans, resident=0)
    own = places[there]
    if not len(own):
        raise BadFeatureFile(f"{features.parts[0].path}: no labelled clip has rows in {', '.join(kind.streams)}")
    x, mask = _rows(kind.trained, found, settings.rows)
    average = x.sum(1) / mask.sum(1, keepdim=True)
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


def _rows(trained: Trained | None, found: tuple[Rows, ...], most: int) -> tuple[Tensor, Tensor]:
    """Return the rows (items, L, d) of clips, encoded, 0 where there is none, and where there are."""
    count = rows.lengths(found)
    longest = min(most, int(count.max()))
    xs, masks = list[Tensor](), list[Tensor]()
    for some in torch.arange(len(count)).split(CLIPS):  # of long clips all rows are read to be averaged
        x, mask = rows.tokens(found, some, longest, "bins", longest)
        xs.append(_encoded(trained, x) * mask[:, :, None])
        masks.append(mask)
    return torch.cat(xs), torch.cat(masks)


def _labels(features: Features, source: str) -> tuple[list[str], int]:
    """Return the label of each clip, '' for none, and how many ids of a CSV file are neither clip nor video.

    `source`: `clips`, for the data set's own, or a CSV file by clip or video.
    """
    clips = features.table("clips")
    if source == "clips":
        return [str(label) for label in clips["label"]], 0
    found = _read_labels(source)
    videos = features.videos["id"][clips["video"].astype(np.int64)]
    labels = [found.get(str(clip), found.get(str(video), "")) for clip, video in zip(clips["id"], videos, strict=True)]
    return labels, len(found.keys() - {*map(str, clips["id"]), *map(str, features.videos["id"])})


def _read_labels(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with Path(source).open(encoding="utf-8-sig", newline="") as file:  # Excel writes a mark first
            for row, line in enumerate(csv.reader(file), start=1):
                if line and len(line) != 2:
                    raise BadSetting(f"--labels {source}, row {row}: {','.join(line):.60}; expected ID,LABEL")
                name, label = (one.strip() for one in line or ("", ""))
                if found.setdefault(name, label) != label:
                    raise BadSetting(f"--labels {source}, row {row}: {name} has another label above; give it one")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadSetting(f"--labels {source}: {error}; expected `clips` or a CSV file of ID,LABEL") from error
    return {name: label for name, label in found.items() if name}


def _wanted(features: Features, name: str) -> NDArray[np.bool_]:
    """Return (V,) which videos of the file are in the split; all without a name."""
    ids = features.videos["id"]
    chosen = set[str]().union(*_named(features, name)) if name else {str(video) for video in ids}
    return np.array([str(video) in chosen for video in ids], bool)


def _sides(features: Features, videos: Sequence[str], name: str, settings: Probing) -> tuple[Tensor, Tensor]:
    """Return the places of items to train on and to test on, by their videos."""
    if not name:
        return split(videos, settings.share, settings.seed)
    train, test = _named(features, name)
    return _where(videos, train), _where(videos, test)


def _named(features: Features, name: str) -> tuple[set[str], set[str]]:
    """Return the ids of a split's videos to train on, and of those to test on. Raises UnknownName."""
    there = features.parts_of_splits()
    test = next((part for part in (f"{name}/test", f"{name}/val") if part in there), "")
    if f"{name}/train" not in there or not test:
        raise unknown("split with train and test", name, sorted({part.split("/")[0] for part in there}))
    clips, ids = features.table("clips"), features.videos["id"]
    own = (clips["video"][features.table(f"splits/{part}")["clips"]] for part in (f"{name}/train", test))
    train, other = ({str(video) for video in ids[some.astype(np.int64)]} for some in own)
    return train, other


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
    console = Console(emoji=False)  # a:x: is a stream
    every = [(kind, Probe(**one)) for kind, probes in found["probes"].items() for one in probes]
    console.print(f"{found['dataset']}, split: {found['split']}", highlight=False)
    console.print(table([one for _, one in every], [kind for kind, _ in every]))
    if found["unmatched"]:
        console.print(f"{found['unmatched']:,} ids of --labels are no clips or videos of the file", highlight=False)
    for kind, left in found["left_out"].items():
        if left:
            console.print(f"{kind}: {left:,} are left out, as they have too few rows or none", highlight=False)
