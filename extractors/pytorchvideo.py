"""PyTorchVideo's Kinetics-400 networks: I3D, SlowFast, X3D and R(2+1)D."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import Tensor, nn

_SLOWFAST_ALPHA = 4  # the slow pathway sees every fourth frame
_SOURCE = (
    "PyTorchVideo's model zoo and its torch hub page: frames x rate at 30 frames per second, short side and centre "
    "crop, mean .45, deviation .225; the pooled features before the projection. The hub page scales floats without "
    "antialiasing after normalising; here ffmpeg scales bilinearly before."
)


def _preset(name: str, file: str, sampling: tuple[int, int], side: int, dim: int) -> Preset:
    frames, rate = sampling
    return Preset(
        name=f"pytorchvideo:{name}",
        chain=Chain(fps=30 / rate, short_side=side, crop=side),
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
    )


PRESETS: dict[str, Preset] = {
    "i3d_r50": _preset("i3d_r50", "I3D_8x8_R50.pyth", (8, 8), 256, 2048),
    "slowfast_r50": _preset("slowfast_r50", "SLOWFAST_8x8_R50.pyth", (32, 2), 256, 2304),
    "x3d_s": _preset("x3d_s", "X3D_S.pyth", (13, 6), 182, 2048),
    "x3d_m": _preset("x3d_m", "X3D_M.pyth", (16, 5), 256, 2048),
    "r2plus1d_r50": _preset("r2plus1d_r50", "R2PLUS1D_16x4_R50.pyth", (16, 4), 256, 2048),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `i3d_r50`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network: (B, 3, T, S, S) to the features before the projection, averaged, (B, D)."""
    from torch import nn

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
        from pytorchvideo.models import hub

    name = preset.name.partition(":")[2]
    net = cast("nn.Module", getattr(hub, name)(pretrained=False))
    head = cast("Any", net).blocks[-1]
    head.proj, head.dropout, head.activation = nn.Identity(), None, None
    if name.startswith("slowfast"):
        net.register_forward_pre_hook(_pathways)
    return net.eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the projection to classes, which is block 5 or 6."""
    return without(state, (f"blocks.{i}.proj.{kind}" for i in (5, 6) for kind in ("weight", "bias")))


def _pathways(_: nn.Module, inputs: tuple[Tensor]) -> tuple[list[Tensor]]:
    """Make SlowFast's [slow, fast] of one clip: the slow frames are spread evenly, first and last included."""
    import torch

    (fast,) = inputs
    T = fast.shape[2]
    slow = torch.linspace(0, T - 1, T // _SLOWFAST_ALPHA, device=fast.device).long()
    return ([fast.index_select(2, slow), fast],)
