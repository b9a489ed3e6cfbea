"""S3D with a text tower, trained on HowTo100M with MIL-NCE (Miech et al., CVPR 2020).

Separable 3D Inception (Xie et al., ECCV 2018) with self gating. Parameter names and shapes are those of the published
PyTorch checkpoint, so it loads as it is.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from extractors.spec import ExtractorError

Video = Float[Tensor, "batch _channels _time _height _width"]
LAYERS = {"mixed_5c": 1024, "video_embedding": 512}
WORDS = 66_250
"""Rows of the word table; row 0 is padding."""

# Channels of the input and of the branches: 1x1; reduction and 3x3, twice; after the pool.
_MIXED = {
    "mixed_3b": (192, 64, (96, 128), (16, 32), 32),
    "mixed_3c": (256, 128, (128, 192), (32, 96), 64),
    "mixed_4b": (480, 192, (96, 208), (16, 48), 64),
    "mixed_4c": (512, 160, (112, 224), (24, 64), 64),
    "mixed_4d": (512, 128, (128, 256), (24, 64), 64),
    "mixed_4e": (512, 112, (144, 288), (32, 64), 64),
    "mixed_4f": (528, 256, (160, 320), (32, 128), 128),
    "mixed_5b": (832, 256, (160, 320), (32, 128), 128),
    "mixed_5c": (832, 384, (192, 384), (48, 128), 128),
}


class _Conv(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(
        self, channels: int, out: int, kernel: tuple[int, int, int], padding: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(channels, out, kernel, padding=padding, bias=False)
        self.bn1 = nn.BatchNorm3d(out)

    def forward(self, x: Video) -> Video:
        return torch.relu(self.bn1(self.conv1(x)))


class _SeparableConv(nn.Module):
    """3 x 3 in space, then 3 in time, each with batch normalisation and ReLU."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(channels, out, (1, 3, 3), padding=(0, 1, 1), bias=False)
        self.bn1 = nn.BatchNorm3d(out)
        self.conv2 = nn.Conv3d(out, out, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.bn2 = nn.BatchNorm3d(out)

    def forward(self, x: Video) -> Video:
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)))


class _Gating(nn.Module):
    """Scale each channel by a gate that looks at all channels' averages."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Video) -> Video:
        gate = torch.sigmoid(self.fc(x.mean((2, 3, 4))))
        return x * gate[:, :, None, None, None]


class _Mixed(nn.Module):
    """Inception block of four gated branches."""

    def __init__(self, channels: int, b0: int, b1: tuple[int, int], b2: tuple[int, int], b3: int) -> None:
        super().__init__()
        one = (1, 1, 1)
        self.conv_b0 = _Conv(channels, b0, one)
        self.conv_b1_a = _Conv(channels, b1[0], one)
        self.conv_b1_b = _SeparableConv(*b1)
        self.conv_b2_a = _Conv(channels, b2[0], one)
        self.conv_b2_b = _SeparableConv(*b2)
        self.maxpool_b3 = nn.MaxPool3d(3, 1, padding=1)
        self.conv_b3_b = _Conv(channels, b3, one)
        self.gating_b0, self.gating_b1 = _Gating(b0), _Gating(b1[1])
        self.gating_b2, self.gating_b3 = _Gating(b2[1]), _Gating(b3)

    def forward(self, x: Video) -> Video:
        branches = (
            self.gating_b0(self.conv_b0(x)),
            self.gating_b1(self.conv_b1_b(self.conv_b1_a(x))),
            self.gating_b2(self.conv_b2_b(self.conv_b2_a(x))),
            self.gating_b3(self.conv_b3_b(self.maxpool_b3(x))),
        )
        return torch.cat(branches, 1)


class _Text(nn.Module):
    """Word numbers (B, slots) to embeddings (B, 512). Padding takes part in the maximum, as in training."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embd = nn.Embedding(WORDS, 300)
        self.fc1 = nn.Linear(300, 2048)
        self.fc2 = nn.Linear(2048, LAYERS["video_embedding"])

    def forward(self, words: Int[Tensor, "texts slots"]) -> Float[Tensor, "texts 512"]:
        hidden: Tensor = torch.relu(self.fc1(self.word_embd(words)))
        return self.fc2(hidden.amax(1))  # type: ignore[no-any-return]


class S3D(nn.Module):
    """Pixels in [0, 1], (B, 3, T, H, W) with even sizes, to the `layers` asked for, side by side.

    `frames`: refuse clips that are not so many frames of 224 x 224 or 256 x 256. The pools pad by a fixed amount, which
    is what the original (TensorFlow, SAME) does only while every stage has an even size.
    """

    def __init__(self, layers: tuple[str, ...] = tuple(LAYERS), frames: int | None = None) -> None:
        super().__init__()
        self.layers, self.frames = layers, frames
        self.conv1 = _Conv(24, 64, (2, 4, 4), padding=(1, 2, 2))
        self.conv_2b = _Conv(64, 64, (1, 1, 1))
        self.conv_2c = _SeparableConv(64, 192)
        self.gating = _Gating(192)
        for name, channels in _MIXED.items():
            self.add_module(name, _Mixed(*channels))
        self.fc = nn.Linear(LAYERS["mixed_5c"], LAYERS["video_embedding"])
        self.text_module = _Text()
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                # Without a checkpoint, torch's own initial values would let the gates smother all but the biases.
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Float[Tensor, "batch 3 time height width"]) -> Float[Tensor, "batch dim"]:
        """Return the layers asked for, side by side."""
        self._check(x)
        x = self.conv1(space_to_depth(x))[:, :, 1:, 1:, 1:]  # with the symmetric padding, TensorFlow's SAME
        x = self.gating(self.conv_2c(self.conv_2b(_pool(x, (1, 3, 3)))))
        x = self._mixed("3bc", _pool(x, (1, 3, 3)))
        x = self._mixed("4bcdef", _pool(x, (3, 3, 3)))
        x = self._mixed("5bc", _pool(x, (2, 2, 2)))
        pooled = x.mean((2, 3, 4))
        found = {"mixed_5c": pooled, "video_embedding": self.fc(pooled)}
        return torch.cat([found[layer] for layer in self.layers], 1)

    def _mixed(self, stage: str, x: Tensor) -> Tensor:
        for block in stage[1:]:
            x = self.get_submodule(f"mixed_{stage[0]}{block}")(x)
        return x

    def _check(self, x: Tensor) -> None:
        frames, height, width = x.shape[2:]
        legal = frames == self.frames and height == width and height in {224, 256}
        if self.frames is not None and not legal:
            raise ExtractorError(
                f"s3d_howto100m takes {self.frames} frames of 224 x 224 or 256 x 256 here, "
                f"not {frames} of {width} x {height}; use one of its presets' sampling and crop"
            )


def space_to_depth(x: Tensor) -> Tensor:
    """Fold 2 x 2 x 2 neighbours into channels: (B, C, T, H, W) to (B, 8 C, T/2, H/2, W/2).

    The new channels are ordered (t, h, w, c); another order loads the same checkpoint and gives garbage.
    """
    B, C, T, H, W = x.shape
    x = x.view(B, C, T // 2, 2, H // 2, 2, W // 2, 2).permute(0, 3, 5, 7, 1, 2, 4, 6)
    return x.reshape(B, 8 * C, T // 2, H // 2, W // 2)


def _pool(x: Tensor, kernel: tuple[int, int, int]) -> Tensor:
    """Halve every side on which `kernel` is larger than 1; pad one zero at the end where it is 3."""
    t, h, w = (int(size == 3) for size in kernel)
    stride = [min(size, 2) for size in kernel]
    return F.max_pool3d(F.pad(x, (0, w, 0, h, 0, t)), kernel, stride, ceil_mode=True)
