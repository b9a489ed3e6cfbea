"""What an extractor is, as frozen values: sampling, geometry, pixels, layer, weights.

A `Preset` is one named, complete choice of all of them. Two rows are comparable only if their presets are equal;
that is why the whole preset is stored with every stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import nn

Scaler = Literal["bilinear", "bicubic"]


class ExtractorError(Exception):
    """A name, checkpoint or input that cannot be used; one line, with the cure."""


@dataclass(frozen=True)
class Chain:
    """How frames are taken from a video: ffmpeg's `fps`, `scale` and `crop` filters (DESIGN 5).

    Presets with equal chains share one decoded branch.
    """

    fps: float
    """Frames per second, by ffmpeg's `fps` filter (round=near)."""
    short_side: int
    """The short side in pixels after scaling; the long side is `int(long * short_side / short)`."""
    crop: int | None = None
    """Side of the square centre crop, or None for the whole frame."""
    scaler: Scaler = "bilinear"
    crop_first: bool = False
    """Crop the largest centred square in the video's own pixel format, then scale it to `short_side`."""
    stretch: tuple[int, int] | None = None
    """Scale every picture to this (width, height), whatever its shape; None keeps its shape, by `short_side`."""
    corner: Literal["even"] | None = None
    """Where the crop begins when half a pixel is over: None, before it; 'even', at the even one (torchvision)."""

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) after scaling a `width` x `height` picture, before the crop."""
        if self.stretch is not None:
            return self.stretch
        if self.crop_first:
            return self.short_side, self.short_side
        if height >= width:
            return self.short_side, int(height * self.short_side / width)
        return int(width * self.short_side / height), self.short_side

    def crop_from(self, width: int, height: int) -> tuple[int, int]:
        """Return (left, top) of the centre crop of a scaled `width` x `height` picture."""
        assert self.crop is not None
        cut = round if self.corner == "even" else int
        return cut((width - self.crop) / 2), cut((height - self.crop) / 2)

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) of the frames this chain gives for a `width` x `height` picture."""
        return (self.crop, self.crop) if self.crop is not None else self.scaled(width, height)


@dataclass(frozen=True)
class Output:
    """One layer a network gives: its name and dimension."""

    layer: str
    dim: int


@dataclass(frozen=True)
class Weights:
    """A published checkpoint: where it comes from and how to know it."""

    file: str
    """File name, as published; looked for in torch hub's checkpoint folder."""
    url: str
    sha256: str = ""
    """Hexadecimal digest, or its published beginning. Empty: the publisher gave none, structure alone is checked."""
    license: str = ""
    note: str = ""
    """What a user who has not got the file should know, for example that the link is dead."""
    package: str = ""
    """`PACKAGE/FOLDER` of an installed Python package that carries the file."""
    mib: float | None = None
    """Size in MiB as the publisher states it, or four bytes for each parameter; None: unknown."""
    mirrors: tuple[str, ...] = ()
    """Other people's addresses, of the file or of a page that has it; only `pipeline weights fetch` tries them."""
    dead: tuple[str, ...] = ()
    """The publisher's addresses that no longer answer, `url` among them where that is one."""
    hub: str = ""
    """`OWNER/MODEL` of the model hub that transformers loads from: its cache and local folders are looked in too."""


@dataclass(frozen=True)
class Preset:
    """One complete choice of sampling, geometry, pixels, layer and weights."""

    name: str
    """`EXTRACTOR:PRESET`, for example `resnet152:howto100m`."""
    chain: Chain
    frames: int
    """Frames in one row."""
    outputs: tuple[Output, ...]
    """What the network returns, side by side in one row; the first is the main stream."""
    weights: Weights
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    scale: float = 255.0
    """Pixels are divided by this before `mean` is subtracted: 255 gives [0, 1], 1 keeps 0-255."""
    batch: int = 4
    """Rows in one forward pass on a CPU; eight times as many on a GPU."""
    stride: int | None = None
    """Frames from one row's first to the next row's; None: `frames`, so that rows do not overlap."""
    tail: Literal["last"] | None = None
    """What the end of a video gives where a row lacks frames: None, black after them; 'last', the video's last
    `frames` once more for each row (COOT)."""
    source: str = ""
    """Where the choices come from."""
    differs: str = ""
    """What is known to differ from the rows of that source; empty where nothing is."""
    warning: str = ""
    """What a user must be told at each extraction; empty where nothing."""

    @property
    def extractor(self) -> str:
        """The extractor's name, before the colon."""
        return self.name.partition(":")[0]

    @property
    def step(self) -> int:
        """Frames from one row's first to the next row's."""
        return self.stride or self.frames

    @property
    def rows_per_second(self) -> float:
        """Rows per second of video."""
        return self.chain.fps / self.step

    @property
    def streams(self) -> tuple[tuple[str, int], ...]:
        """(stream name, dim) of each output; the first stream has the preset's own name."""
        first, *others = self.outputs
        return ((self.name, first.dim), *((f"{self.name}+{o.layer}", o.dim) for o in others))

    def rows(self, frames: int) -> int:
        """Return how many rows `frames` sampled frames make."""
        return row_count(frames, self.frames, self.stride, self.tail)

    def as_json(self) -> dict[str, Any]:
        """Return the preset as plain values, for the feature file. Batch size and prose do not belong to it."""
        values = asdict(self)
        for prose in ("batch", "source", "differs", "warning"):
            del values[prose]
        return values


class Extractor(Protocol):
    """What every `extractors/NAME.py` offers. The file's name is the registry."""

    PRESETS: dict[str, Preset]
    """Preset name (without the extractor's) to preset; the first is the default. Empty if `preset` makes them."""

    def preset(self, name: str) -> Preset:
        """Return the preset called `name`; '' is the default. Raises ExtractorError for an unknown name."""
        ...

    def network(self, preset: Preset) -> nn.Module:
        """Return the untrained network in eval mode: float (B, 3, H, W) or (B, 3, T, H, W) to (B, sum of dims)."""
        ...

    def convert(self, state: dict[str, Any], preset: Preset) -> dict[str, Any]:
        """Return a checkpoint's state dict with this network's key names, less the layers the network leaves out."""
        ...


def row_count(sampled: int, frames: int, stride: int | None = None, tail: str | None = None) -> int:
    """Return how many rows of `frames` frames, `stride` apart, `sampled` frames make: one for each start among them.

    >>> row_count(100, frames=16), row_count(100, frames=16, stride=8), row_count(40, frames=32, stride=16, tail="last")
    (7, 13, 3)
    """
    if tail == "last" and 0 < sampled <= frames:
        return 1
    return -(-sampled // (stride or frames))


def choose(presets: dict[str, Preset], name: str) -> Preset:
    """Return the preset called `name`; '' is the first. Raises ExtractorError with the names there are."""
    if not name:
        return next(iter(presets.values()))
    if name not in presets:
        extractor = next(iter(presets.values())).extractor
        raise ExtractorError(f"unknown preset '{extractor}:{name}'; there are: {', '.join(presets)}")
    return presets[name]


def without(state: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return `state` less `keys`, whether they are there or not."""
    left_out = set(keys)
    return {key: value for key, value in state.items() if key not in left_out}
