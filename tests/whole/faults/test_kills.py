"""Processes of a run that are killed: the client, ffmpeg, workers, their nannies, the scheduler."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.whole.command import ENVIRONMENT, start
from tests.whole.faults.conftest import Ground
from tests.whole.faults.forked import LIMIT, Fork, fork

pytestmark = pytest.mark.slow


def children(pid: int, program: str) -> list[psutil.Process]:
    """Return the processes below `pid` whose command line says `program`."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if program in " ".join(child.cmdline()):
                    found.append(child)
    return found


def kill_one(run: Fork, program: str, moment: random.Random) -> bool:
    """Kill a child of a run at a random moment; return whether there was one."""
    time.sleep(moment.uniform(0, 0.5))
    while not run.ended():
        if victims := children(run.pid, program):
            with suppress(psutil.Error):
                moment.choice(victims).kill()
                return True
        time.sleep(0.002)
    return False


@pytest.mark.parametrize("seed", range(20))
def test_client_at_a_random_moment(ground: Ground, out: Path, seed: int) -> None:
    """In the middle of what it does; what it leaves is killed again by the next, and the third goes on."""
    moment = random.Random(seed)
    killed = 0
    for _ in range(3):
        run = fork(ground.words(out), out.parent / "run.log")
        time.sleep(moment.uniform(0.05, 1.5))
        if not run.ended():
            os.killpg(run.pid, signal.SIGKILL)
            os.waitpid(run.pid, 0)
            killed += 1
    ground.check("kill -9 of the client", out, killed)


@pytest.mark.parametrize("seed", range(20))
def test_ffmpeg_at_a_random_moment(ground: Ground, out: Path, seed: int) -> None:
    """One death costs one more try, which the file does not show."""
    run = fork(ground.words(out), out.parent / "run.log")
    killed = kill_one(run, "ffmpeg", random.Random(seed))
    if not run.ended():
        assert run.wait() == 1, run.said()
    ground.check("kill -9 of ffmpeg", out, int(killed))


@pytest.mark.parametrize("step", ["write.before", "rows.one", "fsync.before", "rename.after"])
def test_worker_at_a_point(ground: Ground, out: Path, step: str) -> None:
    log = out.parent / "fault.log"
    with start(*ground.words(out, "--workers", "2"), VTF_FAULT=f"shard-*.h5:{step}:2:kill:{log}") as run:
        _, err = run.communicate(timeout=LIMIT)
    assert run.returncode == 1, err
    assert len(log.read_text().splitlines()) > 2, "the worker did not die, or nothing was done after it"
    ground.compare("kill -9 of a worker", out)
    ground.check("kill -9 of a worker", out)


@pytest.mark.parametrize("seed", range(2))
def test_worker_at_a_random_moment(ground: Ground, out: Path, seed: int) -> None:
    """Of our own cluster, whose nannies are threads of the client."""
    moment = random.Random(seed)
    with start(*ground.words(out, "--workers", "2")) as run:
        while run.poll() is None and not children(run.pid, "ffmpeg"):
            time.sleep(0.02)
        time.sleep(moment.uniform(0, 0.3))
        victims = children(run.pid, "spawn_main") if run.poll() is None else []
        if victims:
            moment.choice(victims).kill()
        run.communicate(timeout=LIMIT)
    ground.check("kill -9 of a worker", out, len(victims[:1]))


@contextmanager
def cluster(folder: Path, nannies: bool) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers that were started by hand; gives the address and the processes."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "env": dict(ENVIRONMENT)}
    made = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
             "--scheduler-file", str(file)], **quiet,  # type: ignore[call-overload]
        )
    ]  # fmt: skip
    try:
        for _ in range(2):
            made.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file),
                     "--nthreads", "1", "--no-dashboard", "--nanny" if nannies else "--no-nanny",
                     "--death-timeout", "60"], **quiet,  # type: ignore[call-overload]
                )
            )  # fmt: skip
        yield _address(file), made
    finally:
        below = [child for one in made for child in children(one.pid, "")]
        for one in made:
            one.kill()
            one.wait()
        for child in below:
            with suppress(psutil.Error):
                child.kill()


def _address(file: Path) -> str:
    import json

    from distributed import Client

    end = time.monotonic() + LIMIT
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
    address = str(json.loads(file.read_text())["address"])
    with Client(address, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
    return address


@pytest.mark.parametrize(("who", "nannies"), [(0, False), (1, False), (1, True)], ids=["scheduler", "worker", "nanny"])
def test_of_a_cluster(ground: Ground, out: Path, tmp_path: Path, who: int, nannies: bool) -> None:
    kind = f"kill -9 of a {('scheduler', 'worker', 'nanny')[who + nannies]} of a cluster"
    with cluster(tmp_path, nannies) as (address, processes):
        with start(*ground.words(out, "--scheduler", address)) as run:
            while run.poll() is None and not any(children(one.pid, "ffmpeg") for one in processes):
                time.sleep(0.02)
            time.sleep(random.Random(who).uniform(0, 0.3))
            processes[who].kill()
            _, err = run.communicate(timeout=LIMIT)
        assert "Traceback" not in err, err
        assert run.returncode == (2 if who == 0 else 1), err
    ground.check(kind, out)
