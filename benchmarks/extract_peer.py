"""The peer of `extract.py`: extraction as common extractors do it, written anew from a description of what it costs.

One process. For each network all videos are decoded again, one after the other: ffmpeg writes the frames to a pipe, all
of a video's frames are held at once, become one float32 array, are normalised, and go through the network in batches of
that video alone, in torch's own memory layout and on torch's own number of threads; its rows are saved as an .npy.

Frames, pixels and weights are ours, so that the rows must be ours too. Left out, in its favour: the extractors that
write every frame to a JPEG first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import extractors
from extractors import weights
from extractors.spec import Chain, Preset
from pipeline.ffmpeg import program
from pipeline.probe import probe

BATCH = 64
"""Rows in a forward pass, at most."""


def decoded(file: Path, chain: Chain) -> Tensor:
    """Return all frames of a video, float32 (T, 3, height, width), from 0 to 255."""
    probed = probe(file)
    width, height = chain.scaled(probed.width, probed.height)
    filters = f"fps={chain.fps}:round=near,scale={width}:{height}:flags={chain.scaler}"
    if chain.crop is not None:
        filters += f",crop={chain.crop}:{chain.crop}:{int((width - chain.crop) / 2)}:{int((height - chain.crop) / 2)}"
    raw = "-fps_mode", "cfr", "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:"
    words = [program(), "-i", str(file), "-vf", filters, *raw]
    out = subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout
    width, height = chain.frame_size(probed.width, probed.height)
    frames = np.frombuffer(out, np.uint8).reshape(-1, height, width, 3)
    return torch.from_numpy(frames.astype(np.float32)).permute(0, 3, 1, 2)


def cut(frames: Tensor, preset: Preset) -> Tensor:
    """Return a network's input, a row of frames after the other; the last one padded with black."""
    if missing := -len(frames) % preset.frames:
        frames = torch.cat([frames, torch.zeros(missing, *frames.shape[1:])])
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (preset.mean, preset.std))
    pixels = (frames / preset.scale - mean) / std
    if preset.frames == 1:
        return pixels.contiguous()
    return pixels.view(-1, preset.frames, *pixels.shape[1:]).transpose(1, 2).contiguous()


def extract(files: Sequence[Path], preset: Preset, out: Path) -> None:
    """Write the rows of each video."""
    net = weights.make(preset, weights.find(preset, "random"))
    out.mkdir(parents=True)
    with torch.no_grad():
        for number, file in enumerate(files):
            rows = [net(some) for some in cut(decoded(file, preset.chain), preset).split(BATCH)]
            np.save(out / f"{number}.npy", torch.cat(rows).numpy())


def main() -> None:
    """Extract the files of a JSON list with the networks of another, into folders of their names."""
    files, names, out = sys.argv[1:]
    for name in json.loads(names):
        extract([Path(file) for file in json.loads(files)], extractors.preset(name), Path(out) / name)


if __name__ == "__main__":
    main()
