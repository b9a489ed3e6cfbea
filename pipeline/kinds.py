"""Kinds of clusters as values, read from `--cluster FILE.toml` and checked when they are.

    kind = "slurm"
    workers = 64
    memory = "6GB"
    time = "24:00:00"

`kind` picks one of `KINDS`, whose fields are the other keys. `pipeline.clusters` starts them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from pipeline.errors import BadSetting

EXPECTED: dict[Any, str] = {
    str: "text",
    int: "a whole number, 0 or more",
    tuple[str, ...]: "a list of texts",
    tuple[int, ...]: "a list of whole numbers, 0 or more",
}


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Jobs that Slurm runs, through dask-jobqueue. Dask's scheduler is in this process, so it must stay."""

    workers: int
    """Processes in all; they begin as their jobs come to run, the first of which is waited for."""
    memory: str
    """Of one worker, such as "6GB"."""
    time: str
    """Limit of a job, such as "24:00:00". A job that is over, or was taken away, is asked for again."""
    per_job: int = 1
    """Workers of one job."""
    cores: int = 1
    """Of one worker."""
    gpus: int = 0
    """Of one job, as `--gres=gpu:N`; its workers take them in turn."""
    partition: str = ""
    account: str = ""
    directives: tuple[str, ...] = ()
    """What else `#SBATCH` lines are to say."""
    setup: tuple[str, ...] = ()
    """Lines of shell before the workers start."""
    python: str = ""
    """On the nodes; default: the one that runs this."""
    interface: str = ""
    """Network interface by which nodes reach this machine, such as "ib0"."""
    scratch: str = ""
    """Folder on the nodes for Dask's temporary files."""
    logs: str = ""
    """Folder for what jobs print; default: where Slurm puts it."""
    wait: int = 86_400
    """Seconds to wait for the first worker."""

    def __post_init__(self) -> None:
        _check_counts(workers=self.workers, per_job=self.per_job, cores=self.cores)
        self.bytes()

    def bytes(self) -> int:
        """Return the memory of one worker."""
        from dask.utils import parse_bytes

        try:
            return int(parse_bytes(self.memory))
        except ValueError:
            raise BadSetting(f'memory is {self.memory!r}; expected a size such as "6GB"') from None


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """Workers on other machines, through ssh without a password, as ~/.ssh/config has it."""

    hosts: tuple[str, ...]
    per_host: int = 1
    """Workers on each."""
    gpus: int = 0
    """GPUs of each host; its workers take them in turn and see no other."""
    scheduler: str = ""
    """Host of Dask's scheduler; default: the first."""
    python: str = ""
    """On the hosts; default: the one that runs this."""
    interface: str = ""
    """Network interface by which hosts reach each other, such as "ib0"."""
    scratch: str = ""
    """Folder on the hosts for Dask's temporary files."""
    wait: int = 60
    """Seconds to wait for the first worker."""

    def __post_init__(self) -> None:
        _check_counts(hosts=len(self.hosts), per_host=self.per_host)


@dataclass(frozen=True, kw_only=True)
class LocalCuda:
    """Workers on this machine that see one GPU each."""

    gpus: tuple[int, ...] = ()
    """Numbers of those to use; default: all."""
    per_gpu: int = 1
    """Workers on each."""
    scratch: str = ""
    """Folder for Dask's temporary files."""
    wait: int = 60
    """Seconds to wait for the first worker."""

    def __post_init__(self) -> None:
        _check_counts(per_gpu=self.per_gpu)


Kind = Slurm | Ssh | LocalCuda
KINDS: dict[str, type[Kind]] = {"slurm": Slurm, "ssh": Ssh, "local-cuda": LocalCuda}


def has_gpus(kind: Kind) -> bool:
    """Return whether its workers have GPUs."""
    return isinstance(kind, LocalCuda) or kind.gpus > 0


def read(text: str) -> Kind:
    """Return the cluster in the TOML file `text`; a kind's name stands for a file that says no more than that.

    Raises BadSetting, with file and key, for one that is not as it should be.
    """
    try:
        return _kind({"kind": text} if text in KINDS else tomllib.loads(Path(text).read_text(encoding="utf-8")))
    except OSError as error:
        known = ", ".join(KINDS)
        raise BadSetting(f"--cluster {text}: {error.strerror}; expected a TOML file or one of: {known}") from None
    except (ValueError, BadSetting) as error:  # tomllib's error is a ValueError
        raise BadSetting(f"--cluster {text}: {error}") from None


def _kind(found: Mapping[str, Any]) -> Kind:
    name = found.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        raise BadSetting(f"kind is {name!r}; expected one of: {', '.join(KINDS)}")
    kind = KINDS[name]
    types = get_type_hints(kind)
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found.items() if key != "kind"
    }
    for key, value in given.items():
        if key not in types:
            raise BadSetting(f"unknown key '{key}'; those of {name} are: {', '.join(types)}")
        if not _fits(value, types[key]):
            raise BadSetting(f"{key} is {found[key]!r}; expected {EXPECTED[types[key]]}")
    lacking = [field.name for field in fields(kind) if field.default is MISSING and field.name not in given]
    if lacking:
        raise BadSetting(f"{name} needs a file with the keys {', '.join(lacking)}: see docs/cluster.md")
    return kind(**given)


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(value, tuple) and kind in (tuple[str, ...], tuple[int, ...]):
        return all(_fits(one, kind.__args__[0]) for one in value)
    return type(value) is kind and (kind is not int or value >= 0)


def _check_counts(**counts: int) -> None:
    for key, count in counts.items():
        if not count:
            raise BadSetting(f"{key} is 0 or empty; expected at least one")
