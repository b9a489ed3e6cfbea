"""I3D, Inception inflated to three dimensions (Carreira and Zisserman, CVPR 2017), on colour frames.

Parameter names and shapes are those of the converted Kinetics checkpoint `rgb_imagenet.pt`, less its classifier.
Every convolution and pool pads as TensorFlow's SAME does, which is what the weights were trained with.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from extractors.spec import ExtractorError

Video = Float[Tensor, "batch _channels _time _height _width"]
Sides = tuple[int, int, int]
SIDE, LEAST_FRAMES = 224, 9
"""Pixels on a side; frames below which the last map is one step long and cannot be averaged in pairs."""
DIM = 1024

# Channels of the input and of the branches: 1x1x1; reduction and 3x3x3, twice; after the pool.
_MIXED = {
    "Mixed_3b": (192, 64, (96, 128), (16, 32), 32),
    "Mixed_3c": (256, 128, (128, 192), (32, 96), 64),
    "Mixed_4b": (480, 192, (96, 208), (16, 48), 64),
    "Mixed_4c": (512, 160, (112, 224), (24, 64), 64),
    "Mixed_4d": (512, 128, (128, 256), (24, 64), 64),
    "Mixed_4e": (512, 112, (144, 288), (32, 64), 64),
    "Mixed_4f": (528, 256, (160, 320), (32, 128), 128),
    "Mixed_5b": (832, 256, (160, 320), (32, 128), 128),
    "Mixed_5c": (832, 384, (192, 384), (48, 128), 128),
}


def pad_same(x: Video, kernel: Sides, stride: Sides) -> Video:
    """Pad with zeros so that a window of `kernel` gives `ceil(size / stride)` places; what is odd goes to the end.

    >>> pad_same(torch.ones(1, 1, 1, 1, 5), (1, 1, 3), (1, 1, 2)).flatten().tolist()
    [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    >>> pad_same(torch.ones(1, 1, 1, 1, 4), (1, 1, 3), (1, 1, 2)).flatten().tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    pads: list[int] = []
    for size, k, s in zip(reversed(x.shape[2:]), reversed(kernel), reversed(stride), strict=True):
        missing = max(k - (size % s or s), 0)
        pads += [missing // 2, missing - missing // 2]
    return F.pad(x, pads)


class _Unit(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, channels: int, out: int, kernel: Sides = (1, 1, 1), stride: Sides = (1, 1, 1)) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(channels, out, kernel, stride, bias=False)
        self.bn = nn.BatchNorm3d(out, eps=1e-3)
        self._kernel, self._stride = kernel, stride
        # Without a checkpoint, torch's own initial values would fade over 57 layers.
        nn.init.kaiming_normal_(self.conv3d.weight)

    def forward(self, x: Video) -> Video:
        return torch.relu(self.bn(self.conv3d(pad_same(x, self._kernel, self._stride))))


class _Mixed(nn.Module):
    """Inception block of four branches."""

    def __init__(self, channels: int, b0: int, b1: tuple[int, int], b2: tuple[int, int], b3: int) -> None:
        super().__init__()
        cube = (3, 3, 3)
        self.b0 = _Unit(channels, b0)
        self.b1a, self.b1b = _Unit(channels, b1[0]), _Unit(*b1, cube)
        self.b2a, self.b2b = _Unit(channels, b2[0]), _Unit(*b2, cube)
        self.b3b = _Unit(channels, b3)

    def forward(self, x: Video) -> Video:
        pooled = _pool(x, (3, 3, 3), (1, 1, 1))
        branches = self.b0(x), self.b1b(self.b1a(x)), self.b2b(self.b2a(x)), self.b3b(pooled)
        return torch.cat(branches, 1)


class InceptionI3D(nn.Module):
    """Pixels in [-1, 1], (B, 3, T, 224, 224) with T from 9, to the pooled features (B, 1024)."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv3d_1a_7x7 = _Unit(3, 64, (7, 7, 7), (2, 2, 2))
        self.Conv3d_2b_1x1 = _Unit(64, 64)
        self.Conv3d_2c_3x3 = _Unit(64, 192, (3, 3, 3))
        for name, channels in _MIXED.items():
            self.add_module(name, _Mixed(*channels))

    def forward(self, x: Float[Tensor, "batch 3 time height width"]) -> Float[Tensor, "batch 1024"]:
        """Return the averages: over space, then over pairs of steps, then over these, as the published features."""
        frames, height, width = x.shape[2:]
        if height != SIDE or width != SIDE or frames < LEAST_FRAMES:
            raise ExtractorError(
                f"i3d_inception takes {LEAST_FRAMES} frames or more of {SIDE} x {SIDE}, "
                f"not {frames} of {width} x {height}; use one of its presets' sampling and crop"
            )
        x = _pool(self.Conv3d_1a_7x7(x), (1, 3, 3), (1, 2, 2))
        x = _pool(self.Conv3d_2c_3x3(self.Conv3d_2b_1x1(x)), (1, 3, 3), (1, 2, 2))
        x = self._mixed("3bc", x)
        x = self._mixed("4bcdef", _pool(x, (3, 3, 3), (2, 2, 2)))
        x = self._mixed("5bc", _pool(x, (2, 2, 2), (2, 2, 2)))
        return F.avg_pool1d(x.mean((3, 4)), 2, 1).mean(2)

    def _mixed(self, stage: str, x: Tensor) -> Tensor:
        for block in stage[1:]:
            x = self.get_submodule(f"Mixed_{stage[0]}{block}")(x)
        return x


def _pool(x: Tensor, kernel: Sides, stride: Sides) -> Tensor:
    return F.max_pool3d(pad_same(x, kernel, stride), kernel, stride)
