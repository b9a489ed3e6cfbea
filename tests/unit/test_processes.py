"""Two processes that share a batch have the loss and the gradients of one that has it all."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pipeline.errors import BadSetting
from tests.unit.corpora import make
from tests.unit.together import SETTINGS, gradients
from train import processes

Found = dict[str, tuple[float, dict[str, torch.Tensor]]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("corpus") / "f.h5")


@pytest.fixture(scope="module")
def both(file: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each of two gloo processes finds."""
    folder = tmp_path_factory.mktemp("together")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "tests.unit.together", str(file)]
    started = [subprocess.Popen([*words, str(rank), str(port), str(folder / f"{rank}.pt")]) for rank in range(2)]
    assert [process.wait(120) for process in started] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_are_one(file: Path, both: list[Found], name: str) -> None:
    loss, alone = gradients(file, name, together=False)
    assert sum(found[name][0] for found in both) / 2 == pytest.approx(loss, abs=1e-10)
    assert sum(grad.abs().sum() > 0 for grad in alone.values()) > 20
    for found in both:
        assert found[name][1].keys() >= alone.keys()
        for parameter, grad in alone.items():
            torch.testing.assert_close(found[name][1][parameter], grad, rtol=1e-8, atol=1e-8)


def test_a_batch_that_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "size", lambda: 3)
    with pytest.raises(BadSetting, match="--batch 128 cannot be shared by 3 processes; choose a multiple of 3"):
        processes.share(128)
