"""Mean colours of a 4 x 4 grid: no network and no weights, to try the pipeline and to time everything else.

Its presets have the sampling and geometry of the three published ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose

if TYPE_CHECKING:
    from torch import nn

CELLS = 4
_NO_WEIGHTS = Weights(file="", url="")


def _like(name: str, chain: Chain, frames: int, batch: int) -> Preset:
    return Preset(
        name=f"colors:{name}",
        chain=chain,
        frames=frames,
        outputs=(Output("mean", 3 * CELLS * CELLS),),
        weights=_NO_WEIGHTS,
        batch=batch,
        source=f"Frames as for `{name}`'s default preset; the row is their mean colour in each cell, in [0, 1].",
    )


PRESETS = {
    "resnet152": _like("resnet152", Chain(fps=1, short_side=224), frames=1, batch=8),
    "i3d_x101": _like("i3d_x101", Chain(fps=24, short_side=112, crop=112), frames=16, batch=4),
    "s3d_howto100m": _like("s3d_howto100m", Chain(fps=16, short_side=224, crop=224), frames=16, batch=4),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`, by default the cheapest."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the mean over each cell: (B, 3, H, W) or (B, 3, T, H, W) to (B, 48)."""
    from torch import nn

    pool = nn.AdaptiveAvgPool2d(CELLS) if preset.frames == 1 else nn.AdaptiveAvgPool3d((1, CELLS, CELLS))
    return nn.Sequential(pool, nn.Flatten()).eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Return the state as it is: there is none."""
    return state
