"""COIN in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["COIN.json"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Six videos with up to four steps each; the last step of each reaches past its end."""
    videos = []
    for number, name in enumerate(("-x", "b_", "c9", "c10", "d", "e")):
        steps = [
            {"id": str(n % 3 + 7), "segment": [10.0 * n, 10.0 * n + 8 + number], "label": f"do  thing {n % 3 + 7}"}
            for n in range(number)
        ]
        record = {"recipe_type": 4, "start": 0, "end": 9.5 * number + 1, "duration": 10.0 * number + 1}
        record |= {"annotation": shuffle(steps), "class": "Task" + "AB"[number % 2], "video_url": "u"}
        videos.append((name, record | {"subset": "testing" if number > 3 else "training"}))
    (root / "COIN.json").write_bytes(orjson.dumps({"database": dict(shuffle(videos))}))
    (root / "videos").mkdir(exist_ok=True)
    (root / "videos/c10.mkv").touch()
    return root
