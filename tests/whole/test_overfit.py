"""From real videos to perfect retrieval: what `pipeline run extract` wrote can be learnt by heart."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.whole.command import pipeline
from tests.whole.test_train import train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def file(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The features of the eleven MSR-VTT videos, with their 220 captions."""
    root = tmp_path_factory.mktemp("msrvtt")
    videos = {path.stem: path for path in (shared / "data/videos/msrvtt").glob("*.mp4")}
    (root / "videos").mkdir()
    for path in videos.values():
        (root / "videos" / path.name).symlink_to(path)
    whole = json.loads((shared / "data/msrvtt/MSRVTT_data.subset.json").read_text())
    own = {name: [one for one in whole[name] if one["video_id"] in videos] for name in ("videos", "sentences")}
    assert (len(own["videos"]), len(own["sentences"])) == (11, 220)
    (root / "MSRVTT_data.json").write_text(json.dumps(own))
    out = root / "features.h5"
    pipeline(
        "run", "extract", "--dataset", "msrvtt", "--root", root, "--extractor", "timm:tf_efficientnet_lite0",
        "--out", out, "--workers", 1,
    )  # fmt: skip
    pipeline("run", "idf", "--features", out, "--split", "all")
    return out


def test_every_caption_finds_its_clip(file: Path, tmp_path: Path) -> None:
    """All but those that stand on two clips alike: two of these four cannot be right."""
    out, _ = train(
        "--features", file, "--split", "all", "--text-encoder", "minilm", "--text-pool", "mean", "--norm", "l2",
        "--tau", 0.05, "--negatives", 3, "--fusion-layers", 1, "--batch", 11, "--lr", 3e-4, "--warmup", 20,
        "--dropout", 0, "--steps", 200, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert set(found["scores"]) == {"early", "token", "later", "fused"}
    for level, (t2v, v2t, _) in found["scores"].items():
        assert (t2v["queries"], t2v["gallery"], t2v["missing"]) == (220, 11, 0)
        assert t2v["R@1"] == pytest.approx(1 - shared_by_two(file) / 220), level
        assert t2v["R@5"] == 1, level
        assert v2t["R@1"] == 1, level


def shared_by_two(file: Path) -> int:
    """Return how many captions must be wrong: of a text on n clips all but one."""
    import h5py

    clips = defaultdict(set)
    with h5py.File(file, "r") as opened:
        for text, clip in zip(opened["captions/text"].asstr(), opened["captions/clip"], strict=True):
            clips[text].add(int(clip))
    wrong = sum(len(some) - 1 for some in clips.values())
    assert wrong == 2
    return wrong
