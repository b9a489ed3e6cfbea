"""Charades-STA in small."""

from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = ["charades_sta_train.txt", "charades_sta_test.txt", "Charades_v1_test.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Three videos of train, two of test with their lengths; two sentences about each first segment."""
    for part, videos in (("train", ("A1", "A2", "A10")), ("test", ("0B", "1C"))):
        lines = [
            f"{video} {start} {end}##person opens door, no  {n}.\n"
            for video in videos
            for n, (start, end) in enumerate([("0.0", "6.9"), ("0.0", "6.9"), ("5.5", "30.25"), ("9.0", "8.0")])
        ]
        (root / f"charades_sta_{part}.txt").write_text("".join(shuffle(lines)))
    rows = ['0B,Kitchen,"One, two.",30.24\n', '1C,Hall,"A ""b"", c",31\n', "other,Hall,,9.5\n"]
    (root / "Charades_v1_test.csv").write_text("".join(["id,scene,script,length\n", *shuffle(rows)]))
    (root / "valid_videos.txt").write_text("\n".join(shuffle(["A1", "A2", "0B", "absent"])))
    (root / "videos").mkdir(exist_ok=True)
    (root / "videos/A10.mp4").touch()
    return root
