"""Chunks on Dask: a local cluster, or a scheduler that is already there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipeline.abroad import Unfit
from pipeline.errors import BadSetting, PipelineError
from pipeline.records import Outcome
from pipeline.runner import Chunk, WorkerDied

if TYPE_CHECKING:
    from distributed import Client, Future

log = logging.getLogger(__name__)

SETTINGS = {
    # One death ends a chunk here: the runner, not Dask, decides what is run again (after_failure).
    "distributed.scheduler.allowed-failures": 0,
    # Rows go to disk in the worker: nothing to spill, and a pause would only stop the clock.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    # Work is bounded by our own window; no other worker must take what one has begun.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.comm.timeouts.connect": "60s",
    # Looking at stacks and clocks a hundred times a second takes 4 % of each worker's processor, and of the client's.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    # A network frees and takes hundreds of megabytes in each pass. Dask has workers return freed memory to the system
    # at once; keeping it, in one arena, saves a third of the processor time (docs/decisions/0005-runner.md).
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**31 - 1,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**30,
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
}


Work = Callable[[Sequence[Any]], list[Outcome]]


class Dask:
    """A pool on a Dask client: as many chunks under way as there are worker threads."""

    def __init__(self, client: Client, resources: dict[str, float] | None = None) -> None:
        from distributed import as_completed

        self._client = client
        self._resources = resources
        self._under_way: dict[Future[Any], tuple[Work, Chunk]] = {}
        self._done = as_completed()

    def slots(self) -> int:
        """Return the number of worker threads there are now."""
        with _connected():
            return sum(self._client.nthreads().values())

    def submit(self, work: Work, chunk: Chunk) -> None:
        """Send a chunk to a worker."""
        with _connected():
            future = self._client.submit(work, chunk.items, pure=False, retries=0, resources=self._resources)
        self._under_way[future] = work, chunk
        self._done.add(future)

    def finished(self) -> tuple[Chunk, list[Outcome] | BaseException]:
        """Wait for the next chunk to end."""
        while True:
            future = next(self._done)
            work, chunk = self._under_way.pop(future)
            with _connected():
                error = future.exception()
                result: list[Outcome] | BaseException = future.result() if error is None else _cause(error)
            future.release()
            if not (isinstance(result, Unfit) and self._send_away(result)):
                return chunk, result
            self.submit(work, chunk)

    def _send_away(self, unfit: Unfit) -> bool:
        """End a worker that must not work, unless there would be none left. Returns whether there are others."""
        with _connected():
            others = set(self._client.nthreads()) - {unfit.address}
            if others:
                log.warning("sent away: %s", unfit)
                self._client.retire_workers([unfit.address])
        return bool(others)


@contextmanager
def _connected() -> Iterator[None]:
    """Raise PipelineError when the scheduler is gone: every chunk that was under way is then cancelled."""
    try:
        yield
    except (CancelledError, OSError) as error:
        raise PipelineError(
            "the connection to the Dask scheduler is lost; what was finished is kept, run the same command again to "
            "go on"
        ) from error


def _cause(error: BaseException) -> BaseException:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return WorkerDied("the worker died")
    return error


@contextmanager
def local(workers: int, gpu: bool) -> Iterator[Dask]:
    """A cluster of `workers` processes of one thread each on this machine."""
    import dask
    from distributed import Client, LocalCluster

    quiet()
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            resources={"GPU": 1} if gpu else None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        log.info("Dask: %d workers, dashboard at %s", workers, client.dashboard_link)
        yield Dask(client, {"GPU": 1} if gpu else None)


@contextmanager
def existing(address: str, gpu: bool, met: Callable[[Client], None]) -> Iterator[Dask]:
    """The workers of the scheduler at `address`. `met` is called before any work is given to them."""
    import dask
    from distributed import Client

    quiet()
    with dask.config.set(SETTINGS):
        try:
            client = Client(address, timeout=30)
        except (OSError, ValueError) as error:
            raise BadSetting(f"no Dask scheduler answers at {address} ({type(error).__name__})") from error
        with client:
            if not client.nthreads():
                raise BadSetting(f"the scheduler at {address} has no workers; start some with `dask worker {address}`")
            _check_workers(client, address, gpu)
            met(client)
            log.info("Dask: scheduler %s, dashboard at %s", address, client.dashboard_link)
            yield Dask(client, {"GPU": 1} if gpu else None)


def _check_workers(client: Client, address: str, gpu: bool) -> None:
    """Refuse workers that would break what a run promises: rows' bits, and no blame for a neighbour's fault."""
    if max(client.nthreads().values()) > 1:
        raise BadSetting(f"workers of {address} have several threads; start them with `--nthreads 1`")
    found = client.scheduler_info(n_workers=-1)["workers"].values()
    if any(worker.get("memory_limit") for worker in found):
        log.warning("WARNING: workers of %s have a memory limit, near which Dask has them pause, without a word; start "
                    "them with `--memory-limit 0`", address)  # fmt: skip
    if gpu and not any(worker.get("resources", {}).get("GPU") for worker in found):
        raise BadSetting(f"no worker of {address} offers a GPU; start them with `--resources GPU=1`, or --device cpu")


def quiet() -> None:
    """What Dask says of a worker that died is said by the runner, in a line."""
    parts = ("scheduler", "nanny", "core", "client")
    for name in ("distributed", *(f"distributed.{part}" for part in parts), "asyncssh", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="distributed")
