"""What a checkpoint file holds: its tensors by name, and which network they look like."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extractors.spec import ExtractorError

_WRAPPERS = ("state_dict", "model_state", "model_state_dict")


def read(path: Path) -> dict[str, Tensor]:
    """Return the tensors in `path` by name: plain, or under `state_dict` or `model_state`, without `module.`.

    Reads torch's formats, tensors only, and safetensors, whatever the name. Raises ExtractorError for anything else.
    """
    content = _open(path)
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise ExtractorError(
            f"{path} holds no state dict (tensors by name); save one with torch.save(net.state_dict(), FILE)"
        )
    if all(key.startswith("module.") for key in content):
        return {key.removeprefix("module."): value for key, value in content.items()}
    return dict(content)


def _open(path: Path) -> Any:
    try:
        if _is_safetensors(path):
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except PermissionError as error:
        raise ExtractorError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001 (a damaged file can break the reader anywhere)
        raise ExtractorError(_why_unreadable(path, error)) from None


def _is_safetensors(path: Path) -> bool:
    """Tell by the first bytes: the length of a JSON object, then the object."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _why_unreadable(path: Path, error: Exception) -> str:
    foreign = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    if foreign:
        return (
            f"{path} holds more than tensors ({foreign[1]}); it is not opened, for that could run any program: "
            "if you trust it, save its state dict alone and give that"
        )
    size = path.stat().st_size
    return f"{path} ({size} bytes) is no checkpoint, or a damaged one (text? half a download?); get it again"


def describe(state: Mapping[str, Tensor]) -> str | None:
    """Return which well-known network `state` belongs to, in words, or None."""
    for key, dimensions, name in _MARKS:
        if key in state and state[key].ndim == dimensions:
            return name
    if any(key.startswith("base.") and key.endswith("conv_s.weight") for key in state):
        return "S3D trained on Kinetics (not HowTo100M)"
    if "conv1.conv1.weight" in state and "text_module.fc1.weight" in state:
        taps = state["conv1.conv1.weight"].shape[1:]
        return "S3D as MIL-NCE's own code trains it (space_to_depth=False)" if taps == (3, 3, 7, 7) else None
    return _residual(state)


# (a key, its tensor's dimensions, the network)
_MARKS = (
    ("features.0.0.0.weight", 5, "torchvision's S3D trained on Kinetics (not HowTo100M)"),
    ("Conv3d_1a_7x7.conv3d.weight", 5, "I3D (Inception), not 3D ResNeXt-101"),
    ("conv3d_1a_7x7.conv3d.weight", 5, "I3D (Inception), not 3D ResNeXt-101"),
    ("_conv_stem.weight", 4, "an EfficientNet of efficientnet-pytorch"),
    ("visual.class_embedding", 1, "OpenAI's CLIP with a vision transformer"),
    ("visual.attnpool.c_proj.weight", 2, "OpenAI's CLIP with a ResNet"),
    ("vision_model.embeddings.class_embedding", 1, "transformers' CLIP"),
)

_RESNETS = {
    (2, False): "resnet18",
    (6, False): "resnet34",
    (6, True): "resnet50",
    (23, True): "resnet101",
    (36, True): "resnet152",
}


def _residual(state: Mapping[str, Tensor]) -> str | None:
    """Name a network of four `layerN` stages by the blocks of its third."""
    blocks = {key.split(".")[1] for key in state if key.startswith("layer3.")}
    middle = state.get("layer1.0.conv2.weight")
    if not blocks or middle is None:
        return None
    deep = "layer1.0.conv3.weight" in state
    if middle.ndim == 5:
        return f"a 3D ResNet with {len(blocks)} blocks in layer3, its grouped convolutions {middle.shape[1]} wide"
    kind = "" if middle.shape == (64, 64, 3, 3) else ", wide or grouped"
    return f"a 2D ResNet with {len(blocks)} blocks in layer3{kind} ({_RESNETS.get((len(blocks), deep), 'unknown')})"
