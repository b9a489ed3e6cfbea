"""TACoS in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["train.json", "val.json", "test.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Three videos of train, two of val and one of test; sentences keep their place."""
    for part, numbers in (("train", (9, 10, 2)), ("val", (11, 3)), ("test", (4,))):
        videos = [
            (
                f"s{n}-d1.avi",
                {
                    "timestamps": [[90, 300 + n], [0, 45], [0, 45], [0, 45]],
                    "sentences": [f"He eats  {n}", "He cuts bread", f"She cuts {n}", "He cuts bread"],
                    "fps": 29.4,
                    "num_frames": 305,
                },
            )
            for n in numbers
        ]
        (root / f"{part}.json").write_bytes(orjson.dumps(dict(shuffle(videos))))
    (root / "s9-d1.avi").touch()
    return root
