"""ResNet-152 on single frames (He et al., CVPR 2016), torchvision's ImageNet weights, version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import nn

# Version 2 (`DEFAULT` in torchvision, resnet152-f82ba261.pth) has the same layout and is another feature space:
# only the digest tells them apart.
_WEIGHTS = Weights(
    file="resnet152-394f9c45.pth",
    url="https://download.pytorch.org/models/resnet152-394f9c45.pth",
    sha256="394f9c45",
    license="BSD-3-Clause",
    note="It is torchvision's IMAGENET1K_V1.",
    mib=230.4,
)


def _preset(name: str, chain: Chain, source: str, differs: str) -> Preset:
    return Preset(
        name=f"resnet152:{name}",
        chain=chain,
        frames=1,
        outputs=(Output("avgpool", 2048),),
        weights=_WEIGHTS,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        batch=2,
        source=source,
        differs=differs,
    )


PRESETS: dict[str, Preset] = {
    "howto100m": _preset(
        "howto100m",
        Chain(fps=1, short_side=224),
        "The HowTo100M video feature extractor, as it ran on ffmpeg up to 4.2: bilinear scaling, whole frame, no crop.",
        "It L2-normalises the rows and stores float16; rows are raw here. It adds 1e-8 to the deviations.",
    ),
    "howto100m-ffmpeg5": _preset(
        "howto100m-ffmpeg5",
        Chain(fps=1, short_side=224, scaler="bicubic"),
        "The HowTo100M video feature extractor on newer ffmpeg, whose filter graphs scale bicubically by default.",
        "As `howto100m`, from which it moves rows by a third of their spread over a video.",
    ),
    "centercrop224": _preset(
        "centercrop224",
        Chain(fps=1, short_side=224, crop=224),
        "lighthouse: the HowTo100M chain with a centre crop, so the sides of wide videos are not seen.",
        "It takes one frame for each clip, of 2 seconds unless told otherwise, and L2-normalises; here it is one a "
        "second, raw.",
    ),
    "resize256": _preset(
        "resize256",
        Chain(fps=1, short_side=256, crop=224, corner="even"),
        "The transform published with the weights (short side 256, centre crop 224), at 1 frame per second.",
        "It scales with PIL; this is ffmpeg's bilinear, which is antialiased too and differs by rounding. The "
        "video_features project, which uses it, takes every frame.",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `howto100m`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:  # noqa: ARG001 (one network for all presets)
    """Return the network: (B, 3, H, W) of any size from 32 x 32 to the last map's average, (B, 2048)."""
    from torch import nn
    from torchvision.models import resnet152

    net: nn.Module = resnet152(weights=None)
    net.fc = nn.Identity()
    for name, parameter in net.named_parameters():
        if name.endswith("bn3.weight"):
            # Without a checkpoint, 50 undamped residual sums would leave the range of float16.
            nn.init.constant_(parameter, 0.25)
    return net.eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the classifier."""
    return without(state, ("fc.weight", "fc.bias"))
