"""Decoding a real video for the default chains, and the ffmpeg program run by hand to compare with."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from extractors.spec import Chain
from pipeline import ffmpeg
from pipeline.decode import Decoded, Decoding
from pipeline.errors import BadVideo
from pipeline.probe import probe

RESNET = Chain(fps=1, short_side=224)
X101 = Chain(fps=24, short_side=112, crop=112)
S3D = Chain(fps=16, short_side=224, crop=224)


def program(*words: str | Path) -> bytes:
    """Run ffmpeg by hand; return what it writes to stdout."""
    command = [ffmpeg.program(), "-nostdin", "-v", "error", *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True).stdout


def by_hand(path: Path, stream: int, filters: str, *options: str) -> bytes:
    """Run a chain as the published extractors do, who say nothing about the times of frames."""
    graph = ("-filter_complex", f"[0:{stream}]{filters}[o]", "-map", "[o]", *options)
    return program("-i", f"file:{path}", *graph, "-f", "rawvideo", "-pix_fmt", "rgb24", "-")


def decoded(path: Path, chains: Sequence[Chain], **settings: int) -> tuple[list[bytes], Decoded]:
    """Return each chain's frames, one after the other, and the summary."""
    decoding = Decoding(path, probe(path), chains, **settings)
    frames: list[list[bytes]] = [[] for _ in chains]
    for branch, frame in decoding:
        frames[branch].append(frame.tobytes())
    return [b"".join(some) for some in frames], decoding.summary


def outcome(path: Path) -> tuple[str, str, list[int], int]:
    """Return (status, reason, frames of each default chain, decoded source frames)."""
    counts: Counter[int] = Counter()
    try:
        decoding = Decoding(path, probe(path), [RESNET, X101, S3D])
        counts.update(branch for branch, _ in decoding)
    except BadVideo as error:
        return "failed", str(error), [0, 0, 0], 0
    summary = decoding.summary
    return summary.status, summary.reason, [counts[n] for n in range(3)], summary.frames


def counted(path: Path) -> list[int]:
    """Return the frames that ffmpeg gives at 1, 24 and 16 frames a second, by hand; one at least."""
    pixel = 3
    stream = probe(path).stream
    return [max(1, len(by_hand(path, stream, f"fps={rate},scale=1:1")) // pixel) for rate in (1, 24, 16)]
