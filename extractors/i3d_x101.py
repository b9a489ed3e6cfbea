"""3D ResNeXt-101 on 16 frames (Hara, Kataoka and Satoh, CVPR 2018): the "3D" features of HowTo100M."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Scaler, Weights, choose

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = Weights(
    file="resnext101.pth",
    url="https://www.rocq.inria.fr/cluster-willow/amiech/howto100m/models/resnext101.pth",
    license="MIT",
    note="That link may be dead; resnext-101-kinetics.pth of K. Hara's 3D-ResNets-PyTorch is the same network "
    "and loads as it is.",
    mib=184.4,
    mirrors=("https://drive.google.com/drive/folders/1zvl89AgFAApbH0At-gMuZSeQB_LpNP-M",),
)
_KINETICS = (110.6, 103.2, 96.3)
_ACTIVITYNET = (114.7748, 107.7354, 99.4750)


def _preset(name: str, mean: tuple[float, float, float], scaler: Scaler, source: str, differs: str) -> Preset:
    return Preset(
        name=f"i3d_x101:{name}",
        chain=Chain(fps=24, short_side=112, crop=112, scaler=scaler),
        frames=16,
        outputs=(Output("avgpool", 2048),),
        weights=_WEIGHTS,
        mean=mean,
        scale=1.0,
        batch=1,
        source=source,
        differs=differs,
    )


PRESETS: dict[str, Preset] = {
    "howto100m": _preset(
        "howto100m",
        _KINETICS,
        "bilinear",
        "The HowTo100M video feature extractor, as it ran on ffmpeg up to 4.2. It subtracts the mean of Kinetics, "
        "though the network was trained with ActivityNet's (preset `hara`): four grey levels of 255.",
        "It L2-normalises the rows and stores float16; rows are raw here.",
    ),
    "howto100m-ffmpeg5": _preset(
        "howto100m-ffmpeg5",
        _KINETICS,
        "bicubic",
        "The HowTo100M video feature extractor on newer ffmpeg, whose filter graphs scale bicubically by default.",
        "As `howto100m`.",
    ),
    "hara": _preset(
        "hara",
        _ACTIVITYNET,
        "bilinear",
        "Pixels as the network's author trained and extracted with: the mean of ActivityNet.",
        "His extractor takes frames at the video's own rate, from JPEG files, scales with PIL, and drops the last "
        "incomplete clip (and a complete last one when the frames divide by 16); here 24 frames per second, no JPEG, "
        "and the last clip padded with black.",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `howto100m`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:  # noqa: ARG001 (one network for all presets)
    """Return the network: (B, 3, 16, 112, 112) to the pooled features, (B, 2048). Other sizes are refused."""
    from extractors.networks.resnext3d import ResNeXt3D

    return ResNeXt3D().eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Change nothing: the published names are the network's."""
    return state
