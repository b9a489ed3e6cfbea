"""Which device networks run on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipeline import ffmpeg
from pipeline.errors import BadSetting

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""What NVIDIA's driver, Windows' and AMD's put there. Without any, there is no need for seconds of importing torch."""


def gpus() -> int:
    """Return the number of CUDA devices."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return 0
    import torch

    return torch.cuda.device_count()


def resolve(device: str) -> str:
    """Return 'cpu', 'cuda' or 'cuda:N' for what was asked. Raises BadSetting for a device that is not there."""
    kind, _, number = device.partition(":")
    if kind not in {"auto", "cpu", "cuda"} or (number and not (kind == "cuda" and number.isdecimal())):
        raise BadSetting(f"--device {device}: expected auto, cpu, cuda or cuda:N")
    if device == "auto":
        return "cuda" if gpus() else "cpu"
    if kind == "cuda" and int(number or 0) >= gpus():
        raise BadSetting(f"--device {device}: this machine has {gpus()} CUDA devices; use --device cpu")
    return device


@dataclass(frozen=True)
class Decoders:
    """How a worker decodes."""

    count: int = 1
    """Videos at once."""
    hwaccel: str = ""
    """The GPU whose decoder is asked first, as `cuda:N`; empty for none."""


ONE_DECODER = Decoders()


def decoders(asked: int, hwaccel: str, device: str) -> Decoders:
    """Return how a worker on `device` decodes; `asked`: videos at once, 0 for what suits the device."""
    on_gpu = device.startswith("cuda")
    count = asked or (max(1, len(os.sched_getaffinity(0)) // max(1, gpus())) if on_gpu else 1)
    wanted = on_gpu and (hwaccel == "cuda" or (hwaccel == "auto" and ffmpeg.accelerates(ffmpeg.program())))
    return Decoders(count, device if wanted else "")


def mine(device: str) -> str:
    """Return the device of this process: workers on one machine take its GPUs in turn, by the number in their name."""
    chosen = resolve(device)
    if chosen != "cuda":
        return chosen
    from distributed import get_worker

    try:
        name = str(get_worker().name)
    except ValueError:  # a plain loop
        return "cuda:0"
    number = re.search(r"(?:^|-)(\d+)$", name)  # `3`, or `node7-3`; an address has none
    return f"cuda:{int(number[1]) % gpus() if number else 0}"
