"""Workers elsewhere and videos by address, as a user has them: on this machine, but by the ways that lead to others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from pipeline.ffmpeg import program
from pipeline.store import Features
from tests.unit import fakeslurm, fakeweb
from tests.whole.command import ENVIRONMENT, assert_same, error, inside, pipeline, start

VIDEOS = 16


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(VIDEOS):
        picture = f"testsrc2=size=160x120:rate=25:duration={2 + number % 3},hue=h={20 * number}"
        command = [program(), "-loglevel", "error", "-f", "lavfi", "-i", picture, "-pix_fmt", "yuv420p"]
        subprocess.run([*command, folder / f"v{number:02}.mp4"], check=True)
    return folder


@pytest.fixture(scope="module")
def undisturbed(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "features.h5"
    inside(*words(videos, out), "--workers", "0")
    return out


def words(videos: Path, out: Path) -> list[str | Path]:
    return [
        *("run", "extract", "--dataset", "files", "--root", videos, "--out", out),
        *("--extractor", "colors:resnet152,colors:s3d_howto100m", "--chunk-seconds", "4"),
    ]


@contextmanager
def process(*command: str | Path, cwd: Path, until: str = "", **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a program with its children in a group of their own; wait until it says something, and end it at the end."""
    cwd.mkdir(exist_ok=True)
    with (cwd / "log").open("w") as log:
        running = subprocess.Popen(
            [sys.executable, *map(str, command)], cwd=cwd, stdout=log, stderr=log, text=True, start_new_session=True,
            env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while until not in (cwd / "log").read_text():
            assert running.poll() is None, (cwd / "log").read_text()
            assert time.monotonic() < end, (cwd / "log").read_text()
            time.sleep(0.05)
        yield running
    finally:
        end_group(running)


def end_group(running: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)


def alive(group: int) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(one.pid) == group and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


@contextmanager
def by_hand(folder: Path) -> Iterator[tuple[str, list["subprocess.Popen[str]"]]]:
    """A scheduler and two workers with folders of their own, as the commands in docs/cluster.md start them."""
    with process("-m", "distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--dashboard-address",
                 "127.0.0.1:0", cwd=folder / "scheduler", until="Scheduler at:"):  # fmt: skip
        log = (folder / "scheduler/log").read_text()
        address = log.partition("Scheduler at:")[2].split()[0]
        worker = ("-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--memory-limit", "0")
        with (
            process(*worker, cwd=folder / "one", until="Registered to", TMPDIR=str(folder / "one")) as one,
            process(*worker, cwd=folder / "two", until="Registered to", TMPDIR=str(folder / "two")) as two,
        ):
            yield address, [one, two]


def until_some_work_is_done(out: Path) -> None:
    end = time.monotonic() + 120
    while not list(out.with_name(f"{out.name}.shards").glob("shard-*.h5")):
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_workers_by_hand_one_of_them_killed_half_way(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out/features.h5"
    with by_hand(tmp_path) as (address, workers):
        refused = error(*words(videos, out), "--scheduler", address, "--map-path", f"{videos}=/nowhere")
        assert "(and 1 more) does not see /nowhere/v" in refused
        assert "--map-path FROM=TO" in refused
        running = start(*words(videos, out), "--scheduler", address)
        until_some_work_is_done(out)
        end_group(workers[0])
        said, told = running.communicate(timeout=300)
        assert running.returncode == 0, told
        assert f"{VIDEOS} ok; done before: nothing" in said
    assert_same(undisturbed, out)
    assert [file.name for file in out.parent.iterdir()] == ["features.h5"]


@pytest.mark.slow
def test_jobs_of_slurm_one_of_them_lost(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    path = fakeslurm.install(tmp_path / "slurm")["PATH"]
    config, out = tmp_path / "slurm.toml", tmp_path / "out/features.h5"
    config.write_text('kind = "slurm"\nworkers = 2\nmemory = "2GB"\ntime = "1:00:00"\npartition = "cpu"\nwait = 60\n')
    running = start(*words(videos, out), "--cluster", config, PATH=path)
    until_some_work_is_done(out)
    jobs = fakeslurm.jobs(tmp_path / "slurm")
    fakeslurm.kill(jobs[0])
    said, told = running.communicate(timeout=300)
    assert running.returncode == 0, told
    assert f"{VIDEOS} ok; done before: nothing" in said
    assert len(jobs) == 2
    assert_same(undisturbed, out)
    left = [one for job in fakeslurm.jobs(tmp_path / "slurm") for one in alive(int(job.read_text()))]
    assert psutil.wait_procs(left, timeout=30)[1] == []


def test_slurm_refuses(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue")
    config, out = tmp_path / "slurm.toml", tmp_path / "out/features.h5"
    config.write_text('kind = "slurm"\nworkers = 2\nmemory = "2GB"\ntime = "1"\npartition = "nowhere"\n')
    monkeypatch.setenv("PATH", fakeslurm.install(tmp_path / "slurm")["PATH"])
    assert error(*words(videos, out), "--cluster", config) == (
        "error: Slurm: no workers start: sbatch: error: invalid partition specified: nowhere"
    )


@pytest.mark.slow
def test_machines_by_ssh(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    pytest.importorskip("asyncssh")
    home, config, out = tmp_path / "home", tmp_path / "ssh.toml", tmp_path / "out/features.h5"
    config.write_text('kind = "ssh"\nhosts = ["node-a", "node-b"]\n')
    home.mkdir()
    server = Path(fakeslurm.__file__).with_name("fakessh.py")
    with process(server, home, cwd=tmp_path / "server", until="\n"):
        said, _ = pipeline(*words(videos, out), "--cluster", config, HOME=str(home))
    assert f"{VIDEOS} ok; done before: nothing" in said
    assert_same(undisturbed, out)


def test_videos_from_a_server(videos: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr("pipeline.remote.PAUSE", 0.0)
    out, listed = tmp_path / "out/features.h5", tmp_path / "videos.txt"
    with fakeweb.serve(videos) as web:
        names = [*(f"v{number:02}.mp4" for number in range(VIDEOS)), "gone.mp4"]
        listed.write_text("".join(f"{web.address}/{name}?key=secret\n" for name in names))
        said, _ = inside(*words(listed, out), "--workers", "0", code=1)
        assert f"{VIDEOS} ok, 1 failed" in said
        failures = (tmp_path / "out/features.failures.jsonl").read_text()
        assert '"cannot be fetched: not found"' in failures
        assert "secret" not in failures
        web.asked.clear()
        said, told = inside(*words(listed, out), "--workers", "0")
        assert "0 videos to extract, 16 done before, 0 changed on disk, 1 without a file" in told
        assert web.asked["GET"] <= 1  # that a file is missing is asked for once more
    listed.write_text("".join(listed.read_text().splitlines(keepends=True)[:VIDEOS]))
    _, told = inside(*words(listed, out), "--workers", "0")
    assert "16 addresses do not answer" in told
    assert "0 videos to extract, 16 done before" in told
    with Features.open(out) as fetched, Features.open(undisturbed) as local:
        for stream in local.streams:
            for video, rows in local.all_rows(stream):
                assert (fetched.rows(stream, video) == rows).all()
