"""Which moments are candidates, worked by hand; their features, and convolution, against the dense map."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from pipeline.errors import BadSetting
from train.candidates import ConvMap, MapConvs, averages, cells, mask, max_map, neighbours, scales, spans

SIZES = [1, 2, 3, 16, 17, 18, 33, 37, 64, 67, 68]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_scales() -> None:
    assert {n: scales(n) for n in (8, 16, 17, 18, 32, 64, 128)} == {
        8: (8,), 16: (16,), 17: (16,), 18: (16, 1), 32: (16, 8), 64: (16, 8, 8), 128: (16, 8, 8, 8),
    }  # fmt: skip


def test_counts_by_hand() -> None:
    # A length l at stride s begins at 0, s, 2 s .. up to n - l.
    # 16: 16 + 15 + .. + 1
    assert len(cells(16)) == 136
    # 64: lengths 1-16: 64 + 63 + .. + 49 = 16 x 56.5; 18, 20 .. 32 at stride 2: 24 + 23 + .. + 17;
    # 36, 40 .. 64 at stride 4: 8 + 7 + .. + 1
    assert len(cells(64)) == 904 + 164 + 36 == 1104
    # 128: 128 + .. + 113 = 16 x 120.5; stride 2: 56 + .. + 49; stride 4: 24 + .. + 17;
    # 72, 80 .. 128 at stride 8: 8 + .. + 1
    assert len(cells(128)) == 1928 + 420 + 164 + 36 == 2548
    # of 2,080 and 8,256 moments that there are
    assert int(torch.ones(64, 64).triu().sum()) == 2080


@pytest.mark.parametrize("n", [16, 64, 128])
def test_the_mask_is_the_papers_rule(n: int) -> None:
    """Strides are 1 up to length 16, 2 up to 32, 4 up to 64, 8 up to 128; of starts and of lengths."""

    def is_candidate(a: int, b: int) -> bool:
        length = b - a + 1
        stride = 1 if length <= 16 else 2 if length <= 32 else 4 if length <= 64 else 8
        return a <= b and a % stride == 0 and length % stride == 0

    expected = [[is_candidate(a, b) for b in range(n)] for a in range(n)]
    assert mask(n).tolist() == expected


def test_the_whole_video_is_a_candidate_and_order_is_by_length() -> None:
    for n in (16, 64, 128):
        assert spans(n)[-1].tolist() == [0, 1]
    assert cells(3).tolist() == [[0, 0], [1, 1], [2, 2], [0, 1], [1, 2], [0, 2]]
    assert spans(4)[5].tolist() == [0.25, 0.75]
    lengths = (cells(64) @ torch.tensor([-1, 1])).tolist()
    assert lengths == sorted(lengths)


def test_no_clips() -> None:
    with pytest.raises(BadSetting, match="--clips 0"):
        cells(0)


def test_averages_by_hand() -> None:
    x = torch.tensor([[1.0, 2, 3, 4, 5, 6], [1, 2, 0, 0, 0, 0], [7, 1, 9, 2, 9, 9], [9, 9, 9, 9, 9, 9]])[..., None]
    there = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
    # Six tokens in four: borders 0, 1.5, 3, 4.5, 6, rounded up. Two in four: each twice; holes are no tokens.
    expected = [[1.5, 3, 4.5, 6], [1, 1, 2, 2], [1, 1, 2, 2], [0, 0, 0, 0]]
    assert averages(x, there, 4)[..., 0].tolist() == expected


@pytest.mark.parametrize(("m", "n"), [(256, 64), (6, 6), (5, 3), (3, 5), (1, 4), (10, 64)])
def test_averages_are_over_shares_and_repeat_the_nearest(m: int, n: int) -> None:
    x, there = torch.rand(1, m + 2, 3, generator=generator(), dtype=torch.float64), torch.ones(1, m + 2).bool()
    there[:, m:] = False
    for j, one in enumerate(averages(x, there, n)[0]):
        begin, end = int(j * m / n + 0.5), int((j + 1) * m / n + 0.5)
        middle = (j + 0.5) * m / n
        nearest = min(range(m), key=lambda t: abs(t + 0.5 - middle))
        part = x[0, begin:end].mean(0) if begin < end else x[0, nearest]
        torch.testing.assert_close(one, part)


@pytest.mark.parametrize("n", SIZES)
def test_pooling_is_the_maximum_over_the_clips(n: int) -> None:
    x = torch.randn(n, 2, 3, generator=generator())
    expected = torch.stack([x[a : b + 1].amax(0) for a, b in cells(n).tolist()])
    assert torch.equal(max_map(x), expected)


@pytest.mark.parametrize("n", SIZES)
def test_convolved_features_are_of_the_clips_of_a_candidate_alone(n: int) -> None:
    torch.manual_seed(0)
    model, x = ConvMap(n, 2).double(), torch.randn(n, 1, 2, dtype=torch.float64, requires_grad=True)
    found = model(x)
    assert found.shape == (len(cells(n)), 1, 2)
    for place in range(0, len(found), 1 + len(found) // 40):
        (grad,) = torch.autograd.grad(found[place].sum(), x, retain_graph=True)
        a, b = cells(n)[place].tolist()
        assert grad.abs().sum((1, 2)).nonzero()[:, 0].tolist() == list(range(a, b + 1))


def test_convolved_features_are_stacked_convolutions() -> None:
    """Of 18 clips: kernel 1, then 2 fifteen times, then one of kernel 3 and stride 2, as torch's conv1d does them."""
    torch.manual_seed(0)
    model, x = ConvMap(18, 4).double(), torch.randn(18, 3, 4, dtype=torch.float64)
    now, parts = x.permute(1, 2, 0), []
    for level, layer in enumerate(model.layers):
        weight = layer.weight.view(4, -1, 4).transpose(1, 2)
        assert weight.shape[2] == (1 if level == 0 else 3 if level == 16 else 2)
        now = nn.functional.conv1d(now, weight, layer.bias, stride=2 if level == 16 else 1)
        parts.append(now.permute(2, 0, 1))
    torch.testing.assert_close(model(x), torch.cat(parts), rtol=0, atol=1e-12)


def test_neighbours_by_hand() -> None:
    # Three clips, all moments: 0 (0,0), 1 (1,1), 2 (2,2), 3 (0,1), 4 (1,2), 5 (0,2).
    found = neighbours(3, 3)
    pairs = set(zip(found.source.tolist(), found.target.tolist(), strict=True))
    near = {0: {0, 1, 3}, 1: {0, 1, 2, 3, 4, 5}, 2: {1, 2, 4}, 3: {0, 1, 3, 4, 5}, 4: {1, 2, 3, 4, 5}, 5: {1, 3, 4, 5}}
    assert pairs == {(source, target) for target, sources in near.items() for source in sources}
    assert found.count.tolist() == [3, 6, 3, 5, 5, 4]
    assert found.sizes == (3, 3, 1, 3, 6, 3, 1, 3, 3)
    assert neighbours(3, 3) is found


def test_an_even_kernel_has_no_middle() -> None:
    with pytest.raises(BadSetting, match="--kernel 4"):
        neighbours(16, 4)


def dense(model: MapConvs, x: Tensor, n: int, kernel: int) -> Tensor:
    """Return what conv2d does with a map that is zeroed outside its candidates."""
    there, (a, b) = mask(n).to(x), cells(n).T
    now = x.new_zeros(x.shape[1], x.shape[2], n, n)
    now[:, :, a, b] = x.permute(1, 2, 0)
    count = nn.functional.conv2d(there[None, None], torch.ones(1, 1, kernel, kernel).to(x), padding=kernel // 2)
    for weight, bias in zip(model.weights, model.biases, strict=True):
        filters = weight.unflatten(0, (kernel, kernel)).permute(3, 2, 0, 1)
        now = nn.functional.conv2d(now, filters, bias, padding=kernel // 2).relu() * there / count.clamp(min=1)
    return now[:, :, a, b].permute(2, 0, 1)


@pytest.mark.parametrize(("n", "kernel"), [(1, 3), (3, 9), (16, 5), (16, 1), (18, 5), (37, 3), (64, 9)])
def test_convolution_is_the_dense_one_and_so_are_its_gradients(n: int, kernel: int) -> None:
    torch.manual_seed(0)
    model = MapConvs(n, (kernel, 2, 4)).double()
    x = torch.randn(len(cells(n)), 2, 4, dtype=torch.float64, requires_grad=True)
    toward = torch.randn(len(cells(n)), 2, 4, dtype=torch.float64)
    wanted = [x, *model.parameters()]
    outputs = [model(x), dense(model, x, n, kernel)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-10)
    gradients = [torch.autograd.grad((out * toward).sum(), wanted) for out in outputs]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert all(bool(one.any()) for one in gradients[0])


def test_convolution_passes_gradcheck() -> None:
    torch.manual_seed(0)
    model = MapConvs(3, (3, 1, 2)).double()
    x = torch.randn(6, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model._convolved, (x, model.weights[0]))


def test_convolution_under_autocast_sums_in_float32() -> None:
    torch.manual_seed(0)
    model, x = MapConvs(16, (5, 2, 32)), torch.randn(136, 2, 32, requires_grad=True)
    exact = model(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        found = model(x)
    assert found.dtype == torch.float32
    assert 0 < float((found.detach() - exact).norm() / exact.norm()) < 0.02
    found.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


@torch.no_grad()
def test_weights_begin_as_those_of_conv2d() -> None:
    torch.manual_seed(0)
    model, other = MapConvs(16, (5, 1, 64), "conv2d"), nn.Conv2d(64, 64, 5)
    for ours, theirs in zip((model.weights[0], model.biases[0]), (other.weight, other.bias), strict=True):
        assert float(ours.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.1)
    assert float(model.weights[0].std()) == pytest.approx(float(other.weight.std()), rel=0.05)


@pytest.mark.parametrize(("clips", "kernel"), [(16, 5), (64, 9), (128, 5)])
def test_values_and_gradients_keep_their_scale_however_many_neighbours_there_are(clips: int, kernel: int) -> None:
    """For moments that are like their neighbours; at 128 clips the longest ones have none but themselves."""
    torch.manual_seed(0)
    x = torch.randn(2, 32).relu().expand(len(cells(clips)), -1, -1)
    found = {}
    for start in ("even", "conv2d"):
        model = MapConvs(clips, (kernel, 6, 32), start)
        out = model(x)
        out.square().sum().backward()
        sizes = out.detach().square().mean((1, 2)) / x.square().mean()
        first, last = ((w.grad / w.detach().norm()).norm() for w in (model.weights[0], model.weights[-1]))
        found[start] = float(sizes.min()), float(sizes.max()), float(first / last)
    assert all(0.2 < value < 5 for value in found["even"])
    assert found["conv2d"][1] < 1e-3


def test_pairs_at_activitynets_settings_are_a_fraction_of_the_dense_ones() -> None:
    found, there = neighbours(64, 9), mask(64)
    pairs = sum(
        bool(there[a + i, b + j])
        for a, b in cells(64).tolist()
        for i, j in itertools.product(range(-4, 5), repeat=2)
        if 0 <= a + i < 64 and 0 <= b + j < 64
    )
    assert pairs == len(found.source) == int(found.count.sum())
    assert pairs < 64 * 64 * 81 / 5
