"""Frames through a network, in batches of one fixed shape that are filled across videos."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from extractors import weights
from extractors.packed import pack
from extractors.preprocess import pad_row, to_input
from extractors.spec import ExtractorError, Preset

Row = NDArray[np.float32]
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def network(
    preset: Preset, found: weights.Found, device: str | torch.device = "cpu", compiled: bool = False
) -> nn.Module:
    """Return the preset's network with the weights `found`, on `device`, frozen and in eval mode.

    `compiled`: by torch.compile with the weights as constants, at the first batch of each frame size; rows differ in
    their last bits. On a CPU it takes a C++ compiler and half a minute, and is no faster than what is done without.
    """
    net = weights.make(preset, found).to(device=device).eval().requires_grad_(False)
    for parameter in net.parameters():
        if parameter.ndim in _LAYOUTS:  # that of `to_input`; a network may have convolutions of both kinds
            parameter.data = parameter.data.contiguous(memory_format=_LAYOUTS[parameter.ndim])
    if compiled:
        return torch.compile(net, dynamic=False, options={"freezing": True})  # type: ignore[return-value]
    if torch.device(device).type == "cpu":
        pack(net)
    return net


class Batcher:
    """Collects rows' frames until a batch is full, and gives the rows back under the tags they came with.

    The network always sees `batch` rows of one frame size (the last ones are made up with black), because the last
    bits of a result depend on the batch's shape: so a row does not depend on its neighbours. At most one batch per
    frame size is held. `autocast` computes in half precision (bfloat16 on a CPU).

        batcher = Batcher(preset, network(preset, find(preset)), batch=preset.batch)
        for start, frames in windows:
            for start, row in batcher.add(start, frames): ...
        for start, row in batcher.flush(): ...
    """

    def __init__(self, preset: Preset, network: nn.Module, batch: int, autocast: bool = False) -> None:
        if batch < 1:
            raise ExtractorError(f"a batch has 1 row or more, not {batch}")
        self._preset, self._network, self._batch, self._autocast = preset, network, batch, autocast
        self._device = next((p.device for p in network.parameters()), torch.device("cpu"))
        self._waiting: dict[tuple[int, ...], tuple[list[Any], NDArray[np.uint8]]] = {}

    def add(self, tag: Any, frames: NDArray[np.uint8]) -> list[tuple[Any, Row]]:
        """Take the frames of one row, uint8 (t, H, W, 3); a short one is padded with black. They are copied.

        Returns the batch that this row completes, as (tag, float32 (D,)) in the order of their coming, or nothing.
        """
        frames = pad_row(frames, self._preset.frames)
        if frames.shape not in self._waiting:
            self._waiting[frames.shape] = [], self._room((self._batch, *frames.shape))
        tags, batch = self._waiting[frames.shape]
        batch[len(tags)] = frames
        tags.append(tag)
        return self._run(*self._waiting.pop(frames.shape)) if len(tags) == self._batch else []

    def flush(self) -> list[tuple[Any, Row]]:
        """Return all rows that still wait. The batcher can be used again."""
        waiting, self._waiting = self._waiting, {}
        return [pair for tags, batch in waiting.values() for pair in self._run(tags, batch)]

    def _room(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        if self._device.type != "cuda":
            return np.zeros(shape, np.uint8)
        room: NDArray[np.uint8] = torch.zeros(shape, dtype=torch.uint8, pin_memory=True).numpy()
        return room  # which a GPU reads by itself

    def _run(self, tags: list[Any], batch: NDArray[np.uint8]) -> list[tuple[Any, Row]]:
        # A copy: torch's own rows would lie between blocks of megabytes, which could then not be given back.
        rows = self._forward(batch).copy()
        return list(zip(tags, rows, strict=False))  # rows without a tag are padding

    def _forward(self, frames: NDArray[np.uint8]) -> Row:
        pixels = to_input(torch.from_numpy(frames).to(self._device, non_blocking=True), self._preset)
        kind = self._device.type
        half = torch.float16 if kind == "cuda" else torch.bfloat16
        # TF32, which cuDNN uses unless told otherwise, keeps ten bits of a float32's mantissa.
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False, fp32_precision="ieee")
        with torch.inference_mode(), exact, torch.autocast(kind, half, enabled=self._autocast):
            rows: Row = self._network(pixels).float().cpu().numpy()
        return rows
