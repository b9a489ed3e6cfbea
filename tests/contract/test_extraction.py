"""Every network on a CPU, through the command, over a real video: rows, streams, settings, verdict."""

from pathlib import Path

import numpy as np
import pytest

import extractors
from extractors.weights import Found
from pipeline.plan import Job, stream_settings
from pipeline.probe import probe
from pipeline.store import Features
from tests.contract.test_extractors import NETWORKS, PRESETS
from tests.whole.command import inside, table

FAST = ("clip:vit_b32", "clip:qvhighlights", "c3d:locvtp", "pytorchvideo:x3d_xs", "pytorchvideo:efficient_x3d_xs")
OTHERS = ("s3d_howto100m:milnce32", "s3d_howto100m:videoclip30", "s3d_howto100m:coot")  # another geometry or sampling
VIDEO = "hmdb51/RATRACE_wave_f_nm_np1_fr_goo_37.avi"
"""3 s of 560 x 240."""


def extracted(names: tuple[str, ...], shared: Path, place: Path) -> Path:
    """Extract the presets called `names` from the video, untrained, in one run; check what the file says."""
    videos, out = table(place, [shared / "data/videos" / VIDEO]), place / "features.h5"
    words = ["run", "extract", "--dataset", "files", "--root", videos, "--extractor", ",".join(names)]
    _, said = inside(*words, "--weights", "random", "--out", out, "--workers", 0)
    for name in names:
        assert f"{name} has RANDOM weights" in said
    seconds = probe(shared / "data/videos" / VIDEO).duration or 0.0
    with Features.open(out) as features:
        for name in names:
            check(features, name, seconds)
    assert "no problems" in inside("verify", out)[0]
    return out


def check(features: Features, name: str, seconds: float) -> None:
    preset = extractors.preset(name)
    expected = preset.rows(max(1, round(seconds * preset.chain.fps)))
    wanted = stream_settings([Job(preset, Found("random"))], "float16", autocast=False)
    assert list(wanted) == [stream for stream, _ in preset.streams]
    for stream, dim in preset.streams:
        rows = features.rows(stream, "v000")
        assert rows.shape == (expected, dim)
        assert np.isfinite(rows).all()
        assert features.streams[stream].settings == wanted[stream]
        assert features.streams[stream].rows_per_second == preset.rows_per_second


def test_some_networks_on_a_real_video(shared: Path, tmp_path: Path) -> None:
    extracted(FAST, shared, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in NETWORKS.values() if PRESETS[name].weights.file), *OTHERS])
def test_each_network_on_a_real_video(name: str, shared: Path, tmp_path: Path) -> None:
    extracted((name,), shared, tmp_path)


@pytest.mark.slow
def test_coot_s_last_two_rows_are_one_in_the_file(shared: Path, tmp_path: Path) -> None:
    out = extracted(("s3d_howto100m:coot",), shared, tmp_path)
    with Features.open(out) as features:
        rows = features.rows("s3d_howto100m:coot", "v000")
        assert np.array_equal(rows[-1], rows[-2])
        assert not np.array_equal(rows[-2], rows[-3])


@pytest.mark.slow
def test_videoclip_s_padding_is_warned_of(shared: Path, tmp_path: Path) -> None:
    videos = table(tmp_path, [shared / "data/videos" / VIDEO])
    words = ["run", "extract", "--dataset", "files", "--root", videos, "--extractor", "s3d_howto100m:videoclip30"]
    _, said = inside(*words, "--weights", "random", "--out", tmp_path / "f.h5", "--workers", 0)
    assert "WARNING: s3d_howto100m:videoclip30: at 30 frames the fixed padding" in said
