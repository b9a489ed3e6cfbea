"""decord, where it is right: which files it is given, and a process of its own that may crash or hang.

What decord 0.6 gave for shared and for awkward files was compared with ffmpeg's frames, pixel by pixel
(docs/decisions/0002-decoding.md): every check here keeps away a kind of file of which it returned wrong ones.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extractors.spec import Chain
from pipeline.packets import SECOND, Packets, packets
from pipeline.probe import Probe

Frames = NDArray[np.uint8]
"""(n, height, width, 3), RGB."""

CODECS = frozenset({"h264", "hevc", "vp8", "vp9"})
"""Decoders that give the same samples everywhere, by their standards, and that decord's FFmpeg 4.1 has."""
_CONTAINERS = ("mov,mp4", "matroska,webm")
PATIENCE = 30.0
"""Seconds after which decord hangs, if it had next to nothing to decode."""
_BETWEEN = 1e-3
"""Seconds by which decord's times may be off: it keeps them in float32."""
_PLACE = re.compile(r"decord\._ffi\.base\.DECORDError: |\[\d\d:\d\d:\d\d\] \S+:\d+: ")
"""Where in its own code decord says that something is wrong."""
_READING = [sys.executable, "-m", "pipeline.decord_child"]


class DecordFailed(Exception):
    """decord gave no frames, or gave some that are not to be trusted; the message says why."""


def decord_safe(probe: Probe, path: Path) -> str:
    """Return '' when decord reads a video's frames right, else what speaks against it, in a few words."""
    return refusal(probe, packets(path, probe))


def refusal(probe: Probe, known: Packets) -> str:
    """Return what `decord_safe` does, for packets that were read already."""
    closed = np.array_equal(known.ranks[known.key], np.flatnonzero(known.key))
    reasons = {
        "decord is not installed": find_spec("decord") is None,
        f"container {known.container.split(',')[0]}": not known.container.startswith(_CONTAINERS),
        f"codec {probe.codec}": probe.codec not in CODECS,
        "no duration in its header": probe.duration is None,
        "more than one picture stream": known.videos != 1,
        known.doubt: known.doubt != "",
        known.picture: known.picture != "",
        "begins without a key frame": not known.key[:1].all(),
        "key frames that are no IDR pictures": known.refreshed,
        "open groups of pictures": not closed,  # decord counts key frames as decoded, and frames as shown
    }
    return next((reason for reason, speaks in reasons.items() if speaks), "")


def refused_chain(chain: Chain) -> str:
    """Return '' for a chain whose pixels decord makes as ffmpeg does, else why not.

    decord scales by FFmpeg 4's `scale=W:H`, which is bilinear, and a crop after it takes the same pixels.
    """
    if chain.scaler != "bilinear":
        return f"decord scales bilinearly, the chain {chain.scaler}ally"
    return "the chain crops before it scales" if chain.crop_first else ""


def read(path: Path, probe: Probe, chain: Chain, known: Packets, ranks: NDArray[np.int64]) -> Frames:
    """Return the frames of those ranks, scaled and cropped. Raises DecordFailed."""
    width, height = chain.scaled(probe.width, probe.height)
    request = {"path": str(path), "width": width, "height": height, "frames": ranks.tolist()}
    out = _run(json.dumps(request), _patience(known, ranks))
    line, _, pixels = out.partition(b"\n")
    try:
        header: dict[str, Any] = json.loads(line)
        frames = np.frombuffer(pixels, np.uint8).reshape(len(ranks), height, width, 3)
    except ValueError:
        raise DecordFailed("decord's frames have another size") from None
    starts = (known.shown[ranks] - known.shown[0]) / SECOND
    off = np.abs(np.array(header["starts"]) - header["begin"] - starts).max(initial=0.0)
    if header["count"] != len(known.times) or off > _BETWEEN:
        raise DecordFailed("decord counts other frames")
    if chain.crop is None:
        return frames
    left, top = chain.crop_from(width, height)
    return frames[:, top : top + chain.crop, left : left + chain.crop]


def _patience(known: Packets, ranks: NDArray[np.int64]) -> float:
    """Return seconds after which decord hangs: one more for every ten frames that it must decode."""
    keys = np.flatnonzero(known.key)
    decoded = ranks - keys[np.searchsorted(keys, ranks, side="right") - 1] + 1
    return PATIENCE + min(int(decoded.sum()), len(known.times) * len(ranks)) / 10


def _run(request: str, seconds: float) -> bytes:
    try:
        done = subprocess.run(_READING, input=request.encode(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise DecordFailed(f"decord hung: killed after {seconds:.0f} s") from None
    if done.returncode < 0:
        raise DecordFailed(f"decord crashed ({signal.Signals(-done.returncode).name})")
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode or said:  # errors of its decoder: right frames cannot be told from wrong ones
        why = _PLACE.sub("", said[-1])[:120] if said else f"exit status {done.returncode}"
        raise DecordFailed(f"decord: {why}")
    return done.stdout
