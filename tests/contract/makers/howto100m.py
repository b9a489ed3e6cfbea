"""HowTo100M in small: captions of three videos, their tasks, and a list."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["raw_caption.json", "HowTo100M_v1.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Ids that begin with a dash; the captions' order within a video is their own."""
    videos = [
        (f"-v{n}", {"start": [0, 2.5], "end": [3.5, 6], "text": [f"so this is number {n}", "and we go on, to cut it"]})
        for n in (3, 11, 20)
    ]
    (root / "raw_caption.json").write_bytes(orjson.dumps(dict(shuffle(videos))))
    rows = [f"-v{n},Food,Soup,{n},{n}00" for n in (3, 11, 20, 21)]
    (root / "HowTo100M_v1.csv").write_text("\n".join(["video_id,category_1,category_2,rank,task_id", *shuffle(rows)]))
    (root / "htm_holdout_vid.txt").write_text("\n".join(shuffle(["-v3", "-v20"])))
    return root
