"""Convolutions of a frozen network on a CPU, all by oneDNN, with their weights in the order that it works in.

On one thread torch gives many convolutions to a slower way of its own: those of 1 x 1 and of 3 x 1 x 1, and small ones.
With it S3D takes twice as long (`docs/decisions/0010-scale.md`). And oneDNN would reorder the weights in each pass,
which for batches of a row or two is a tenth of the time. What is called here is what torch.compile makes of a
convolution whose weights are constants, without the compiler.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Packed:
    """The forward pass of a convolution whose weights do not change any more.

    They are packed for the size of its input, and again when another size comes.
    """

    def __init__(self, module: nn.Conv2d | nn.Conv3d) -> None:
        self._module, self._own = module, module.forward
        self._size: torch.Size | None = None
        self._weight: Any = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return what the module's own forward pass does, but for the last bits."""
        module = self._module
        if x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return self._own(x)
        how = module.padding, module.stride, module.dilation, module.groups
        if x.shape != self._size:
            self._weight = torch.ops.mkldnn._reorder_convolution_weight(module.weight, *how, list(x.shape))
            self._size = x.shape
        out: Tensor = torch.ops.mkldnn._convolution_pointwise(x, self._weight, module.bias, *how, "none", [], "")
        return out


def pack(network: nn.Module) -> None:
    """Give the convolutions of a network on a CPU their `Packed` pass, where torch has oneDNN."""
    if not torch.backends.mkldnn.is_available():
        return
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d) and _plain(module):
            module.forward = Packed(module)  # type: ignore[assignment, method-assign]


def _plain(module: nn.Conv2d | nn.Conv3d) -> bool:
    """Return whether a module convolves and no more, padded with so many zeros on both sides."""
    own = type(module) in (nn.Conv2d, nn.Conv3d)
    return own and module.padding_mode == "zeros" and not isinstance(module.padding, str)
