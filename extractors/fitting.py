"""Whether a checkpoint's tensors are those of a network, and if not, whose they look like."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from extractors import checkpoints, get, names, preset
from extractors.spec import ExtractorError, Preset

if TYPE_CHECKING:
    from torch import Tensor

_COUNTER = "num_batches_tracked"  # of batch normalisation; only training reads it, checkpoints of before 2018 lack it


def fitted(path: Path, preset: Preset, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in `path` under the names of the preset's network, whose own are `wanted`: exactly these.

    Raises ExtractorError for a file that is no checkpoint, that is another network's (it says whose) or that lacks
    keys (it names them).
    """
    read = checkpoints.read(path)
    state = get(preset.extractor).convert(read, preset)
    state = {**{key: value for key, value in wanted.items() if key.endswith(_COUNTER)}, **state}
    wrong = _differences(state, wanted)
    if wrong:
        raise ExtractorError(f"{path} {_verdict(preset, read, state, wanted)} ({wrong})")
    return state


@lru_cache(maxsize=64)
def layout(name: str) -> dict[str, Tensor]:
    """Return the tensors of the network of the preset called `name`, by name: their shapes alone."""
    import torch

    chosen = preset(name)
    with torch.device("meta"):
        return dict(get(chosen.extractor).network(chosen).state_dict())


def _differences(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Return what `state` lacks of `wanted`, or has too much, or in another shape; '' when nothing."""
    missing = [key for key in wanted if key not in state]
    unknown = [key for key in state if key not in wanted]
    other = [key for key in wanted if key in state and not _same(state[key], wanted[key])]
    parts = [f"{len(missing)} keys missing, the first {missing[0]}"] if missing else []
    if unknown:
        parts.append(f"{len(unknown)} keys unknown, the first {unknown[0]}")
    if other:
        has, needs = tuple(state[other[0]].shape), tuple(wanted[other[0]].shape)
        parts.append(f"{len(other)} tensors of another shape or type, the first {other[0]} {has}, needed {needs}")
    return "; ".join(parts)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.is_floating_point() == b.is_floating_point()


def _verdict(
    preset: Preset, read: Mapping[str, Tensor], state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> str:
    """Say which network a checkpoint that does not fit looks like."""
    share = _agreement(state, wanted)
    other = _other_preset(preset, read) if share < 0.9 else None  # building every network takes seconds
    looks = other or checkpoints.describe(read)
    if looks and looks != checkpoints.describe(wanted):
        return f"is no checkpoint of {preset.name}: it looks like {looks}"
    if share > 0.5:
        return f"is a checkpoint of {preset.name}, but a wrong or incomplete one"
    return f"is no checkpoint of {preset.name}: its keys begin {', '.join(list(read)[:3])}"


def _other_preset(preset: Preset, read: Mapping[str, Tensor]) -> str | None:
    """Return the name of another network of ours whose tensors `read` has, nearly all."""
    mib = sum(value.numel() * value.element_size() for value in read.values()) / 2**20
    networks = {p.weights.file: p for name in names() for p in reversed(get(name).PRESETS.values())}
    for other in networks.values():
        size = other.weights.mib or mib
        if other.weights.file in {"", preset.weights.file} or not 0.4 < mib / size < 2.5:  # half precision, a new head
            continue
        if _agreement(get(other.extractor).convert(dict(read), other), layout(other.name)) > 0.95:
            return other.name
    return None


def _agreement(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Return the share of tensors that both have, in the same shape."""
    a, b = ({k: v for k, v in s.items() if not k.endswith(_COUNTER)} for s in (state, wanted))
    return sum(key in a and _same(a[key], b[key]) for key in b) / max(len(a), len(b))
