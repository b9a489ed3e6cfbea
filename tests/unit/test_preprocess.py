import numpy as np
import pytest
import torch

import extractors
from extractors.preprocess import pad_row, to_input
from extractors.spec import ExtractorError


def test_pixels_are_scaled_then_normalised_by_channel():
    frames = np.zeros((1, 1, 1, 2, 3), np.uint8)
    frames[0, 0, 0, 1] = 255, 51, 0
    x = to_input(frames, extractors.preset("resnet152"))
    assert x.dtype == torch.float32
    # (0 - .485) / .229, (0 - .456) / .224, (0 - .406) / .225; then (1 - .485) / .229, (.2 - .456) / .224
    expected = [[-2.117904, 2.248908], [-2.035714, -1.142857], [-1.804444, -1.804444]]
    np.testing.assert_allclose(x[0, :, 0].numpy(), expected, rtol=1e-5)


def test_clips_keep_time_and_are_not_scaled_where_the_preset_says_so():
    preset = extractors.preset("i3d_x101")
    frames = np.arange(16 * 2 * 3 * 3, dtype=np.int64).reshape(1, 16, 2, 3, 3).astype(np.uint8)
    x = to_input(frames, preset)
    assert x.shape == (1, 3, 16, 2, 3)
    for c, mean in enumerate((110.6, 103.2, 96.3)):
        np.testing.assert_allclose(x[0, c].numpy(), frames[0, ..., c] - mean, atol=1e-4)


def test_s3d_pixels_are_only_divided():
    frames = np.full((2, 16, 4, 4, 3), 51, np.uint8)
    x = to_input(frames, extractors.preset("s3d_howto100m"))
    assert x.shape == (2, 3, 16, 4, 4)
    torch.testing.assert_close(x, torch.full_like(x, 0.2))


def test_input_is_not_changed_and_may_be_read_only_or_a_tensor():
    preset = extractors.preset("resnet152")
    frames = np.frombuffer(bytes(range(2 * 2 * 3)), np.uint8).reshape(1, 1, 2, 2, 3)
    tensor = torch.tensor(frames.tolist(), dtype=torch.uint8)
    torch.testing.assert_close(to_input(frames, preset), to_input(tensor, preset), rtol=0, atol=0)
    assert tensor.flatten().tolist() == list(range(12))


def test_padding_is_black_before_the_mean_is_subtracted():
    preset = extractors.preset("i3d_x101")
    row = pad_row(np.full((5, 2, 2, 3), 200, np.uint8), 16)
    x = to_input(row[None], preset)
    mean = torch.tensor(preset.mean)
    torch.testing.assert_close(x[0, :, 4, 0, 0], 200 - mean)
    torch.testing.assert_close(x[0, :, 5:, 0, 0], -mean[:, None].expand(3, 11))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 1, 2, 2, 3), np.float32),
        ((1, 2, 2, 2, 3), np.uint8),
        ((1, 1, 3, 2, 2), np.uint8),
        ((1, 2, 2, 3), np.uint8),
    ],
)
def test_other_input_is_refused(shape, kind):
    with pytest.raises(ExtractorError, match=r"resnet152:howto100m takes uint8 frames \(rows, 1, height, width, 3\)"):
        to_input(np.zeros(shape, kind), extractors.preset("resnet152"))


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((0, 2, 2, 3), np.uint8),
        np.zeros((17, 2, 2, 3), np.uint8),
        np.zeros((4, 2, 2, 3)),
        np.zeros((2, 2, 3), np.uint8),
    ],
)
def test_what_is_no_row_is_not_padded(frames):
    with pytest.raises(ExtractorError, match="a row is uint8"):
        pad_row(frames, 16)
