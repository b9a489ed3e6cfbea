"""Workers that stand elsewhere: what they must have in common with this machine, and how they see its files.

    with abroad.sent(stage, output, maps) as away:      # within the block the output's folder holds a token
        with existing(address, gpu, away.met) as pool:  # `met` looks at every worker that is there
            run(away, pool)                             # and each worker looks again before its first chunk

A worker with other software makes other rows, one that does not see the videos calls them damaged, and what one writes
into a folder of its own is lost. So each is asked before it works; and as workers come and go while a run goes on, the
same question is put in the worker, once in each process; one that comes later and must not work is sent away.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import secrets
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import BadSetting
from pipeline.mapping import Maps, moved
from pipeline.provenance import commit
from pipeline.records import Outcome

if TYPE_CHECKING:
    from distributed import Client

    from pipeline.output import Output
    from pipeline.stages.extract import Extract

log = logging.getLogger(__name__)

DECISIVE = ("torch", "torchvision", "numpy", "video-text-features", "code")
"""What decides the bits of rows: it must be the same everywhere."""
PACKAGES = ("torch", "torchvision", "numpy", "video-text-features", "dask", "distributed", "h5py", "av", "spacy")
CURE = "workers need the files of this machine: a shared file system, and --map-path FROM=TO where its paths differ"


class Unfit(BadSetting):
    """A worker that must not work; the pool does without it as long as there are others."""

    def __init__(self, why: str, address: str = "") -> None:
        super().__init__(why)
        self.address = address


@dataclass(frozen=True)
class Common:
    """What a worker must have in common with this machine. Paths are as workers see them."""

    versions: tuple[tuple[str, str], ...]
    token: Path | None = None
    """A file in the output's folder, written here."""
    text: str = ""
    """What stands in it."""
    videos: tuple[Path, ...] = ()
    """A few; one may go while a run goes on, so any will do."""
    weights: tuple[Path, ...] = ()
    device: str = "cpu"


@dataclass(frozen=True)
class Seen:
    """What a worker has of it."""

    host: str
    versions: Mapping[str, str]
    lacking: str = ""
    """What it does not see or cannot write; '' when all is well."""
    wrote: Path | None = None
    """A file that it wrote beside the token."""
    device: str = ""
    """cpu or cuda."""


@lru_cache(maxsize=1)
def versions() -> tuple[tuple[str, str], ...]:
    """Return what this process runs with."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "commit": commit() or "unknown"}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return tuple({**found, "code": _code()}.items())


def _code() -> str:
    """Return a digest of the programs that make rows: a commit says nothing of what was changed since."""
    digest = hashlib.sha256()
    above = Path(__file__).parents[1]
    for package in ("extractors", "pipeline"):
        for file in sorted((above / package).rglob("*.py")):
            digest.update(f"{file.relative_to(above)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


@lru_cache(maxsize=8)
def look(common: Common) -> Seen:
    """Return what this process has of what it must have in common. Runs in a worker."""
    from pipeline.devices import resolve

    unseen = [file for file in common.weights if not file.is_file()]
    if common.videos and not any(file.is_file() for file in common.videos):
        unseen.append(common.videos[0])
    lacking, wrote = f"does not see {unseen[0]}" if unseen else "", None
    if common.token is not None and not unseen:
        lacking, wrote = _try_folder(common.token, common.text)
    device = resolve(common.device).partition(":")[0]
    return Seen(socket.gethostname(), dict(versions()), lacking, wrote, device)


def _try_folder(token: Path, text: str) -> tuple[str, Path | None]:
    """Return (what is wrong, the file that was written) of the folder in which the token lies."""
    try:
        if token.read_text() != text:
            return f"sees another {token.parent}", None
    except OSError as error:
        return f"does not see what this machine writes to {token.parent} ({error.strerror})", None
    wrote = token.with_name(_name(secrets.token_hex(4)))
    try:
        wrote.write_text(text)
    except OSError as error:
        return f"cannot write to {token.parent} ({error.strerror})", None
    return "", wrote


def _name(what: str) -> str:
    """Return a name by which `publish.remove_stale` knows what a dead process left."""
    return f".probe-{what}.{socket.gethostname()}-{os.getpid()}.tmp"


def unequal(ours: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str]:
    """Return (differences that decide rows' bits, other differences), each as 'torch 2.14.1, here 2.13.0'."""
    names = [name for name in {**ours, **theirs} if ours.get(name, "none") != theirs.get(name, "none")]
    said = {name: f"{name} {theirs.get(name, 'none')}, here {ours.get(name, 'none')}" for name in names}
    grave = [text for name, text in said.items() if name in DECISIVE]
    light = [text for name, text in said.items() if name not in DECISIVE]
    return "; ".join(grave), "; ".join(light)


def refusal(common: Common, seen: Seen) -> str:
    """Return why a worker must not work, '' when it may."""
    grave, _ = unequal(dict(common.versions), seen.versions)
    if grave:
        return f"has {grave}; rows would differ: use one environment on all machines"
    return f"{seen.lacking}; {CURE}" if seen.lacking else ""


def meet(client: Client, common: Common, folder: Path | None = None) -> None:
    """Look at every worker that is there; `folder` is the token's, as it is called here.

    Raises BadSetting for workers that must not work; tells of differences that do not matter to rows.
    """
    found: dict[str, Seen | BaseException] = client.run(look, common, on_error="return")
    wrong: dict[str, list[str]] = defaultdict(list)
    other: dict[str, list[str]] = defaultdict(list)
    for address, seen in found.items():
        if isinstance(seen, BaseException):
            wrong[f"cannot run this program ({seen}); install the same version there"].append(address)
            continue
        where = f"{address} on {seen.host}"
        wrong[refusal(common, seen) or _unseen(seen, folder)].append(where)
        other[unequal(dict(common.versions), seen.versions)[1]].append(where)
    for text, workers in other.items():
        if text:
            log.warning("WARNING: %s has %s", _several(workers), text)
    for text, workers in wrong.items():
        if text:
            raise BadSetting(f"{_several(workers)} {text}")
    devices = {seen.device for seen in found.values() if isinstance(seen, Seen)}
    if len(devices) > 1:
        raise BadSetting("some workers have a GPU and others none, whose rows differ; say --device cuda or cpu")


def _unseen(seen: Seen, folder: Path | None) -> str:
    """Return what is wrong when this machine does not see what a worker wrote. Removes it."""
    if seen.wrote is None or folder is None:
        return ""
    try:
        (folder / seen.wrote.name).unlink()
    except OSError as error:
        return (
            f"writes to {seen.wrote.parent}, but this machine does not find it in {folder} ({error.strerror}); {CURE}"
        )
    return ""


def _several(workers: Sequence[str]) -> str:
    return f"worker {workers[0]}" + (f" (and {len(workers) - 1} more)" if len(workers) > 1 else "")


def same_versions(client: Client) -> None:
    """Look at the workers of a stage that has no paths to see."""
    meet(client, Common(versions()))


@dataclass(frozen=True)
class Away:
    """A stage whose work is done elsewhere. The one place where paths are mapped."""

    stage: Extract
    common: Common
    maps: Maps
    folder: Path
    """Of the output, as it is called here."""

    @property
    def chunk_seconds(self) -> float:
        """Seconds of video in one chunk."""
        return self.stage.chunk_seconds

    def items(self) -> Sequence[Any]:
        """Return what is left to do."""
        return self.stage.items()

    def work(self, chunk: Sequence[Any]) -> list[Outcome]:
        """Do a few items, in a worker; before the first, see that it may."""
        seen = look(self.common)
        if wrong := refusal(self.common, seen):
            from distributed import get_worker

            address = str(get_worker().address)
            raise Unfit(f"worker {address} on {seen.host} {wrong}", address)
        if seen.wrote is not None:
            seen.wrote.unlink(missing_ok=True)
        stage: Extract = moved(self.stage, self.maps)
        return stage.work(moved(tuple(chunk), self.maps))

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Put the results in their place, here."""
        self.stage.save(outcomes)

    def met(self, client: Client) -> None:
        """Look at every worker that is there."""
        meet(client, self.common, self.folder)


@contextmanager
def sent(stage: Extract, output: Output, maps: Maps) -> Iterator[Away]:
    """Give `stage` as it runs elsewhere; while the block runs a token lies in the output's folder, which must exist."""
    from pipeline.stages.extract import plan_of

    token, text = output.folder / _name(secrets.token_hex(4)), secrets.token_hex(16)
    videos = tuple(islice((item.path for item in plan_of(stage).items if isinstance(item.path, Path)), 3))
    weights = tuple(job.weights.path for job in plan_of(stage).jobs if job.weights.path is not None)
    try:
        token.write_text(text)
    except OSError as error:
        raise BadSetting(f"cannot write to {output.folder}: {error.strerror}; choose another --out") from error
    try:
        common = Common(versions(), token, text, videos, weights, stage.device)
        yield Away(stage, moved(common, maps), maps, output.folder)
    finally:
        token.unlink(missing_ok=True)
