"""NCL's biases, loss and error, QB-Norm and DSL, against the formulas written again as loops."""

import doctest
import inspect
import math

import pytest
import torch

from train import normalisation
from train.normalisation import adjusted, bank_bias, biases, dsl, error, ncl, qb_norm


def random(texts: int, videos: int, seed: int = 0, gamma: float = 0.3) -> torch.Tensor:
    """Cosines of random unit vectors over a temperature, in float64."""
    generator = torch.Generator().manual_seed(seed)
    t, v = (torch.randn(n, 8, dtype=torch.float64, generator=generator) for n in (texts, videos))
    return torch.nn.functional.normalize(t, dim=1) @ torch.nn.functional.normalize(v, dim=1).T / gamma


def slow_biases(scores: torch.Tensor, iterations: int) -> tuple[list[float], list[float]]:
    """Fig. 4 with plain exponentials."""
    rows = scores.tolist()
    texts, videos = range(len(rows)), range(len(rows[0]))
    top = max(max(row) for row in rows)
    m = [[math.exp(s - top) for s in row] for row in rows]
    b = [1 / sum(m[i][j] for i in texts) for j in videos]
    a: list[float] = []
    for _ in range(iterations):
        a = [1 / sum(m[i][j] * b[j] for j in videos) for i in texts]
        b = [1 / sum(m[i][j] * a[i] for i in texts) for j in videos]
    return [math.log(x) for x in a], [math.log(x) - top for x in b]


def slow_ncl(scores: torch.Tensor, positive: list[int], a: list[float], b: list[float]) -> float:
    s, total = scores.tolist(), 0.0
    for i, j in enumerate(positive):
        among_videos = sum(math.exp(s[i][k] + b[k]) for k in range(len(s[0])))
        among_texts = sum(math.exp(s[k][j] + a[k]) for k in range(len(s)))
        total -= math.log(math.exp(s[i][j] + b[j]) / among_videos) + math.log(math.exp(s[i][j] + a[i]) / among_texts)
    return total / len(positive)


def test_doctests_and_every_docstring_says_whether_test_queries_are_used() -> None:
    found = doctest.testmod(normalisation)
    assert found.attempted > 0
    assert found.failed == 0
    for name, function in inspect.getmembers(normalisation, inspect.isfunction):
        if function.__module__ == "train.normalisation" and not name.startswith("_"):
            assert "Test queries: " in (function.__doc__ or ""), name


@pytest.mark.parametrize(("texts", "videos"), [(6, 6), (9, 4), (3, 7), (1, 1)])
@pytest.mark.parametrize("iterations", [1, 4, 20])
def test_biases_are_those_of_plain_exponentials(texts: int, videos: int, iterations: int) -> None:
    scores = random(texts, videos)
    a, b = biases(scores, iterations)
    slow_a, slow_b = slow_biases(scores, iterations)
    assert a.tolist() == pytest.approx(slow_a, abs=1e-9)
    assert b.tolist() == pytest.approx(slow_b, abs=1e-9)


def test_last_update_is_the_columns() -> None:
    scores = random(8, 8, gamma=0.05)
    a, b = biases(scores, 2)
    plan = (scores + a[:, None] + b).exp()
    assert plan.sum(0).tolist() == pytest.approx([1.0] * 8, abs=1e-12)
    assert (plan.sum(1) - 1).abs().max() > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_finite_at_a_low_temperature_with_an_outlier(dtype: torch.dtype) -> None:
    scores = (random(300, 300, gamma=1.0) * 0.3).clamp(-1, 1)
    scores[:, 17] = 1.0
    scores = (scores / 0.005).to(dtype)
    assert scores.float().exp().sum(0).isinf().any()  # which plain exponentials do not survive
    a, b = biases(scores)
    assert a.dtype == b.dtype == torch.float32
    assert a.isfinite().all()
    assert b.isfinite().all()
    assert ncl(scores, torch.arange(300)).isfinite()
    assert all(map(math.isfinite, error(adjusted(scores, b))))


def test_gradients_are_finite_with_an_outlier() -> None:
    scores = random(20, 20, gamma=0.005).float()
    scores[:, 3] = 200.0
    scores.requires_grad_()
    ncl(scores, torch.arange(20)).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(("texts", "videos"), [(60, 60), (90, 30)])
def test_with_the_queries_known_the_error_is_gone_after_50_iterations(texts: int, videos: int) -> None:
    scores = random(texts, videos, gamma=0.1)
    before = error(scores)
    assert min(before) > 0.1
    errors = []
    for iterations in (4, 50):
        a, b = biases(scores, iterations)
        errors.append(error(scores + a[:, None] + b))
    assert max(errors[0]) < min(before)
    assert max(errors[1]) < 1e-3


def test_error_is_equation_5() -> None:
    scores = random(5, 5)
    s = scores.tolist()
    to_video = [[math.exp(x) / sum(map(math.exp, row)) for x in row] for row in s]
    columns = [sum(math.exp(row[j]) for row in s) for j in range(5)]
    to_text = [[math.exp(row[j]) / columns[j] for j in range(5)] for row in s]
    t2v = sum(abs(sum(to_video[i][j] for i in range(5)) - 1) for j in range(5)) / 5
    v2t = sum(abs(sum(to_text[i]) - 1) for i in range(5)) / 5
    assert error(scores) == pytest.approx((t2v, v2t), abs=1e-9)


def test_error_by_hand() -> None:
    # All four texts find video 0 of two: its share is 4 where 2 must be, video 1 has 0: (1 + 1) / 2.
    # Every text has a quarter of each video: 0.5, as it must be.
    assert error(torch.tensor([[90.0, 0.0]] * 4)) == pytest.approx((1.0, 0.0))
    assert error(torch.zeros(3, 3)) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_error_of_half_precision_scores_is_computed_in_float32() -> None:
    scores = random(50, 50).bfloat16()
    assert error(scores) == error(scores.float())


@pytest.mark.parametrize("positive", [[0, 1, 2, 3], [3, 0, 2, 1], [0, 0, 2, 1]])
@pytest.mark.parametrize("detach", [False, True])
def test_loss_is_the_slow_one(positive: list[int], detach: bool) -> None:
    scores = random(4, 5)
    a, b = slow_biases(scores, 4)
    found = ncl(scores, torch.tensor(positive), 4, detach)
    assert found.item() == pytest.approx(slow_ncl(scores, positive, a, b), abs=1e-9)


def test_a_bias_on_queries_or_items_changes_nothing_in_the_loss() -> None:
    scores, positive = random(4, 4), torch.tensor([0, 1, 2, 3])
    moved = scores + torch.tensor([3.0, -1.0, 0.0, 2.0])
    assert ncl(moved, positive, 50).item() == pytest.approx(ncl(scores, positive, 50).item(), abs=1e-6)


def test_gradients_through_the_iterations() -> None:
    scores, positive = random(4, 5).requires_grad_(), torch.tensor([2, 0, 2, 1])
    assert torch.autograd.gradcheck(lambda s: ncl(s, positive, 4, detach=False), scores)


def test_without_gradients_through_the_iterations_biases_are_constants() -> None:
    scores, positive = random(4, 5).requires_grad_(), torch.tensor([2, 0, 3, 1])
    a, b = (x.detach() for x in biases(scores))

    def constant(s: torch.Tensor) -> torch.Tensor:
        rows = (s + b).log_softmax(1)[torch.arange(4), positive]
        columns = (s + a[:, None]).log_softmax(0)[torch.arange(4), positive]
        return -(rows + columns).mean()

    assert torch.autograd.gradcheck(constant, scores)
    (cut,) = torch.autograd.grad(ncl(scores, positive, detach=True), scores)
    (through,) = torch.autograd.grad(ncl(scores, positive, detach=False), scores)
    (wanted,) = torch.autograd.grad(constant(scores), scores)
    torch.testing.assert_close(cut, wanted, atol=1e-12, rtol=0)
    assert (through - cut).abs().max() > 1e-3


def test_batch_of_one() -> None:
    scores = torch.tensor([[4.0]], requires_grad=True)
    loss = ncl(scores, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.item() == 0


def test_bank() -> None:
    scores, bank = random(5, 5, seed=1), random(40, 5, seed=2)
    assert bank_bias(bank, 4).tolist() == pytest.approx(slow_biases(bank, 4)[1], abs=1e-9)
    # The test queries themselves for bank are the oracle, in either direction.
    assert bank_bias(scores).tolist() == biases(scores)[1].tolist()
    a, b = biases(scores, 200)
    texts = bank_bias(scores.T, 200)
    assert (texts - texts.mean()).tolist() == pytest.approx((a - a.mean()).tolist(), abs=1e-9)
    assert adjusted(scores, b)[2, 3].item() == pytest.approx(scores[2, 3].item() + b[3].item())
    assert not bank_bias(bank.requires_grad_()).requires_grad


def test_a_bank_takes_a_hub_down() -> None:
    # Video 0 is near to everything, by 3, so that it is the first of all queries; the bank shows as much.
    own = 2 * torch.eye(4)
    hub = torch.tensor([3.0, 0.0, 0.0, 0.0])
    bank = own[torch.arange(4).repeat(5)] + hub
    scores = own + hub
    assert scores.argmax(1).tolist() == [0, 0, 0, 0]
    assert adjusted(scores, bank_bias(bank, 50)).argmax(1).tolist() == [0, 1, 2, 3]
    assert error(adjusted(scores, bank_bias(bank, 50)))[0] < 0.01 < error(scores)[0]


def slow_inverted(scores: torch.Tensor, bank: torch.Tensor, beta: float) -> list[list[float]]:
    total = [sum(math.exp(beta * row[j]) for row in bank.tolist()) for j in range(bank.shape[1])]
    return [[math.exp(beta * s) / total[j] for j, s in enumerate(row)] for row in scores.tolist()]


def test_inverted_softmax() -> None:
    scores, bank = random(6, 5, 1, gamma=1.0), random(9, 5, 2, gamma=1.0)
    slow = torch.tensor(slow_inverted(scores, bank, 20.0), dtype=torch.float64)
    found = qb_norm(scores, bank, how="is")
    torch.testing.assert_close((20.0 * found).exp(), slow, atol=0, rtol=1e-9)
    assert torch.equal(found.argsort(1), slow.argsort(1))


def test_dynamic_inverted_softmax_changes_queries_of_hubs_only() -> None:
    bank = torch.tensor([[0.9, 0.5, 0.1], [0.8, 0.1, 0.7]])  # best of both: item 0; second best: items 1 and 2
    scores = torch.tensor([[0.6, 0.5, 0.0], [0.1, 0.6, 0.5], [0.2, 0.1, 0.9], [0.8, 0.0, 0.0]])
    inverted = qb_norm(scores, bank, how="is")
    found = qb_norm(scores, bank)
    assert torch.equal(found[1:3], scores[1:3])
    assert torch.equal(found[[0, 3]], inverted[[0, 3]])
    assert (inverted != scores).any(1).all()
    assert found[0].argmax() == 1  # 0.6 - about 0.9 against 0.5 - about 0.5
    assert torch.equal(qb_norm(scores, bank, k=2), inverted)
    assert torch.equal(qb_norm(scores, bank, k=9), inverted)


@pytest.mark.parametrize("seed", range(5))
def test_dynamic_inverted_softmax_on_random_scores(seed: int) -> None:
    scores, bank = random(30, 12, seed, gamma=1.0), random(8, 12, seed + 50, gamma=1.0)
    hubs = {max(range(12), key=row.__getitem__) for row in bank.tolist()}
    changed = [max(range(12), key=row.__getitem__) in hubs for row in scores.tolist()]
    assert 0 < sum(changed) < 30
    assert (qb_norm(scores, bank) != scores).any(1).tolist() == changed


def test_inverted_softmax_is_finite_where_exponentials_are_not() -> None:
    assert qb_norm(torch.ones(2, 3), torch.ones(4, 3), beta=200.0, how="is").isfinite().all()


@pytest.mark.parametrize("temperature", [1000.0, 0.1])
def test_dual_softmax(temperature: float) -> None:
    s = random(4, 3).tolist()
    total = [sum(math.exp(row[j] / temperature) for row in s) for j in range(3)]
    wanted = [[x * math.exp(x / temperature) / total[j] * 4 for j, x in enumerate(row)] for row in s]
    found = dsl(torch.tensor(s, dtype=torch.float64), temperature)
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-9, rtol=1e-9)
