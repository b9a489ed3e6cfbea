"""CrossTask in small."""

from pathlib import Path

from tests.contract.makers import Shuffle

ANNOTATIONS = [
    "crosstask_release/tasks_primary.txt",
    "crosstask_release/tasks_related.txt",
    "crosstask_release/videos.csv",
    "crosstask_release/videos_val.csv",
    "crosstask_release/annotations/23521_cup.csv",
]
_LATTE = "53193\nMake a Latte\npage\n3\nadd coffee,pour milk,steam milk\n\n"
_SHOTS = "23521\nMake Jello Shots\npage\n2\npour water,stir mixture\n\n"
_FISH = "91586\nMake Fish Curry\npage\n2\nadd oil,add fish\n\n"
_TEA = "40610\nMake Tea\npage\n3\nboil water,add tea,add milk\n\n"


def make(root: Path, shuffle: Shuffle) -> Path:
    """Four tasks, seven pairs, one video under two tasks; rows of an annotation file stay in the order of time."""
    pairs = ["53193,-a", "53193,b", "23521,cup", "23521,b", "91586,d", "40610,e", "40610,f"]
    folder = root / "crosstask_release"
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    (folder / "tasks_primary.txt").write_text("".join(shuffle([_LATTE, _SHOTS])))
    (folder / "tasks_related.txt").write_text("".join(shuffle([_FISH, _TEA])))
    for name, listed in (("videos.csv", pairs), ("videos_val.csv", ["53193,b", "23521,cup"])):
        rows = [f"{pair},https://www.example.org/{pair.split(',')[1]}\n" for pair in shuffle(listed)]
        (folder / name).write_text("".join(rows))
    (folder / "annotations/53193_-a.csv").write_text("1,0.5,2.25\n3,1.5,4.0\n3,5.5,6.0\n")
    (folder / "annotations/23521_cup.csv").write_text("2,3,4.75\n1,30.93,33.21\n")
    return root
