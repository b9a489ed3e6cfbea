"""The command `pipeline frames`: single frames of a video as pictures."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import BadSetting, BadVideo


def frames(video: Path, /, *, at: tuple[str, ...] = (), segments: int = 0, side: int = 0, out: Path = Path()) -> int:
    """Save single frames of a video as PNG, the ones that a player shows at these times.

    Parameters
    ----------
    video
        The media file.
    at
        Seconds from the start of the file, such as 1.5,20.
    segments
        Instead, or besides: the middles of this many equal segments.
    side
        Short side of the pictures in pixels, scaled as for extraction; 0 leaves them as large as the video.
    out
        Folder for the pictures, named VIDEO-SECONDS.png.

    """
    from pipeline import printing, thumbnails

    if segments < 0 or side < 0:
        name, value = ("--segments", segments) if segments < 0 else ("--side", side)
        raise BadSetting(f"{name} {value}: expected 0 or more")
    times = [_seconds(text) for texts in at for text in texts.split(",")]
    if not times and not segments:
        raise BadSetting("no time is given: --at 1.5,20 or --segments 8")
    try:
        return printing.print_lines(thumbnails.save(video, times, segments, side, out))
    except BadVideo as error:
        raise BadVideo(f"{video}: {error}") from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadSetting(f"--at {text}: expected seconds, such as 1.5,20") from None
