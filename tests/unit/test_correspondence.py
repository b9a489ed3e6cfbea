"""LocVTP's correspondence, warping and losses, against the formulas written again as loops."""

import doctest
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from train import correspondence
from train.correspondence import (
    Pairs,
    Targets,
    Warp,
    coarse,
    correspond,
    fine,
    rivals,
    temporal,
    temporal_intra,
    valid_offsets,
    warped,
    weights,
)

HOW = ["clip-topk", "word-topk", "2d-topk", "random"]
TAU = 0.07
IDS = torch.tensor([[9, 1, 2, 3, 9, 0], [9, 2, 1, 4, 5, 9], [9, 3, 9, 0, 0, 0]])
"""Words of `made()`: 9 is [CLS] and [SEP], 0 padding."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(seed: int = 0, dim: int = 4) -> Pairs:
    """Three videos of 4, 3 and 2 clips with sentences of 3, 4 and 1 words, in float64."""
    generator = seeded(seed)
    clips = torch.randn(3, 4, dim, dtype=torch.float64, generator=generator)
    words = torch.randn(3, 6, dim, dtype=torch.float64, generator=generator)
    clip_mask = torch.arange(4) < torch.tensor([4, 3, 2])[:, None]
    return Pairs(clips, clip_mask, words, (IDS != 9) & (IDS != 0))


def angled(clips: list[float], words: list[float], lengths: list[float]) -> Pairs:
    """One video in the plane: directions in degrees, and the words' lengths."""
    v, q = (torch.deg2rad(torch.tensor(x, dtype=torch.float64)) for x in (clips, words))
    scale = torch.tensor(lengths, dtype=torch.float64)[:, None]
    return Pairs(
        torch.stack([v.cos(), v.sin()], 1)[None],
        torch.ones(1, len(clips), dtype=torch.bool),
        (scale * torch.stack([q.cos(), q.sin()], 1))[None],
        torch.ones(1, len(words), dtype=torch.bool),
    )


def cosine(x: list[float], y: list[float]) -> float:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x)) / math.sqrt(sum(b * b for b in y))


def average(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def real(pairs: Pairs, i: int) -> tuple[list[int], list[int]]:
    """Which clips and words video i has."""
    return pairs.clip_mask[i].nonzero()[:, 0].tolist(), pairs.word_mask[i].nonzero()[:, 0].tolist()


def slow_coarse(pairs: Pairs) -> float:
    v, q = pairs.clips.tolist(), pairs.words.tolist()
    count = len(v)
    videos = [average([v[i][t] for t in real(pairs, i)[0]]) for i in range(count)]
    texts = [average([q[i][s] for s in real(pairs, i)[1]]) for i in range(count)]
    total = 0.0
    for i in range(count):
        total -= math.log(
            math.exp(cosine(videos[i], texts[i]) / TAU) / sum(math.exp(cosine(videos[i], x) / TAU) for x in texts)
        )
    return total / count


def slow_fine(
    pairs: Pairs, z: list[list[list[float]]], chosen: torch.Tensor, own_words: str, ids: torch.Tensor | None
) -> float:
    """Equation 3, or 5 with z; a clip takes part if it has a word and `z` is not empty there."""
    q, means = pairs.words.tolist(), []
    for i in range(len(q)):
        losses = []
        for t in real(pairs, i)[0]:
            mine = [s for s in range(pairs.words.shape[1]) if chosen[i, t, s]]
            if not mine or not z[i][t]:
                continue
            numerator = math.exp(cosine(z[i][t], average([q[i][s] for s in mine])) / TAU)
            said = [] if ids is None else [ids[i, s] for s in mine]
            denominator = numerator
            for j, s in pairs.word_mask.nonzero().tolist():
                if (j != i and (ids is None or ids[j, s] not in said)) or (j == i and own_words == "keep"):
                    denominator += math.exp(cosine(z[i][t], q[j][s]) / TAU)
            losses.append(-math.log(numerator / denominator))
        if losses:
            means.append(sum(losses) / len(losses))
    return sum(means) / len(means)


def test_doctests() -> None:
    found = doctest.testmod(correspondence)
    assert found.attempted > 0
    assert found.failed == 0


# Equation 1


@pytest.mark.parametrize("seed", range(3))
def test_coarse_is_the_slow_one(seed: int) -> None:
    pairs = made(seed)
    assert coarse(pairs, TAU).item() == pytest.approx(slow_coarse(pairs), abs=1e-9)
    turned = Pairs(pairs.words, pairs.word_mask, pairs.clips, pairs.clip_mask)
    assert coarse(turned, TAU).item() == pytest.approx(slow_coarse(turned), abs=1e-9)


def test_coarse_leaves_out_videos_without_clips_and_sentences_without_words() -> None:
    pairs = made()
    silent = replace(pairs, word_mask=pairs.word_mask & torch.tensor([True, True, False])[:, None])
    two = Pairs(pairs.clips[:2], pairs.clip_mask[:2], pairs.words[:2], pairs.word_mask[:2])
    assert coarse(silent).item() == pytest.approx(slow_coarse(two), abs=1e-9)


# Equation 2


def chosen_of(pairs: Pairs, k: int, how: str) -> list[list[int]]:
    return correspond(pairs, k, how, seeded()).chosen[0].int().tolist()


def test_who_picks_by_hand() -> None:
    # Cosines of the clips at 0 and 90 degrees: .98 .94 .50 and .17 .34 .87. Lengths would change dot products.
    pairs = angled([0, 90], [10, 20, 60], [0.1, 1.0, 9.0])
    assert chosen_of(pairs, 1, "clip-topk") == [[1, 0, 0], [0, 0, 1]]
    assert chosen_of(pairs, 2, "clip-topk") == [[1, 1, 0], [0, 1, 1]]
    assert chosen_of(pairs, 1, "word-topk") == [[1, 1, 0], [0, 0, 1]]
    assert chosen_of(pairs, 1, "2d-topk") == [[1, 1, 0], [0, 0, 0]]  # the best 2 of 6
    assert chosen_of(pairs, 2, "2d-topk") == [[1, 1, 1], [0, 0, 1]]  # the best 4 of 6
    for how in HOW:
        assert chosen_of(pairs, 9, how) == [[1, 1, 1], [1, 1, 1]]


def test_a_clip_that_no_word_picks_has_no_positive() -> None:
    found = correspond(angled([0, 90], [10, 20, 30], [1, 1, 1]), 1, "word-topk", seeded())
    assert found.chosen[0].int().tolist() == [[1, 1, 1], [0, 0, 0]]
    assert found.positives[0, 1].tolist() == [0, 0]


def test_positive_is_the_average_of_the_words() -> None:
    pairs = angled([0], [0, 90, 180], [2.0, 3.0, 1.0])
    found = correspond(pairs, 2, "clip-topk", seeded())
    assert found.positives[0, 0].tolist() == pytest.approx([1.0, 1.5])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_counts_and_masks(how: str, k: int) -> None:
    pairs = made()
    chosen = correspond(pairs, k, how, seeded()).chosen
    assert not (chosen & ~(pairs.clip_mask[:, :, None] & pairs.word_mask[:, None])).any()
    for i, (clips, words) in enumerate([(4, 3), (3, 4), (2, 1)]):
        if how in ("clip-topk", "random"):
            assert chosen[i].sum(1).tolist()[:clips] == [min(k, words)] * clips
        elif how == "word-topk":
            assert sorted(chosen[i].sum(0).tolist())[-words:] == [min(k, clips)] * words
        else:
            assert chosen[i].sum() == min(k * clips, clips * words)


def test_random_words_come_from_the_generator_and_all_come_up() -> None:
    pairs = made()
    first, again, other = (correspond(pairs, 2, "random", seeded(s)).chosen for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    generator = seeded()
    times = sum(correspond(pairs, 1, "random", generator).chosen[0, 0].int() for _ in range(600))
    assert times[[0, 4, 5]].tolist() == [0, 0, 0]
    assert times[1:4].tolist() == pytest.approx([200] * 3, abs=4 * math.sqrt(600 * 2 / 9))


def test_gradients_flow_through_the_average_only() -> None:
    pairs = made()
    live = replace(pairs, clips=pairs.clips.requires_grad_(), words=pairs.words.requires_grad_())
    found = correspond(live, 2, "clip-topk", seeded())
    clips, words = torch.autograd.grad(found.positives.sum(), [live.clips, live.words], allow_unused=True)
    assert clips is None
    # Each chosen word gets 1 / its clip's number of words, from every clip that chose it.
    share = found.chosen.double() / found.chosen.sum(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(words, share.sum(1)[:, :, None].expand_as(words))


# Equation 3


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("own_words", ["mask", "keep"])
@pytest.mark.parametrize("ids", [None, IDS])
def test_fine_is_the_slow_one(how: str, own_words: str, ids: torch.Tensor | None) -> None:
    pairs = made(1)
    targets = correspond(pairs, 2, how, seeded())
    found = fine(pairs, targets, rivals(pairs, targets, own_words, ids), TAU)
    slow = slow_fine(pairs, pairs.clips.tolist(), targets.chosen, own_words, ids)
    assert found.item() == pytest.approx(slow, abs=1e-9)


def test_rivals_by_hand() -> None:
    # Two sentences: the [cat]=7 a=5 cat=7; a=5 cat=7 [pad]. The clip of the first one chose the first word.
    mask = torch.tensor([[True, True, True], [True, True, False]])
    ids = torch.tensor([[7, 5, 7], [5, 7, 7]])
    pairs = Pairs(torch.ones(2, 1, 2), torch.ones(2, 1, dtype=torch.bool), torch.ones(2, 3, 2), mask)
    targets = Targets(torch.ones(2, 1, 2), torch.tensor([[[True, False, False]], [[True, False, False]]]))

    def first(own_words: str, word_ids: torch.Tensor | None) -> list[int]:
        return rivals(pairs, targets, own_words, word_ids)[0, 0].int().tolist()

    assert first("keep", None) == [1, 1, 1, 1, 1, 0]
    assert first("mask", None) == [0, 0, 0, 1, 1, 0]
    assert first("keep", ids) == [1, 1, 1, 1, 0, 0]
    assert first("mask", ids) == [0, 0, 0, 1, 0, 0]
    # The second one chose "a", which the first sentence has in its middle.
    assert rivals(pairs, targets, "mask", ids)[1, 0].int().tolist() == [1, 0, 1, 0, 0, 0]


def test_a_word_said_twice_and_chosen_once_is_still_chosen() -> None:
    ids = torch.tensor([[7, 7, 7, 7], [7, 1, 2, 3]])
    pairs = Pairs(torch.ones(2, 1, 2), torch.ones(2, 1, dtype=torch.bool), torch.ones(2, 4, 2), ids > 0)
    for place in range(4):
        chosen = torch.zeros(2, 1, 4, dtype=torch.bool)
        chosen[0, 0, place] = True
        kept = rivals(pairs, Targets(torch.ones(2, 1, 2), chosen), "mask", ids)
        assert kept[0, 0].int().tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


# Equations 4 and 5


def test_offsets_stay_inside_the_video() -> None:
    mask = torch.arange(9) < torch.tensor([9, 4, 2, 1, 0])[:, None]
    generator = seeded()
    for delta_max in (1, 4, 20):
        for _ in range(30):
            offsets = valid_offsets(mask, delta_max, generator)
            assert offsets.dtype == torch.int64
            assert offsets.abs().max() <= delta_max
            there = torch.arange(9) + offsets
            assert mask.gather(1, there)[mask].all()
            assert torch.equal(offsets != 0, mask & torch.tensor([True, True, True, False, False])[:, None])


def test_offsets_are_uniform_over_the_valid_ones() -> None:
    mask = (torch.arange(5) < 4).expand(4000, 5)
    offsets = valid_offsets(mask, 2, seeded())
    for t, valid in enumerate([[1, 2], [-1, 1, 2], [-2, -1, 1], [-2, -1]]):
        found = Counter(offsets[:, t].tolist())
        assert sorted(found) == valid
        share = 1 / len(valid)
        assert list(found.values()) == pytest.approx(
            [4000 * share] * len(valid), abs=4 * math.sqrt(4000 * share * (1 - share))
        )


def test_warp_by_hand() -> None:
    warp = Warp(2)
    with torch.no_grad():
        warp.project.weight.copy_(torch.tensor([[1.0, 0.0, 10.0, 100.0], [0.0, 1.0, 10.0, 1.0]]))
    moved = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    # 1 + 10 + 300, 2 + 10 + 3; 3 - 10 + 200, 4 - 10 + 2 below 0
    assert warp(moved, torch.tensor([[3, -2]])).tolist() == [[[311.0, 15.0], [193.0, 0.0]]]


@pytest.mark.parametrize(("direction", "distance"), [(True, True), (True, False), (False, True), (False, False)])
def test_warp_knows_what_it_is_told(direction: bool, distance: bool) -> None:
    torch.manual_seed(0)
    warp = Warp(3, direction, distance)
    assert [p.shape for p in warp.parameters()] == [(3, 3 + direction + distance)]
    x = torch.rand(1, 1, 3)
    with torch.no_grad():
        warp.project.weight.abs_()  # away from ReLU's flat side
    forward, back, far = (warp(x + 9, torch.tensor([[d]])) for d in (1, -1, 2))
    assert torch.equal(forward, back) != direction
    assert torch.equal(forward, far) != distance


@pytest.mark.parametrize("ids", [None, IDS])
def test_temporal_is_the_slow_one(ids: torch.Tensor | None) -> None:
    pairs = made(2)
    pairs = replace(pairs, clip_mask=torch.arange(4) < torch.tensor([4, 3, 1])[:, None])  # the last has no neighbour
    targets = correspond(pairs, 2, "clip-topk", seeded())
    offsets = valid_offsets(pairs.clip_mask, 4, seeded())
    warp = Warp(4).double()
    z = warp(warped(pairs.clips, offsets), offsets)
    weight = warp.project.weight.tolist()
    slow_z: list[list[list[float]]] = [[[] for _ in range(4)] for _ in range(3)]
    for i in range(3):
        for t in range(4):
            delta = int(offsets[i, t])
            if delta:
                given = [*pairs.clips[i, t + delta].tolist(), math.copysign(1, delta), abs(delta)]
                slow_z[i][t] = [max(0.0, sum(w * x for w, x in zip(row, given, strict=True))) for row in weight]
    assert not slow_z[2][0]
    found = temporal(pairs, z, offsets, targets, rivals(pairs, targets, "mask", ids), TAU)
    assert found.item() == pytest.approx(slow_fine(pairs, slow_z, targets.chosen, "mask", ids), abs=1e-9)


def test_intra_modal_is_the_slow_one() -> None:
    pairs = made(3)
    pairs = replace(pairs, clip_mask=torch.arange(4) < torch.tensor([4, 3, 1])[:, None])  # the last has no neighbour
    offsets = valid_offsets(pairs.clip_mask, 4, seeded())
    z = warped(pairs.clips, offsets) + 0.1
    v, means = pairs.clips.tolist(), []
    for i in range(2):
        losses = []
        for t in real(pairs, i)[0]:
            here = z[i, t].tolist()
            total = sum(math.exp(cosine(here, v[j][u]) / TAU) for j in range(3) for u in real(pairs, j)[0])
            losses.append(-math.log(math.exp(cosine(here, v[i][t]) / TAU) / total))
        means.append(sum(losses) / len(losses))
    assert temporal_intra(pairs, z, offsets, TAU).item() == pytest.approx(sum(means) / 2, abs=1e-9)


# All losses


def losses(pairs: Pairs, warp: Warp, how: str = "clip-topk") -> list[torch.Tensor]:
    targets = correspond(pairs, 2, how, seeded())
    kept = rivals(pairs, targets, "mask", IDS[: len(pairs.words), : pairs.words.shape[1]])
    offsets = valid_offsets(pairs.clip_mask, 4, seeded())
    z = warp(warped(pairs.clips, offsets), offsets)
    return [
        coarse(pairs),
        fine(pairs, targets, kept),
        temporal(pairs, z, offsets, targets, kept),
        temporal_intra(pairs, z, offsets),
    ]


@pytest.mark.parametrize("which", range(4))
def test_gradients(which: int) -> None:
    torch.manual_seed(1)
    pairs, warp = made(), Warp(4).double()

    def loss(clips: torch.Tensor, words: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return losses(replace(pairs, clips=clips, words=words), warp)[which]

    inputs = (pairs.clips.requires_grad_(), pairs.words.requires_grad_(), warp.project.weight)
    assert torch.autograd.gradcheck(loss, inputs)


def backward(pairs: Pairs) -> tuple[list[float], list[torch.Tensor]]:
    torch.manual_seed(0)
    warp = Warp(pairs.clips.shape[2]).to(pairs.clips.dtype)
    live = replace(pairs, clips=pairs.clips.clone().requires_grad_(), words=pairs.words.clone().requires_grad_())
    found = losses(live, warp)
    sum(found).backward()
    return [x.item() for x in found], [live.clips.grad, live.words.grad, warp.project.weight.grad]


@pytest.mark.parametrize("clips", [[], [0], [0, 1, 2]])
@pytest.mark.parametrize("words", [[], [0], [0, 1, 2]])
def test_masks_that_are_empty(clips: list[int], words: list[int]) -> None:
    pairs = made()
    some = [torch.tensor([i in keep for i in range(3)])[:, None] for keep in (clips, words)]
    pairs = replace(pairs, clip_mask=pairs.clip_mask & some[0], word_mask=pairs.word_mask & some[1])
    values, gradients = backward(pairs)
    assert all(map(math.isfinite, values))
    assert all(g.isfinite().all() for g in gradients)
    if not clips or not words:
        assert values[:3] == [0, 0, 0]
        assert (values[3] == 0) == (not clips)


def test_batch_of_one() -> None:
    pairs = made()
    one = Pairs(pairs.clips[:1], pairs.clip_mask[:1], pairs.words[:1], pairs.word_mask[:1])
    values, gradients = backward(one)
    assert values[:3] == [0, 0, 0]  # no other sentence; the own one's words are no rivals
    assert values[3] > 0  # the other clips of the video
    assert all(g.isfinite().all() for g in gradients)


def test_features_of_zeros_are_finite() -> None:
    pairs = made()
    values, gradients = backward(replace(pairs, clips=pairs.clips * 0, words=pairs.words * 0))
    assert all(map(math.isfinite, values))
    assert all(g.isfinite().all() for g in gradients)


def test_padding_changes_nothing_and_gets_no_gradient() -> None:
    pairs = made()
    clips = torch.where(pairs.clip_mask[:, :, None], pairs.clips, 1e4)
    words = torch.where(pairs.word_mask[:, :, None], pairs.words, -1e4)
    values, gradients = backward(pairs)
    others, other_gradients = backward(replace(pairs, clips=clips, words=words))
    assert others == pytest.approx(values, abs=1e-12)
    for mine, theirs in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not other_gradients[0][~pairs.clip_mask].any()
    assert not other_gradients[1][~pairs.word_mask].any()


def test_bfloat16_is_compared_in_float32_under_autocast_too() -> None:
    pairs = made()
    low = replace(pairs, clips=pairs.clips.bfloat16(), words=pairs.words.bfloat16())
    same = replace(pairs, clips=low.clips.double(), words=low.words.double())
    wanted = [loss(same).item() for loss in (coarse, _fine)]
    with torch.autocast("cpu", torch.bfloat16):
        found = [loss(low) for loss in (coarse, _fine)]
    assert [x.dtype for x in found] == [torch.float32] * 2
    assert [x.item() for x in found] == pytest.approx(wanted, rel=1e-5)


def _fine(pairs: Pairs) -> torch.Tensor:
    targets = correspond(pairs, 2, "clip-topk", seeded())
    return fine(pairs, targets, rivals(pairs, targets))


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor made has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, torch.Tensor):
                self.numbers = max(self.numbers, x.numel())
        return made


def test_nothing_larger_than_clips_by_words_is_made() -> None:
    pairs = made(dim=64)
    with Largest() as largest:
        backward(pairs)
    clips, words = pairs.clip_mask.numel(), pairs.word_mask.numel()
    assert largest.numbers <= max(clips * (words + 1), words * 64, 64 * 66)


# Equation 6


def test_weights_over_training() -> None:
    assert {weights(step, 10) for step in range(10)} == {(0.5, 1.0, 1.0)}
    assert weights(3, 10, base=(2.0, 3.0, 4.0)) == (2.0, 3.0, 4.0)
    decay = [weights(step, 10, "warm-up")[0] for step in range(11)]
    assert decay[0] == 1
    assert decay[10] == pytest.approx(0.01)
    assert [b / a for a, b in pairwise(decay)] == pytest.approx([0.01**0.1] * 10)
    late = [weights(step, 10, start=0.4) for step in range(10)]
    assert late == [(0.5, 0.0, 0.0)] * 4 + [(0.5, 1.0, 1.0)] * 6
    stages = [weights(step, 10, "multi-stage", start=0.3) for step in range(10)]
    assert stages == [(1.0, 0.0, 0.0)] * 3 + [(0.0, 1.0, 1.0)] * 7
    assert [weights(step, 4, "multi-stage") for step in (1, 2)] == [(1.0, 0.0, 0.0), (0.0, 1.0, 1.0)]
    assert weights(2, 10, "warm-up", start=0.4)[1:] == (0.0, 0.0)
