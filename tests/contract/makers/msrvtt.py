"""MSR-VTT in small."""

from pathlib import Path

import orjson

from tests.contract.makers import Shuffle

ANNOTATIONS = ["MSRVTT_data.json", "MSRVTT_JSFUSION_test.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Twelve videos with two captions each, the lists and the categories."""
    parts = ["train"] * 6 + ["validate"] * 2 + ["test"] * 4
    videos = [
        {"video_id": f"video{n}", "category": n % 3, "start time": 1.5, "end time": 12, "split": part}
        for n, part in enumerate(parts)
    ]
    sentences = [{"sen_id": n, "video_id": f"video{n * 5 % 12}", "caption": f"caption {n}"} for n in range(24)]
    data = {"videos": shuffle(videos), "sentences": shuffle(sentences)}
    (root / "MSRVTT_data.json").write_bytes(orjson.dumps(data))
    test = [f"ret{n},msr{n},video{n},a sentence about {n}" for n in (9, 10, 11)]
    lists = {
        "MSRVTT_JSFUSION_test.csv": ["key,vid_key,video_id,sentence", *shuffle(test)],
        "MSRVTT_train.9k.csv": ["video_id", *shuffle([f"video{n}" for n in range(9)])],
        "MSRVTT_train.7k.csv": ["video_id", *shuffle([f"video{n}" for n in range(8)])],
        "train_list_miech.txt": shuffle([f"video{n}" for n in range(7)]),
        "test_list_miech.txt": shuffle(["video7", "video10"]),
        "category.txt": shuffle([f"category {n}\t{n}" for n in range(3)]),
    }
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")
    return root
