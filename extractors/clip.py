"""CLIP's image tower on single frames (Radford et al., ICML 2021), by transformers: the projected embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Scaler, Weights, choose

if TYPE_CHECKING:
    from torch import nn

_B32 = Weights(
    file="openai-clip-vit-base-patch32.bin",
    url="https://huggingface.co/openai/clip-vit-base-patch32/resolve/main/pytorch_model.bin",
    sha256="a63082132ba4f97a80bea76823f544493bffa8082296d62d71581a4feff1576f",
    license="MIT",
    note="OpenAI's own ViT-B-32.pt is a program and not read: transformers' conversion is.",
    mib=577.2,
    hub="openai/clip-vit-base-patch32",
)
_B16 = Weights(
    file="openai-clip-vit-base-patch16.bin",
    url="https://huggingface.co/openai/clip-vit-base-patch16/resolve/main/pytorch_model.bin",
    license="MIT",
    note="OpenAI's own ViT-B-16.pt is a program and not read: transformers' conversion is.",
    mib=570.9,
    hub="openai/clip-vit-base-patch16",
)
_L14 = Weights(
    file="openai-clip-vit-large-patch14.safetensors",
    url="https://huggingface.co/openai/clip-vit-large-patch14/resolve/main/model.safetensors",
    sha256="a2bf730a0c7debf160f7a6b50b3aaf3703e7e88ac73de7a314903141db026dcb",
    license="MIT",
    note="OpenAI's own ViT-L-14.pt is a program and not read: transformers' conversion is.",
    mib=1631.3,
    hub="openai/clip-vit-large-patch14",
)
_SIZES: dict[str, dict[str, Any]] = {
    _B32.file: {"patch_size": 32, "projection_dim": 512},
    _B16.file: {"patch_size": 16, "projection_dim": 512},
    _L14.file: {
        "patch_size": 14,
        "projection_dim": 768,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
}
_SOURCE = "CLIP's published input (short side 224, bicubic, centre crop 224, its mean and deviation), "
_DIFFERS = (
    "The published transform scales with PIL; this is ffmpeg's bicubic, whose curve is another (a = -0.6 for -0.5): "
    "rows of untrained networks move by 2 per cent of their spread. The embedding is not L2-normalised; CLIP4Clip and "
    "QVHighlights normalise when they read."
)


def _preset(name: str, weights: Weights, fps: float, source: str, scaler: Scaler = "bicubic") -> Preset:
    return Preset(
        name=f"clip:{name}",
        chain=Chain(fps=fps, short_side=224, crop=224, scaler=scaler),
        frames=1,
        outputs=(Output("image_embeds", _SIZES[weights.file]["projection_dim"]),),
        weights=weights,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
        batch=4,
        source=_SOURCE + source,
        differs=_DIFFERS,
    )


PRESETS: dict[str, Preset] = {
    "vit_b32": _preset("vit_b32", _B32, 1, "at 1 frame per second, as CLIP4Clip takes them."),
    "vit_b16": _preset("vit_b16", _B16, 1, "at 1 frame per second."),
    "vit_l14": _preset("vit_l14", _L14, 1, "at 1 frame per second."),
    "qvhighlights": _preset(
        "qvhighlights",
        _B32,
        0.5,
        "at a frame every 2 seconds, by ffmpeg's filters on ffmpeg up to 4.2 (bilinear): the extractor of HERO, whose "
        "rows QVHighlights and Moment-DETR read.",
        "bilinear",
    ),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `vit_b32`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the image tower: (B, 3, 224, 224) to the projected class token, (B, 512) or (B, 768)."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    net: nn.Module = CLIPVisionModelWithProjection(CLIPVisionConfig(**_SIZES[preset.weights.file]))
    net.register_forward_hook(lambda _, __, found: found.image_embeds)
    return net.eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the text tower, and the positions' numbers that older files have."""
    kept = ("vision_model.", "visual_projection.")
    return {key: value for key, value in state.items() if key.startswith(kept) and not key.endswith("position_ids")}
