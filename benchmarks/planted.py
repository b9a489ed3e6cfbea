"""Losses in worlds whose truth is known: `python benchmarks/planted.py [--worlds A,B,C,D] [--size tiny] [--seeds 3]`.

Every variant of a world is trained with each seed on that seed's file (workflows/planted.py); what is compared are the
differences seed by seed. The bands were set before any run; they are printed as met or not met, and not moved. Words
and features are made up and budgets short: differences mean something, single numbers do not.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from pipeline.store import Features
from train import data, loop, methods, text
from train.config import METHODS, Data, Fit, Run, Taco
from train.data import Corpus, video_tokens
from train.metrics import paired, ranks, recall, spread
from train.normalisation import adjusted, bank_bias, dsl, error, qb_norm
from train.text import Pieces
from workflows.planted import World, truth, write

log = logging.getLogger("planted")

GAMMA = 0.05
"""World D's temperature."""
STEPS = {"tiny": {"A": 300, "B": 600, "C": 600, "D": 300}, "small": {"A": 1500, "B": 3000, "C": 3000, "D": 1500}}
PAIRS = {"A": 64, "B": 16, "C": 32, "D": 64}
"""Pairs in a batch."""
PER_ROW = Taco(video_layers=0, fusion_layers=1, negatives=3, dropout=0.0)
"""The paper's settings but for these: no row sees its neighbours, and few steps need no dropout."""


@dataclass(frozen=True)
class Trained:
    """A model with both parts of its world."""

    model: Any
    run: Run
    train: tuple[Corpus, Pieces]
    test: tuple[Corpus, Pieces]

    def scores(self, corpus: Corpus, pieces: Pieces) -> dict[str, Tensor]:
        found: dict[str, Tensor] = methods.get(self.run.method).scores(
            self.model, corpus, pieces, self.run.method_settings
        )
        return found


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
    json: bool = False
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
        if self.json:
            print(json.dumps({"variant": variant, "seed": seed, **found}), flush=True)
        else:
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
        run = Run(Data(features=path, text_encoder=text.TINY), fit, method, settings, parts)
        with Features.open(path) as features:
            corpora = [data.load(features, part) for part in parts if part]
        words = text.load(text.TINY, corpora[0], world.seed)
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


def first(scores: Tensor, corpus: Corpus, k: int = 1) -> float:
    """Return R@k, text to video, in per cent."""
    return 100 * recall(ranks(scores, corpus.clip), k)


@torch.inference_mode()
def own_words(trained: Trained) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield, for each caption of the test: scores (words, rows) in its own clip, events of the words, of the rows."""
    corpus, pieces = trained.test
    found = truth(trained.run.data.features)
    rows, words = corpus.streams[0].count, pieces.offsets.diff() - 2  # but [CLS] and [SEP]: every word is one piece
    row_event = torch.from_numpy(found["row_event"][-int(rows.sum()) :]).split(rows.tolist())  # the test comes last
    word_event = torch.from_numpy(found["word_event"][-int(words.sum()) :]).split(words.tolist())
    for caption in range(len(corpus.texts)):
        clip = corpus.clip[caption]
        x = trained.model.video(*video_tokens(corpus, clip[None], trained.run.data.max_video_tokens))[0]
        y = trained.model.text(pieces.batch(torch.tensor([caption])))[0, 1:-1]
        if trained.run.method == "locvtp":
            x, y = functional.normalize(x, dim=1), functional.normalize(y, dim=1)
        yield y @ x.T, word_event[caption], row_event[int(clip)]


def grounding(trained: Trained) -> float:
    """Return the per cent of nouns and verbs whose best row, of their own clip, shows their event."""
    hits = [(shown[s.argmax(1)] == said)[said >= 0] for s, said, shown in own_words(trained)]
    return 100 * float(torch.cat(hits).double().mean())


def row_to_word(trained: Trained) -> float:
    """Return the per cent of rows whose best noun or verb, of their own caption, is one of their event."""
    hits = [said[said >= 0][s[said >= 0].argmax(0)] == shown for s, said, shown in own_words(trained)]
    return 100 * float(torch.cat(hits).double().mean())


CONTENT: dict[str, tuple[Any, str, bool]] = {
    "L1": (("L1",), "content", False),
    "L1+L2": (("L1", "L2"), "content", False),
    "L1+L2, function words": (("L1", "L2"), "function", False),
    "L1+L2, all words": (("L1", "L2"), "all", False),
    "L2, words alone": (("L2",), "content", True),
    "L2, function words alone": (("L2",), "function", True),
}
"""Losses, words of interest, and whether the text encoder sees words without the others of their caption."""


def tokens(bench: Bench) -> list[Band]:
    """World A: what L2 adds to L1, and whether it is the nouns and verbs that do it.

    A function word's feature can hold the nouns beside it, as far as the text encoder brings them there; what it has of
    itself is seen where it is encoded alone.
    """
    bands = []
    for desc in (1, 2):
        for seed in range(bench.seeds):
            for name, (parts, interest, alone) in CONTENT.items():
                world = World(name="A", seed=seed, desc=desc, interest=interest)
                trained = bench.train(world, replace(PER_ROW, parts=parts), alone=alone)
                found, corpus = trained.scores(*trained.test), trained.test[0]
                s1, s2 = found["early"], found["token"]
                levels = {"S1": s1, "S2": s2, "S1+.5S2": s1 + 0.5 * s2, "S1+2S2": s1 + 2 * s2}
                recalls = {level: first(scores, corpus) for level, scores in levels.items()}
                bench.add(f"A{desc} {name}", seed, {**recalls, "grounding": grounding(trained)})
        bands += _token_bands(bench, f"A{desc}")
    return bands


def _token_bands(bench: Bench, at: str) -> list[Band]:
    def s2(variant: str, factor: float = 1) -> list[float]:
        return [factor * value for value in bench.of(f"{at} {variant}", "S2")]

    without = bench.numbers[f"{at} L1"]
    best = [max(row) for row in zip(*(v for k, v in without.items() if k != "grounding"), strict=True)]
    further = [value + 20 for value in without["grounding"]]
    threefold = s2("L1+L2, function words", 3), s2("L2, function words alone", 3)
    return [
        Band(f"{at}: R@1 of S2 with L2 - best score without", paired(s2("L1+L2"), best).differences),
        Band(f"{at}: R@1 of S2 - 3 x function words", paired(s2("L1+L2"), threefold[0]).differences),
        Band(f"{at}: the same, words alone", paired(s2("L2, words alone"), threefold[1]).differences),
        Band(
            f"{at}: grounding with L2 - without - 20", paired(bench.of(f"{at} L1+L2", "grounding"), further).differences
        ),
    ]


def cascade(bench: Bench) -> list[Band]:
    """World B: hard negatives for the fusion against as many by chance."""
    bands = []
    every: dict[str, Any] = {"L1+L3": ("L1", "L3"), "L1+L2+L3": ("L1", "L2", "L3")}
    for name, parts in every.items():
        for seed in range(bench.seeds):
            for how in ("random", "hard"):
                trained = bench.train(World(name="B", seed=seed), replace(PER_ROW, parts=parts, cascade=how))
                found, corpus = trained.scores(*trained.test), trained.test[0]
                early = found["fused"] - found["later"]
                levels = {"S1": found["early"], "S1+.5S2": early, "S3": found["later"], "all": found["fused"]}
                bench.add(f"B {name}, {how}", seed, {k: first(v, corpus) for k, v in levels.items()})
        for level in ("S3", "all"):
            values = paired(*(bench.of(f"B {name}, {how}", level) for how in ("hard", "random"))).differences
            bands.append(Band(f"B: R@1 of {level}, {name}: cascade - random", values, 0.75))
    return bands


LOSSES = {"L_c": (0.5, 0.0, 0.0), "L_c+L_f": (0.5, 1.0, 0.0), "all": (0.5, 1.0, 1.0)}
"""Weights of the coarse, fine and temporal loss; the last two begin after 40 % of the steps."""


def order(bench: Bench) -> list[Band]:
    """World C: whether context warping makes features tell when something is shown, in two worlds.

    With the parity cue only prediction of neighbours has a use for the half; with the smooth one, raw features tell the
    place, and warping can only blur it: that one has no band, as the effect is known to be the other way round.
    """
    bands = []
    if "locvtp" not in METHODS:
        log.warning("world C: there is no method locvtp yet; only the raw features are probed")
    for cue in ("parity", "smooth"):
        for seed in range(bench.seeds):
            world = World(name="C", seed=seed, cue=cue)
            with Features.open(bench.file(world)) as features:
                raw = [data.load(features, f"planted/{part}") for part in ("train", "test")]
            bench.add(f"C {cue} raw", seed, probes(*(_rows(corpus) for corpus in raw)))
            for name, (coarse, fine, temporal) in LOSSES.items() if "locvtp" in METHODS else ():
                settings = METHODS["locvtp"](coarse=coarse, fine=fine, temporal=temporal, start=0.4)
                trained = bench.train(world, settings, "locvtp")
                features_of = [_rows(corpus, trained.model.video) for corpus, _ in (trained.train, trained.test)]
                bench.add(f"C {cue} {name}", seed, {**probes(*features_of), "row to word": row_to_word(trained)})
        if cue == "parity" and "locvtp" in METHODS:
            values = paired(*(bench.of(f"C parity {name}", "order") for name in ("all", "L_c+L_f"))).differences
            bands.append(Band("C, parity: order with L_t - without", values, 0.75))
    return bands


@torch.inference_mode()
def _rows(corpus: Corpus, encode: Any = None) -> Tensor:
    """Return (videos, 8, d) features of the clips' rows, raw or encoded."""
    x, mask = video_tokens(corpus, torch.arange(len(corpus.clips)), 8)
    return x if encode is None else encode(x, mask)


def probes(train: Tensor, test: Tensor) -> dict[str, float]:
    """Return per cent right of linear probes on frozen features (LocVTP, 4.5), trained on other videos.

    order: which of 5 equidistant rows (chance 20); distance: how far two of these are apart (40, the commonest); half:
    first or second half of all 8 rows (50).
    """
    places = torch.tensor([0, 2, 4, 5, 7])
    first, second = torch.combinations(torch.arange(5)).T

    def pairs(x: Tensor) -> Tensor:
        a, b = x[:, places[first]], x[:, places[second]]
        return torch.cat([a, b, (a - b).abs()], dim=2)

    return {
        "order": probe(train[:, places], test[:, places], torch.arange(5)),
        "distance": probe(pairs(train), pairs(test), second - first),
        "half": probe(train, test, torch.arange(8) // 4),
    }


def probe(train: Tensor, test: Tensor, labels: Tensor) -> float:
    """Return the per cent of test rows that softmax regression on the train rows gets right.

    Features (videos, n, d), with one label for each of the n.
    """
    x, y = (some.flatten(0, 1).double() for some in (train, test))
    mean, sd = x.mean(0), x.std(0).clamp(min=1e-6)
    x, y = (x - mean) / sd, (y - mean) / sd
    weights = torch.zeros(x.shape[1] + 1, int(labels.max()) + 1, dtype=torch.float64, requires_grad=True)
    target = labels.repeat(len(train))
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        found = functional.cross_entropy(x @ weights[1:] + weights[0], target) + 1e-3 * weights[1:].square().sum()
        found.backward()
        return found

    optimiser.step(loss)
    right = (y @ weights[1:] + weights[0]).argmax(1) == labels.repeat(len(test))
    return 100 * float(right.double().mean())


def hubs(bench: Bench) -> list[Band]:
    """World D: biases from a bank of training captions on the scores of one model, beside others and the oracle.

    TACo's L1 is a score of averages, its L2 one of best rows. NCL's own model, with its loss and with the plain one.
    """
    runs: dict[str, tuple[str, Any]] = {"": ("taco", replace(PER_ROW, parts=("L1", "L2"), norm="l2", tau=GAMMA))}
    if "ncl" in METHODS:
        for name, biased in ((", CL", False), (", NCL", True)):
            runs[name] = ("ncl", METHODS["ncl"](gamma=GAMMA, normalise_training=biased))
    else:
        log.warning("world D: there is no method ncl yet; biases are applied to TACo's scores only")
    for share in (0.1, 0.0):
        for seed in range(bench.seeds):
            for name, (method, settings) in runs.items():
                trained = bench.train(World(name="D", seed=seed, hubs=share), settings, method)
                _normalised(bench, (f"D{share:g}", name), seed, trained)
    return _hub_bands(bench, "D0.1")


def _normalised(bench: Bench, names: tuple[str, str], seed: int, trained: Trained) -> None:
    (train, sentences), (test, own) = trained.train, trained.test
    scale = float(trained.model.scale.detach().exp())
    asked = replace(test, texts=train.texts, captions=train.captions)  # training captions look for test clips
    bank, found = trained.scores(asked, sentences), trained.scores(test, own)
    hub = torch.from_numpy(truth(trained.run.data.features)["hub"][-len(test.clips) :])
    for name, level in {"mean": "early", "max": "token", "similarity": "similarity"}.items():
        if level not in found:
            continue
        for way, scores in _ways(found[level] / scale, bank[level][:4096] / scale).items():
            recalls = {f"R@{k}": first(scores, test, k) for k in (1, 5)}
            top = float(hub[scores.argmax(1)].double().mean())
            bench.add(f"{names[0]} {name}{names[1]}, {way}", seed, {**recalls, "error": error(scores)[0], "hubs": top})


def _ways(s: Tensor, bank: Tensor) -> dict[str, Tensor]:
    """Return the scores over GAMMA by what was done to them; cosines `s` (texts, videos), `bank` (others, videos)."""
    logits = s / GAMMA
    return {
        "none": logits,
        "bank": adjusted(logits, bank_bias(bank / GAMMA)),
        "oracle": adjusted(logits, bank_bias(logits)),
        "oracle, 50 iterations": adjusted(logits, bank_bias(logits, 50)),
        "DIS": qb_norm(s, bank, 1 / GAMMA) / GAMMA,
        "DSL (oracle)": dsl(logits, 1.0),
    }


def _hub_bands(bench: Bench, at: str) -> list[Band]:
    bands = []
    for name, most in (("mean", 0.85), ("max", 0.3)):
        after, before = (bench.of(f"{at} {name}, {way}", "error") for way in ("bank", "none"))
        left = tuple(most - a / b for a, b in zip(after, before, strict=True))
        gain = paired(*(bench.of(f"{at} {name}, {way}", "R@1") for way in ("bank", "none"))).differences
        oracle = tuple(1e-3 - e for e in bench.of(f"{at} {name}, oracle, 50 iterations", "error"))
        bands.append(Band(f"{at}, {name}: {most} - error with the bank / without", left))
        bands.append(Band(f"{at}, {name}: R@1 with the bank - without", gain))
        bands.append(Band(f"{at}, {name}: 0.001 - error of the oracle, 50 iterations", oracle))
    return bands


WORLDS: dict[str, Callable[[Bench], list[Band]]] = {"A": tokens, "B": cascade, "C": order, "D": hubs}


def show(bench: Bench, bands: Sequence[Band]) -> None:
    """Print mean and standard deviation over seeds, and the bands."""
    console = Console()
    for world in WORLDS:
        some = {name: found for name, found in bench.numbers.items() if name.startswith(world)}
        columns = dict.fromkeys(metric for found in some.values() for metric in found)
        table = Table(title=f"world {world}, {bench.size}, {bench.seeds} seeds: mean ± sd", title_justify="left")
        for column in ("", *columns):
            table.add_column(column, justify="right" if column else "left")
        for name, found in some.items():
            table.add_row(name, *(_cell(found.get(column, [])) for column in columns))
        if some:
            console.print(table)
    table = Table(title="bands: above 0 in so many of the seeds", title_justify="left")
    for column in ("difference", "by seed", "mean ± sd", "above 0", "needed", ""):
        table.add_column(column)
    for band in bands:
        values, seeds = " ".join(f"{value:.3g}" for value in band.values), len(band.values)
        needed = f"{math.ceil(band.share * seeds)}"
        words = (f"{band.positive} of {seeds}", needed, "met" if band.met else "NOT met")
        table.add_row(band.name, values, _cell(list(band.values)), *words)
    console.print(table)


def _cell(values: list[float]) -> str:
    if not values:
        return ""
    found = spread(values)
    return f"{found.mean:.3g}" + ("" if math.isnan(found.sd) else f" ± {found.sd:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--size", choices=STEPS, default="tiny")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="a line for each run and each band")
    chosen = parser.parse_args()
    worlds = chosen.worlds.split(",")
    if odd := set(worlds) - set(WORLDS):
        parser.error(f"--worlds {chosen.worlds}: {', '.join(odd)} is none of {', '.join(WORLDS)}")
    logging.basicConfig(level=logging.WARNING if chosen.json else logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(chosen.size, chosen.seeds, Path(place), chosen.json)
        bands = [band for world in worlds for band in WORLDS[world](bench)]
    if chosen.json:
        for band in bands:
            print(json.dumps({**asdict(band), "positive": band.positive, "met": band.met}))
    else:
        show(bench, bands)


if __name__ == "__main__":
    main()
