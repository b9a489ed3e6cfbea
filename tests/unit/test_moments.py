"""Overlaps, suppression and recall of moments, worked by hand."""

import math

import pytest
import torch

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train.moments import best_constant, iou, iou_map, nms, recalls, targets

MOMENTS = torch.tensor([[0.0, 4], [0, 2], [1, 5], [5, 8], [5, 8], [6, 8], [0, 8]]) / 8
"""A to G; the first overlaps with B and G by 1/2, with C by 3/5. D and E are the same, F is 2/3 of them."""
SCORES = torch.tensor([0.9, 0.9, 0.8, 0.8, 0.8, 0.7, 0.1])


def test_overlap_by_hand() -> None:
    a = torch.tensor([[0.0, 4.0], [0.0, 4.0], [0.0, 4.0], [0.0, 4.0], [1.0, 1.0], [2.0, 2.0]])
    b = torch.tensor([[2.0, 6.0], [4.0, 6.0], [5.0, 6.0], [1.0, 2.0], [0.0, 4.0], [2.0, 2.0]])
    assert iou(a, b).tolist() == pytest.approx([2 / 6, 0, 0, 1 / 4, 0, 0])
    assert iou(b, a).tolist() == pytest.approx([2 / 6, 0, 0, 1 / 4, 0, 0])


def test_overlap_broadcasts_and_its_gradient_is_finite() -> None:
    a = torch.tensor([[[0.0, 1.0]], [[0.0, 0.0]]], requires_grad=True)
    found = iou(a, torch.tensor([[0.0, 0.5], [0.5, 1.0], [0.0, 0.0]]))
    assert found.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    found.sum().backward()
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())


def test_map_of_four_clips() -> None:
    # Seconds 2 to 6 of 8, that is clips 1 and 2; rows are the first clip, columns the last one.
    by_hand = [
        [0, 1 / 3, 2 / 3, 1 / 2],  # 0-2, 0-4, 0-6, 0-8
        [0, 1 / 2, 1, 2 / 3],  # 2-4, 2-6, 2-8
        [0, 0, 1 / 2, 1 / 3],  # 4-6, 4-8
        [0, 0, 0, 0],  # 6-8
    ]
    # Seconds 0 to 3 of 8: a clip and a half.
    other = [[2 / 3, 3 / 4, 1 / 2, 3 / 8], [0, 1 / 4, 1 / 6, 1 / 8], [0, 0, 0, 0], [0, 0, 0, 0]]
    found = iou_map(torch.tensor([[2.0, 6.0], [0.0, 3.0]], dtype=torch.float64) / 8, 4)
    torch.testing.assert_close(found, torch.tensor([by_hand, other], dtype=torch.float64))


def test_targets_of_both_settings() -> None:
    overlaps = torch.tensor([0.0, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0])
    assert targets(overlaps, 0.5, 1.0).tolist() == pytest.approx([0, 0, 0, 0.2, 0.4, 0.8, 1], abs=1e-6)
    assert targets(overlaps, 0.3, 0.7).tolist() == pytest.approx([0, 0, 0.5, 0.75, 1, 1, 1], abs=1e-6)


def kept(scores: torch.Tensor, threshold: float, most: int) -> str:
    """Return the names of what is kept, best first; E, the same as D, is called D."""
    spans, values = nms(MOMENTS[None], scores[None], threshold, most)
    there = spans[0, values[0] > -math.inf].tolist()
    return "".join("ABCDEFG"[MOMENTS.tolist().index(span)] for span in there)


def test_suppression_keeps_what_overlaps_as_much_as_the_threshold() -> None:
    assert kept(SCORES, 0.5, 7) == "ABDG"
    assert kept(SCORES, 0.45, 7) == "AD"
    assert kept(SCORES, 0.6, 7) == "ABCDG"
    assert kept(SCORES, 0.5, 2) == "AB"


def test_of_equal_scores_the_first_candidate_is_kept() -> None:
    assert kept(torch.ones(7), 0.5, 7) == "ABDG"
    assert kept(torch.tensor([0.8, 0.1, 0.8, 0.8, 0.8, 0.8, 0.2]), 0.5, 7) == "ADGB"  # A goes before C, D before F
    backwards = nms(MOMENTS.flip(0)[None], torch.ones(1, 7), 0.5, 7)[0][0, :4]
    # From G on: G, F, neither E nor D (2/3 of F), C, B, and not A (3/5 of C).
    assert (8 * backwards).tolist() == [[0, 8], [6, 8], [1, 5], [0, 2]]


def test_where_nothing_is_left_to_keep() -> None:
    spans, values = nms(MOMENTS[None], SCORES[None], 0.45, 4)
    assert (8 * spans[0]).tolist() == [[0, 4], [5, 8], [0, 0], [0, 0]]
    assert values[0].tolist() == [pytest.approx(0.9), pytest.approx(0.8), -math.inf, -math.inf]
    hidden = torch.full((1, 7), -math.inf)
    assert nms(MOMENTS[None], hidden, 0.5, 2)[0].tolist() == [[[0, 0], [0, 0]]]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.75, 1.0])
def test_suppression_of_many_queries_is_the_loop_over_each(threshold: float) -> None:
    draw = torch.Generator().manual_seed(0)
    spans = torch.randint(0, 9, (40, 30, 2), generator=draw).sort(dim=2).values.double()
    scores = torch.randint(0, 6, (40, 30), generator=draw).float()
    found, values = nms(spans, scores, threshold, 6)
    every = iou(spans[:, :, None], spans[:, None]).tolist()
    for query in range(40):
        left = sorted(range(30), key=lambda n: -float(scores[query, n]))  # stable: the first of equal ones first
        chosen: list[int] = []
        for n in left:
            if all(every[query][n][other] <= threshold + 1e-9 for other in chosen):
                chosen.append(n)
        expected = [spans[query, n].tolist() for n in chosen[:6]]
        assert found[query, : len(expected)].tolist() == expected
        assert values[query, : len(expected)].tolist() == [float(scores[query, n]) for n in chosen[:6]]
        assert bool((values[query, len(expected) :] == -math.inf).all())


def test_scores_that_are_nan_are_an_error() -> None:
    with pytest.raises(PipelineError, match="NaN"):
        nms(MOMENTS[None], torch.full((1, 7), math.nan), 0.5, 2)


TRUTH = torch.tensor([[0.0, 10.0], [4.0, 8.0], [2.0, 6.0]])
PREDICTED = torch.tensor([
    [[0.0, 5.0], [0.0, 8.0]],  # 1/2, 4/5
    [[4.0, 7.0], [0.0, 1.0]],  # 3/4, 0
    [[6.0, 8.0], [0.0, 4.0]],  # 0, 1/3
])  # fmt: skip


def test_recall_of_three_queries() -> None:
    found = recalls(PREDICTED, TRUTH, (1, 2), (0.3, 0.5, 0.7, 0.75))
    assert found.recalls == {
        (1, 0.3): 2 / 3, (1, 0.5): 1 / 3, (1, 0.7): 1 / 3, (1, 0.75): 0,
        (2, 0.3): 1, (2, 0.5): 2 / 3, (2, 0.7): 2 / 3, (2, 0.75): 1 / 3,
    }  # fmt: skip
    assert found.mean_iou == pytest.approx((1 / 2 + 3 / 4 + 0) / 3)
    assert found.as_dict() == {
        "queries": 3, "missing": 0, "R@1 IoU=0.3": 2 / 3, "R@1 IoU=0.5": 1 / 3, "R@1 IoU=0.7": 1 / 3, "R@1 IoU=0.75": 0,
        "R@2 IoU=0.3": 1, "R@2 IoU=0.5": 2 / 3, "R@2 IoU=0.7": 2 / 3, "R@2 IoU=0.75": 1 / 3,
        "mIoU": found.mean_iou,
    }  # fmt: skip


def test_missing_queries_are_misses() -> None:
    found = recalls(PREDICTED, TRUTH, (1,), (0.5,), missing=2)
    assert found.as_dict() == {"queries": 5, "missing": 2, "R@1 IoU=0.5": 1 / 5, "mIoU": pytest.approx(1.25 / 5)}


@pytest.mark.parametrize("m", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_overlap_of_just_m_is_no_hit_however_it_is_rounded(m: float, dtype: torch.dtype) -> None:
    # In single precision 0.3 is more than 0.3.
    truth = torch.tensor([[0.0, 1.0]], dtype=dtype)
    at = torch.tensor([[[0.0, m]]], dtype=dtype)
    assert recalls(at, truth, (1,), (m,)).recalls == {(1, m): 0}
    assert recalls(at + torch.tensor([0.0, 1e-4], dtype=dtype), truth, (1,), (m,)).recalls == {(1, m): 1}


def test_what_cannot_be_evaluated() -> None:
    with pytest.raises(BadSetting, match="recall among 5 moments, of which 2 were kept"):
        recalls(PREDICTED, TRUTH, (1, 5), (0.5,))
    with pytest.raises(BadDataset, match="no query"):
        recalls(PREDICTED[:0], TRUTH[:0], (1,), (0.5,))


def test_best_constant_by_hand() -> None:
    spans = torch.tensor([[0.0, 1.0], [0.25, 1.0], [0.0, 0.75], [0.25, 0.75]])
    # 0-3/4 overlaps with them by 3/4, 1/2 (no hit), 1 and 2/3. Each of them hits three; it comes first, 0-1/2 hits one.
    assert best_constant(spans, steps=4).tolist() == [0.0, 0.75]
    # 0-1 overlaps by 1, 3/4, 3/4 and 1/2; 0-3/4 now hits two.
    assert best_constant(spans, threshold=0.7, steps=4).tolist() == [0.0, 1.0]


def test_best_constant_is_better_than_any_other_on_the_grid() -> None:
    spans = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).sort(dim=1).values
    best = best_constant(spans, steps=20)

    def hits(span: list[float]) -> int:
        return int((iou(torch.tensor(span, dtype=torch.float64), spans.double()) > 0.5).sum())

    every = [hits([a / 20, b / 20]) for a in range(20) for b in range(a + 1, 21)]
    assert hits(best.tolist()) == max(every) > sorted(every)[100]
