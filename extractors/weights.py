"""A preset's weights: found by path or in the cache, checked, loaded strictly."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit
from urllib.request import urlopen

from extractors import get
from extractors.spec import ExtractorError, Preset, Weights

if TYPE_CHECKING:  # finding weights takes no torch, whose import takes seconds
    from torch import nn

log = logging.getLogger(__name__)

_TIMEOUT = 30.0  # seconds without a byte
_SEED = 0
_HUB_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Found:
    """Where a preset's weights are. Keep it: making one reads the whole file for its digest."""

    source: Literal["file", "cache", "package", "hub", "download", "random", "none"]
    """'hub': the cache of the model hub; 'none': the extractor has no weights."""
    path: Path | None = None
    """None where there is no file."""
    sha256: str = ""
    """Hexadecimal digest of the whole file; empty where there is none."""


def find(preset: Preset, given: str | None = None) -> Found:
    """Return the weights of `preset`: the file `given`, or else one that is here already, or the downloaded one.

    `given` may also be 'random', or a folder that transformers wrote. A file of the user's own need not be the
    published one: that is said, and its digest is recorded. Raises ExtractorError, saying where to get what is not
    here, or with both digests where a cached or downloaded file is not the published one.
    """
    if not preset.weights.file:
        return Found("none")
    if given == "random":
        return Found("random")
    if given is not None:
        return _given(preset, given)
    found = here(preset.weights)
    if found is None:
        return _downloaded(preset)
    source, path = found
    if source == "hub":  # there the same tensors may stand in a file of another format
        return Found("hub", path, _own(path, preset.weights))
    cure = "delete it, and it is downloaded again" if source == "cache" else "install the package again"
    return Found(source, path, checked(path, preset.weights.sha256, cure))


def here(weights: Weights) -> tuple[Literal["cache", "package", "hub"], Path] | None:
    """Return where a published checkpoint is on this machine: torch hub's cache, a package, the model hub's cache."""
    cached = cache() / weights.file
    if cached.is_file():
        return "cache", cached
    packaged = _packaged(weights)
    if packaged is not None:
        return "package", packaged
    kept = _hub_cache() / f"models--{weights.hub.replace('/', '--')}" / "snapshots"
    snapshots = sorted(kept.glob("*"), key=lambda folder: folder.stat().st_mtime) if weights.hub else []
    found = [path for folder in reversed(snapshots) for path in _in_folder(folder, weights)]
    return ("hub", found[0]) if found else None


def _in_folder(folder: Path, weights: Weights) -> list[Path]:
    """Return the checkpoints in a folder that transformers wrote, the one of the published name first."""
    names = dict.fromkeys((PurePosixPath(weights.url).name, *_HUB_FILES))
    return [folder / name for name in names if (folder / name).is_file()]


def load(preset: Preset, network: nn.Module, found: Found) -> None:
    """Fill `network`, which the preset's extractor made, with the weights in `found.path`: all, exactly, as float32.

    Raises what `fitting.fitted` raises.
    """
    from extractors import fitting

    assert found.path is not None
    network.load_state_dict(fitting.fitted(found.path, preset, network.state_dict()))


def _downloaded(preset: Preset) -> Found:
    weights, cached = preset.weights, cache() / preset.weights.file
    try:
        if weights.url in weights.dead:
            raise ValueError(f"its published address, {weights.url}, is known to be dead")
        return Found("download", cached, download(weights, weights.url, cached))
    except (OSError, ValueError) as error:
        cure = f"put it at {cached} or give --weights {preset.name}=FILE. {weights.note}"
        raise ExtractorError(f"no {weights.file} for {preset.name}: {error}; {cure}".strip()) from None


def cache() -> Path:
    """Return the folder where torch hub keeps checkpoints, which other programs of the user's may have filled."""
    xdg = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("TORCH_HOME", f"{xdg}/torch")).expanduser() / "hub" / "checkpoints"


def _hub_cache() -> Path:
    """Return the folder where transformers and its like keep what they download."""
    xdg = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{xdg}/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def _given(preset: Preset, given: str) -> Found:
    path = Path(given).expanduser()
    if path.is_dir() and preset.weights.hub:
        path = next(iter(_in_folder(path, preset.weights)), path / _HUB_FILES[0])
    if not path.is_file():
        raise ExtractorError(f"{path} is no file; give --weights {preset.name}=FILE or {preset.name}=random")
    siblings = {other.weights.file for other in get(preset.extractor).PRESETS.values()} - {preset.weights.file}
    if path.name in siblings:  # X3D-S and X3D-M have equal layouts: only the name tells them apart
        raise ExtractorError(f"{path} is another preset's; {preset.name} takes {preset.weights.file}")
    return Found("file", path.absolute(), _own(path, preset.weights))


def _own(path: Path, weights: Weights) -> str:
    """Return the digest of a file of the user's own, and say so where it is not the published one."""
    digest = digest_of(path)
    if not digest.startswith(weights.sha256):
        log.warning("%s is not the published %s, whose sha256 begins %s; its own, %s, is recorded",
                    path, weights.file, weights.sha256[:8], digest[:8])  # fmt: skip
    return digest


def _packaged(weights: Weights) -> Path | None:
    package, _, folder = weights.package.partition("/")
    spec = find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / folder / weights.file
    return path if path.is_file() else None


def digest_of(path: Path) -> str:
    """Return the sha256 of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked(path: Path, expected: str, cure: str) -> str:
    """Return the digest of `path`; it must begin with `expected`."""
    digest = digest_of(path)
    if not digest.startswith(expected.lower()):
        raise ExtractorError(f"{path} has the sha256 {digest}, not {expected}; {cure}")
    return digest


def download(weights: Weights, address: str, target: Path) -> str:
    """Download from `address` under a temporary name, check, rename; return the digest. Raises ValueError, OSError."""
    if not address:
        raise ValueError("it cannot be downloaded")
    if not weights.sha256 and urlsplit(address).scheme == "http":
        raise ValueError(f"{address} has no published sha256 and no https, so whatever came could be another's")
    log.info("downloading %s to %s", address, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name) as folder:
        part = Path(folder) / target.name
        try:
            _fetch(address, part)
        except (OSError, HTTPException, ValueError) as error:
            raise ValueError(f"{address} cannot be downloaded ({error})") from None
        digest = checked(part, weights.sha256, f"{address} has changed")
        if not weights.sha256:
            log.warning("%s has no published sha256: what came, %s, is taken and recorded", address, digest)
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
