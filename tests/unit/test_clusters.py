"""Clusters from TOML: what is refused, what Slurm is asked for, which GPU a worker sees."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints
from unittest import mock

import pytest

from pipeline import clusters, devices, kinds
from pipeline.errors import BadSetting
from pipeline.kinds import KINDS, Kind, LocalCuda, Slurm, Ssh, read
from pipeline.where import Where

SLURM = 'kind = "slurm"\nworkers = 4\nmemory = "6GB"\ntime = "24:00:00"\n'
WRONG = {
    'kind = "lsf"\n': "kind is 'lsf'; expected one of: slurm, ssh, local-cuda",
    "workers = 4\n": "kind is None; expected one of: slurm, ssh, local-cuda",
    'kind = "slurm"\n': "slurm needs a file with the keys workers, memory, time",
    f"{SLURM}worker = 4\n": "unknown key 'worker'; those of slurm are: workers, memory, time, per_job, cores, gpus, ",
    SLURM.replace("4", '"4"', 1): "workers is '4'; expected a whole number, 0 or more",
    SLURM.replace("4", "true", 1): "workers is True; expected a whole number",
    SLURM.replace("4", "-4", 1): "workers is -4; expected a whole number, 0 or more",
    SLURM.replace("= 4", "= 0"): "workers is 0 or empty; expected at least one",
    SLURM.replace("6GB", "much"): "memory is 'much'; expected a size such as \"6GB\"",
    f'{SLURM}setup = "module load"\n': "setup is 'module load'; expected a list of texts",
    f"{SLURM}setup = [1]\n": "setup is [1]; expected a list of texts",
    'kind = "ssh"\nhosts = []\n': "hosts is 0 or empty",
    'kind = "local-cuda"\ngpus = [0, "1"]\n': "gpus is [0, '1']; expected a list of whole numbers",
    "kind = slurm": "Invalid value",
}


INTERRUPT = """
import signal
from pipeline import clusters, errors, kinds
before = signal.getsignal(signal.SIGINT)
try:
    with clusters.slurm(kinds.Slurm(workers=1, memory="1GB", time="1")):
        pass
except errors.BadSetting as error:
    print(error)
print(signal.getsignal(signal.SIGINT) is before)
"""


def lines(kind: Slurm) -> list[str]:
    """Return the script of one job."""
    interrupt = signal.getsignal(signal.SIGINT)
    slurm = pytest.importorskip("dask_jobqueue.slurm")
    signal.signal(signal.SIGINT, interrupt)
    of_cluster = {"scheduler_options", "silence_logs"}
    options = {key: value for key, value in clusters.slurm_options(kind).items() if key not in of_cluster}
    found: str = slurm.SLURMJob("tcp://10.0.0.1:4711", name="job-3", **options).job_script()
    return found.splitlines()


@pytest.mark.parametrize("text", WRONG)
def test_a_file_that_cannot_be_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(BadSetting) as caught:
        read(str(path))
    assert str(caught.value).startswith(f"--cluster {path}: {WRONG[text]}")


def test_a_kinds_name_is_a_file_that_says_no_more() -> None:
    assert read("local-cuda") == LocalCuda()
    with pytest.raises(BadSetting, match="--cluster ssh: ssh needs a file with the keys hosts"):
        read("ssh")
    with pytest.raises(BadSetting, match="expected a TOML file or one of: slurm, ssh, local-cuda"):
        read("nowhere.toml")


def test_flags_that_do_not_go_together(tmp_path: Path) -> None:
    wrong = {
        "--workers -1": Where(workers=-1),
        "give one of them": Where(scheduler="tcp://x", cluster="local-cuda"),
        "--workers is about this machine": Where(workers=2, scheduler="tcp://x"),
        "--map-path is about workers elsewhere": Where(map_path=("/a=/b",)),
        "expected FROM=TO": Where(scheduler="tcp://x", map_path=("a",)),
        "expected a TOML file": Where(cluster=str(tmp_path)),
    }
    for words, where in wrong.items():
        with pytest.raises(BadSetting, match=words):
            where.check()
    Where(cluster="local-cuda", map_path=("/a=/b",)).check()
    Where(workers=0).check()


def test_the_examples_of_the_docs_can_be_read_and_all_keys_are_explained(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/cluster.md").read_text()
    examples = [part.partition("```")[0] for part in text.split("```toml\n")[1:]]
    shown = set()
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.toml"
        path.write_text(example)
        shown.add(type(read(str(path))))
    assert shown == set(KINDS.values())
    for kind in KINDS.values():
        assert [f.name for f in fields(kind) if f"`{f.name}`" not in text and f"\n{f.name} = " not in text] == []
        assert set(get_type_hints(kind).values()) <= set(kinds.EXPECTED)


def test_what_slurm_is_asked_for() -> None:
    kind = Slurm(
        workers=8, memory="6GB", time="24:00:00", per_job=4, cores=3, gpus=2, partition="gpu", account="lab",
        directives=("--qos=low",), setup=("module load ffmpeg",), python="/env/bin/python", interface="ib0",
        scratch="/local", logs="/home/me/logs",
    )  # fmt: skip
    script = lines(kind)
    directives = [line for line in script if line.startswith("#SBATCH")]
    assert directives == [
        "#SBATCH -J dask-worker",
        "#SBATCH -e /home/me/logs/dask-worker-%J.err",
        "#SBATCH -o /home/me/logs/dask-worker-%J.out",
        "#SBATCH -p gpu",
        "#SBATCH -A lab",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=12",
        "#SBATCH --mem=23G",
        "#SBATCH -t 24:00:00",
        "#SBATCH --gres=gpu:2",
        "#SBATCH --qos=low",
    ]
    assert "export MALLOC_ARENA_MAX=1" in script
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False" in script
    assert script.index("module load ffmpeg") < len(script) - 1
    words = script[-1].split()
    assert words[:4] == ["/env/bin/python", "-m", "distributed.cli.dask_worker", "tcp://10.0.0.1:4711"]
    given = dict(pairwise(words))  # of an option given twice the last counts, as in Dask
    expected = {"--nthreads": "1", "--nworkers": "4", "--name": "job-3", "--memory-limit": "0"}
    expected |= {"--resources": "GPU=1", "--interface": "ib0", "--local-directory": "/local", "--death-timeout": "60"}
    assert {key: given[key] for key in expected} == expected


def test_the_least_that_slurm_is_asked_for() -> None:
    script = lines(Slurm(workers=1, memory="1GiB", time="10"))
    assert [line for line in script if line.startswith("#SBATCH")] == [
        "#SBATCH -J dask-worker", "#SBATCH -n 1", "#SBATCH --cpus-per-task=1", "#SBATCH --mem=1G", "#SBATCH -t 10",
    ]  # fmt: skip
    assert "--resources" not in script[-1]


@dataclass
class Jobs:
    """A cluster of Slurm as `ask_again` sees it."""

    worker_spec: dict[str, dict[str, Any]]
    workers: dict[str, Any]
    here: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)

    @property
    def scheduler(self) -> Any:
        return SimpleNamespace(workers={name: SimpleNamespace(name=name) for name in self.here})

    @property
    def loop(self) -> Any:
        return SimpleNamespace(add_callback=self.ended.append)

    def scale(self, jobs: int) -> None:
        self.asked.append(jobs)


def test_a_job_that_had_workers_and_has_none_twice_is_asked_for_again() -> None:
    jobs = {name: SimpleNamespace(job_id="1", close=f"close {name}") for name in ("a", "b", "c")}
    cluster = Jobs({"a": {"group": ["-0", "-1"]}, "b": {}, "c": {}, "d": {}}, dict(jobs))
    missed: dict[str, int] = {}
    for here, left in (
        (["a-0", "a-1", "b"], "abcd"),
        (["a-1", "b"], "abcd"),
        (["b"], "abcd"),  # a's nanny may be starting another
        (["a-1"], "abcd"),
        (["b"], "abcd"),
        (["b"], "bcd"),  # a is gone; c never came, d is being asked for
    ):
        cluster.here = here
        clusters.ask_again(cluster, 4, missed)
        assert "".join(cluster.worker_spec) == left
    assert cluster.asked == [4] * 6
    assert cluster.ended == ["close a"]
    assert "".join(cluster.workers) == "bc"


def test_a_job_that_was_refused_is_asked_for_again() -> None:
    job = SimpleNamespace(job_id=None, close="close a", status="created")
    cluster = Jobs({"a": {}}, {"a": job})
    clusters.ask_again(cluster, 1, {})
    assert (cluster.worker_spec, cluster.workers, cluster.asked) == ({}, {}, [1])
    assert job.status.name == "failed"


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        (Slurm(workers=1, memory="1GB", time="1"), "dask_jobqueue", "slurm"),
        (Ssh(hosts=("somewhere",)), "asyncssh", "ssh"),
    ],
)
def test_a_missing_library_names_its_extra(
    kind: Kind, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(BadSetting, match=rf"pip install 'video-text-features\[{extra}\]'"),
        clusters.opened(kind, False, lambda _: None),
    ):
        pass


def test_ctrl_c_stays_what_it_was(tmp_path: Path) -> None:
    """dask-jobqueue makes it a silent end with exit code 0."""
    pytest.importorskip("dask_jobqueue")
    told = subprocess.run(
        [sys.executable, "-c", INTERRUPT], capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)}
    )
    assert told.stdout.splitlines() == [
        "Slurm: no workers start: [Errno 2] No such file or directory: 'sbatch'", "True",
    ]  # fmt: skip


def test_a_cluster_without_gpus_is_no_place_for_cuda() -> None:
    kind = Slurm(workers=1, memory="1GB", time="1")
    with pytest.raises(BadSetting, match="add the key gpus"), clusters.opened(kind, True, lambda _: None):
        pass


def test_gpus_that_are_not_there() -> None:
    for kind in (LocalCuda(), LocalCuda(gpus=(2,))):
        with (
            mock.patch("pipeline.clusters.gpus", return_value=2 if kind.gpus else 0),
            pytest.raises(BadSetting, match="this machine has [02] CUDA devices"),
            clusters.opened(kind, True, lambda _: None),
        ):
            pass


def test_each_local_worker_sees_its_own_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,GPU-ab")  # what was given to this process
    met: list[Any] = []
    kind = LocalCuda(gpus=(0, 2), per_gpu=1, scratch=str(tmp_path))
    with mock.patch("pipeline.clusters.gpus", return_value=3), clusters.opened(kind, True, met.append) as pool:
        (client,) = met
        client.wait_for_workers(2, timeout=60)
        found = client.scheduler_info(n_workers=-1)["workers"]
        seen = client.run(lambda: (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MALLOC_ARENA_MAX"]))
        told = {found[address]["name"]: value for address, value in seen.items()}
        assert told == {"gpu-0-0": ("5", "1"), "gpu-2-0": ("GPU-ab", "1")}
        for worker in found.values():
            assert (worker["nthreads"], worker["memory_limit"], worker["resources"]) == (1, 0, {"GPU": 1})
            assert worker["local_directory"].startswith(str(tmp_path))
        assert pool.slots() == 2


@pytest.mark.parametrize(
    ("name", "device"),
    [(3, "cuda:3"), (5, "cuda:1"), ("node-7-2", "cuda:2"), ("gpu", "cuda:0"), ("tcp://10.0.0.1:4713", "cuda:0")],
)
def test_workers_of_a_machine_take_its_gpus_in_turn(name: Any, device: str) -> None:
    with (
        mock.patch("pipeline.devices.gpus", return_value=4),
        mock.patch("distributed.get_worker", return_value=SimpleNamespace(name=name)),
    ):
        assert devices.mine("cuda") == device
