"""QVHighlights in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = [f"highlight_{part}_release.jsonl" for part in ("train", "val", "test")]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Three queries about two videos in each part; those of test have no windows."""
    for place, part in enumerate(("train", "val", "test")):
        lines = []
        for n in range(3):
            query = {"qid": 9 * n + place, "query": f"A man,  no {n}", "duration": 150 - 6 * (n % 2)}
            query |= {"vid": f"-x{n % 2}_{place}_60.0_210.0"}
            windows = {"relevant_windows": [[10, 30 + n], [100, 149]], "relevant_clip_ids": [5], "saliency_scores": []}
            lines.append(orjson.dumps(query if part == "test" else query | windows).decode() + "\n")
        (root / f"highlight_{part}_release.jsonl").write_text("".join(shuffle(lines)))
    (root / "-x1_0_60.0_210.0.mp4").touch()
    (root / "-x1_1_60.0_210.0").touch()
    return root
