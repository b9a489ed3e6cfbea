"""ActivityNet Captions in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["train.json", "val_1.json", "val_2.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Four videos to train, three that two annotators told, one only the first; sentences keep their place."""
    for name, videos in (("train", range(4)), ("val_1", range(8, 12)), ("val_2", range(8, 11))):
        told = [
            (
                f"v_{n}-video",
                {
                    "duration": 30.5,
                    "timestamps": [[12, 30.51], [0, 8.25 + n]],
                    "sentences": [f" Then the {n} of {name}.", f"First  the {n}."],
                },
            )
            for n in videos
        ]
        (root / f"{name}.json").write_bytes(orjson.dumps(dict(shuffle(told))))
    (root / "ce_lists").mkdir(exist_ok=True)
    (root / "ce_lists/train_list.txt").write_text("\n".join(shuffle([f"v_{n}-video" for n in range(4)])))
    (root / "v_9-video.mp4").touch()
    return root
