"""Single frames of a video as PNG files, for reports and for looking at what an annotation means."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from extractors.spec import Chain
from pipeline import sparse
from pipeline.errors import BadSetting
from pipeline.probe import Probe, probe
from pipeline.publish import explained


def save(video: Path, at: Sequence[float], segments: int, side: int, out: Path) -> list[str]:
    """Write the frames at the times `at` and of `segments` equal segments; return a line for each file.

    `side` is the short side in pixels, 0 the video's own. Raises BadVideo, BadSetting for a time outside the
    video, and BadFeatureFile where a picture cannot be written.
    """
    from PIL import Image

    known = probe(video)
    times = sorted({*_inside(known, at), *_segments(known, segments)})
    chain = Chain(fps=1, short_side=side or min(known.width, known.height))
    taken = sparse.take(video, known, chain, times)
    lines = []
    for time, frame in zip(times, taken.frames, strict=True):
        seconds = f"{time:.6f}".rstrip("0").rstrip(".")
        path = out / f"{video.stem}-{seconds}.png"
        with explained(path):
            out.mkdir(parents=True, exist_ok=True)
            Image.fromarray(frame).save(path)
        lines.append(f"{path}: {frame.shape[1]}x{frame.shape[0]}, read by {taken.decoder}")
    return lines


def _inside(known: Probe, at: Sequence[float]) -> Sequence[float]:
    end = known.first_frame + known.duration if known.duration is not None else None
    for time in at:
        if not isfinite(time) or time < 0:
            raise BadSetting(f"--at {time:g}: expected seconds, 0 or more")
        if end is not None and time > end:
            raise BadSetting(f"--at {time:g}: the video ends at {end:.2f} s")
    return at


def _segments(known: Probe, count: int) -> list[float]:
    if not count:
        return []
    if known.duration is None:
        raise BadSetting("--segments needs a length, and the file says none; use --at")
    return [known.first_frame + time for time in sparse.segment_times(known.duration, count).tolist()]
