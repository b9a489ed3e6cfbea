"""Decoded frames to what a network eats. Pure functions."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import NDArray
from torch import Tensor

from extractors.spec import ExtractorError, Preset


def to_input(frames: NDArray[np.uint8] | Tensor, preset: Preset) -> Float32[Tensor, "rows 3 *size"]:
    """Return `frames`, uint8 (B, T, H, W, 3), as the network's float32 input, on the frames' device.

    (B, 3, H, W) where a row is one frame, (B, 3, T, H, W) otherwise; pixels are `(x / scale - mean) / std`.
    The memory stays in channels-last order, in which the convolutions run a seventh faster on a CPU.
    """
    x = torch.from_numpy(np.require(frames, requirements=["C", "W"])) if isinstance(frames, np.ndarray) else frames
    if x.dtype != torch.uint8 or x.ndim != 5 or (x.shape[1], x.shape[4]) != (preset.frames, 3):
        raise ExtractorError(
            f"{preset.name} takes uint8 frames (rows, {preset.frames}, height, width, 3), "
            f"not {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
        )
    x = x[:, 0].permute(0, 3, 1, 2) if preset.frames == 1 else x.permute(0, 4, 1, 2, 3)
    colour = (3, *[1] * (x.ndim - 2))
    mean, std = (torch.tensor(v, device=x.device).view(colour) for v in (preset.mean, preset.std))
    return x.float().div_(preset.scale).sub_(mean).div_(std)


def pad_row(frames: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Return `frames`, (t, H, W, 3) with 0 < t <= `count`, with black frames after them up to `count`.

    Black means pixel 0, before any mean is subtracted: so did the extractors whose features were published.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not 0 < len(frames) <= count:
        raise ExtractorError(
            f"a row is uint8 (1 to {count} frames, height, width, 3), not {frames.dtype} {frames.shape}"
        )
    if len(frames) == count:
        return frames
    missing = np.zeros((count - len(frames), *frames.shape[1:]), frames.dtype)
    return np.concatenate([frames, missing])
