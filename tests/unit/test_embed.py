import numpy as np
import pytest
import torch

import extractors
from extractors import weights
from extractors.embed import Batcher, network
from extractors.spec import ExtractorError

RANDOM = weights.Found("random")


def _frames(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)


def _colors(name="resnet152", batch=2):
    preset = extractors.preset(f"colors:{name}")
    return Batcher(preset, network(preset, weights.Found("none")), batch)


def test_a_batch_is_given_back_when_it_is_full_with_its_tags_in_order():
    batcher = _colors(batch=2)
    red, green = np.zeros((1, 8, 8, 3), np.uint8), np.zeros((1, 8, 8, 3), np.uint8)
    red[..., 0], green[..., 1] = 255, 51
    assert batcher.add("red", red) == []
    (tag, row), (other, greener) = batcher.add("green", green)
    assert (tag, other, row.dtype) == ("red", "green", np.float32)
    np.testing.assert_allclose(row, [1] * 16 + [0] * 32)  # the mean of each colour in 4 x 4 cells
    np.testing.assert_allclose(greener, [0] * 16 + [0.2] * 16 + [0] * 16, rtol=1e-6)
    assert batcher.flush() == []


def test_frame_sizes_are_batched_apart_and_flush_gives_the_rest():
    batcher = _colors(batch=2)
    assert batcher.add("a", _frames(0, 1, 8, 8)) == []
    assert batcher.add("b", _frames(1, 1, 8, 12)) == []
    assert [tag for tag, _ in batcher.add("c", _frames(2, 1, 8, 8))] == ["a", "c"]
    assert batcher.add("d", _frames(3, 1, 12, 8)) == []
    assert sorted(tag for tag, _ in batcher.flush()) == ["b", "d"]
    assert batcher.flush() == []
    assert batcher.add("e", _frames(4, 1, 8, 8)) == []  # and may be used again
    assert [tag for tag, _ in batcher.flush()] == ["e"]


def test_a_short_row_is_padded_with_black():
    batcher = _colors("i3d_x101", batch=1)
    ((_, row),) = batcher.add("a", np.full((4, 112, 112, 3), 255, np.uint8))
    np.testing.assert_allclose(row, 4 / 16)


def test_frames_may_be_overwritten_once_they_are_added():
    batcher, frames = _colors(batch=2), np.full((1, 8, 8, 3), 255, np.uint8)
    batcher.add("a", frames)
    frames[:] = 0
    ((_, row),) = batcher.flush()
    assert row.min() == 1


def test_the_network_sees_one_shape_only():
    preset, seen = extractors.preset("colors"), []
    net = network(preset, weights.Found("none"))
    net.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    batcher = Batcher(preset, net, 3)
    for i in range(4):
        batcher.add(i, _frames(i, 1, 8, 8))
    batcher.flush()
    assert seen == [(3, 3, 8, 8)] * 2


def test_wrong_rows_and_batches_are_refused():
    with pytest.raises(ExtractorError, match="a row is uint8"):
        _colors().add("a", _frames(0, 2, 8, 8))
    with pytest.raises(ExtractorError, match="a row is uint8"):
        _colors().add("a", np.zeros((1, 8, 8, 3)))
    with pytest.raises(ExtractorError, match="1 row or more"):
        _colors(batch=0)


@pytest.mark.parametrize(
    ("name", "size"), [("resnet152", (64, 96)), ("i3d_x101", (112, 112)), ("s3d_howto100m", (224, 224))]
)
def test_a_row_does_not_depend_on_its_place_or_neighbours(name, size):
    preset = extractors.preset(name)
    batcher = Batcher(preset, network(preset, RANDOM), batch=2)
    a, b, c = (_frames(seed, preset.frames, *size) for seed in range(3))
    batcher.add("a", a)
    (_, first), (_, neighbour) = batcher.add("b", b)
    batcher.add("c", c)
    (_, second) = batcher.add("a", a)[1]
    batcher.add("a", a)
    ((_, last),) = batcher.flush()  # beside padding
    assert np.array_equal(first, second)
    assert np.array_equal(first, last)
    assert np.abs(first - neighbour).max() > 1e-3 * np.abs(first).max()  # rows do depend on their own frames


def test_a_network_is_frozen_and_half_precision_gives_float32_rows():
    preset = extractors.preset("pytorchvideo:x3d_s")
    net = network(preset, RANDOM)
    assert not net.training
    assert not any(parameter.requires_grad for parameter in net.parameters())
    frames = _frames(0, 13, 182, 182)
    ((_, full),) = Batcher(preset, net, 1).add(0, frames)
    ((_, half),) = Batcher(preset, net, 1, autocast=True).add(0, frames)
    assert half.dtype == np.float32
    error = np.linalg.norm(half - full) / np.linalg.norm(full)
    assert 1e-5 < error < 0.05  # bfloat16 has 8 bits


def test_rows_are_computed_without_tf32():
    preset, seen = extractors.preset("colors"), []
    net = network(preset, weights.Found("none"))
    net.register_forward_pre_hook(lambda *_: seen.append(torch.backends.cudnn.allow_tf32))
    before = torch.backends.cudnn.allow_tf32
    Batcher(preset, net, 1).add(0, _frames(0, 1, 8, 8))
    assert seen == [False]
    assert torch.backends.cudnn.allow_tf32 == before


@pytest.mark.gpu
def test_a_gpu_gives_a_cpu_s_rows():
    preset = extractors.preset("i3d_x101")
    frames = _frames(0, 16, 112, 112)
    rows = [Batcher(preset, network(preset, RANDOM, device), 1).add(0, frames)[0][1] for device in ("cpu", "cuda")]
    assert np.linalg.norm(rows[0] - rows[1]) < 1e-4 * np.linalg.norm(rows[0])
