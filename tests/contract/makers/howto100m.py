"""HowTo100M in small."""

import json
from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = ["HowTo100M_v1.csv", "raw_caption.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Twelve videos, half of them with three captions each; four are held out, and of three the length is known."""
    ids = [f"-videoid{n:03}" for n in range(12)]
    rows = [f'{name},Food and Entertaining,"Fish, meat",{n},{n * 7}' for n, name in enumerate(ids)]
    lines = ["video_id,category_1,category_2,rank,task_id", *shuffle(rows)]
    (root / "HowTo100M_v1.csv").write_text("\n".join(lines) + "\n")
    (root / "htm_holdout_vid.txt").write_text("\n".join(shuffle(ids[4:8])) + "\n")
    lengths = [f"{name}.mp4 {n} {n + 9.5}" for n, name in enumerate(ids[:3])]
    (root / "procedurevrl_howto100m_full_test.csv").write_text("\n".join(shuffle(lengths)) + "\n")
    captions = {}
    for video in shuffle(ids[2:8]):
        cues = shuffle([(n * 2.0, n * 2.0 + 2.5, f"so this is no {n}") for n in range(3)])
        captions[video] = {"start": [c[0] for c in cues], "end": [c[1] for c in cues], "text": [c[2] for c in cues]}
    (root / "raw_caption.json").write_text(json.dumps(captions))
    (root / "videos").mkdir(exist_ok=True)
    (root / f"videos/{ids[2]}.mp4").touch()
    return root
