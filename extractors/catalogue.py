"""Every published checkpoint: what is known of it, whether it is here, and how it gets here.

A file whose publisher gives its sha256 is known by that. Another is known by its structure alone: it is said, and its
digest is kept beside it (`FILE.sha256`, as `sha256sum -c` reads it), so that later damage shows.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from extractors import get, names, preset, weights
from extractors.spec import ExtractorError, Weights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """One published file and the presets that need it."""

    weights: Weights
    presets: tuple[str, ...]
    """Their names; empty for a file that belongs to an extractor without being a network."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it may be had: the publisher's addresses, then other people's."""
        w = self.weights
        return tuple(address for address in dict.fromkeys((w.url, *w.dead, *w.mirrors)) if address)


def known() -> list[Checkpoint]:
    """Return every checkpoint of the presets there are, in their order. Those of `timm:MODEL` are found by name."""
    files: dict[str, tuple[Weights, list[str]]] = {}
    for extractor in names():
        for found in get(extractor).PRESETS.values():
            if found.weights.file:
                files.setdefault(found.weights.file, (found.weights, []))[1].append(found.name)
    from extractors import s3d_howto100m, timm

    files[s3d_howto100m.DICTIONARY.file] = s3d_howto100m.DICTIONARY, []
    files[timm.LITE0.file] = timm.LITE0, ["timm:tf_efficientnet_lite0"]
    return [Checkpoint(w, tuple(users)) for w, users in files.values()]


def named(name: str) -> Checkpoint:
    """Return the checkpoint that is called `name`: by its file, or by a preset or extractor that needs it."""
    everything = known()
    for checkpoint in everything:
        if name == checkpoint.weights.file or name in checkpoint.presets:
            return checkpoint
    try:
        found = preset(name)
    except ExtractorError as error:
        raise ExtractorError(f"no checkpoint or preset '{name}': {error}") from None
    if not found.weights.file:
        raise ExtractorError(f"{found.name} has no weights")
    same = (checkpoint for checkpoint in everything if checkpoint.weights.file == found.weights.file)
    return next(same, Checkpoint(found.weights, (found.name,)))


def facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what is known of a checkpoint as plain values; `sha256` None where nobody published one."""
    w, here = checkpoint.weights, weights.here(checkpoint.weights)
    return {
        "file": w.file,
        "presets": list(checkpoint.presets),
        "license": w.license or None,
        "mib": w.mib,
        "sha256": w.sha256 or None,
        "official": [{"address": a, "dead": a in w.dead} for a in checkpoint.addresses if a not in w.mirrors],
        "mirrors": list(w.mirrors),
        "here": here and here[0],
        "path": here and str(here[1]),
        "note": w.note,
    }


def fetch(checkpoint: Checkpoint) -> tuple[Path, str]:
    """Return (path, verdict) of a checkpoint that is here, or that is downloaded from the first address that has it.

    Raises ExtractorError with what each address answered.
    """
    here = weights.here(checkpoint.weights)
    if here is not None:
        return here[1], check(checkpoint, here[1])
    target, failures = _cached(checkpoint), []
    for address in (a for a in checkpoint.addresses if PurePosixPath(a).suffix):
        try:
            digest = weights.download(checkpoint.weights, address, target)
            verdict = _judge(checkpoint, target, digest)
        except (OSError, ValueError, ExtractorError) as error:
            target.unlink(missing_ok=True)
            failures.append(str(error))
        else:
            _record(target, digest)
            return target, verdict
    why = "; ".join(failures) or "nobody publishes it by itself"
    pages = [f"look at {address}" for address in checkpoint.addresses if not PurePosixPath(address).suffix]
    cure = ", ".join([*pages, f"and then `pipeline weights add FILE {checkpoint.weights.file}`"])
    raise ExtractorError(f"no {checkpoint.weights.file}: {why}; {cure}. {checkpoint.weights.note}".strip())


def add(checkpoint: Checkpoint, file: Path) -> tuple[Path, str]:
    """Copy a file of the user's own into the cache, checked; return (path there, verdict).

    Raises ExtractorError where it is not the published one, or, where that cannot be known, does not fit the network.
    """
    if not file.is_file():
        raise ExtractorError(f"{file} is no file")
    w, target = checkpoint.weights, _cached(checkpoint)
    if file.name in {other.weights.file for other in known()} - {w.file}:  # as in X3D-S and X3D-M, which fit each other
        raise ExtractorError(f"{file} has the name of another checkpoint: {w.file} was asked for")
    cure = f"the published {w.file} is another; --weights NAME={file} takes yours as it is"
    digest = weights.checked(file, w.sha256, cure)
    verdict = _judge(checkpoint, file, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name) as folder:
        copy = Path(folder) / target.name
        shutil.copyfile(file, copy)
        weights.checked(copy, digest, f"{file} changed while it was copied")
        copy.replace(target)
    _record(target, digest)
    return target, verdict


def check(checkpoint: Checkpoint, path: Path) -> str:
    """Return by what the file at `path` is known to be the checkpoint. Raises ExtractorError where it is another."""
    digest, record, w = weights.digest_of(path), _beside(path), checkpoint.weights
    if w.sha256 and digest.startswith(w.sha256):
        return f"as published, by sha256 {w.sha256[:8]}"
    if w.sha256 and path == _cached(checkpoint):
        raise ExtractorError(f"{path} has the sha256 {digest}, not {w.sha256}; delete it and fetch or add it again")
    if record.is_file():
        kept = record.read_text(encoding="utf-8").partition(" ")[0]
        if kept != digest:
            raise ExtractorError(f"{path} has changed since it came: its sha256 is {digest}, not {kept}; add it again")
        return f"unchanged since it came, by sha256 {digest[:8]}; fitted by structure then"
    _check_structure(checkpoint, path)
    return f"fits by structure alone; its sha256 is {digest}"


def _judge(checkpoint: Checkpoint, path: Path, digest: str) -> str:
    """Return by what a file that came is known. One without a published sha256 must fit by structure: that is said."""
    w = checkpoint.weights
    if w.sha256:
        return f"as published, by sha256 {w.sha256[:8]}"
    _check_structure(checkpoint, path)
    log.warning("WARNING: %s has no published sha256: it fits by structure, but who trained it is unknown", w.file)
    return f"fits by structure alone; its sha256 is {digest}"


def _check_structure(checkpoint: Checkpoint, path: Path) -> None:
    if not checkpoint.presets:
        from extractors.s3d_howto100m import read_dictionary

        read_dictionary(path)
        return
    from extractors import fitting

    name = checkpoint.presets[0]
    fitting.fitted(path, preset(name), fitting.layout(name))


def _cached(checkpoint: Checkpoint) -> Path:
    return weights.cache() / checkpoint.weights.file


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _record(path: Path, digest: str) -> None:
    _beside(path).write_text(f"{digest}  {path.name}\n", encoding="utf-8")
