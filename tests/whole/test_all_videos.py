"""Every real video of the collection in one run, on two workers, at the three presets' sampling."""

import json
from pathlib import Path

import pytest

from pipeline.store import Features
from tests.whole.command import pipeline
from tests.whole.frames import counted
from tests.whole.test_extract import STAND_INS


@pytest.mark.slow
def test_every_video_of_the_collection(shared: Path, tmp_path: Path) -> None:
    root, out = shared / "data/videos", tmp_path / "features.h5"
    args = ["run", "extract", "--dataset", "files", "--root", root, "--extractor", STAND_INS]
    _, err = pipeline(*args, "--workers", "2", "--out", out, code=1)
    assert "died" not in err
    assert "unexpected" not in err
    files = [file for file in root.rglob("*") if file.is_file()]
    shown = json.loads(pipeline("show", out, "--json")[0])
    assert shown["videos"]["total"] == len(files)
    assert shown["videos"]["missing"] == 0
    assert len({f["video"] for f in shown["failures"] if f["status"] == "failed"}) == shown["videos"]["failed"]
    assert pipeline("verify", out)[0].endswith("no problems\n")
    with Features.open(out) as features:
        for video, status in zip(features.videos["id"], features.stream("colors:resnet152").status, strict=True):
            if status == 3:
                continue
            path = next(f for f in files if f.relative_to(root).as_posix() in (video, f"{video}{f.suffix}"))
            frames = dict(zip(("resnet152", "i3d_x101", "s3d_howto100m"), counted(path), strict=True))
            rows = {name: len(features.rows(f"colors:{name}", video)) for name in frames}
            assert rows["resnet152"] == frames["resnet152"], video
            assert rows["i3d_x101"] == -(-frames["i3d_x101"] // 16), video
            assert rows["s3d_howto100m"] == -(-frames["s3d_howto100m"] // 16), video
