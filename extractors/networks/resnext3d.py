"""3D ResNeXt-101 for 16 frames of 112 x 112 (Hara, Kataoka and Satoh, CVPR 2018).

Cardinality 32, blocks 3-4-23-3, shortcut B (a convolution). Parameter names and shapes are those of the published
Kinetics-400 checkpoints, so they load as they are.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from extractors.spec import ExtractorError

Video = Float[Tensor, "batch _channels _time _height _width"]
FRAMES, SIDE = 16, 112
_CARDINALITY = 32
_BLOCKS = (3, 4, 23, 3)
_WIDTHS = (128, 256, 512, 1024)  # of the grouped convolution; a block gives twice as many channels


class _Block(nn.Module):
    """1x1x1, grouped 3x3x3, 1x1x1, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        self.conv2 = nn.Conv3d(width, width, 3, stride, padding=1, groups=_CARDINALITY, bias=False)
        self.bn2 = nn.BatchNorm3d(width)
        self.conv3 = nn.Conv3d(width, 2 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm3d(2 * width)
        # Without a checkpoint, 33 undamped residual sums would leave the range of float16.
        nn.init.constant_(self.bn3.weight, 0.25)
        self.downsample = (
            nn.Sequential(nn.Conv3d(channels, 2 * width, 1, stride, bias=False), nn.BatchNorm3d(2 * width))
            if stride > 1 or channels != 2 * width
            else None
        )

    def forward(self, x: Video) -> Video:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(out + shortcut)


class ResNeXt3D(nn.Module):
    """Pixels (B, 3, 16, 112, 112) to the pooled features (B, 2048).

    Other sizes are refused: the published network pools with a fixed 1 x 4 x 4 window, which would give
    32768 numbers for 224 x 224 and 4096 for 32 frames without a word.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(3, 64, 7, (1, 2, 2), padding=3, bias=False)
        self.bn1 = nn.BatchNorm3d(64)
        self.maxpool = nn.MaxPool3d(3, 2, padding=1)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _layer(2 * _WIDTHS[i - 1] if i else 64, width, blocks, 2 if i else 1)
            for i, (width, blocks) in enumerate(zip(_WIDTHS, _BLOCKS, strict=True))
        )
        self.fc = nn.Linear(2 * _WIDTHS[-1], 400)  # not used: kept so that checkpoints load strictly

    def forward(self, x: Float[Tensor, "batch 3 _time _height _width"]) -> Float[Tensor, "batch 2048"]:
        """Return the pooled features."""
        if x.shape[1:] != (3, FRAMES, SIDE, SIDE):
            raise ExtractorError(
                f"i3d_x101 takes {FRAMES} frames of {SIDE} x {SIDE}, not (channels, frames, height, width) "
                f"= {tuple(x.shape[1:])}; use one of its presets' sampling and crop"
            )
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3, 4))


def _layer(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    rest = (_Block(2 * width, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(_Block(channels, width, stride), *rest)
