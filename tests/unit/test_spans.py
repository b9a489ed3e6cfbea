"""Grounding without candidates: its formulas as loops, edge cases, and that it learns."""

import dataclasses
import doctest
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.errors import BadSetting
from train import methods
from train.batches import Batch
from train.config import Data
from train.methods import spans as module
from train.methods.spans import (
    Model,
    inside,
    losses,
    overlap,
    overlap_loss,
    predict,
    quality_loss,
    spans_of,
)
from train.moments import best_constant, nms, recalls
from train.settings import Spans
from train.text import Encoder, Sentences

DIM, WORD = 10, 6
SMALL = Spans(dim=32, layers=1, dropout=0.0)
MASK = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
TRUTH = torch.tensor([[0.25, 0.7], [0.4, 0.45], [0.2, 0.9]], dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch_of(video: Tensor, mask: Tensor, spans: Tensor, said: Tensor, said_mask: Tensor | None = None) -> Batch:
    """Return a batch whose captions are token features (K, S, d)."""
    there = torch.ones(said.shape[:2], dtype=torch.bool) if said_mask is None else said_mask
    text = Sentences(there.long(), there.float(), there, said)
    own = torch.arange(len(video))
    return Batch(own, own, video, text, mask, text, spans=spans)


def small_batch(some: slice = slice(0, 3)) -> Batch:
    """Three videos of 5, 3 and 1 tokens; the second moment is shorter than a token."""
    video, said = randn(3, 5, DIM)[some], randn(3, 4, WORD, seed=1)[some]
    words = (torch.arange(4) < torch.tensor([4, 2, 3])[:, None])[some]
    return batch_of(video, MASK[some], TRUTH[some], said, words)


def model_of(settings: Spans = SMALL, in_dim: int = DIM, word: int = WORD) -> Model:
    torch.manual_seed(0)
    data = Data(features="f.h5", max_video_tokens=40)  # type: ignore[arg-type]
    return Model(settings, data, in_dim, Encoder(nn.Identity(), word))


def test_doctests() -> None:
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 4


def test_spans_are_averages_of_the_starts_before_and_the_ends_after() -> None:
    scores = randn(2, 3, 5, 5)
    found = spans_of(scores, MASK)
    for k, n in enumerate([5, 3, 1]):
        for i in range(n):
            starts = {j: math.exp(scores[0, k, i, j]) for j in range(i + 1)}
            ends = {j: math.exp(scores[1, k, i, j]) for j in range(i, n)}
            start = sum(w * j / n for j, w in starts.items()) / sum(starts.values())
            end = sum(w * (j + 1) / n for j, w in ends.items()) / sum(ends.values())
            assert found[k, i].tolist() == pytest.approx([start, end], abs=1e-12)
            assert 0 <= start <= i / n < (i + 1) / n <= end <= 1


def test_a_token_that_points_hard_says_the_edges_of_tokens() -> None:
    scores = torch.full((2, 1, 4, 4), -1e4)
    scores[0, :, :, 1] = scores[1, :, :, 2] = 1e4
    assert spans_of(scores, torch.ones(1, 4, dtype=torch.bool))[0, 1:3].tolist() == [[0.25, 0.75], [0.25, 0.75]]


def test_tokens_in_the_moment() -> None:
    many = torch.arange(6) < torch.tensor([6, 4, 4, 1, 4, 0])[:, None]
    spans = torch.tensor([[0.24, 0.5], [0.26, 0.3], [0.95, 1.0], [0.0, 0.1], [0.5, 0.5], [0.2, 0.4]])
    assert inside(spans, many).int().tolist() == [
        [0, 1, 1, 0, 0, 0],  # middles at 0.25 and 0.42; the next one is at 0.58
        [0, 1, 0, 0, 0, 0],  # no middle is in it: the token around 0.28
        [0, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],  # there is no token
    ]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0.2, 0.6], [0.2, 0.6], 1.0),
        ([0.0, 0.5], [0.25, 1.0], 0.25),  # 0.25 of 1
        ([0.2, 0.4], [0.0, 0.8], 0.25),  # one in the other: 0.2 of 0.8
        ([0.0, 0.5], [0.5, 1.0], 0.0),
        ([0.0, 0.2], [0.6, 1.0], -0.4),  # IoU 0, less the 0.4 of the hull of 1 that is neither's
    ],
)
def test_overlap_by_hand(a: list[float], b: list[float], expected: float) -> None:
    spans = torch.tensor([a, b], dtype=torch.float64)
    assert overlap(spans[0], spans[1]).item() == pytest.approx(expected)
    assert overlap(spans[1], spans[0]).item() == pytest.approx(expected)


def test_overlap_is_the_generalised_iou() -> None:
    a, b = (randn(50, 2, seed=seed).sort(dim=1).values for seed in (3, 4))
    for one, two, found in zip(a.tolist(), b.tolist(), overlap(a, b).tolist(), strict=True):
        both = max(0.0, min(one[1], two[1]) - max(one[0], two[0]))
        union = one[1] - one[0] + two[1] - two[0] - both
        hull = max(one[1], two[1]) - min(one[0], two[0])
        assert found == pytest.approx(both / union - (hull - union) / hull)


def test_losses_are_their_formulas() -> None:
    batch, model = small_batch(), model_of().double()
    found = losses(model, batch, SMALL, torch.Generator())
    logits, spans = (x.detach() for x in model(batch))
    there = [[1, 2], [1], [0]]  # middles are at 0.1, 0.3, 0.5, 0.7, 0.9; a part of the second of three; the only one
    there[0] = [i for i in range(5) if 0.25 <= (i + 0.5) / 5 <= 0.7]
    assert there[0] == [1, 2, 3]
    of_quality, of_overlap = 0.0, 0.0
    for k, n in enumerate([5, 3, 1]):
        start, end = TRUTH[k].tolist()
        for i in range(n):
            a, b = spans[k, i].tolist()
            sigma, target = 1 / (1 + math.exp(-logits[k, i])), 0.0
            if i in there[k]:
                met = (min(b, end) - max(a, start)) / (max(b, end) - min(a, start))
                of_overlap += (1 - met) / len(there[k])
                target = max(0.0, met)
            of_quality -= (target * math.log(sigma) + (1 - target) * math.log(1 - sigma)) / len(there[k])
    assert found["quality"].item() == pytest.approx(of_quality / 3, abs=1e-9)
    assert found["overlap"].item() == pytest.approx(of_overlap / 3, abs=1e-9)
    assert found["loss"].item() == pytest.approx((of_quality + SMALL.overlap_weight * of_overlap) / 3, abs=1e-9)


def test_gradients() -> None:
    there = inside(TRUTH, MASK)

    def of_scores(scores: Tensor) -> Tensor:
        return overlap_loss(spans_of(scores, MASK), TRUTH, there)

    assert torch.autograd.gradcheck(of_scores, randn(2, 3, 5, 5).requires_grad_())
    quality = torch.rand(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * there
    logits = randn(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: quality_loss(x, quality, MASK, there), logits)
    assert torch.autograd.gradcheck(overlap, (randn(4, 2).sort().values.requires_grad_(), randn(4, 2, seed=5)))


def test_what_is_said_of_quality_does_not_move_spans() -> None:
    model, batch = model_of().double(), small_batch()
    quality = losses(model, batch, SMALL, torch.Generator())["quality"]
    quality.backward()
    assert model.read.weight.grad is not None
    assert bool(model.read.weight.grad[:1].any())
    assert not bool(model.read.weight.grad[1:].any())


def test_padding_changes_nothing() -> None:
    model, batch = model_of().double(), small_batch()
    anything = torch.full((3, 4, DIM), 7.0, dtype=torch.float64)
    longer = dataclasses.replace(
        batch,
        video=torch.where((torch.arange(9) < 5)[:, None] & nn.functional.pad(MASK, (0, 4))[:, :, None],
                          torch.cat([batch.video, anything], dim=1), 7.0),
        video_mask=nn.functional.pad(MASK, (0, 4)),
    )  # fmt: skip
    torch.testing.assert_close(
        losses(model, longer, SMALL, torch.Generator()), losses(model, batch, SMALL, torch.Generator())
    )
    (spans, scores), (more_spans, more_scores) = predict(model, batch, SMALL), predict(model, longer, SMALL)
    torch.testing.assert_close(more_spans[:, :5][MASK], spans[MASK])
    torch.testing.assert_close(more_scores[:, :5], scores)
    assert bool((more_scores[:, 5:] == -math.inf).all())
    alone = predict(model, small_batch(slice(1, 2)), SMALL)
    torch.testing.assert_close(alone[0][0, :3], spans[1, :3])


def test_tokens_know_their_place_and_their_neighbours() -> None:
    model, mask = model_of().double(), torch.ones(1, 8, dtype=torch.bool)
    batch = batch_of(torch.ones(1, 8, DIM, dtype=torch.float64), mask, TRUTH[:1], randn(1, 4, WORD))
    with torch.no_grad():
        same = model(batch)[0][0]
        assert not torch.isclose(same[3], same[4])
        model.positions.weight.zero_()
        for block in model.stack.blocks:
            block.out.weight.zero_()
        alike = model(batch)[0][0]
        torch.testing.assert_close(alike[1:7], alike[1].expand(6))
        batch.video[0, 5] = -1.0
        other = model(batch)[0][0]
    assert torch.isclose(alike, other).tolist() == [True] * 4 + [False] * 3 + [True]


def test_a_share_of_the_batch_has_its_own_masks_and_spans() -> None:
    model, batch = model_of().double(), small_batch()
    whole = losses(model, batch, SMALL, torch.Generator())["loss"]
    parts = []
    for some in (slice(0, 1), slice(1, 3)):
        share = dataclasses.replace(batch, own=batch.own[some], video=batch.video[some], text=small_batch(some).text)
        parts.append(len(share.own) * losses(model, share, SMALL, torch.Generator())["loss"])
    torch.testing.assert_close(sum(parts) / 3, whole)


@pytest.mark.parametrize("some", [slice(0, 3), slice(1, 2), slice(2, 3)], ids=["all", "short moment", "one token"])
@pytest.mark.parametrize("seen", [True, False], ids=["", "no video token"])
@pytest.mark.parametrize("said", [True, False], ids=["", "no word"])
def test_edges_are_finite(some: slice, seen: bool, said: bool) -> None:
    model, batch = model_of().double(), small_batch(some)
    text = dataclasses.replace(batch.text, mask=batch.text.mask & said)
    batch = dataclasses.replace(batch, video_mask=batch.video_mask & seen, text=text)
    found = losses(model, batch, SMALL, torch.Generator())
    found["loss"].backward()
    assert all(bool(part.isfinite()) for part in found.values())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    if not seen:
        assert found["loss"].item() == 0


@pytest.mark.parametrize("autocast", [False, True])
def test_predictions_are_spans_of_the_video(autocast: bool) -> None:
    model, batch = model_of().float(), small_batch()
    features = batch.text.features
    assert features is not None
    text = dataclasses.replace(batch.text, features=features.float())
    batch = dataclasses.replace(batch, video=100 * batch.video.float(), text=text)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        spans, scores = predict(model, batch, SMALL)
        loss = losses(model, batch, SMALL, torch.Generator())["loss"]
    assert spans.shape == (3, 5, 2)
    assert bool((spans[:, :, 0] >= 0).all() and (spans[:, :, 0] < spans[:, :, 1]).all() and (spans <= 1).all())
    assert scores.isfinite().tolist() == MASK.tolist()
    assert {x.dtype for x in (spans, scores, loss)} == {torch.float32}


def planted(k: int, seed: int) -> Batch:
    """One of six concepts in the moment, another before it, in noise; a caption of four words names the first."""
    draw = torch.Generator().manual_seed(seed)
    concepts, words = randn(6, DIM, seed=99).float(), randn(6, WORD, seed=98).float()
    count = torch.randint(12, 25, (k,), generator=draw)
    mask = torch.arange(24) < count[:, None]
    length = 0.1 + 0.5 * torch.rand(k, generator=draw)
    start = torch.rand(k, generator=draw) * (1 - length)
    asked = torch.randint(6, (k,), generator=draw)
    other = (asked + torch.randint(1, 6, (k,), generator=draw)) % 6
    middle = (torch.arange(24) + 0.5) / count[:, None]
    before, there = middle < start[:, None], (middle >= start[:, None]) & (middle <= (start + length)[:, None])
    video = 0.5 * torch.randn(k, 24, DIM, generator=draw)
    video += there[:, :, None] * concepts[asked][:, None] + before[:, :, None] * concepts[other][:, None]
    said = 0.2 * torch.randn(k, 4, WORD, generator=draw)
    said[torch.arange(k), torch.randint(4, (k,), generator=draw)] = words[asked]
    return batch_of(video * mask[:, :, None], mask, torch.stack([start, start + length], dim=1), said)


def test_it_learns_where_a_sentence_is() -> None:
    s = Spans(dim=64, layers=2, dropout=0.0)
    model, test = model_of(s), planted(200, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def hits(found: tuple[Tensor, Tensor], m: float = 0.5) -> float:
        assert test.spans is not None
        return recalls(nms(*found, 0.5, 1)[0], test.spans, (1,), (m,)).recalls[1, m]

    untrained = hits(predict(model, test, s))
    model.train()
    for step in range(150):
        optimiser.zero_grad()
        losses(model, planted(32, seed=2 + step), s, torch.Generator())["loss"].backward()
        optimiser.step()
    assert test.spans is not None
    blind = hits((best_constant(test.spans).expand(200, 1, 2), torch.zeros(200, 1)))
    assert 0.2 < blind < 0.5
    found = predict(model, test, s)
    assert hits(found) > max(0.8, untrained + 0.3, blind + 0.3)
    assert hits(found, 0.7) > 0.8  # edges: 0.96, and 0.62 without the convolution


@pytest.mark.parametrize("dim", [0, 200])
def test_a_size_that_cannot_be(dim: int) -> None:
    with pytest.raises(BadSetting, match=f"--dim {dim}: expected a multiple of 64"):
        model_of(Spans(dim=dim))


def test_the_method_is_found_by_its_name() -> None:
    found: Any = methods.get("spans")
    assert found.Model is Model
