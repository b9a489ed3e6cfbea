"""TimeSformer (Bertasius, Wang and Torresani, ICML 2021) on Kinetics, by transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, Output, Preset, Weights, choose, without

if TYPE_CHECKING:
    from torch import Tensor, nn


def _preset(name: str, hub: str) -> Preset:
    return Preset(
        name=f"timesformer:{name}",
        chain=Chain(fps=30 / 32, short_side=224, crop=224),
        frames=8,
        outputs=(Output("cls", 768),),
        weights=Weights(
            file=f"{hub.replace('/', '-')}.bin",
            url=f"https://huggingface.co/{hub}/resolve/main/pytorch_model.bin",
            license="CC-BY-NC-4.0",
            mib=463.2,
            hub=hub,
        ),
        mean=(0.45, 0.45, 0.45),
        std=(0.225, 0.225, 0.225),
        batch=1,
        source="TimeSformer's 8 x 32 setting at 30 frames per second, and the input published with transformers' "
        "conversion: short side 224, centre crop 224, mean .45, deviation .225; the class token that the classifier "
        "sees.",
        differs="The authors take three crops of clips spread over a video, and averages of their scores; here rows "
        "follow each other. The published transform scales with PIL; this is ffmpeg's bilinear: rows of "
        "untrained networks move by 3 per cent of their spread. A configuration once published with the conversion "
        "said .5 for mean and deviation; the authors' code has .45 and .225.",
    )


PRESETS: dict[str, Preset] = {
    "k400": _preset("k400", "facebook/timesformer-base-finetuned-k400"),
    "k600": _preset("k600", "facebook/timesformer-base-finetuned-k600"),
}


def preset(name: str) -> Preset:
    """Return the preset called `name`; '' is `k400`."""
    return choose(PRESETS, name)


def network(preset: Preset) -> nn.Module:
    """Return the network without its classifier: (B, 3, 8, 224, 224) to the class token, (B, 768)."""
    from transformers import TimesformerConfig, TimesformerModel

    net: nn.Module = TimesformerModel(TimesformerConfig(num_frames=preset.frames))
    net.register_forward_pre_hook(_frames_first)
    net.register_forward_hook(lambda _, __, found: found.last_hidden_state[:, 0])
    return net.eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:  # noqa: ARG001
    """Leave out the classifier and the prefix of the network that has one."""
    state = without(state, ("classifier.weight", "classifier.bias"))
    return {key.removeprefix("timesformer."): value for key, value in state.items()}


def _frames_first(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0].transpose(1, 2),)
