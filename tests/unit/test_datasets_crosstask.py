"""CrossTask: a release of four videos made here, and the real one."""

from pathlib import Path

import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import crosstask
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Clip, Manifest, Oddity, Part, Step, Task, Video

FILES = {
    "tasks_primary.txt": "23521\nMake Jello  Shots\npage\n3\npour water,pour juice, stir mixture\n\n\n",
    "tasks_related.txt": "91586\nMake Curry\npage\n1\nadd oil\n",
    "videos.csv": "91586,b,u\n23521,v10,u\n23521,v9,u\n23521,b,u\n",
    "videos_val.csv": "23521,b,u\n",
    "annotations/23521_v9.csv": "3,7.5,9\n1,0,2.5\n2,2,3\n",
    "annotations/23521_v10.csv": "",
}


def release(root: Path, **changed: str) -> Path:
    """Write a release; `changed` has `__` for `.` and `_in_` for `/`."""
    for name, text in (FILES | {k.replace("__", ".").replace("_in_", "/"): v for k, v in changed.items()}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def odd(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    return {f"{oddity.kind}: {oddity.rule}": oddity.records for oddity in manifest.oddities}


def test_every_record(tmp_path: Path) -> None:
    root = release(tmp_path / "crosstask_release").parent
    (root / "videos").mkdir()
    (root / "videos/v10.webm").touch()
    manifest = crosstask.load(root)
    assert manifest == Manifest(
        dataset="crosstask",
        videos=(Video("b", None), Video("v9", None), Video("v10", root / "videos/v10.webm")),
        clips=(
            Clip("23521_b", "b", label="23521"),
            Clip("91586_b", "b", label="91586"),
            Clip("23521_v9", "v9", label="23521"),
            Clip("23521_v10", "v10", label="23521"),
        ),
        splits=(
            Part("crosstask", "train", ("91586_b", "23521_v9", "23521_v10"), ()),
            Part("crosstask", "val", ("23521_b",), ()),
        ),
        steps=(
            Step("23521_v9#0", "23521_v9", "pour water", 0.0, 2.5, 0),
            Step("23521_v9#1", "23521_v9", "pour juice", 2.0, 3.0, 1),
            Step("23521_v9#2", "23521_v9", "stir mixture", 7.5, 9.0, 2),
        ),
        tasks=(
            Task("23521", "Make Jello Shots", ("pour water", "pour juice", "stir mixture")),
            Task("91586", "Make Curry", ("add oil",), primary=False),
        ),
        oddities=(
            Oddity("annotation file not in the order of time", "sorted", ("23521_v9",)),
            Oddity("annotation file without a row", "kept", ("23521_v10",)),
            Oddity("in train, but its video is in val under another task", "kept", ("91586_b: in val under 23521",)),
            Oddity("steps that overlap", "kept", ("23521_v9#1: with 23521_v9#0",)),
            Oddity("video under several tasks", "kept", ("b: 23521, 91586",)),
        ),
        notes=(
            "1 tasks in tasks_primary.txt",
            "1 tasks in tasks_related.txt",
            "2 of 3 clips of primary tasks have their annotation file",
            f"1 videos have their file in {root / 'videos'}",
        ),
    )


def test_the_release_itself_can_be_the_root(tmp_path: Path) -> None:
    root = release(tmp_path / "crosstask_release")
    (tmp_path / "elsewhere").mkdir()
    assert crosstask.load(root, videos=tmp_path / "elsewhere").clips == crosstask.load(tmp_path).clips


def test_spans_that_are_none_and_spans_that_repeat(tmp_path: Path) -> None:
    """Sorted: 1-3 twice, 4-4, 5-2: the ids count all of them, so a dropped one leaves a gap."""
    text = "1,1,3\n3,1,3\n2,4,4\n2,5,2\n1,6,7\n"
    manifest = crosstask.load(release(tmp_path, annotations_in_23521_v9__csv=text))
    assert [(step.id, step.number, step.start, step.end) for step in manifest.steps] == [
        ("23521_v9#0", 0, 1.0, 3.0),
        ("23521_v9#1", 2, 1.0, 3.0),
        ("23521_v9#4", 0, 6.0, 7.0),
    ]
    found = odd(manifest)
    assert found["end before start: dropped"] == ("23521_v9#3: 5 to 2",)
    assert found["zero length: dropped"] == ("23521_v9#2: 4",)
    assert found["steps that overlap: kept"] == ("23521_v9#1: with 23521_v9#0",)
    assert found["same span twice in an annotation file: kept"] == ("23521_v9#1: as 23521_v9#0",)


def test_spans_that_touch_do_not_overlap_and_one_may_overlap_several(tmp_path: Path) -> None:
    manifest = crosstask.load(release(tmp_path, annotations_in_23521_v9__csv="1,0,2\n2,2,9\n1,3,4\n3,4,5\n"))
    assert odd(manifest)["steps that overlap: kept"] == ("23521_v9#2: with 23521_v9#1", "23521_v9#3: with 23521_v9#1")


def test_lists_that_disagree(tmp_path: Path) -> None:
    manifest = crosstask.load(
        release(
            tmp_path,
            videos__csv="23521,v9,u\n777,x,u\n23521,v9,u\n\n",
            videos_val__csv="23521,late,u\n",
            annotations_in_91586_b__csv="1,2,3\n",
        )
    )
    assert manifest.splits == (
        Part("crosstask", "train", ("23521_v9",), ()),
        Part("crosstask", "val", ("23521_late",), ()),
    )
    found = odd(manifest)
    assert found["pair of task and video listed twice: dropped"] == ("23521_v9: videos.csv",)
    assert found["task that no task file names: dropped"] == ("777_x: videos.csv",)
    assert found["in videos_val.csv but not in videos.csv: kept"] == ("23521_late",)
    assert found["annotation file that no list names: dropped"] == ("23521_v10", "91586_b")


def test_files_that_may_be_missing(tmp_path: Path) -> None:
    root = release(tmp_path)
    for name in ("tasks_related.txt", "videos_val.csv", *(name for name in FILES if name.startswith("annotations"))):
        (root / name).unlink()
    manifest = crosstask.load(root)
    assert [part.name for part in manifest.splits] == ["train"]
    assert [task.id for task in manifest.tasks] == ["23521"]
    assert odd(manifest)["task that no task file names: dropped"] == ("91586_b: videos.csv",)
    assert manifest.notes == (
        "1 tasks in tasks_primary.txt",
        "tasks_related.txt is not beside videos.csv: videos of its tasks are left out",
        "videos_val.csv is not beside videos.csv: all is train",
        "0 of 3 clips of primary tasks have their annotation file",
        f"0 videos have their file in {root}",
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"tasks_primary__txt": "1\na\nu\n2\nb,c,d\n"},
            r"tasks_primary.txt, row 1: the task that begins with '1' is not",
        ),
        (
            {"tasks_primary__txt": "\n1\na\nu\n2\nb,\n"},
            r"tasks_primary.txt, row 2: the task that begins with '1' is not",
        ),
        ({"tasks_primary__txt": "1\na\nu\n2\n\nb,c\n"}, r"tasks_primary.txt, row 1: the task"),
        ({"tasks_primary__txt": "1_2\na\nu\n1\nb\n"}, r"tasks_primary.txt, row 1: the task that begins with '1_2'"),
        ({"tasks_related__txt": FILES["tasks_primary.txt"]}, r"tasks_related.txt: task 23521 stands twice"),
        (
            {"tasks_related__txt": "91586\nMake\nu\n1\nadd o"},
            r"tasks_related.txt, row 5: the line has no end, so it is",
        ),
        ({"videos__csv": "23521,v9\n"}, r"videos.csv, row 1: '23521,v9'; expected TASK,VIDEO,ADDRESS"),
        ({"videos__csv": "23521,v9,u\n23521,..,u\n"}, r"videos.csv, row 2: '..' cannot be a video id"),
        ({"videos__csv": "23521,v9,u\n23521,v10,htt"}, r"videos.csv, row 2: the line has no end"),
        ({"videos__csv": ""}, r"videos.csv: no row whose task is in the task files"),
        ({"videos_val__csv": "x,v9,u\n"}, r"videos_val.csv, row 1: 'x,v9,u'; expected TASK"),
        ({"annotations_in_23521_v9__csv": "1,0,2.5\n2,3,4."}, r"23521_v9.csv, row 2: the line has no end"),
        ({"annotations_in_23521_v9__csv": "1,0\n"}, r"23521_v9.csv, row 1: '1,0'; expected STEP,START,END"),
        ({"annotations_in_23521_v9__csv": "1,0,2\n\n"}, r"23521_v9.csv, row 2: ''; expected STEP,START,END"),
        ({"annotations_in_23521_v9__csv": "1,0,x\n"}, r"23521_v9.csv, row 1: '1,0,x'; expected STEP,START,END"),
        ({"annotations_in_23521_v9__csv": "4,0,1\n"}, r"23521_v9.csv, row 1: '4,0,1'; expected a step from 1 to 3"),
        ({"annotations_in_23521_v9__csv": "0,0,1\n"}, r"23521_v9.csv, row 1: '0,0,1'; expected a step from 1 to 3"),
        ({"annotations_in_23521_v9__csv": "1,-1,1\n"}, r"23521_v9.csv, row 1: '1,-1,1'; expected a step"),
        ({"annotations_in_23521_v9__csv": "1,0,nan\n"}, r"23521_v9.csv, row 1: '1,0,nan'; expected a step"),
    ],
)
def test_damaged(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    with pytest.raises(BadDataset, match=message) as error:
        crosstask.load(release(tmp_path, **changed))
    assert "\n" not in str(error.value)


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    (release(tmp_path) / "videos.csv").write_bytes(b"23521,v\xff,u\n")
    with pytest.raises(BadDataset, match=r"videos.csv, row 1: byte 7 is not UTF-8"):
        crosstask.load(tmp_path)


def test_no_annotations(tmp_path: Path) -> None:
    with pytest.raises(
        BadDataset, match="no videos.csv and tasks_primary.txt of CrossTask in .*; expected crosstask_rel"
    ):
        crosstask.load(tmp_path)


def test_real(shared: Path) -> None:
    """126 of 2,750 annotation files are here, so 1,025 of 20,919 steps; of its overlaps and its unsorted files a share.

    Counted once with other code over those 126: 61 pairs overlap, 1 file is unsorted, no span stands twice.
    """
    manifest = crosstask.load(shared / "data/crosstask")
    assert counts(manifest) == {
        "": {"videos": 4_607, "clips": 4_700, "captions": 0, "steps": 1_025},
        "crosstask/train": {"videos": 4_258, "clips": 4_340, "captions": 0, "gallery": 0},
        "crosstask/val": {"videos": 360, "clips": 360, "captions": 0, "gallery": 0},
    }
    assert differences(counts(manifest), crosstask.EXPECTED) == ["in all: 1,025 of 20,919 steps"]
    assert totals(manifest.oddities) == {
        "video under several tasks: kept": 89,
        "in train, but its video is in val under another task: kept": 12,
        "steps that overlap: kept": 61,
        "annotation file not in the order of time: sorted": 1,
    }
    assert [sum(task.primary is primary for task in manifest.tasks) for primary in (True, False)] == [18, 65]
    assert manifest.notes[2] == "126 of 2,750 clips of primary tasks have their annotation file"
    assert crosstask.load(shared / "data/crosstask/crosstask_release").steps == manifest.steps
    step = next(step for step in manifest.steps if step.clip == "16815_-SPMxbd7Wtc")
    assert (step.number, step.start, step.end) == (0, 30.93, 33.21)
