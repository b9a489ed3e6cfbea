"""LocVTP's video encoder (Cao et al., ECCV 2022): ViT-B/16 with divided space-time attention.

The authors released no weights and other code (see `c3d:locvtp`), so this is the encoder as the paper describes it
before its training: spatial weights of an image ViT, temporal weights zero. A checkpoint that has a temporal part,
such as one of your own or of TimeSformer's code, is taken with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import nn

PRESETS: dict[str, Preset] = {
    "in21k": Preset(
        name="locvtp_vit:in21k",
        chain=Chain(fps=16, short_side=224, crop=224),
        frames=16,
        outputs=(Output("cls", 768),),
        weights=Weights(
            file="timm-vit_base_patch16_224.augreg_in21k.safetensors",
            url="https://huggingface.co/timm/vit_base_patch16_224.augreg_in21k/resolve/main/model.safetensors",
            license="Apache-2.0",
            note="It is an image ViT; a checkpoint of the whole encoder, in TimeSformer's names, loads too.",
            mib=391.4,
            hub="timm/vit_base_patch16_224.augreg_in21k",
        ),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        batch=1,
        source="LocVTP's paper: ViT-B/16 of ImageNet-21k, divided space-time attention with temporal weights zero, "
        "16 frames of 224 x 224, one row for every 16 frames; the class token after the last normalisation.",
        differs="The paper's encoder was then trained on HowTo100M, and that was not released: these rows are the "
        "image network's view of 16 frames. The paper states no rate; 16 frames a second make one row a second. It "
        "does not say what the class token attends to; here it is TimeSformer's, the mean over frames in every block.",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `in21k`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network: (B, 3, 16, 224, 224) to the class token, (B, 768)."""
    from extractors.networks.spacetime_vit import SpaceTimeViT

    return SpaceTimeViT(preset.frames).eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """Leave out the classifier and prefix `model.`; give an image ViT a temporal part of zeros."""
    from extractors.networks.spacetime_vit import inflate

    state = {key.removeprefix("model."): value for key, value in state.items()}
    state = without(state, ("head.weight", "head.bias", "pre_logits.fc.weight", "pre_logits.fc.bias"))
    if "time_embed" in state or "cls_token" not in state:
        return state
    return inflate(state, preset.frames)
