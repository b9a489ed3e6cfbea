"""C3D trained on Sports-1M (Tran et al., ICCV 2015): what grounding on ActivityNet and TACoS was long built on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import nn

_WEIGHTS = Weights(
    file="c3d.pickle",
    url="http://imagelab.ing.unimore.it/files/c3d_pytorch/c3d.pickle",
    license="MIT for the conversion; the licence of the weights is not stated",
    note="It is the authors' Caffe checkpoint, converted by c3d-pytorch; MMAction2's conversion loads too. The address "
    "has been away before.",
    mib=305.1,
    mirrors=("https://download.openmmlab.com/mmaction/recognition/c3d/c3d_sports1m_pretrain_20201016-dcc47ddc.pth",),
)
_FC6, _FC7 = Output("fc6", 4096), Output("fc7", 4096)

PRESETS: dict[str, Preset] = {
    "activitynet": Preset(
        name="c3d:activitynet",
        chain=Chain(fps=25, short_side=128, stretch=(171, 128), crop=112),
        frames=16,
        stride=8,
        outputs=(_FC7, _FC6),
        weights=_WEIGHTS,
        mean=(104.0, 117.0, 128.0),
        scale=1.0,
        batch=1,
        source="The C3D features of the ActivityNet challenge, which 2D-TAN reads: rows of 16 frames, every 8 frames, "
        "fc7. TACoS's (of TALL) are fc6.",
        differs="The released rows are at each video's own rate, here it is 25 frames a second, and reduced to 500 "
        "numbers by a PCA, which is not done here. The original subtracts a mean clip of Sports-1M; here one colour is "
        "subtracted, as MMAction2 does. Whether the conversion wants RGB or the original's BGR is not documented; its "
        "author's example feeds RGB.",
    ),
    "locvtp": Preset(
        name="c3d:locvtp",
        chain=Chain(fps=25 / 32, short_side=128, stretch=(128, 171), crop=112),
        frames=16,
        outputs=(_FC6, _FC7),
        weights=_WEIGHTS,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        batch=1,
        source="LocVTP's released code: every 32nd frame, 16 to a row, frames scaled to 128 wide and 171 high (its "
        "height and width are exchanged), pixels in [-1, 1], fc6.",
        differs="It crops at random, here in the centre; takes every 32nd of frames that were extracted before, at a "
        "rate it does not state, here of 25 a second; drops the last frames where they are fewer than 16 (a shorter "
        "video repeats its first); and projects fc6 to 256 numbers with trained weights that were not released.",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `activitynet`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network: (B, 3, 16, 112, 112) to the preset's two full layers side by side, (B, 8192)."""
    from extractors.networks.c3d import C3D

    return C3D(tuple(output.layer for output in preset.outputs)).eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the classifier; give the layers of MMAction2's conversion this network's names."""
    renamed = {key.replace(".conv.", ".").removeprefix("backbone."): value for key, value in state.items()}
    for stage in ("1", "2"):  # there `conv1a`, here `conv1`
        renamed = {key.replace(f"conv{stage}a.", f"conv{stage}."): value for key, value in renamed.items()}
    return without(renamed, ("fc8.weight", "fc8.bias", "cls_head.fc_cls.weight", "cls_head.fc_cls.bias"))
