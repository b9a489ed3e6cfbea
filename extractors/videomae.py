"""VideoMAE (Tong et al., NeurIPS 2022), fine-tuned on Kinetics-400, by transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import Tensor, nn

_LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
_SIZES: dict[str, dict[str, Any]] = {"base": {}, "large": _LARGE}


def _preset(name: str, dim: int, mib: float) -> Preset:
    hub = f"MCG-NJU/videomae-{name}-finetuned-kinetics"
    return Preset(
        name=f"videomae:{name}",
        chain=Chain(fps=7.5, short_side=224, crop=224),
        frames=16,
        outputs=(Output("fc_norm", dim),),
        weights=Weights(
            file=f"{hub.replace('/', '-')}.safetensors",
            url=f"https://huggingface.co/{hub}/resolve/main/model.safetensors",
            license="CC-BY-NC-4.0",
            mib=mib,
            hub=hub,
        ),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        batch=1,
        source="VideoMAE's 16 frames, every fourth at 30 per second, and the input published with transformers' "
        "conversion: short side 224, centre crop 224, ImageNet's mean and deviation; the normalised mean of all "
        "tokens, which the classifier sees.",
        differs="The authors average the scores of five clips by three crops; here rows follow each other. The "
        "published transform scales with PIL; this is ffmpeg's bilinear: rows of untrained networks move by 3 per cent "
        "of their spread.",
    )


PRESETS: dict[str, Preset] = {"base": _preset("base", 768, 330.1), "large": _preset("large", 1024, 1159.6)}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `base`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network without its classifier: (B, 3, 16, 224, 224) to the mean token, (B, 768) or (B, 1024)."""
    from torch import nn
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    sizes = _SIZES[preset.name.partition(":")[2]]
    net: Any = VideoMAEForVideoClassification(VideoMAEConfig(num_frames=preset.frames, **sizes))
    net.classifier = nn.Identity()
    net.register_forward_pre_hook(_frames_first)
    net.register_forward_hook(lambda _, __, found: found.logits)
    return net.eval()  # type: ignore[no-any-return]


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the classifier; give the biases of the attention the names that transformers 5 has for them.

    Its first versions left these at zero, with no more than a warning.
    """
    state = without(state, ("classifier.weight", "classifier.bias"))
    return {
        key.replace(".q_bias", ".query.bias").replace(".v_bias", ".value.bias"): value for key, value in state.items()
    }


def _frames_first(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0].transpose(1, 2),)
