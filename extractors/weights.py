"""A preset's weights: found by path or in the cache, checked, loaded strictly."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.request import urlopen

from extractors import get, names
from extractors.spec import ExtractorError, Preset, Weights

if TYPE_CHECKING:  # finding weights takes no torch, whose import takes seconds
    from torch import Tensor, nn

log = logging.getLogger(__name__)

_TIMEOUT = 30.0  # seconds without a byte
_SEED = 0
_COUNTER = "num_batches_tracked"  # of batch normalisation; only training reads it, checkpoints of before 2018 lack it


@dataclass(frozen=True)
class Found:
    """Where a preset's weights are. Keep it: making one reads the whole file for its digest."""

    source: Literal["file", "cache", "package", "download", "random", "none"]
    """'none': the extractor has no weights."""
    path: Path | None = None
    """None where there is no file."""
    sha256: str = ""
    """Hexadecimal digest of the whole file; empty where there is none."""


def find(preset: Preset, given: str | None = None) -> Found:
    """Return the weights of `preset`: the file `given`, or else the cached, packaged or downloaded one, in this order.

    `given` may also be 'random'. The cache is torch hub's checkpoint folder. A file of the user's own need not be the
    published one: that is said, and its digest is recorded. Raises ExtractorError, saying where to get what is not
    here, or with both digests where a cached or downloaded file is not the published one.
    """
    if not preset.weights.file:
        return Found("none")
    if given == "random":
        return Found("random")
    if given is not None:
        return _given(preset, given)
    return _published(preset)


def load(preset: Preset, network: nn.Module, found: Found) -> None:
    """Fill `network`, which the preset's extractor made, with the weights in `found.path`: all, exactly, as float32.

    Raises ExtractorError for a file that is no checkpoint, that is another network's (it says whose) or that lacks
    keys (it names them).
    """
    from extractors import checkpoints

    assert found.path is not None
    wanted = network.state_dict()
    read = checkpoints.read(found.path)
    state = get(preset.extractor).convert(read, preset)
    state = {**{key: value for key, value in wanted.items() if key.endswith(_COUNTER)}, **state}
    wrong = _differences(state, wanted)
    if wrong:
        raise ExtractorError(f"{found.path} {_verdict(preset, read, state, wanted)} ({wrong})")
    network.load_state_dict(state)


def _published(preset: Preset) -> Found:
    weights = preset.weights
    cached = cache() / weights.file
    if cached.is_file():
        return Found("cache", cached, _checked(cached, weights.sha256, "delete it, and it is downloaded again"))
    packaged = _packaged(weights)
    if packaged is not None:
        return Found("package", packaged, _checked(packaged, weights.sha256, "install the package again"))
    try:
        return Found("download", cached, _download(weights, cached))
    except (OSError, ValueError) as error:
        cure = f"put it at {cached} or give --weights {preset.name}=FILE. {weights.note}"
        raise ExtractorError(f"no {weights.file} for {preset.name}: {error}; {cure}".strip()) from None


def cache() -> Path:
    """Return the folder where torch hub keeps checkpoints, which other programs of the user's may have filled."""
    xdg = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{xdg}/torch")).expanduser() / "hub" / "checkpoints"


def _given(preset: Preset, given: str) -> Found:
    path = Path(given).expanduser()
    if not path.is_file():
        raise ExtractorError(f"{path} is no file; give --weights {preset.name}=FILE or {preset.name}=random")
    siblings = {other.weights.file for other in get(preset.extractor).PRESETS.values()} - {preset.weights.file}
    if path.name in siblings:  # X3D-S and X3D-M have equal layouts: only the name tells them apart
        raise ExtractorError(f"{path} is another preset's; {preset.name} takes {preset.weights.file}")
    digest = _digest(path)
    if not digest.startswith(preset.weights.sha256):
        log.warning("%s is not the published %s, whose sha256 begins %s; its own, %s, is recorded",
                    path, preset.weights.file, preset.weights.sha256, digest[:8])  # fmt: skip
    return Found("file", path.absolute(), digest)


def _packaged(weights: Weights) -> Path | None:
    package, _, folder = weights.package.partition("/")
    spec = find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / folder / weights.file
    return path if path.is_file() else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(path: Path, expected: str, cure: str) -> str:
    """Return the digest of `path`; it must begin with `expected`."""
    digest = _digest(path)
    if not digest.startswith(expected.lower()):
        raise ExtractorError(f"{path} has the sha256 {digest}, not {expected}; {cure}")
    return digest


def _download(weights: Weights, target: Path) -> str:
    """Download under a temporary name, check, rename; return the digest."""
    if not weights.url:
        raise ValueError("it cannot be downloaded")
    log.info("downloading %s to %s", weights.url, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name) as folder:
        part = Path(folder) / target.name
        try:
            _fetch(weights.url, part)
        except (OSError, HTTPException, ValueError) as error:
            raise ValueError(f"{weights.url} cannot be downloaded ({error})") from None
        digest = _checked(part, weights.sha256, f"{weights.url} has changed")
        part.replace(target)
    return digest


def _fetch(url: str, part: Path) -> None:
    with urlopen(url, timeout=_TIMEOUT) as answer, part.open("wb") as file:  # noqa: S310 (a preset's own URL)
        shutil.copyfileobj(answer, file, 1 << 20)
        expected = answer.headers.get("Content-Length")
        if expected is not None and file.tell() != int(expected):
            raise ValueError(f"{file.tell()} of {expected} bytes came")
    with part.open("rb") as file:
        if file.read(64).lstrip().startswith(b"<"):
            raise ValueError("a web page came instead")


def make(preset: Preset, found: Found) -> nn.Module:
    """Return the preset's network with the weights `found`. Random ones are the same in every process.

    Leaves the caller's random numbers alone. Raises what `load` raises.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_SEED)
        network = get(preset.extractor).network(preset)
    if found.path is not None:
        load(preset, network, found)
    return network


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
    from extractors import checkpoints

    looks = _other_preset(preset, read, max(share, 0.95)) or checkpoints.describe(read)
    if looks and looks != checkpoints.describe(wanted):
        return f"is no checkpoint of {preset.name}: it looks like {looks}"
    if share > 0.5:
        return f"is a checkpoint of {preset.name}, but a wrong or incomplete one"
    return f"is no checkpoint of {preset.name}: its keys begin {', '.join(list(read)[:3])}"


def _other_preset(preset: Preset, read: Mapping[str, Tensor], share: float) -> str | None:
    """Return the name of another network of ours of whose tensors `read` has more than `share`."""
    import torch

    networks = {p.weights.file: p for name in names() for p in reversed(get(name).PRESETS.values())}
    for other in networks.values():
        if other.weights.file not in {"", preset.weights.file}:
            extractor = get(other.extractor)
            with torch.device("meta"):
                wanted = extractor.network(other).state_dict()
            if _agreement(extractor.convert(dict(read), other), wanted) > share:
                return other.name
    return None


def _agreement(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Return the share of tensors that both have, in the same shape."""
    a, b = ({k: v for k, v in s.items() if not k.endswith(_COUNTER)} for s in (state, wanted))
    return sum(key in a and _same(a[key], b[key]) for key in b) / max(len(a), len(b))
