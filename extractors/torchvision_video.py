"""torchvision's Kinetics-400 networks: R(2+1)D-18, MViT, Video Swin and S3D."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import nn

Colour = tuple[float, float, float]
_KINETICS: tuple[Colour, Colour] = (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)
_IMAGENET: tuple[Colour, Colour] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MIDDLE: tuple[Colour, Colour] = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
_SOURCE = (
    "torchvision's `transforms()` of the weights, and the frame rate and clip length of their documented accuracy; the "
    "features that the classifier sees."
)
_DIFFERS = (
    "torchvision takes clips spread over a video, here rows follow each other. It scales without antialiasing; "
    "ffmpeg's bilinear is antialiased, which moves the rows of untrained networks by 4 per cent of their spread "
    "(R(2+1)D, whose frames are small: 7)."
)


def _preset(
    name: str, file: tuple[str, float], chain: Chain, row: tuple[int, int], colours: tuple[Colour, Colour]
) -> Preset:
    mean, std = colours
    frames, dim = row
    return Preset(
        name=f"torchvision_video:{name}",
        chain=chain,
        frames=frames,
        outputs=(Output("pooled", dim),),
        weights=Weights(
            file=file[0],
            url=f"https://download.pytorch.org/models/{file[0]}",
            sha256=file[0].rpartition("-")[2].removesuffix(".pth"),
            license="BSD-3-Clause",
            mib=file[1],
        ),
        mean=mean,
        std=std,
        batch=1,
        source=_SOURCE,
        differs=_DIFFERS,
    )


_SMALL = Chain(fps=15, short_side=128, stretch=(171, 128), crop=112, corner="even")
_WHOLE = Chain(fps=15, short_side=256, crop=224, corner="even")
_SQUARE = Chain(fps=15, short_side=256, stretch=(256, 256), crop=224, corner="even")
_SLOW = Chain(fps=7.5, short_side=256, crop=224, corner="even")

PRESETS: dict[str, Preset] = {
    "r2plus1d_18": _preset("r2plus1d_18", ("r2plus1d_18-91a641e6.pth", 120.318), _SMALL, (16, 512), _KINETICS),
    "mvit_v1_b": _preset("mvit_v1_b", ("mvit_v1_b-dbeb1030.pth", 139.764), _SLOW, (16, 768), _MIDDLE),
    "mvit_v2_s": _preset("mvit_v2_s", ("mvit_v2_s-ae3be167.pth", 131.884), _SLOW, (16, 768), _MIDDLE),
    "swin3d_t": _preset("swin3d_t", ("swin3d_t-7615ae03.pth", 121.543), _WHOLE, (32, 768), _IMAGENET),
    "swin3d_s": _preset("swin3d_s", ("swin3d_s-da41c237.pth", 218.288), _WHOLE, (32, 768), _IMAGENET),
    "swin3d_b": _preset("swin3d_b", ("swin3d_b_1k-24f7c7c6.pth", 364.134), _WHOLE, (32, 1024), _IMAGENET),
    "s3d": _preset("s3d", ("s3d-d76dad2f.pth", 31.972), _SQUARE, (128, 1024), _KINETICS),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `r2plus1d_18`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network without its classifier: (B, 3, T, S, S) to the features it would see, (B, D)."""
    from torch import nn
    from torchvision.models import video

    name = preset.name.partition(":")[2]
    net = cast("nn.Module", getattr(video, name)(weights=None))
    parent, _, last = _HEADS[name].rpartition(".")
    setattr(net.get_submodule(parent), last, nn.Identity())
    return net.eval()


_HEADS = {
    "r2plus1d_18": "fc",
    "mvit_v1_b": "head.1",
    "mvit_v2_s": "head.1",
    "swin3d_t": "head",
    "swin3d_s": "head",
    "swin3d_b": "head",
    "s3d": "classifier.1",
}
"""The classifier of each network. S3D's is a convolution whose places are averaged, as then are the features."""


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """Leave out the classifier."""
    head = _HEADS[preset.name.partition(":")[2]]
    return without(state, (f"{head}.{kind}" for kind in ("weight", "bias")))
