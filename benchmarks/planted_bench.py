"""Training in planted worlds over seeds, what was measured there, and how it is printed."""

from __future__ import annotations

import logging
import math
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.planted_measures import Trained
from pipeline.store import Features
from train import data, loop, methods, scratch, text
from train.config import Data, Fit, Run
from train.metrics import spread
from workflows.planted import write
from workflows.worlds import World

log = logging.getLogger("planted")

STEPS = {"tiny": {"A": 300, "B": 500, "C": 600, "D": 300}, "small": {"A": 1500, "B": 3000, "C": 3000, "D": 1500}}
PAIRS = {"A": 64, "B": 32, "C": 32, "D": 64}
"""Pairs in a batch."""


class PerRow(nn.Module):
    """A perceptron for each row by itself: with positions or neighbours the order of rows could be read off."""

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.layers(x) * mask[:, :, None]
        return out


@dataclass(frozen=True)
class Band:
    """What is to be seen: `values`, one for each seed, are above 0 in this `share` of the seeds."""

    name: str
    values: tuple[float, ...]
    share: float = 1.0

    @property
    def positive(self) -> int:
        return sum(value > 0 for value in self.values)

    @property
    def met(self) -> bool:
        return self.positive >= self.share * len(self.values)


@dataclass
class Bench:
    """What is asked for, and what has been measured: numbers[variant][metric], a value for each seed."""

    size: str
    seeds: int
    place: Path
    numbers: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def file(self, world: World) -> Path:
        """Return the world's file, made once."""
        chosen = replace(world, size=self.size)
        path = self.place / ("-".join(str(value) for value in asdict(chosen).values()) + ".h5")
        if not path.exists():
            write(chosen, path)
        return path

    def add(self, variant: str, seed: int, found: dict[str, float]) -> None:
        """Note what was measured with a seed."""
        for name, value in found.items():
            self.numbers.setdefault(variant, {}).setdefault(name, []).append(value)
        log.info("%s, seed %d: %s", variant, seed, ", ".join(f"{name} {v:.3g}" for name, v in found.items()))

    def of(self, variant: str, metric: str) -> list[float]:
        """Return a value for each seed."""
        return self.numbers[variant][metric]

    def train(self, world: World, settings: Any, method: str = "taco", alone: bool = False) -> Trained:
        """Train on the world's part `train`; LocVTP with an encoder that sees one row alone, and not where it is.

        `alone`: the text encoder sees one word alone.
        """
        path, steps = self.file(world), STEPS[self.size][world.name]
        parts = ("planted/train", "", "planted/test")
        fit = Fit(steps=steps, batch=PAIRS[world.name], lr=1e-3, warmup=steps // 10, seed=world.seed, device="cpu")
        run = Run(Data(features=path, text_encoder=scratch.TINY), fit, method, settings, parts)
        with Features.open(path) as features:
            corpora = [data.load(features, part) for part in parts if part]
        words = text.load(scratch.TINY, corpora[0].texts, world.seed)
        pieces = [text.pieces(words.tokenizer, one.texts, one.words, run.data.max_text_tokens) for one in corpora]
        if alone:
            net: Any = words.encoder.net
            net.encoder.layer = nn.ModuleList()
        torch.manual_seed(world.seed)
        model = methods.get(method).Model(settings, run.data, corpora[0].dim, words.encoder)
        if method == "locvtp":
            model.video = PerRow(corpora[0].dim, words.encoder.dim)
        with tempfile.TemporaryDirectory() as folder:
            loop.fit(run, loop.begin(run, model), corpora[0], pieces[0], Path(folder), None)
        model.eval()
        return Trained(model, run, (corpora[0], pieces[0]), (corpora[1], pieces[1]))


def show(found: dict[str, Any]) -> None:
    """Print mean and standard deviation over seeds, and the bands, of what `planted.py` found."""
    console, numbers = Console(), found["numbers"]
    for world in dict.fromkeys(variant[0] for variant in numbers):
        some = {name: values for name, values in numbers.items() if name.startswith(world)}
        columns = dict.fromkeys(metric for values in some.values() for metric in values)
        title = f"world {world}, {found['size']}, {found['seeds']} seeds: mean ± sd"
        table = Table(title=title, title_justify="left")
        for column in ("", *columns):
            table.add_column(column, justify="right" if column else "left")
        for name, values in some.items():
            table.add_row(name, *(_cell(values.get(column, [])) for column in columns))
        console.print(table)
    table = Table(title="bands: above 0 in so many of the seeds", title_justify="left")
    for column in ("difference", "by seed", "mean ± sd", "above 0", "needed", ""):
        table.add_column(column)
    for band in found["bands"]:
        values, seeds = " ".join(f"{value:.3g}" for value in band["values"]), len(band["values"])
        needed = f"{math.ceil(band['share'] * seeds)}"
        words = (f"{band['positive']} of {seeds}", needed, "met" if band["met"] else "NOT met")
        table.add_row(band["name"], values, _cell(list(band["values"])), *words)
    console.print(table)


def _cell(values: list[float]) -> str:
    if not values:
        return ""
    found = spread(values)
    return f"{found.mean:.3g}" + ("" if math.isnan(found.sd) else f" ± {found.sd:.2g}")
