"""Probes: what a linear classifier reads off frozen features, of clips' places in their video or of any labels.

    train, test = (sample(rows, videos, n=5)[0] for rows, videos in parts)       # parts: by video
    print(table([order(train, test), distance(train, test)]))

Source: LocVTP (Cao et al., ECCV 2022), section 4.8, "Temporal Sensitivity Analysis", and Figure 5a: n equidistant clips
of a video go through the frozen encoder, a linear classifier predicts the index of a clip, another one the distance of
two. The paper does not say what n is, how a pair is encoded or how it splits; here it is stated, in each result. Videos
are on one side of the split with all they have, features are standardised by the training videos, and chance and the
majority stand beside the accuracy.

Each clip must be encoded by itself. An encoder that sees a clip's place, by its positions or its neighbours, has the
order probe solved before anything is learnt. Probe the raw rows, too: they can be better than what a model makes of
them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from rich.markup import escape
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from pipeline.errors import BadDataset, BadSetting
from train.linear import solve, standard

Kind = Literal["order", "distance", "linear", "attentive"]
ENCODING = {
    "order": "f_i",
    "distance": "[f_i, f_j, |f_i - f_j|], i < j",
    "linear": "f",
    "attentive": "one query's attention over f_1 … f_T",
}

Scale = tuple[Tensor, Tensor]
"""Mean and standard deviation (dim) of the training rows."""
Attention = tuple[Tensor, Tensor, Tensor]
"""Query (dim), weight (dim, classes) and bias (classes)."""


@dataclass(frozen=True, eq=False)
class Clips:
    """n equidistant clips of each video, encoded one by one."""

    x: Shaped[Tensor, "videos n dim"]
    videos: Sequence[str]
    """Their ids."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Items with one label each: (items, dim) features, or all rows of each item for `attentive`."""

    x: Shaped[Tensor, "items *rows dim"]
    labels: Sequence[str] | Sequence[int]
    videos: Sequence[str]
    """Which video each item is of."""
    mask: Bool[Tensor, "items rows"] | None = None
    """Where there are rows; None: everywhere. Padding must be finite."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe's result on the test videos; fractions."""

    kind: Kind
    encoding: str
    """What of the features f is put into the classifier."""
    n: int
    """Clips of a video for order and distance; rows of an item for the others, the most of any."""
    classes: int
    """Labels in training."""
    accuracy: float
    chance: float
    """1 / classes: a guess that knows nothing."""
    majority: float
    """Share that the commonest label of training has in the test."""
    train_videos: int
    test_videos: int
    items: int
    """In the test."""
    unseen: int
    """Of them, those whose label is not in training: misses."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class Attending:
    """How an attentive probe is trained."""

    steps: int = 1_000
    """Batches: a small set of items goes through more often."""
    batch: int = 64
    """Items."""
    lr: float = 3e-2
    """AdamW's rate at the beginning; it falls to 0 linearly."""
    weight_decay: float = 1e-2
    seed: int = 0
    """Of the query's first values and the order of items."""


def equidistant(count: int, n: int) -> Int[Tensor, " n"]:
    """Return the places of n rows out of `count`: the middles of n equal parts. Raises BadSetting if there are fewer.

    >>> equidistant(8, 5).tolist()
    [0, 2, 4, 5, 7]
    """
    if not 1 <= n <= count:
        raise BadSetting(f"{n} equidistant clips of a video with {count} rows: choose 1 to {count}, or leave it out")
    return (2 * torch.arange(n) + 1) * count // (2 * n)


def sample(rows: Sequence[Shaped[Tensor, "_ dim"]], videos: Sequence[str], n: int) -> tuple[Clips, tuple[str, ...]]:
    """Return n equidistant clips of each video, and the videos that have fewer, which are left out.

    Raises BadDataset if that is all of them.
    """
    there = [(x, name) for x, name in zip(rows, videos, strict=True) if len(x) >= n]
    if not there:
        raise BadDataset(f"no video has {n} rows; probe with fewer clips a video")
    x = torch.stack([one[equidistant(len(one), n)] for one, _ in there])
    return Clips(x, [name for _, name in there]), tuple(
        name for x, name in zip(rows, videos, strict=True) if len(x) < n
    )


def split(
    videos: Sequence[str], share: float = 0.8, seed: int = 0
) -> tuple[Int[Tensor, " train"], Int[Tensor, " test"]]:
    """Return the places of items to train on and to test on: all items of a video are on one side.

    `videos`: which video each item is of; the order of items does not change which side a video is on.
    Raises BadSetting if one side would be empty.
    """
    names = sorted(set(videos))
    count = round(share * len(names))
    if not 0 < count < len(names):
        raise BadSetting(f"a share of {share} of {len(names)} videos leaves nothing on one side; choose another share")
    drawn = np.random.default_rng(seed).permutation(len(names))[:count]
    chosen = {names[place] for place in drawn}
    inside = torch.tensor([video in chosen for video in videos])
    return inside.nonzero()[:, 0], (~inside).nonzero()[:, 0]


def order(train: Clips, test: Clips) -> Probe:
    """Predict which of its video's n clips a clip is (LocVTP's Accu_o); chance and majority are 1/n."""
    return _solved("order", _places(train), _places(test), train.x.shape[1])


def distance(train: Clips, test: Clips) -> Probe:
    """Predict how far apart two clips of a video are, |i - j| of all pairs (Accu_d); for n = 5 the majority is 40 %."""
    return _solved("distance", _pairs(train), _pairs(test), train.x.shape[1])


def linear(train: Labelled, test: Labelled) -> Probe:
    """Predict any labels from (items, dim) features by softmax regression.

    Raises BadSetting for a video on both sides.
    """
    return _solved("linear", train, test, 1)


def attentive(train: Labelled, test: Labelled, settings: Attending | None = None) -> Probe:
    """Predict any labels from (items, rows, dim) features: one learnt query attends over an item's rows, then linear.

    The weights are the softmax of q · f / sqrt(dim) over the rows that there are. It finds what few of the rows show,
    which the average of all rows hides. The same on one kind of machine for one seed.
    Raises BadSetting for a video on both sides, BadDataset for an item without rows.
    """
    settings = settings or Attending()
    classes, target, wanted = _targets(train, test)
    scale = standard(train.x[_mask(train)])
    head = _attend(train, target, classes, scale, settings)
    masks = _mask(test).split(settings.batch)
    found = [_attended(x, mask, scale, head) for x, mask in zip(test.x.split(settings.batch), masks, strict=True)]
    return _probe("attentive", (train, test), (torch.cat(found).argmax(1), target, wanted), train.x.shape[1])


def table(probes: Sequence[Probe], names: Sequence[str] = ()) -> Table:
    """Return a table, a row for each probe; `names`: of which features each is, without them no such column."""
    found = Table(title="probes, accuracy in %", title_justify="left", caption_justify="left")
    unseen = any(one.unseen for one in probes)
    for column in ("features",) * bool(names) + ("probe",):
        found.add_column(column, overflow="fold")
    for column in ("accuracy", "chance", "majority", "videos", "items", *("unseen",) * unseen):
        found.add_column(column, justify="right", no_wrap=True)
    for name, one in zip(names or [""] * len(probes), probes, strict=True):
        shares = (f"{100 * share:.1f}" for share in (one.accuracy, one.chance, one.majority))
        sizes = (f"{one.train_videos}/{one.test_videos}", f"{one.items}", *(f"{one.unseen}",) * unseen)
        found.add_row(*(name,) * bool(names), f"{one.kind}, n = {one.n}", *shares, *sizes)
    read = "; ".join(f"{kind} {code}" for kind, code in dict.fromkeys((one.kind, one.encoding) for one in probes))
    known = "; unseen: those whose label training lacks" * unseen
    found.caption = escape(f"classifiers read: {read}. videos: in training / in the test; items: in the test{known}")
    return found


def _places(clips: Clips) -> Labelled:
    count, n, _ = clips.x.shape
    return Labelled(clips.x.flatten(0, 1), list(range(n)) * count, [name for name in clips.videos for _ in range(n)])


def _pairs(clips: Clips) -> Labelled:
    count, n, _ = clips.x.shape
    first, second = torch.combinations(torch.arange(n)).T
    a, b = clips.x[:, first], clips.x[:, second]
    x = torch.cat([a, b, (a - b).abs()], dim=2).flatten(0, 1)
    return Labelled(x, (second - first).tolist() * count, [name for name in clips.videos for _ in range(len(first))])


def _solved(kind: Kind, train: Labelled, test: Labelled, n: int) -> Probe:
    classes, target, wanted = _targets(train, test)
    guess = solve(train.x, target, classes).logits(test.x).argmax(1)
    return _probe(kind, (train, test), (guess, target, wanted), n)


def _targets(train: Labelled, test: Labelled) -> tuple[int, Int[Tensor, " train"], Int[Tensor, " test"]]:
    """Return how many labels training has, and each item's place among them; -1 for a label that is not there."""
    if both := set(train.videos) & set(test.videos):
        raise BadSetting(f"{len(both)} videos are in training and in test, such as {min(both)}; split by video")
    if not len(train.labels) or not len(test.labels):
        raise BadDataset("a probe needs items to train and to test on; choose parts that have some")
    labels: Sequence[Any] = train.labels
    names = sorted(set(labels))
    place = {name: number for number, name in enumerate(names)}
    target, wanted = (torch.tensor([place.get(name, -1) for name in one.labels]) for one in (train, test))
    return len(names), target.to(train.x.device), wanted.to(test.x.device)


def _probe(kind: Kind, parts: tuple[Labelled, Labelled], found: tuple[Tensor, Tensor, Tensor], n: int) -> Probe:
    guess, target, wanted = found
    commonest = Counter(sorted(target.tolist())).most_common(1)[0][0]
    return Probe(
        kind=kind,
        encoding=ENCODING[kind],
        n=n,
        classes=int(target.max()) + 1,
        accuracy=float((guess == wanted).double().mean()),
        chance=1 / (int(target.max()) + 1),
        majority=float((wanted == commonest).double().mean()),
        train_videos=len(set(parts[0].videos)),
        test_videos=len(set(parts[1].videos)),
        items=len(wanted),
        unseen=int((wanted < 0).sum()),
    )


def _mask(items: Labelled) -> Bool[Tensor, "items rows"]:
    if items.mask is None:
        return torch.ones(items.x.shape[:2], dtype=torch.bool, device=items.x.device)
    if not items.mask.any(1).all():
        raise BadDataset("an item has no rows to attend to; leave out what has no features")
    return items.mask


def _attended(x: Tensor, mask: Tensor, scale: Scale, head: Attention) -> Float[Tensor, "items classes"]:
    query, weight, bias = head
    seen = ((x.double() - scale[0]) / scale[1]).float()
    shares = ((seen @ query) / seen.shape[2] ** 0.5).masked_fill(~mask, -torch.inf).softmax(1)
    logits: Tensor = (shares[:, :, None] * seen).sum(1) @ weight + bias
    return logits


def _attend(train: Labelled, target: Tensor, classes: int, scale: Scale, settings: Attending) -> Attention:
    """Return the trained query, weight and bias."""
    generator = torch.Generator().manual_seed(settings.seed)
    mask, (count, _, dim) = _mask(train), train.x.shape
    query = torch.randn(dim, generator=generator).to(target.device).requires_grad_()
    weight, bias = (query.new_zeros(*shape, requires_grad=True) for shape in ((dim, classes), (classes,)))
    optimiser = torch.optim.AdamW([query, weight, bias], settings.lr, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / settings.steps)
    for some in islice(_batches(count, settings.batch, generator), settings.steps):
        places = some.to(target.device)
        optimiser.zero_grad()
        found = _attended(train.x[places], mask[places], scale, (query, weight, bias))
        functional.cross_entropy(found, target[places]).backward()
        optimiser.step()
        schedule.step()
    return query.detach(), weight.detach(), bias.detach()


def _batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    while True:
        yield from torch.randperm(count, generator=generator).split(size)
