"""`--cluster`: starts workers on Slurm, on other machines by ssh, or one for each GPU of this one.

Whatever the kind, a worker has one thread, no limit of memory of Dask's own, and `cluster.SETTINGS`, like the workers
of `cluster.local`.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from pipeline.cluster import SETTINGS, Dask, quiet
from pipeline.devices import gpus
from pipeline.errors import BadSetting
from pipeline.kinds import Kind, LocalCuda, Slurm, Ssh, has_gpus

if TYPE_CHECKING:
    from distributed import Client, SpecCluster

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between looks for jobs of Slurm that are gone."""
DEAD = 60
"""Seconds after which a worker ends that finds no scheduler."""
IDLE = "10 minutes"
"""After which a scheduler on another machine ends that is given nothing to do: whoever started it is dead."""


@contextmanager
def opened(kind: Kind, gpu: bool, met: Callable[[Client], None]) -> Iterator[Dask]:
    """The workers of a cluster that begins and ends with the block.

    `gpu`: work is given to workers that offer a GPU. `met` is called before any work is.
    """
    import dask
    from distributed import Client

    if gpu and not has_gpus(kind):
        raise BadSetting("--device cuda, but the cluster's file asks for no GPUs; add the key gpus to it")
    quiet()
    with dask.config.set(SETTINGS), _started(kind) as cluster, Client(cluster) as client:
        try:
            client.wait_for_workers(1, timeout=kind.wait)
        except TimeoutError:
            raise BadSetting(f"no worker came in {kind.wait} s (key wait); see what its job or host printed") from None
        met(client)
        log.info("Dask: %d workers so far, dashboard at %s", len(client.nthreads()), client.dashboard_link)
        yield Dask(client, {"GPU": 1} if gpu else None)


def _started(kind: Kind) -> AbstractContextManager[SpecCluster]:
    match kind:
        case Slurm():
            return slurm(kind)
        case Ssh():
            return ssh(kind)
        case LocalCuda():
            return local_cuda(kind)


@contextmanager
def slurm(kind: Slurm) -> Iterator[SpecCluster]:
    """Ask Slurm for jobs, and again for those that end before the block does."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        import dask_jobqueue
    except ImportError:
        raise BadSetting("kind slurm needs dask-jobqueue; pip install 'video-text-features[slurm]'") from None
    signal.signal(signal.SIGINT, interrupt)  # to import it makes Ctrl-C a silent end with exit code 0
    jobs = -(-kind.workers // kind.per_job)
    with _starting("Slurm"):
        cluster = dask_jobqueue.SLURMCluster(**slurm_options(kind))
    with cluster:
        with _starting("Slurm"):
            for _ in range(jobs):
                cluster.worker_spec.update(cluster.new_worker_spec())
            cluster.sync(_asked, cluster)
        log.info("Slurm: %d jobs asked for; waiting for the first worker", jobs)
        with _kept(cluster, jobs):
            yield cluster


def slurm_options(kind: Slurm) -> dict[str, Any]:
    """Return what SLURMCluster is told."""
    gres = [f"--gres=gpu:{kind.gpus}"] if kind.gpus else []
    return {
        "cores": kind.per_job,  # of Dask: the number of threads
        "processes": kind.per_job,
        "job_cpu": kind.per_job * kind.cores,
        "memory": kind.per_job * kind.bytes(),
        "walltime": kind.time,
        "queue": kind.partition or None,
        "account": kind.account or None,
        "job_extra_directives": [*gres, *kind.directives],
        "job_script_prologue": [*_exports(), *kind.setup],
        "worker_extra_args": ["--memory-limit", "0", *(["--resources", "GPU=1"] if kind.gpus else [])],
        "python": kind.python or None,
        "interface": kind.interface or None,
        "local_directory": kind.scratch or None,
        "log_directory": kind.logs or None,
        "death_timeout": DEAD,
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
        "silence_logs": logging.CRITICAL,
    }


def _exports() -> list[str]:
    """Return `cluster.SETTINGS` as lines of shell: jobs do not inherit Dask's settings of this process."""
    lines = []
    for key, value in SETTINGS.items():
        variable = key.removeprefix("distributed.nanny.pre-spawn-environ.")
        name = variable if variable != key else f"DASK_{key.upper().replace('.', '__').replace('-', '_')}"
        lines.append(f"export {name}={shlex.quote(str(value))}")
    return lines


async def _asked(cluster: Any) -> None:
    """Wait until all jobs are asked for; unlike `scale`, this raises what the command for that says."""
    try:
        await cluster
    finally:
        _give_up(cluster)


def _give_up(cluster: Any) -> None:
    """Mark the jobs that were refused: a cluster does not close with one that is neither running nor failed."""
    from distributed.core import Status

    for job in cluster.workers.values():
        if job.job_id is None:
            job.status = Status.failed


@contextmanager
def _kept(cluster: Any, jobs: int) -> Iterator[None]:
    """Ask for jobs anew while the block runs."""
    from tornado.ioloop import PeriodicCallback

    missed: dict[str, int] = {}
    timer = PeriodicCallback(lambda: ask_again(cluster, jobs, missed), 1000 * EVERY)
    cluster.loop.add_callback(timer.start)
    try:
        yield
    finally:
        cluster.loop.add_callback(timer.stop)


def ask_again(cluster: Any, jobs: int, missed: dict[str, int]) -> None:
    """Ask for a job in place of each that is gone: its time was over, it was taken away, its node is lost.

    `missed` counts how often in a row a job that had workers had none: a nanny may just be starting another. A job that
    never had any is let be, lest one that cannot work is asked for without end; but not one that was refused.
    """
    _give_up(cluster)
    here = {str(worker.name) for worker in cluster.scheduler.workers.values()}
    for job, spec in list(cluster.worker_spec.items()):
        asked = cluster.workers.get(job)
        if asked is None:
            continue  # it is being asked for
        if here & {f"{job}{part}" for part in spec.get("group", ("",))}:
            missed[job] = 0
        elif job in missed:
            missed[job] += 1
        if missed.get(job, 0) == 2 or asked.job_id is None:
            missed.pop(job, None)
            del cluster.worker_spec[job], cluster.workers[job]
            cluster.loop.add_callback(asked.close)
            log.warning("Slurm: job %s is gone; another is asked for", job)
    cluster.scale(jobs=jobs)


@contextmanager
def ssh(kind: Ssh) -> Iterator[SpecCluster]:
    """Start scheduler and workers by ssh: `distributed.SSHCluster`, but that each worker has a name and its own GPU."""
    try:
        import asyncssh  # noqa: F401
    except ImportError:
        raise BadSetting("kind ssh needs asyncssh; pip install 'video-text-features[ssh]'") from None
    from distributed import SpecCluster
    from distributed.deploy.ssh import Scheduler, Worker

    def far(cls: type, host: str, options: dict[str, Any]) -> dict[str, Any]:
        kwargs = {**options, **({"interface": kind.interface} if kind.interface else {})}
        python = kind.python or None
        return {
            "cls": cls,
            "options": {"address": host, "connect_options": {}, "remote_python": python, "kwargs": kwargs},
        }

    workers = {
        f"{host}-{number}": far(
            Worker, host, _worker(f"{host}-{number}", str(number % kind.gpus) if kind.gpus else "", kind.scratch)
        )
        for host in kind.hosts
        for number in range(kind.per_host)
    }
    scheduler = far(Scheduler, kind.scheduler or kind.hosts[0], {"dashboard_address": ":0", "idle_timeout": IDLE})
    with _starting(f"ssh to {', '.join(dict.fromkeys(kind.hosts))}"):
        cluster = SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL)
    with cluster:
        yield cluster


@contextmanager
def local_cuda(kind: LocalCuda) -> Iterator[SpecCluster]:
    """Start workers on the GPUs of this machine."""
    from distributed import Nanny, Scheduler, SpecCluster

    there = gpus()
    if not there or max(kind.gpus, default=0) >= there:
        raise BadSetting(f"--cluster: gpus are {kind.gpus or 'all'}, but this machine has {there} CUDA devices")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(there)))
    workers = {
        f"gpu-{gpu}-{number}": {
            "cls": Nanny,
            "options": {**_worker(f"gpu-{gpu}-{number}", shown.split(",")[gpu], kind.scratch), "host": "127.0.0.1"},
        }
        for gpu in kind.gpus or range(there)
        for number in range(kind.per_gpu)
    }
    board = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}}
    with SpecCluster(workers, board, silence_logs=logging.CRITICAL) as cluster:
        yield cluster


def _worker(name: str, gpu: str, scratch: str) -> dict[str, Any]:
    """Return the options of one worker; `gpu` is what it sees of its machine's, '' for whatever there is."""
    return {
        "name": name,
        "nthreads": 1,
        "memory_limit": 0,
        "death_timeout": DEAD,
        **({"env": {"CUDA_VISIBLE_DEVICES": gpu}, "resources": {"GPU": 1}} if gpu else {}),
        **({"local_directory": scratch} if scratch else {}),
    }


@contextmanager
def _starting(what: str) -> Iterator[None]:
    """Turn what a library raises while it starts a cluster into a line."""
    try:
        yield
    except Exception as error:  # distributed's ssh raises nothing narrower
        told = str(error).rpartition("stderr:")[2].strip()  # dask-jobqueue's way to quote `sbatch`
        raise BadSetting(f"{what}: no workers start: {told or type(error).__name__}") from error
