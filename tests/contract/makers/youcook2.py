"""YouCook2 in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["youcookii_annotations_trainval.json", "validation_youcook.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Six videos with three segments each, MIL-NCE's rows of one that was annotated and one that was not."""
    videos = [
        (
            f"-v{n}",
            {
                "duration": 60.5,
                "subset": "training" if n < 4 else "validation",
                "recipe_type": f"{100 + n % 2}",
                "annotations": shuffle(
                    [{"segment": [k, k + 9 * n + 2], "id": k, "sentence": f"do {k} of {n}"} for k in range(3)]
                ),
            },
        )
        for n in range(6)
    ]
    database = dict(shuffle(videos))
    (root / "youcookii_annotations_trainval.json").write_bytes(orjson.dumps({"database": database}))
    rows = [f"{k + 47},{k},101,do {k} of 5,-v5" for k in range(3)]
    rows += [f"{end},5,77,{text},other" for end, text in ((9, "stir"), (9, "stir well"), (12, "eat"))]
    (root / "validation_youcook.csv").write_text("\n".join(["end,start,task,text,video_id", *shuffle(rows)]))
    for part, of in (("train", range(4)), ("val", range(4, 6))):
        (root / f"{part}_list.txt").write_text("\n".join(shuffle([f"{100 + n % 2}/-v{n}" for n in of])))
    (root / "yc2_duration_frame.csv").write_text("\r\n".join(shuffle(["other,30.25,900", "-v1,61,1830"])))
    (root / "-v2.webm").touch()
    return root
