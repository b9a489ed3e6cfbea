"""CrossTask's released features: one .npy file a video, three networks side by side in rows of 3,200 numbers.

I3D (1024), ResNet-152 (2048) and VGGish, which heard the sound (128). They become a stream each, `NAME+i3d`,
`NAME+resnet152` and `NAME+vggish`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pipeline.errors import BadFeatureFile
from pipeline.foreign import Asked, npy_below

SOURCE = "a folder with a file VIDEO.npy for each video, an array (rows, 3200)"
STREAMS = {"i3d": 1024, "resnet152": 2048, "vggish": 128}
"""Side by side, in this order."""


def read(source: Path, asked: Asked) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield (name, rows of all three) of each file. Raises BadFeatureFile for rows of another length."""
    for name, rows in npy_below(source, asked):
        if rows.ndim != 2 or rows.shape[1] != sum(STREAMS.values()):
            raise BadFeatureFile(f"{source}, {name}: {rows.shape} is not (rows, {sum(STREAMS.values())})")
        yield name, rows


def fits(source: Path) -> bool:  # noqa: ARG001 - other .npy files may have as many numbers
    """Return False: its files look like any .npy files."""
    return False
