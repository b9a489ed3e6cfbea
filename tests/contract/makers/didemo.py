"""DiDeMo in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["train_data.json", "val_data.json", "test_data.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Two videos in each part, the first under two names, the second with a dot at the end of its own."""
    (root / "ce_lists").mkdir(exist_ok=True)
    for place, part in enumerate(("train", "val", "test")):
        first, second = f"9@N0{place}_a", f"10@N0{place}_b"
        rows = [
            {
                "annotation_id": 100 * n + place,
                "video": name,
                "num_segments": 6 if n != 3 else 5,
                "times": [[0, 1], [1, 1], [0, 1], [n, 5]],
                "description": f"the cat, no {n}\n",
                "dl_link": "",
            }
            for n, name in enumerate([f"{first}.mov", f"{first}.mp4", f"{second}.", f"{second}.", f"{second}."])
        ]
        (root / f"{part}_data.json").write_bytes(orjson.dumps(shuffle(rows)))
        (root / f"ce_lists/{part}_list.txt").write_text("\n".join(shuffle([f"{second}.", f"{first}.mp4"])))
    (root / "videos").mkdir(exist_ok=True)
    for name in ("9@N00_a.mov", "10@N01_b.", "10@N02_b.m2ts"):
        (root / f"videos/{name}").touch()
    return root
