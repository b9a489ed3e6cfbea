"""PyTorchVideo's Kinetics-400 networks: C2D, I3D, Slow, SlowFast, CSN, R(2+1)D, X3D and MViT.

Not here: the hub's two detection networks, which need boxes, and its image MViT, for which no sampling is published.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import Tensor, nn

_SLOWFAST_ALPHA = 4  # the slow pathway sees every fourth frame
_SOURCE = (
    "PyTorchVideo's model zoo and its torch hub page: frames x rate at 30 frames per second, short side and centre "
    "crop, mean .45, deviation .225; the pooled features before the projection."
)
_DIFFERS = (
    "The hub page scales floats without antialiasing after normalising; here ffmpeg scales bilinearly before: rows of "
    "an untrained X3D-XS move by 8 per cent of their spread."
)
_GUESSED = (
    " It shows no sizes for this network: they are those of its authors' single centre crop, or of the three crops by "
    "which the zoo's count of operations was reached."
)
_WHOLE = (256, 256)  # short side and crop


def _preset(name: str, file: str, sampling: tuple[int, int], sides: tuple[int, int], dim: int, shown: bool) -> Preset:
    frames, rate = sampling
    return Preset(
        name=f"pytorchvideo:{name}",
        chain=Chain(fps=30 / rate, short_side=sides[0], crop=sides[1], corner="even"),
        frames=frames,
        outputs=(Output("pooled", dim),),
        weights=Weights(
            file=file,
            url=f"https://dl.fbaipublicfiles.com/pytorchvideo/model_zoo/kinetics/{file}",
            license="Apache-2.0",
        ),
        mean=(0.45, 0.45, 0.45),
        std=(0.225, 0.225, 0.225),
        batch=1,
        source=_SOURCE,
        differs=_DIFFERS if shown else _DIFFERS + _GUESSED,
    )


PRESETS: dict[str, Preset] = {
    name: _preset(name, *choices)
    for name, choices in {
        "i3d_r50": ("I3D_8x8_R50.pyth", (8, 8), _WHOLE, 2048, True),
        "slowfast_r50": ("SLOWFAST_8x8_R50.pyth", (32, 2), _WHOLE, 2304, True),
        "x3d_s": ("X3D_S.pyth", (13, 6), (182, 182), 2048, True),
        "x3d_m": ("X3D_M.pyth", (16, 5), _WHOLE, 2048, True),
        "r2plus1d_r50": ("R2PLUS1D_16x4_R50.pyth", (16, 4), _WHOLE, 2048, True),
        "slow_r50": ("SLOW_8x8_R50.pyth", (8, 8), _WHOLE, 2048, True),
        "c2d_r50": ("C2D_8x8_R50.pyth", (8, 8), _WHOLE, 2048, False),
        "csn_r101": ("CSN_32x2_R101.pyth", (32, 2), _WHOLE, 2048, False),
        "slowfast_r101": ("SLOWFAST_8x8_R101.pyth", (32, 2), _WHOLE, 2304, True),
        "slowfast_16x8_r101_50_50": ("SLOWFAST_16x8_R101_50_50.pyth", (64, 2), _WHOLE, 2304, False),
        "x3d_xs": ("X3D_XS.pyth", (4, 12), (182, 182), 2048, True),
        "x3d_l": ("X3D_L.pyth", (16, 5), (356, 356), 2048, False),
        "mvit_base_16x4": ("MVIT_B_16x4.pyth", (16, 4), (256, 224), 768, False),
        "mvit_base_32x3": ("MVIT_B_32x3_f294077834.pyth", (32, 3), (256, 224), 768, False),
        "efficient_x3d_xs": ("efficient_x3d_xs_original_form.pyth", (4, 12), (182, 160), 2048, False),
        "efficient_x3d_s": ("efficient_x3d_s_original_form.pyth", (13, 6), (182, 160), 2048, False),
    }.items()
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `i3d_r50`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network: (B, 3, T, S, S) to the features before the projection, averaged, (B, D)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
        from pytorchvideo.models import hub

    name = preset.name.partition(":")[2]
    net = _mvit(getattr(hub, name)) if name.startswith("mvit") else getattr(hub, name)(pretrained=False)
    _without_head(net)
    if name.startswith("slowfast"):
        net.register_forward_pre_hook(_pathways)
    return cast("nn.Module", net.eval())


def _mvit(build: Any) -> Any:
    """Build MViT where numbers have values, which it asks for, and put it on torch's default device after that."""
    import torch

    wanted = torch.get_default_device()
    with torch.device("cpu"):
        net = build(pretrained=False)
    return net.to(wanted) if wanted.type == "meta" else net


def _without_head(net: Any) -> None:
    """Take out what comes after the pooled features. Where that is pooled again, the features are."""
    from torch import nn

    if hasattr(net, "projection"):  # the efficient X3D
        net.projection = nn.Identity()
        return
    head = net.head if hasattr(net, "head") else net.blocks[-1]
    head.proj, head.dropout, head.activation = nn.Identity(), None, None


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the projection to classes, which is block 5 or 6 of most networks."""
    heads = ("blocks.5.proj", "blocks.6.proj", "head.proj", "projection.model")
    return without(state, (f"{head}.{kind}" for head in heads for kind in ("weight", "bias")))


def _pathways(_: nn.Module, inputs: tuple[Tensor]) -> tuple[list[Tensor]]:
    """Make SlowFast's [slow, fast] of one clip: the slow frames are spread evenly, first and last included."""
    import torch

    (fast,) = inputs
    T = fast.shape[2]
    slow = torch.linspace(0, T - 1, T // _SLOWFAST_ALPHA, device=fast.device).long()
    return ([fast.index_select(2, slow), fast],)
