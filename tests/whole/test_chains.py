"""Frames of the presets whose geometry is another: byte for byte those of ffmpeg's filters, written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import extractors
from tests.whole.frames import by_hand, decoded


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("torchvision_video:r2plus1d_18", "fps=15,scale=171:128:flags=bilinear,crop=112:112:30:8"),
        ("torchvision_video:s3d", "fps=15,scale=256:256:flags=bilinear,crop=224:224:16:16"),
        ("torchvision_video:swin3d_t", "fps=15,scale=597:256:flags=bilinear,crop=224:224:186:16"),  # 186.5
        ("c3d:activitynet", "fps=25,scale=171:128:flags=bilinear,crop=112:112:29:8"),
        ("c3d:locvtp", "fps=25/32,scale=128:171:flags=bilinear,crop=112:112:8:29"),
        ("clip:vit_b32", "fps=1,scale=522:224:flags=bicubic,crop=224:224:149:0"),
        ("s3d_howto100m:coot", "crop=240:240:160:0,scale=256:256:flags=bicubic,fps=16"),  # COOT's order
        ("s3d_howto100m:milnce32", "fps=10,crop=240:240:160:0,scale=224:224:flags=bilinear"),
        ("resnet152:resize256", "fps=1,scale=597:256:flags=bilinear,crop=224:224:186:16"),
    ],
)
def test_frames_of_a_wide_video(name: str, filters: str, shared: Path) -> None:
    path = shared / "data/videos/hmdb51/RATRACE_wave_f_nm_np1_fr_goo_37.avi"  # 560 x 240
    (frames,), summary = decoded(path, [extractors.preset(name).chain])
    assert frames == by_hand(path, 0, filters)
    assert summary.status == "ok"
