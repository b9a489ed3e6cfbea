"""Ranks, recalls and both directions of retrieval, against matrices worked by hand and a slow count."""

import doctest
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipeline.errors import BadDataset, BadSetting, PipelineError
from train import metrics
from train.metrics import mean_rank, median_rank, paired, ranks, recall, spread, table, text_to_video, video_to_text

DIAGONAL = torch.arange(4)
# Row 0: alone at the top. Row 1: ties with one other, at the top. Row 2: one above, ties with two. Row 3: all ties.
TIED = torch.tensor([[0.9, 0.1, 0.2, 0.3], [0.5, 0.5, 0.1, 0.2], [0.8, 0.4, 0.4, 0.4], [0.7, 0.7, 0.7, 0.7]])
# Seven captions of three videos, rows; scores with the three videos, columns.
OWNER = torch.tensor([0, 0, 0, 1, 1, 2, 2])
SEVEN = torch.tensor(
    [
        [0.60, 0.70, 0.90],
        [0.20, 0.70, 0.80],
        [0.10, 0.00, 0.70],
        [0.90, 0.70, 0.60],
        [0.80, 0.10, 0.45],
        [0.30, 0.20, 0.40],
        [0.00, 0.30, 0.50],
    ]
)


def _slow(scores, positive, tie):
    """The rank's definition, one item at a time."""
    found = []
    for row, own in zip(scores, positive, strict=True):
        above = sum(s > row[own] for j, s in enumerate(row) if j != own)
        same = sum(s == row[own] for j, s in enumerate(row) if j != own)
        found.append(1 + above + tie * same if own >= 0 else math.inf)
    return found


def _copied(scores):
    """Ranks as the function that most repositories share has them: each position of the diagonal's score."""
    x = scores.float().numpy()
    return np.where(-np.sort(-x, axis=1) == np.diag(x)[:, None])[1] + 1


def test_examples_of_the_docstrings():
    assert doctest.testmod(metrics).failed == 0
    assert doctest.testmod(metrics).attempted >= 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_matrix_with_ties_by_hand(dtype):
    scores = TIED.to(dtype)
    assert ranks(scores, DIAGONAL).tolist() == [1, 1.5, 3, 2.5]
    assert ranks(scores, DIAGONAL, "optimistic").tolist() == [1, 1, 2, 1]
    assert ranks(scores, DIAGONAL, "pessimistic").tolist() == [1, 2, 4, 4]
    assert ranks(scores, DIAGONAL).dtype == torch.float64


def test_the_positive_can_be_any_column():
    assert ranks(TIED, torch.tensor([2, 3, 0, -1])).tolist() == [3, 3, 1, math.inf]


def test_recall_median_and_mean_by_hand():
    found = ranks(TIED, DIAGONAL)  # 1, 1.5, 3, 2.5
    assert [recall(found, k) for k in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert median_rank(found, 4) == 2.0  # between 1.5 and 2.5
    assert mean_rank(found, 4) == 2.0
    missed = torch.tensor([1.0, math.inf, math.inf])
    assert (recall(missed, 50), median_rank(missed, 9), mean_rank(missed, 9)) == (1 / 3, 10.0, 7.0)


def test_float64_is_not_rounded():
    close = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert ranks(close, torch.tensor([0])).tolist() == [2.0]
    assert ranks(close.float(), torch.tensor([0])).tolist() == [1.5]


def test_scores_rounded_to_float16_give_one_rank_a_query():
    # Between 0.25 and 0.5 float16 has steps of 2^-12 = 0.000244: both scores of the first query are 0.30005.
    exact = torch.tensor([[0.30001, 0.30002], [0.1, 0.4]])
    assert ranks(exact, torch.arange(2)).tolist() == [2, 1]
    assert _copied(exact.half()).tolist() == [1, 2, 1]  # three entries, for two queries
    assert ranks(exact.half(), torch.arange(2)).tolist() == [1.5, 1]


def test_rounding_moves_recall_less_than_the_copied_metric_does():
    g = torch.Generator().manual_seed(0)
    video, noise, common = (torch.randn(n, 64, generator=g) for n in (400, 400, 1))
    text, video = (torch.nn.functional.normalize(x + 3 * common) for x in (video + 2 * noise, video))
    scores, positive = text @ video.T, torch.arange(400)
    true, rounded = (
        text_to_video(scores, positive),
        text_to_video(scores.bfloat16(), positive),
    )  # near 0.8: steps of 2^-8
    copied = torch.from_numpy(_copied(scores.bfloat16())).double()
    assert len(_copied(scores)) == true.queries == rounded.queries == 400
    assert len(copied) > 550
    assert abs(rounded.recalls[10] - true.recalls[10]) < 0.01
    assert recall(copied, 10) < true.recalls[10] - 0.1
    # Rounding keeps the order but for ties, so the true rank lies between the two bounds, query by query.
    assert (ranks(scores.bfloat16(), positive, "optimistic") <= ranks(scores, positive)).all()
    assert (ranks(scores, positive) <= ranks(scores.bfloat16(), positive, "pessimistic")).all()


def test_what_is_not_a_number_is_refused():
    scores = TIED.repeat(2, 1)
    scores[5, 0] = math.nan  # not even of its own item
    scores[7, 3] = math.nan
    with pytest.raises(
        PipelineError, match=r"^2 of 8 queries cannot be ranked .*first is query 5; look for NaN[^\n]*$"
    ):
        ranks(scores, DIAGONAL.repeat(2))
    with pytest.raises(PipelineError, match="1 of 8 .* query 5"):
        ranks(
            scores[:, :3], torch.tensor([0, 1, 2, -1] * 2)
        )  # its video is missing, its scores are looked at all the same
    for how in ("best_caption", "group_max"):
        with pytest.raises(PipelineError, match="2 of 4 .* query 0"):
            video_to_text(scores, DIAGONAL.repeat(2), how)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_query_whose_own_item_is_infinite_is_refused(value):
    scores = TIED.clone()
    scores[2, 2] = value
    with pytest.raises(PipelineError, match="1 of 4 .* query 2"):
        ranks(scores, DIAGONAL)
    with pytest.raises(PipelineError, match="1 of 4 .* query 2"):
        video_to_text(scores, DIAGONAL, "group_max")


def test_other_items_may_be_out_of_the_running():
    scores = TIED.clone()
    scores[2, 0] = scores[3, 1] = -math.inf
    assert ranks(scores, DIAGONAL).tolist() == [1, 1.5, 2, 2]


def test_missing_items_are_misses():
    # Two captions have a row but no video, two have not even a row; the data set declares six videos.
    positive = torch.tensor([0, 1, -1, -1])
    result = text_to_video(TIED, positive, expected=6, missing=2)
    assert (result.queries, result.missing, result.gallery, result.expected) == (6, 4, 4, 6)
    assert result.recalls == {1: 1 / 6, 5: 2 / 6, 10: 2 / 6, 50: 2 / 6}
    assert result.optimistic[1] == 2 / 6
    assert result.pessimistic[1] == 1 / 6
    assert result.median == 7.0  # a miss is worse than all six
    assert result.mean == pytest.approx((1 + 1.5 + 4 * 7) / 6)
    assert result.note == "a gallery of 4, 6 are declared"
    assert text_to_video(TIED, DIAGONAL, expected=4).note == text_to_video(TIED, DIAGONAL).note == ""


def test_all_items_are_missing():
    result = text_to_video(torch.zeros(2, 0), torch.tensor([-1, -1]), expected=3)
    assert (result.queries, result.recalls[50], result.median) == (2, 0.0, 4.0)


def test_no_query_is_an_error():
    for scores in (torch.zeros(0, 3), torch.zeros(0, 0)):
        with pytest.raises(BadDataset, match="no query"):
            text_to_video(scores, torch.zeros(0, dtype=torch.long))
    assert text_to_video(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), missing=1).recalls[1] == 0.0


def test_both_conventions_of_several_captions_by_hand():
    # Video 0: its best caption has 0.6; 0.9 and 0.8 are above, both of video 1.
    # Video 1: 0.7; two captions of video 0 tie. Video 2: 0.5; 0.9, 0.8, 0.7 of video 0 and 0.6 of video 1 are above.
    best = video_to_text(SEVEN, OWNER, "best_caption")  # 3, 2 (1 to 3), 5
    assert (best.median, best.mean, best.gallery, best.queries) == (3.0, pytest.approx(10 / 3), 7, 3)
    assert (best.recalls[1], best.optimistic[1], best.recalls[5]) == (0.0, 1 / 3, 1.0)
    grouped = video_to_text(SEVEN, OWNER, "group_max")  # 2, 1.5 (1 to 2), 3
    assert (grouped.median, grouped.mean, grouped.gallery) == (2.0, pytest.approx(6.5 / 3), 3)
    assert (grouped.recalls[1], grouped.optimistic[1], grouped.pessimistic[1]) == (0.0, 1 / 3, 0.0)
    assert {one.direction for one in (best, grouped)} == {"v2t"}
    assert (best.convention, grouped.convention) == ("best_caption", "group_max")


def test_each_caption_is_a_query_of_the_other_direction():
    result = text_to_video(SEVEN, OWNER)  # ranks 3, 3, 2, 2, 3, 1, 1
    assert (result.direction, result.convention, result.queries, result.gallery) == ("t2v", "each_caption", 7, 3)
    assert (result.recalls[1], result.median, result.mean) == (2 / 7, 2.0, 15 / 7)


def test_captions_and_videos_without_each_other():
    owner = torch.tensor([0, 0, 0, 1, 1, -1, -1])  # the last video was never extracted, or has captions nowhere
    best = video_to_text(SEVEN, owner, "best_caption", expected=7, missing=1)
    assert (best.queries, best.missing, best.gallery, best.note) == (4, 2, 7, "")
    assert best.mean == (3 + 2 + 8 + 8) / 4
    grouped = video_to_text(SEVEN, owner, "group_max", expected=3)
    assert (grouped.queries, grouped.missing, grouped.gallery) == (3, 1, 2)
    assert grouped.note == "a gallery of 2, 3 are declared"
    assert grouped.mean == (2 + 1.5 + 4) / 3


def test_a_caption_of_no_video_still_competes():
    scores = torch.tensor([[0.5], [0.9]])
    owner = torch.tensor([0, -1])
    assert video_to_text(scores, owner, "best_caption").median == 2.0
    assert video_to_text(scores, owner, "group_max").median == 1.0


def test_chunks_change_nothing(monkeypatch):
    def everything():
        both = [video_to_text(SEVEN, OWNER, how) for how in ("best_caption", "group_max")]
        return [ranks(TIED, DIAGONAL).tolist(), text_to_video(SEVEN, OWNER), *both]

    whole = everything()
    for size in (1, 8, 14):  # a row at a time; two, then three rows of four columns
        monkeypatch.setattr(metrics, "CHUNK", size)
        assert everything() == whole


def test_results_as_json():
    found = json.loads(json.dumps(text_to_video(TIED, DIAGONAL, expected=5, uses_test_queries=True).as_dict()))
    assert found == {
        "direction": "t2v",
        "convention": "each_caption",
        "queries": 4,
        "missing": 0,
        "gallery": 4,
        "expected": 5,
        "note": "a gallery of 4, 5 are declared",
        "uses_test_queries": True,
        "R@1": 0.25,
        "R@5": 1.0,
        "R@10": 1.0,
        "R@50": 1.0,
        "MdR": 2.0,
        "MnR": 2.0,
        "optimistic": {"R@1": 0.75, "R@5": 1.0, "R@10": 1.0, "R@50": 1.0},
        "pessimistic": {"R@1": 0.25, "R@5": 1.0, "R@10": 1.0, "R@50": 1.0},
    }


def _printed(results, *names):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table(results, *names))
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]


def test_results_as_a_table():
    results = [
        text_to_video(TIED, DIAGONAL, expected=5),
        video_to_text(SEVEN, OWNER, "best_caption", missing=3, uses_test_queries=True),
    ]
    first = ["t2v", "each_caption", "not used", "25.0 (25.0–75.0)", "100.0", "100.0", "100.0", "2.0", "2.0"]
    # Ranks 3, 2, 5 and three misses, which count as 8; a rank of 1 to 3 for video 1.
    second = ["v2t", "best_caption", "used", "0.0 (0.0–16.7)", "50.0", "50.0", "50.0", "6.5", "5.7"]
    first += ["4", "0", "4 of 5"]
    second += ["6", "3", "7"]
    assert _printed(results) == [first, second]
    assert _printed(results, ["S1", "S3"]) == [["S1", *first], ["S3", *second]]


def test_spread_over_seeds_by_hand():
    found = spread([10.0, 12.0, 17.0])  # mean 13, squares 9 + 1 + 16 over 2
    assert (found.mean, found.sd, found.seeds) == (13.0, pytest.approx(math.sqrt(13)), 3)
    assert spread([4.0]).mean == 4.0
    assert math.isnan(spread([4.0]).sd)
    with pytest.raises(BadSetting, match="no value"):
        spread([])


def test_paired_differences_by_hand():
    found = paired(
        [5.0, 4.0, 9.0, 2.0], [3.0, 5.0, 4.0, 2.0]
    )  # 2, -1, 5, 0: mean 1.5, squares 0.25 + 6.25 + 12.25 + 2.25
    assert found.differences == (2.0, -1.0, 5.0, 0.0)
    assert (found.mean, found.sd, found.positive) == (1.5, pytest.approx(math.sqrt(7)), 2)
    with pytest.raises(BadSetting, match="2 values and 1 cannot be paired"):
        paired([1.0, 2.0], [1.0])


@st.composite
def _matrices(draw):
    """Texts, videos and scores of five values, so that there are many ties; and each text's video, or none."""
    texts, videos = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    values = draw(st.lists(st.integers(-2, 2), min_size=texts * videos, max_size=texts * videos))
    owner = draw(st.lists(st.integers(-1, videos - 1), min_size=texts, max_size=texts))
    return torch.tensor(values).view(texts, videos) / 4, torch.tensor(owner)


@settings(deadline=None)  # beside other work a case may take long
@given(_matrices())
def test_ranks_are_what_a_slow_count_finds(case):
    scores, owner = case
    for how, tie in metrics.TIES.items():
        assert ranks(scores, owner, how).tolist() == _slow(scores.tolist(), owner.tolist(), tie)


@given(_matrices())
def test_average_ranks_are_between_the_others(case):
    low, middle, high = (ranks(*case, how) for how in ("optimistic", "average", "pessimistic"))
    assert (low <= middle).all()
    assert (middle <= high).all()


@given(_matrices(), st.randoms())
def test_the_order_of_the_gallery_changes_nothing(case, random):
    scores, owner = case
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    moved = torch.tensor([order.index(own) if own >= 0 else -1 for own in owner.tolist()])
    for how in metrics.TIES:
        assert torch.equal(ranks(scores[:, order], moved, how), ranks(scores, owner, how))


@given(_matrices())
def test_video_to_text_is_what_a_slow_count_finds(case):
    scores, owner = case[0].tolist(), case[1].tolist()
    texts, videos = range(len(owner)), range(len(scores[0]))
    own = {v: [i for i in texts if owner[i] == v] for v in videos}
    best, grouped = [], []
    for v in videos:
        column = [scores[i][v] for i in texts]
        place = max(own[v], key=column.__getitem__, default=-1)
        best += _slow([column], [place], 0.5)
        groups = [max((column[i] for i in own[u]), default=-math.inf) for u in videos]
        grouped += _slow([groups], [v if own[v] else -1], 0.5)
    for how, expected, gallery in (
        ("best_caption", best, len(owner)),
        ("group_max", grouped, sum(map(bool, own.values()))),
    ):
        result = video_to_text(*case, how)
        assert result.gallery == gallery
        assert result.recalls == {k: sum(r <= k for r in expected) / len(videos) for k in metrics.KS}
        assert result.mean == pytest.approx(sum(min(r, gallery + 1) for r in expected) / len(videos))


@given(st.integers(1, 6), st.randoms())
def test_with_one_caption_a_video_the_conventions_are_plain_ranks(size, random):
    scores = torch.tensor([[random.randint(-2, 2) / 4 for _ in range(size)] for _ in range(size)])
    owner = torch.tensor(random.sample(range(size), size))
    plain = ranks(scores.T, owner.argsort())  # of each video, the row of its caption
    for how in ("best_caption", "group_max"):
        result = video_to_text(scores, owner, how)
        assert (result.queries, result.gallery, result.missing) == (size, size, 0)
        assert result.recalls == {k: recall(plain, k) for k in metrics.KS}
        assert (result.median, result.mean) == (median_rank(plain, size), mean_rank(plain, size))


@pytest.mark.gpu
def test_the_same_on_a_gpu():
    scores, owner = SEVEN.cuda(), OWNER.cuda()
    assert ranks(scores, owner).tolist() == ranks(SEVEN, OWNER).tolist()
    for how in ("best_caption", "group_max"):
        assert video_to_text(scores, owner, how) == video_to_text(SEVEN, OWNER, how)
