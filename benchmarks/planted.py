"""Losses in worlds whose truth is known: `python -m benchmarks.planted [--worlds A,B,C,D] [--size tiny] [--seeds 3]`.

Every variant of a world is trained with each seed on that seed's file (workflows/planted.py); what is compared are the
differences seed by seed. The bands were set before any run; they are printed as met or not met, and not moved. Words
and features are made up and budgets short: differences mean something, single numbers do not.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.planted_bench import STEPS, Band, Bench, show
from benchmarks.planted_measures import Trained, first, grounding, probes, row_to_word, rows_of
from pipeline.store import Features
from train import data
from train.metrics import paired
from train.normalisation import adjusted, bank_bias, dsl, error, qb_norm
from train.settings import Locvtp, Ncl, Taco
from workflows.planted import truth
from workflows.worlds import World

GAMMA = 0.05
"""World D's temperature."""
PER_ROW = Taco(video_layers=0, fusion_layers=1, negatives=3, dropout=0.0)
"""The paper's settings but for these: no row sees its neighbours, and few steps need no dropout."""


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
                found, corpus = trained.scores(*trained.test, ("L1", "L2")), trained.test[0]
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


CASCADES: dict[str, tuple[Any, float]] = {
    "random": ("random", 0.0), "hard": ("hard", 0.0), "hard after 40 %": ("hard", 0.4),
}  # fmt: skip
"""How negatives are picked, and the share of the steps in which they are picked by chance before."""


def cascade(bench: Bench) -> list[Band]:
    """World B: hard negatives for the fusion against as many by chance, from the first step on or later."""
    bands = []
    every: dict[str, Any] = {"L1+L3": ("L1", "L3"), "L1+L2+L3": ("L1", "L2", "L3")}
    for name, parts in every.items():
        for seed in range(bench.seeds):
            for how, (picks, start) in CASCADES.items():
                settings = replace(PER_ROW, parts=parts, cascade=picks, start=start, negatives=4)
                trained = bench.train(World(name="B", seed=seed), settings)
                found, corpus = trained.scores(*trained.test), trained.test[0]
                early = found["fused"] - found["later"]
                levels = {"S1": found["early"], "S1+.5S2": early, "S3": found["later"], "all": found["fused"]}
                bench.add(f"B {name}, {how}", seed, {k: first(v, corpus) for k, v in levels.items()})
        for how in list(CASCADES)[1:]:
            for level in ("S3", "all"):
                values = paired(bench.of(f"B {name}, {how}", level), bench.of(f"B {name}, random", level)).differences
                bands.append(Band(f"B: R@1 of {level}, {name}: {how} - random", values, 0.75))
    return bands


LOSSES = {"L_c": (0.5, 0.0, 0.0), "L_c+L_f": (0.5, 1.0, 0.0), "all": (0.5, 1.0, 1.0)}
"""Weights of the coarse, fine and temporal loss; the last two begin after 40 % of the steps."""


def order(bench: Bench) -> list[Band]:
    """World C: whether context warping makes features tell when something is shown, in two worlds.

    With the parity cue only prediction of neighbours has a use for the half; with the smooth one, raw features tell the
    place, and warping can only blur it: that one has no band, as the effect is known to be the other way round.
    """
    bands = []
    for cue in ("parity", "smooth"):
        for seed in range(bench.seeds):
            world = World(name="C", seed=seed, cue=cue)
            with Features.open(bench.file(world)) as features:
                raw = [data.load(features, f"planted/{part}") for part in ("train", "test")]
            bench.add(f"C {cue} raw", seed, probes(*(rows_of(corpus) for corpus in raw)))
            for name, (coarse, fine, temporal) in LOSSES.items():
                settings = Locvtp(coarse=coarse, fine=fine, temporal=temporal, start=0.4)
                trained = bench.train(world, settings, "locvtp")
                features_of = [rows_of(corpus, trained.model.video) for corpus, _ in (trained.train, trained.test)]
                bench.add(f"C {cue} {name}", seed, {**probes(*features_of), "row to word": row_to_word(trained)})
        if cue == "parity":
            values = paired(*(bench.of(f"C parity {name}", "order") for name in ("all", "L_c+L_f"))).differences
            bands.append(Band("C, parity: order with L_t - without", values, 0.75))
    return bands


def hubs(bench: Bench) -> list[Band]:
    """World D: biases from a bank of training captions on the scores of one model, beside others and the oracle.

    TACo's L1 is a score of averages, its L2 one of best rows. NCL's own model, with its loss and with the plain one.
    """
    runs: dict[str, tuple[str, Any]] = {"": ("taco", replace(PER_ROW, parts=("L1", "L2"), norm="l2", tau=GAMMA))}
    for name, biased in ((", CL", False), (", NCL", True)):
        runs[name] = ("ncl", Ncl(gamma=GAMMA, normalise_training=biased))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--size", choices=STEPS, default="tiny")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    worlds = chosen.worlds.split(",")
    if odd := set(worlds) - set(WORLDS):
        parser.error(f"--worlds {chosen.worlds}: {', '.join(odd)} is none of {', '.join(WORLDS)}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(chosen.size, chosen.seeds, Path(place))
        bands = [band for world in worlds for band in WORLDS[world](bench)]
    found = {
        "size": bench.size,
        "seeds": bench.seeds,
        "numbers": bench.numbers,
        "bands": [{**asdict(band), "positive": band.positive, "met": band.met} for band in bands],
    }
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


if __name__ == "__main__":
    main()
