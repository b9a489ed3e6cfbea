"""How far the usual mistakes move rows: `python -m benchmarks.mistakes VIDEO …`, of which `pipeline compare` knows.

Each video is decoded once, and its rows are made as they should be and once with each mistake: another scaler, a crop,
another size, swapped channels, other means and deviations, frames of another moment, JPEG, video range. By default by
EfficientNet-Lite0 with its published weights; `--model` is any other image model of timm, with random weights that
depend on the names of its parameters only, as in `tests/deterministic_weights.py`.

Printed are the median and the middle 90 per cent of what `pipeline.diagnosing` looks at, over random choices of three
or more of the videos, and how often the mistake is among those that it names. `--out` keeps the rows, `--rows` reads
such files instead of videos; several together are one table, a random choice of a network first.
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

import extractors
from extractors import weights
from extractors.embed import network
from extractors.preprocess import to_input
from extractors.spec import Chain, Preset
from pipeline import lags
from pipeline.decode import Decoding
from pipeline.diagnosing import diagnose, moved
from pipeline.probe import probe

Frames = NDArray[np.uint8]
Rows = NDArray[np.float64]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BASE = Chain(fps=1, short_side=224)
CHAINS = {
    "base": BASE,
    "scaler": replace(BASE, scaler="bicubic"),
    "crop": replace(BASE, crop=224),
    "size": replace(BASE, short_side=256, crop=224),
    "moments": replace(BASE, fps=10),
}
PIXELS: dict[str, Callable[[Preset], Preset]] = {
    "mean swapped": lambda p: replace(p, mean=MEAN[::-1]),
    "mean off by 4": lambda p: replace(p, mean=tuple(x - 4 / 255 for x in MEAN)),
    "no mean": lambda p: replace(p, mean=(0.0, 0.0, 0.0)),
    "no deviation": lambda p: replace(p, std=(1.0, 1.0, 1.0)),
    "one half": lambda p: replace(p, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
}
NAMED = {
    "scaler": "the scaler", "crop": "geometry", "size": "geometry", "squashed": "geometry", "BGR": "BGR",
    "mean swapped": "channels are swapped", "mean off by 4": "grey levels", "no mean": "another range",
    "no deviation": "another range", "one half": "another range", "early": "earlier", "late": "later",
}  # fmt: skip
"""Words in the finding that names a mistake; of the others, it should name none."""
MOST = 20
"""Rows of a video."""


def _jpeg(frame: Frames) -> Frames:
    held = io.BytesIO()
    Image.fromarray(frame).save(held, "JPEG", quality=75)
    return np.asarray(Image.open(held))


def _squashed(frame: Frames) -> Frames:
    return np.asarray(Image.fromarray(frame).resize((224, 224), Image.Resampling.BILINEAR))


def _range(frame: Frames) -> Frames:
    return np.clip((frame.astype(float) - 16) * 255 / 219, 0, 255).astype(np.uint8)


def frames_of(path: Path) -> dict[str, list[Frames]]:
    """Return the frames of a video, by what is done to them."""
    some: list[list[Frames]] = [[] for _ in CHAINS]
    with warnings.catch_warnings():
        for chain, frame in Decoding(path, probe(path), list(CHAINS.values())):
            some[chain].append(np.array(frame))
    found = dict(zip(CHAINS, some, strict=True))
    found = {name: frames[: 10 * MOST if name == "moments" else MOST] for name, frames in found.items()}
    base, moments = found["base"], found.pop("moments")
    for name, at in (("early", 0), ("late", 9), ("a tenth", 4)):
        found[name] = [moments[min(10 * k + at, len(moments) - 1)] for k in range(len(base))]
    changes = {"BGR": lambda f: f[..., ::-1].copy(), "JPEG": _jpeg, "squashed": _squashed, "video range": _range}
    return found | {name: [change(frame) for frame in base] for name, change in changes.items()}


def rows_of(path: Path, net: torch.nn.Module, preset: Preset) -> dict[str, Rows]:
    """Return the rows of a video, by mistake; `base` has none."""

    def rows(frames: Sequence[Frames], made: Preset) -> Rows:
        with torch.inference_mode():
            one_by_one = [net(to_input(frame[None, None], made)) for frame in frames]
        return torch.cat(one_by_one).double().numpy()

    frames = frames_of(path)
    found = {name: rows(some, preset) for name, some in frames.items()}
    return found | {name: rows(frames["base"], change(preset)) for name, change in PIXELS.items()}


def _network(model: str) -> tuple[torch.nn.Module, Preset]:
    preset = extractors.preset("timm:tf_efficientnet_lite0")
    if not model:
        return network(preset, weights.find(preset, None)), replace(preset, mean=MEAN, std=STD)
    import timm

    from tests.deterministic_weights import load_deterministic_weights

    net = timm.create_model(model, pretrained=False, num_classes=0)
    load_deterministic_weights(net)
    return net.eval(), replace(preset, mean=MEAN, std=STD)


def measured(files: Sequence[dict[str, Rows]], name: str, times: int) -> tuple[dict[str, list[float]], Counter[str]]:
    """Return what is measured of a mistake in random choices of videos, and how often each kind of finding came."""
    chance = np.random.default_rng(1)
    numbers: dict[str, list[float]] = {"error": [], "uneven": [], "length": [], "alike": []}
    kinds: Counter[str] = Counter()
    for turn in range(times):
        held = files[chance.integers(len(files))]
        videos = [key.rpartition("/")[0] for key in held if key.endswith("/base")]
        some = chance.choice(len(videos), chance.integers(min(3, len(videos)), len(videos) + 1), replace=False)
        if f"{videos[0]}/{name}" not in held:
            continue
        pairs = [(held[f"{videos[at]}/base"], held[f"{videos[at]}/{name}"]) for at in some]
        pairs = [(b, a) for a, b in pairs] if turn % 2 else pairs
        how = moved(pairs)
        for key, value in (("error", how.error), ("uneven", how.uneven), ("length", how.length)):
            numbers[key].append(value)
        numbers["alike"].append(lags.alike(pairs))
        finding = diagnose(pairs, [])[-1]
        opposite = {"earlier": "later", "later": "earlier"}
        wanted = NAMED.get(name, "")
        kinds[finding.kind] += 1
        kinds["named"] += bool(wanted) and (opposite.get(wanted, wanted) if turn % 2 else wanted) in finding.text
    return numbers, kinds


def show(files: Sequence[dict[str, Rows]], times: int) -> None:
    """Print the table."""
    names = dict.fromkeys(key.rpartition("/")[2] for held in files for key in held)
    table = Table(title="how far rows are moved: 5 %, median, 95 %", title_justify="left")
    for column in ("mistake", "error", "uneven", "length", "alike", "named", "findings"):
        table.add_column(column)
    for name in [name for name in names if name != "base"]:
        numbers, kinds = measured(files, name, times)
        cells = [" ".join(f"{x:.2f}" for x in np.quantile(values, [0.05, 0.5, 0.95])) for values in numbers.values()]
        named = f"{kinds.pop('named') / max(sum(kinds.values()), 1):.0%}" if name in NAMED else ""
        table.add_row(name, *cells, named, ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    Console(width=160).print(table)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--model", default="")
    parser.add_argument("--rows", nargs="*", type=Path, default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--times", type=int, default=100, help="random choices of videos for each mistake")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    files: list[dict[str, Rows]] = []
    for path in asked.rows:
        with np.load(path) as held:
            files.append({key: held[key].astype(np.float64) for key in held})
    if asked.videos:
        net, preset = _network(asked.model)
        made = [(path, rows_of(path, net, preset)) for path in asked.videos]
        files.append({f"{path.name}/{name}": rows for path, found in made for name, rows in found.items()})
        if asked.out:
            with asked.out.open("wb") as file:
                np.savez_compressed(file, **{key: rows.astype(np.float16) for key, rows in files[-1].items()})
    show(files, asked.times)


if __name__ == "__main__":
    main()
