"""Several processes that train one model, started by torchrun; each encodes its share of a batch.

    torchrun --nproc-per-node 8 -m train.cli --features features.h5

Every process holds the features and draws the same batches, so what is sent is encoded tokens only. Losses are of the
whole batch: negatives come from all processes, and gradients go back to the process that encoded them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from pipeline.errors import BadSetting


def rank() -> int:
    """Return the number of this process among those that train together."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """Return how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own(device: torch.device) -> torch.device:
    """Return this process's device among those of a kind."""
    shared = dist.is_initialized() and device.type == "cuda"
    return torch.device("cuda", dist.get_node_local_rank()) if shared else device


@contextmanager
def together(device: torch.device) -> Iterator[None]:
    """Join the processes that torchrun started, to train on devices of this kind; alone, nothing is done."""
    if not dist.is_torchelastic_launched() or dist.is_initialized():
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if device.type == "cuda":
        torch.cuda.set_device(own(device))
    if rank():
        logging.getLogger().setLevel(logging.ERROR)  # the first one speaks for all
    try:
        yield
    finally:
        dist.destroy_process_group()


def share(batch: int) -> slice:
    """Return the places of a batch's pairs that this process encodes. Raises BadSetting if they cannot be shared."""
    if batch % size():
        raise BadSetting(f"--batch {batch} cannot be shared by {size()} processes; choose a multiple of {size()}")
    own = batch // size()
    return slice(rank() * own, (rank() + 1) * own)


def gathered(x: Tensor) -> Tensor:
    """Return the rows of all processes, one process after the other, for gradients to go back to where they are from.

    All have as many rows, (k, ...); alone, it is `x` itself.
    """
    found: Tensor = _Gather.apply(x) if size() > 1 else x
    return found


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        parts = [torch.empty_like(x) for _ in range(size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:  # noqa: ARG004
        """Sum over processes what each one wants of these rows."""
        (grad,) = grads
        total = grad.contiguous().clone()
        dist.all_reduce(total)
        return total[share(len(total))]


def any_of(flag: bool, device: torch.device) -> bool:
    """Return whether it is so in any process."""
    if size() == 1:
        return flag
    found = torch.tensor(float(flag), device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


def wait() -> None:
    """Wait for the other processes."""
    if size() > 1:
        dist.barrier()


def mean(x: Tensor) -> Tensor:
    """Return the mean over processes."""
    if size() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total / size()


def first(value: float, device: torch.device) -> float:
    """Return the first process's value, so that all decide alike."""
    if size() == 1:
        return value
    found = torch.tensor(value, device=device, dtype=torch.float64)
    dist.broadcast(found, 0)
    return float(found)
