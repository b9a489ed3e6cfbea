"""WebVid in small."""

from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = ["results_2M_train.csv", "test_webvid.csv"]


def make(root: Path, shuffle: Shuffle) -> Path:
    """Five videos of train, one of them twice, in the order of columns of the release; two of test in another's."""
    train = [
        f'{n},https://example.org/{n}.mp4,PT00H01M{n:02}S,027701_027750,"Surf, take {n % 3}"' for n in (9, 10, 2, 7, 8)
    ]
    lines = ["videoid,contentUrl,duration,page_dir,name", *shuffle([*train, train[1]])]
    (root / "results_2M_train.csv").write_text("\n".join(lines) + "\n")
    test = [f'{n},"Cat, no {n}",1,027701_027750,PT00H00M07S,https://example.org/a.mp4' for n in (30, 9)]
    lines = ["videoid,name,page_idx,page_dir,duration,contentUrl", *shuffle(test)]
    (root / "test_webvid.csv").write_text("\n".join(lines) + "\n")
    (root / "videos/027701_027750").mkdir(parents=True, exist_ok=True)
    (root / "videos/027701_027750/10.mp4").touch()
    return root
