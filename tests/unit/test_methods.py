"""Methods as a whole: TACo's loss against the paper's formulas as loops over encoded tokens; batches at the edge."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.store import Features
from tests.unit.corpora import make
from train import batches, data, methods, text
from train.batches import Batch
from train.config import Data, Fit, Run
from train.methods import taco
from train.settings import Locvtp, Ncl, Taco

CAPTIONS = [1, 4, 9, 12, 17, 22, 31]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5")


def made(file: Path, settings: Any, captions: list[int] = CAPTIONS, words: bool = True) -> tuple[Any, Batch]:
    """Return a model in float64 without dropout, and a batch."""
    name = {Taco: "taco", Locvtp: "locvtp", Ncl: "ncl"}[type(settings)]
    run = Run(Data(features=file, text_encoder="tiny"), Fit(), name, settings, ("s/train", "", ""))
    corpus = data.load(Features.open(file), "s/train")
    encoder = text.load("tiny", corpus.texts)
    found = text.pieces(encoder.tokenizer, corpus.texts, corpus.words if words else None, 30)
    torch.manual_seed(0)
    model = methods.get(name).Model(settings, run.data, corpus.dim, encoder.encoder).double().eval()
    batch = batches.make(corpus, found, torch.tensor(captions), run.data)
    return model, dataclasses.replace(batch, video=batch.video.double())


def log_share(scores: list[float], own: int) -> float:
    return scores[own] - math.log(sum(math.exp(score) for score in scores))


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
@pytest.mark.parametrize("directions", ["both", "text"])
@torch.no_grad()
def test_taco_is_equations_3_to_7(file: Path, directions: Any, aggregate: Any) -> None:
    s = Taco(tau=3.0, negatives=2, token_weight=0.7, directions=directions, aggregate=aggregate)
    model, batch = made(file, s)
    video, said = taco._gathered(model, batch)
    K, both = len(CAPTIONS), directions == "both"
    x = [video.tokens[i, : int(video.mask[i].sum())] for i in range(K)]
    y = [said.tokens[i, : int(said.mask[i].sum())] for i in range(K)]
    weights = [batch.texts.weights[i, : len(y[i])].double() for i in range(K)]
    interest = [[p for p in range(len(y[i])) if weights[i][p] > 0] for i in range(K)]
    assert {len(words) for words in interest} == {2}

    def best(word: Tensor, clip: Tensor) -> float:
        return max(float(word @ a) for a in clip) / s.tau

    sentence = [[float(y[i][0] @ x[j].mean(0)) / s.tau for j in range(K)] for i in range(K)]
    words = [[[best(y[i][p], x[j]) for j in range(K)] for p in interest[i]] for i in range(K)]
    l1 = -sum(log_share(sentence[i], i) for i in range(K)) / K
    if both:
        l1 = (l1 - sum(log_share([sentence[i][j] for i in range(K)], j) for j in range(K)) / K) / 2
    share = [[float(weights[i][p]) for p in interest[i]] for i in range(K)]
    l2 = -sum(w * log_share(row, i) for i in range(K) for w, row in zip(share[i], words[i], strict=True)) / K
    early = [
        [
            sentence[i][j]
            + sum((1 if aggregate == "sum" else w) * row[j] for w, row in zip(share[i], words[i], strict=True))
            for j in range(K)
        ]
        for i in range(K)
    ]

    def fused(i: int, j: int) -> float:
        ones = torch.ones(1, len(y[i]), dtype=torch.bool), torch.ones(1, len(x[j]), dtype=torch.bool)
        return float(model.fusion((y[i][None], ones[0]), (x[j][None], ones[1]), torch.tensor([[0, 0]])))

    def hard(scores: list[float], own: int) -> list[int]:
        return [own, *sorted((k for k in range(K) if k != own), key=lambda k: -scores[k])[: s.negatives]]

    l3 = -sum(log_share([fused(i, j) for j in hard(early[i], i)], 0) for i in range(K)) / K
    if both:
        columns = [[early[i][j] for i in range(K)] for j in range(K)]
        l3 = (l3 - sum(log_share([fused(i, j) for i in hard(columns[j], j)], 0) for j in range(K)) / K) / 2
    found = taco.losses(model, batch, s, torch.Generator())
    for name, wanted in {"L1": l1, "L2": l2, "L3": l3, "loss": l1 + 0.7 * l2 + l3}.items():
        assert float(found[name]) == pytest.approx(wanted, abs=1e-6), name


ALL = [
    Taco(), Taco(norm="l2", normalise=("L1", "L2", "L3")), Taco(cascade="random"), Taco(cascade="all", fusion_chunk=1),
    Locvtp(), Locvtp(symmetric=True, modality="intra"), Ncl(), Ncl(head="transformer", normalise_training=False),
]  # fmt: skip


@pytest.mark.parametrize("settings", ALL)
@pytest.mark.parametrize(("captions", "words"), [([3], True), ([3], False), (CAPTIONS, False)])
def test_a_batch_of_one_and_captions_without_words_of_interest(
    file: Path, settings: Any, captions: list[int], words: bool
) -> None:
    model, batch = made(file, settings, captions, words)
    parts = methods.get({Taco: "taco", Locvtp: "locvtp", Ncl: "ncl"}[type(settings)]).losses(
        model, batch, settings, torch.Generator().manual_seed(0)
    )
    assert all(bool(torch.isfinite(part)) for part in parts.values())
    parts["loss"].backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
    if len(captions) == 1 and not isinstance(settings, Locvtp):
        assert float(parts["loss"].detach()) == pytest.approx(0, abs=1e-6)  # nobody to be told from


@torch.no_grad()
def test_the_cascade_picks_by_chance_before_its_start(file: Path) -> None:
    hard, random = Taco(negatives=2, tau=3.0), Taco(negatives=2, tau=3.0, cascade="random")
    model, batch = made(file, hard)

    def loss(settings: Taco, step: int) -> float:
        at = dataclasses.replace(batch, step=(step, 10))
        return float(taco.losses(model, at, settings, torch.Generator().manual_seed(5))["L3"])

    late = dataclasses.replace(hard, start=0.4)
    assert loss(hard, 0) == loss(hard, 9) != loss(random, 0) == loss(random, 9)
    assert [loss(late, step) == loss(random, 0) for step in range(10)] == [True] * 4 + [False] * 6
    assert loss(late, 4) == loss(hard, 0)


def test_a_whole_models_gradients_are_those_of_differences(file: Path) -> None:
    """Cascade, L2's maximum and the fusion in chunks, by one direction through all parameters of the video side."""
    s = Taco(negatives=2, tau=5.0, fusion_chunk=3)
    model, batch = made(file, s)
    loss = lambda: taco.losses(model, batch, s, torch.Generator())["loss"]  # noqa: E731
    loss().backward()
    some: list[nn.Parameter] = [p for n, p in model.named_parameters() if n.startswith(("video.", "fusion."))]
    way = [torch.randn(p.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) for p in some]
    slope = sum(float((p.grad * w).sum()) for p, w in zip(some, way, strict=True) if p.grad is not None)
    values = []
    for step in (1e-6, -2e-6):  # from one side of the weights to the other
        with torch.no_grad():
            for p, w in zip(some, way, strict=True):
                p.add_(step * w)
            values.append(float(loss()))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4)
