"""The process in which decord reads: `python -m pipeline.decord_child`, a request on stdin, frames on stdout.

decord can hang, crash and fill the memory, so it is imported nowhere else.

    {"path": ..., "width": ..., "height": ..., "frames": [12, 90]}
    -> a line {"count": 120, "begin": 0.0, "starts": [0.4, 3.0]}, then the frames as packed RGB
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

MOST_MEMORY = 8 << 30
"""Bytes of address space: a reader that runs away ends here, not in the machine's memory."""


def main() -> None:
    """Answer one request. Whatever decord and its FFmpeg say goes to stderr; an error ends with a traceback there."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the frames
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    header, frames = read(**request)
    out.write(json.dumps(header).encode() + b"\n")
    out.write(frames)
    out.flush()
    os._exit(0)  # its threads may not end


def read(path: str, width: int, height: int, frames: list[int]) -> tuple[dict[str, Any], bytes]:
    """Return (how many frames decord counts, when the first and those asked for begin by its clock; the frames)."""
    import decord

    decord.logging.set_level(decord.logging.ERROR)
    reader = decord.VideoReader(path, ctx=decord.cpu(0), width=width, height=height, num_threads=1)
    begin, *starts = reader.get_frame_timestamp([0, *frames])[:, 0].tolist()
    header = {"count": len(reader), "begin": begin, "starts": starts}
    return header, reader.get_batch(frames).asnumpy().tobytes()


if __name__ == "__main__":
    main()
