"""YouCook2 in Japanese, in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["youcookii_annotations_trainval.json", "youcookii_translations_ja_train.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Three videos with three sentences each, one more sentence than there are segments, and a video in val."""
    official, translated = [], []
    for n in range(4):
        subset = "training" if n < 3 else "validation"
        spans = [{"segment": [k, k + 9 * n + 2], "id": k, "sentence": f"do {k} of {n}"} for k in range(3)]
        film = {"duration": 25.5, "subset": subset, "recipe_type": "101", "annotations": shuffle(spans)}
        official.append((f"-v{n}", film))
        sentences = [{"id": k, "sentence": f"{n}の{k}を混ぜます"} for k in range(3 + (n == 2))]
        translated.append((f"-v{n}", {"subset": subset, "annotations": shuffle(sentences)}))
    for name, videos in zip(ANNOTATIONS, (official, translated), strict=True):
        (root / name).write_bytes(orjson.dumps({"database": dict(shuffle(videos))}))
    (root / "-v2.webm").touch()
    return root
