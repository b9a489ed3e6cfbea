"""The whole chain, through the command, against the reference extractors' rows of four real videos.

Both sides use weights that depend on each parameter's name and shape only; theirs are float16. Rows are compared by
`|a - b| / |a - mean over rows of a|`: cosines of untrained networks are all near 1 and prove nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import extractors
from pipeline.store import Features
from tests.deterministic_weights import load_deterministic_weights
from tests.whole.command import pipeline, table

DATA = Path(__file__).parents[1] / "data"
BOUND = 0.02
"""Stated by the reference's README: between the two scalers the measure is 0.28 to 3.3."""
BEYOND = 1e-3
"""The same for S3D, without the reference's rounding to float16: there it is 0.02 to 0.09 between the two scalers."""


def reference(name: str, kind: str) -> dict[str, Any]:
    with np.load(DATA / f"{name}.npz") as found:
        return {key.removeprefix(f"{kind}/"): found[key] for key in found if key.startswith(f"{kind}/")}


def error(ours: Any, theirs: Any) -> float:
    a, b = theirs.astype(np.float64), ours.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(0)))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("weights")
    files = {}
    for name in ("resnet152", "i3d_x101", "s3d_howto100m"):
        network = extractors.get(name).network(extractors.preset(name))
        load_deterministic_weights(network)
        files[name] = place / f"{name}.pth"
        torch.save(network.state_dict(), files[name])
    return files


ALL = list(reference("howto100m_extractor_bilinear", "2d"))
"""H.264 of 18 and 10 s, MPEG-4 of 8 and 3 s."""
Extract = Callable[..., Path]
every = pytest.param(ALL, 2, marks=pytest.mark.slow, id="all")


def find(shared: Path, name: str) -> Path:
    return next((shared / "data/videos").rglob(Path(name).name))


@pytest.fixture
def extract(shared: Path, tmp_path: Path, checkpoints: dict[str, Path], names: list[str], workers: int) -> Extract:
    def run(*presets: str, flags: tuple[str, ...] = (), out: str = "features.h5") -> Path:
        videos = table(tmp_path, [find(shared, name) for name in names])
        weights = [f"{name}={checkpoints[name]}" for name in {preset.partition(":")[0] for preset in presets}]
        words = ["run", "extract", "--dataset", "files", "--root", videos, "--extractor", ",".join(presets)]
        given = [word for weight in weights for word in ("--weights", weight)]
        pipeline(*words, *given, *flags, "--out", tmp_path / out, "--workers", str(workers))
        return tmp_path / out

    return run


def check(out: Path, stream: str, names: list[str], expected: dict[str, Any]) -> None:
    with Features.open(out) as features:
        for number, name in enumerate(names):
            ours = features.rows(stream, f"v{number:03}").astype(np.float16)
            theirs = expected[name]
            assert ours.shape == theirs.shape
            found = error(ours, theirs)
            print(f"{stream} {name}: {len(ours)} rows, centred relative error {found:.5f}")
            assert found < BOUND


def check_s3d(out: Path, stream: str, names: list[str], expected: dict[str, Any], columns: slice) -> None:
    """Compare S3D without the reference's rounding: untrained, its rows differ by a few float16 steps only.

    Of ours, float32, what lies beyond half a step is measured as above; and rounded they must be theirs, a few single
    steps apart. (Rows computed in float64 and rounded are up to 0.09 off in the measure as it is, the embedding's 0.2
    to 1.2. Bicubic scaling moves one number in ten to one in five, by 10 steps or more.)
    """
    with Features.open(out) as features:
        for number, name in enumerate(names):
            ours = features.rows(stream, f"v{number:03}")
            theirs = expected[name][:, columns]
            assert (ours.dtype, ours.shape) == (np.float32, theirs.shape)
            step = np.spacing(np.abs(theirs)).astype(np.float64)
            away = ours - theirs.astype(np.float64)
            found = error(theirs + np.sign(away) * np.maximum(np.abs(away) - step / 2, 0), theirs)
            steps = np.abs(ours.astype(np.float16).astype(np.float64) - theirs) / step
            print(f"{stream} {name}: centred relative error beyond rounding {found:.1e}")
            print(f"{stream} {name}: {(steps > 0).mean():.2%} of the numbers off, by {steps.max():.0f} step")
            assert found < BEYOND
            assert steps.max() <= 1
            assert (steps > 0).mean() < 0.005


@pytest.mark.parametrize(("names", "workers"), [pytest.param(ALL[1::2], 0, id="two"), every])
def test_bilinear_presets(extract: Extract, names: list[str]) -> None:
    out = extract("resnet152", "i3d_x101", "s3d_howto100m", flags=("--dtype", "float32"))
    check(out, "resnet152:howto100m", names, reference("howto100m_extractor_bilinear", "2d"))
    check(out, "i3d_x101:howto100m", names, reference("howto100m_extractor_bilinear", "3d"))
    univl = reference("univl_extractor_bilinear", "s3d")
    check_s3d(out, "s3d_howto100m:univl", names, univl, slice(1024))
    check_s3d(out, "s3d_howto100m:univl+video_embedding", names, univl, slice(1024, None))


@pytest.mark.parametrize(("names", "workers"), [pytest.param(ALL[3:], 0, id="one"), every])
def test_bicubic_presets(extract: Extract, names: list[str]) -> None:
    out = extract("resnet152:howto100m-ffmpeg5", "i3d_x101:howto100m-ffmpeg5")
    check(out, "resnet152:howto100m-ffmpeg5", names, reference("howto100m_extractor_bicubic", "2d"))
    check(out, "i3d_x101:howto100m-ffmpeg5", names, reference("howto100m_extractor_bicubic", "3d"))


@pytest.mark.slow
@pytest.mark.parametrize(("names", "workers"), [pytest.param(ALL[2:], 1, id="two")])
def test_compiled_networks_give_the_same_rows(extract: Extract, names: list[str]) -> None:
    presets, flags = ("i3d_x101", "s3d_howto100m"), ("--dtype", "float32")
    made = [extract(*presets, flags=flags), extract(*presets, flags=(*flags, "--compile"), out="compiled.h5")]
    with Features.open(made[0]) as plain, Features.open(made[1]) as compiled:
        for name, stream in compiled.streams.items():
            assert (plain.streams[name].provenance["compiled"], stream.provenance["compiled"]) == (False, True)
            for video in map(str, compiled.videos["id"]):
                a, b = compiled.rows(name, video), plain.rows(name, video)
                centred, whole = error(a, b), float(np.linalg.norm(a - b) / np.linalg.norm(b))
                print(f"{name} {video}: relative error {whole:.1e}, centred {centred:.1e}")
                # Untrained, S3D's rows of a video are all but the same, so that nothing but rounding is left of them.
                assert (0 < centred < 1e-4) if name.startswith("i3d") else (0 < whole < 1e-6)


def test_the_measure_tells_bicubic_from_bilinear() -> None:
    for kind in ("2d", "3d"):
        ours, theirs = (reference(f"howto100m_extractor_{scaler}", kind) for scaler in ("bicubic", "bilinear"))
        assert all(error(ours[name], theirs[name]) > 10 * BOUND for name in ours)
