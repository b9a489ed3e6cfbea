"""TACo's losses against the formulas written as loops, in float64."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from train import losses
from train.losses import (
    at_random,
    cascade_scores,
    fusion_nce,
    hardest,
    mean_tokens,
    nce,
    token_nce,
    unique_pairs,
    word_scores,
)

K, M, D = 5, 4, 6


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """Five pairs: videos of 1 to 4 tokens, captions with 0 to 3 words of interest."""
    g = torch.Generator().manual_seed(3)
    sizes = torch.tensor([4, 1, 3, 2, 4])
    owner = torch.tensor([0, 0, 0, 1, 3, 3])  # captions 2 and 4 have no word of interest
    weights = torch.tensor([0.5, 0.25, 0.25, 1.0, 0.4, 0.6], dtype=torch.float64)
    return {
        "video": torch.randn(K, M, D, generator=g, dtype=torch.float64),
        "mask": torch.arange(M) < sizes[:, None],
        "text": torch.randn(K, D, generator=g, dtype=torch.float64),
        "words": torch.randn(len(owner), D, generator=g, dtype=torch.float64),
        "owner": owner,
        "weights": weights,
    }


def dot(a: Tensor, b: Tensor) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def mean_video(batch: dict[str, Tensor], j: int) -> Tensor:
    own = [batch["video"][j, a] for a in range(M) if batch["mask"][j, a]]
    return sum(own[1:], own[0]) / len(own)


def best(batch: dict[str, Tensor], j: int, word: Tensor) -> float:
    return max(dot(batch["video"][j, a], word) for a in range(M) if batch["mask"][j, a])


def test_l1_is_equation_3(batch: dict[str, Tensor]) -> None:
    expected = 0.0
    for i in range(K):
        scores = [dot(mean_video(batch, j), batch["text"][i]) / 0.7 for j in range(K)]
        expected -= math.log(math.exp(scores[i]) / sum(map(math.exp, scores)))
    sentence = batch["text"] @ mean_tokens(batch["video"], batch["mask"]).T / 0.7
    assert float(nce(sentence, torch.arange(K)).sum()) == pytest.approx(expected, abs=1e-9)


def test_l2_is_equation_4_weighted_by_idf(batch: dict[str, Tensor]) -> None:
    expected = 0.0
    for word, i, weight in zip(batch["words"], batch["owner"].tolist(), batch["weights"].tolist(), strict=True):
        scores = [best(batch, j, word) / 0.7 for j in range(K)]
        expected -= weight * math.log(math.exp(scores[i]) / sum(map(math.exp, scores)))
    scores = word_scores(batch["words"], batch["video"], batch["mask"]) / 0.7
    found = token_nce(scores, batch["owner"], batch["weights"], K)
    assert float(found) * K == pytest.approx(expected, abs=1e-9)


def test_words_in_small_pieces_score_the_same(batch: dict[str, Tensor]) -> None:
    whole = word_scores(batch["words"], batch["video"], batch["mask"])
    assert torch.allclose(word_scores(batch["words"], batch["video"], batch["mask"], budget=1), whole, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_the_cascade_picks_what_a_search_picks(batch: dict[str, Tensor], aggregate: str) -> None:
    """The K' best negatives of each text and of each video by x.y + sum over words s(x, y^p)."""
    score = torch.empty(K, K, dtype=torch.float64)
    for i, j in itertools.product(range(K), range(K)):
        score[i, j] = dot(mean_video(batch, j), batch["text"][i])
        for word, owner, weight in zip(batch["words"], batch["owner"].tolist(), batch["weights"].tolist(), strict=True):
            if owner == i:
                score[i, j] += best(batch, j, word) * (weight if aggregate == "mean" else 1.0)
    sentence = batch["text"] @ mean_tokens(batch["video"], batch["mask"]).T
    words = word_scores(batch["words"], batch["video"], batch["mask"])
    found = cascade_scores(sentence, words, batch["owner"], batch["weights"], aggregate)
    assert torch.allclose(found, score, atol=1e-9)
    for queries in (found, found.T):
        picks = hardest(queries, torch.arange(K), 2)
        for i in range(K):
            others = sorted((j for j in range(K) if j != i), key=lambda j: -float(queries[i, j]))
            assert picks[i].tolist() == [i, *others[:2]]


def test_fewer_rivals_than_negatives() -> None:
    assert hardest(torch.randn(3, 3), torch.arange(3), 8).shape == (3, 3)
    assert hardest(torch.randn(1, 1), torch.arange(1), 8).tolist() == [[0]]


def test_negatives_at_random_are_others_and_the_same_for_a_seed() -> None:
    scores, own = torch.randn(6, 6), torch.arange(6)
    picks = [at_random(scores, own, 3, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*picks)
    for i, row in enumerate(picks[0].tolist()):
        assert row[0] == i
        assert len(set(row)) == 4
    counts = sum(
        torch.bincount(at_random(scores, own, 3, torch.Generator().manual_seed(n))[0, 1:], minlength=6)
        for n in range(400)
    )
    assert counts[0] == 0
    assert (counts[1:] > 180).all()  # 240 each, were it exact


def test_l3_over_unique_pairs_is_equation_5_over_all_listed_ones() -> None:
    g = torch.Generator().manual_seed(5)
    early = torch.randn(K, K, generator=g)
    logit = torch.randn(K, K, generator=g, dtype=torch.float64)  # of each (text, video) pair, as if fused
    own = torch.arange(K)
    to_video, to_text = hardest(early, own, 3), hardest(early.T, own, 3)
    expected_text = expected_video = 0.0
    for i in range(K):
        listed = [math.exp(logit[i, j]) for j in to_video[i].tolist()]
        expected_text -= math.log(listed[0] / sum(listed)) / K
        listed = [math.exp(logit[j, i]) for j in to_text[i].tolist()]
        expected_video -= math.log(listed[0] / sum(listed)) / K
    pairs, rows, columns = unique_pairs(to_video, to_text, own, K)
    assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs) < rows.numel() + columns.numel()
    logits = logit[pairs[:, 0], pairs[:, 1]]
    assert float(fusion_nce(logits, rows)) == pytest.approx(expected_text, abs=1e-9)
    assert float(fusion_nce(logits, columns)) == pytest.approx(expected_video, abs=1e-9)


def test_gradients() -> None:
    g = torch.Generator().manual_seed(8)
    scores = torch.randn(3, 4, generator=g, dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([0, 3, 1])
    weights = torch.tensor([0.2, 0.8, 1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: nce(s, positive), scores)
    assert torch.autograd.gradcheck(lambda s: token_nce(s, positive, weights, 2), scores)
    assert torch.autograd.gradcheck(lambda s: fusion_nce(s.flatten(), torch.tensor([[0, 5], [7, 2]])), scores)
    words, video = (torch.randn(n, 3, generator=g, dtype=torch.float64, requires_grad=True) for n in (2, 6))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert torch.autograd.gradcheck(lambda w, v: word_scores(w, v.view(2, 3, 3), mask), (words, video))


def test_half_precision_is_compared_in_single() -> None:
    scores = torch.tensor([[20.0, 20.01]], dtype=torch.bfloat16)
    assert nce(scores, torch.tensor([0])).dtype == torch.float32
    assert losses.wide(scores.double()).dtype == torch.float64


def test_nothing_to_compare_is_no_loss() -> None:
    alone = torch.randn(1, 1, requires_grad=True)
    loss = nce(alone, torch.tensor([0])).sum() + fusion_nce(alone.flatten(), torch.tensor([[0]]))
    none = word_scores(alone[:0], torch.randn(1, 2, 1), torch.ones(1, 2, dtype=torch.bool))
    loss = loss + token_nce(none, torch.zeros(0).long(), torch.zeros(0), 1)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert alone.grad is not None
    assert float(alone.grad.abs().sum()) == 0.0


def test_a_clip_without_tokens_has_a_mean_of_zero() -> None:
    assert mean_tokens(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[0.0, 0.0, 0.0]]


def test_rivals_are_what_a_query_competes_with() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    found = nce(scores, torch.tensor([0]), torch.tensor([[False, True, False]]))
    assert float(found) == pytest.approx(math.log(1 + math.e))
