"""C3D (Tran et al., ICCV 2015): eight 3 x 3 x 3 convolutions and two full layers, on 16 frames of 112 x 112.

Parameter names and shapes are those of the converted Sports-1M checkpoint `c3d.pickle`, less its classifier.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from extractors.spec import ExtractorError

FRAMES, SIDE, DIM = 16, 112, 4096
LAYERS = ("fc6", "fc7")
_STAGES = (("1", 64), ("2", 128), ("3a", 256), ("3b", 256), ("4a", 512), ("4b", 512), ("5a", 512), ("5b", 512))


class C3D(nn.Module):
    """Pixels (B, 3, 16, 112, 112) to the full `layers` asked for, after their ReLU, side by side: (B, 4096) each."""

    def __init__(self, layers: tuple[str, ...] = LAYERS) -> None:
        super().__init__()
        self.layers = layers
        channels = 3
        for name, out in _STAGES:
            self.add_module(f"conv{name}", nn.Conv3d(channels, out, 3, padding=1))
            channels = out
        self.fc6 = nn.Linear(512 * 1 * 4 * 4, DIM)
        self.fc7 = nn.Linear(DIM, DIM)
        for module in self.modules():
            if isinstance(module, nn.Conv3d | nn.Linear):
                # Without a checkpoint, torch's own initial values would fade over ten layers.
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Float[Tensor, "batch 3 _time _height _width"]) -> Float[Tensor, "batch dim"]:
        """Return the layers asked for, side by side."""
        if x.shape[2:] != (FRAMES, SIDE, SIDE):
            raise ExtractorError(
                f"c3d takes {FRAMES} frames of {SIDE} x {SIDE}, not (frames, height, width) = {tuple(x.shape[2:])}; "
                "use one of its presets' sampling and crop"
            )
        x = F.max_pool3d(self._convolved(x, "1"), (1, 2, 2))
        x = F.max_pool3d(self._convolved(x, "2"), 2)
        x = F.max_pool3d(self._convolved(x, "3a", "3b"), 2)
        x = F.max_pool3d(self._convolved(x, "4a", "4b"), 2)
        x = F.max_pool3d(self._convolved(x, "5a", "5b"), 2, padding=(0, 1, 1))
        fc6 = torch.relu(self.fc6(x.flatten(1)))
        found = {"fc6": fc6, "fc7": torch.relu(self.fc7(fc6))}
        return torch.cat([found[layer] for layer in self.layers], 1)

    def _convolved(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = torch.relu(self.get_submodule(f"conv{name}")(x))
        return x
