"""COIN: a few videos made here, and the real annotations in both forms."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.counts import counts
from pipeline.datasets import coin
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Clip, Manifest, Oddity, Part, Step, Video


def step(number: object, start: object, end: object, label: object) -> dict[str, Any]:
    return {"id": number, "segment": [start, end], "label": label}


def video(*steps: Any, subset: str = "training", duration: object = 20.5, name: object = "MakeTea") -> dict[str, Any]:
    """One record; `start` and `end` say another span than the whole file, and are not used."""
    return {"duration": duration, "class": name, "subset": subset, "annotation": [*steps], "start": 5, "end": 6}


def write(root: Path, name: str = "COIN.json", **videos: Any) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(orjson.dumps({"database": videos}))
    return root


TABLE = "v10.mkv 0 20.5 7 9.25\nv9.mp4 5 9 1.0 2\nv10.mkv 3 20.5 1 8\nv10.mkv 3 20.5 1 8.5\n"


def test_every_record(tmp_path: Path) -> None:
    steps = [
        step("3", 7, 9.25, " pour  tea "),
        step("4", 0.5, 7, "boil water"),
        step("4", 9.25, 21, "boil water"),
        step("3", 9.5, 9.5, "pour tea"),
        step("3", 10, 8, "pour tea"),
        step("4", 30, 31, "boil water"),
        step("9", 1, 2, " "),
        step(4, 9.5, 10, "boil water"),
    ]
    root = write(tmp_path, v10=video(*steps), v9=video(subset="testing"), _a=video(name="CutTea"))
    (root / "v9.MKV").touch()
    manifest = coin.load(root)
    assert manifest == Manifest(
        dataset="coin",
        videos=(Video("_a", None, 20.5), Video("v9", root / "v9.MKV", 20.5), Video("v10", None, 20.5)),
        clips=(
            Clip("_a", "_a", label="CutTea"),
            Clip("v9", "v9", label="MakeTea"),
            Clip("v10", "v10", label="MakeTea"),
        ),
        splits=(Part("coin", "train", ("_a", "v10"), ()), Part("coin", "test", ("v9",), ())),
        steps=(
            Step("v10#0", "v10", "boil water", 0.5, 7.0, 4),
            Step("v10#2", "v10", "pour tea", 7.0, 9.25, 3),
            Step("v10#3", "v10", "boil water", 9.25, 20.5, 4),
            Step("v10#5", "v10", "boil water", 9.5, 10.0, 4),
        ),
        oddities=(
            Oddity("blanks at the ends", "trimmed", ("v10#2",)),
            Oddity("caption without text", "dropped", ("v10#1",)),
            Oddity("end before start", "dropped", ("v10#6: 10 to 8",)),
            Oddity("end past the end of the video", "clamped", ("v10#3: 21 to 20.5, by 0.5 s",)),
            Oddity("newline, control character or run of blanks inside", "trimmed", ("v10#2",)),
            Oddity("same step label twice in a row", "kept", ("v10#5: boil water",)),
            Oddity("start at or past the end of the video", "dropped", ("v10#7: 30 of 20.5 s",)),
            Oddity("zero length", "dropped", ("v10#4: 9.5",)),
        ),
        notes=("annotations: COIN.json", f"1 videos have their file in {root}"),
    )


def test_a_table_of_procedurevrl(tmp_path: Path) -> None:
    (tmp_path / "my_coin_step_test.csv").write_text(TABLE)
    manifest = coin.load(tmp_path)
    assert manifest == Manifest(
        dataset="coin",
        videos=(Video("v9", None, 9.0, "v9.mp4"), Video("v10", None, 20.5, "v10.mkv")),
        clips=(Clip("v9", "v9"), Clip("v10", "v10")),
        splits=(Part("coin", "test", ("v9", "v10"), ()),),
        steps=(
            Step("v9#0", "v9", "6", 1.0, 2.0, 6),
            Step("v10#0", "v10", "4", 1.0, 8.0, 4),
            Step("v10#1", "v10", "4", 1.0, 8.5, 4),
            Step("v10#2", "v10", "1", 7.0, 9.25, 1),
        ),
        oddities=(Oddity("same step label twice in a row", "kept", ("v10#1: 4",)),),
        notes=(
            "annotations: my_coin_step_test.csv",
            "numbers of steps: 1 is added, to be COIN's",
            f"0 videos have their file in {tmp_path}",
        ),
    )


def test_which_files_are_read(tmp_path: Path) -> None:
    """The whole file, else all whole ones, else the subset, in the first folder that has any; tables come last."""
    write(tmp_path / "annotations", v1=video())
    root = write(tmp_path, "COIN.subset.json", v2=video())
    (root / "coin_train.csv").write_text(TABLE)
    assert [v.id for v in coin.load(root).videos] == ["v2"]
    write(root, "COIN_b.json", v4=video())
    write(root, "COIN_a.json", v3=video(subset="testing"))
    assert [v.id for v in coin.load(root).videos] == ["v3", "v4"]
    write(root, v5=video())
    assert coin.load(root).notes[0] == "annotations: COIN.json"
    for file in root.glob("COIN*.json"):
        file.unlink()
    assert [(p.name, p.clips) for p in coin.load(root).splits] == [("train", ("v9", "v10"))]
    (root / "coin_train.csv").unlink()
    assert [v.id for v in coin.load(root).videos] == ["v1"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (video(step("1", 0, 1, "a"), step("1", -1, 1, "a")), r"COIN.json: v1: annotation\[1\] is .*; expected id"),
        (video(step("x", 0, 1, "a")), r"COIN.json: v1: annotation\[0\] is .*; expected id"),
        (video(step("1", 0, None, "a")), r"COIN.json: v1: annotation\[0\] is .*; expected id"),
        (video(step("1", 0, 1, None)), r"COIN.json: v1: annotation\[0\] is .*; expected id"),
        (video("step"), r"COIN.json: v1: annotation\[0\] is 'step'; expected id"),
        (video(duration=0), r"COIN.json: v1 is .*; expected duration"),
        (video(duration="9"), r"COIN.json: v1 is .*; expected duration"),
        (video(name=3), r"COIN.json: v1 is .*; expected duration"),
        (video(subset="validation"), r"COIN.json: v1 is .*; expected duration .* subset \(training, testing\)"),
        ({"duration": 3}, r"COIN.json: v1 is .*; expected duration"),
        ([], r"COIN.json: v1 is \[\]; expected duration"),
    ],
)
def test_damaged_json(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(BadDataset, match=message) as error:
        coin.load(write(tmp_path, v1=record))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE[:-1], r"coin_test.csv, row 4: the line has no end"),
        ("a.mp4 1 9 1\n", r"coin_test.csv, row 1: 'a.mp4 1 9 1'; expected FILE NUMBER"),
        ("a.mp4 1 9 1 2\n\n", r"coin_test.csv, row 2: ''; expected FILE NUMBER"),
        ("a.mp4 1 9 1 x\n", r"coin_test.csv, row 1: 'a.mp4 1 9 1 x'; expected FILE NUMBER"),
        ("a.mp4 -1 9 1 2\n", r"coin_test.csv, row 1: 'a.mp4 -1 9 1 2'; expected a number from 0"),
        ("a.mp4 1 9 nan 2\n", r"coin_test.csv, row 1: 'a.mp4 1 9 nan 2'; expected a number from 0"),
        ("a.mp4 1 0 1 2\n", r"coin_test.csv, row 1: 'a.mp4 1 0 1 2'; expected a number from 0"),
        ("a.mp4 1 9 1 2\na.mp4 1 8 3 4\n", r"coin_test.csv, row 2: a.mp4 of 8 s, but a.mp4 of 9 s in another row"),
        ("a.mp4 1 9 1 2\na.mkv 1 9 3 4\n", r"coin_test.csv, row 2: a.mkv of 9 s, but a.mp4 of 9 s in another row"),
        ("", r"coin_test.csv: no rows"),
    ],
)
def test_damaged_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "coin_test.csv").write_text(text)
    with pytest.raises(BadDataset, match=message) as error:
        coin.load(tmp_path)
    assert "\n" not in str(error.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"no annotations of COIN in .*; expected COIN.json"):
        coin.load(tmp_path)
    (tmp_path / "COIN.json").write_text('{"database": {}}')
    with pytest.raises(BadDataset, match=r'COIN.json: expected {"database": {VIDEO: …}} with videos in it'):
        coin.load(tmp_path)
    (tmp_path / "COIN.json").unlink()
    write(tmp_path, "COIN_a.json", v1=video())
    write(tmp_path, "COIN_b.json", v1=video())
    with pytest.raises(BadDataset, match=r"COIN_b.json: video v1 stands in another annotation file too; keep one"):
        coin.load(tmp_path)
    (tmp_path / "COIN_b.json").unlink()
    (tmp_path / "COIN_a.json").write_bytes((tmp_path / "COIN_a.json").read_bytes()[:-1])
    with pytest.raises(BadDataset, match=r"COIN_a.json: it is not whole JSON"):
        coin.load(tmp_path)


def test_real(shared: Path) -> None:
    """879 labels repeat the one before, as the labels read; by COIN's ids, of which some share a label, 876 do."""
    manifest = coin.load(shared / "data/coin")
    assert counts(manifest) == {
        "": {"videos": 2_797, "clips": 2_797, "captions": 0, "steps": 10_893},
        "coin/test": {"videos": 2_797, "clips": 2_797, "captions": 0, "gallery": 0},
    }
    assert counts(manifest)["coin/test"].items() >= coin.EXPECTED["coin/test"].items()
    assert totals(manifest.oddities) == {
        "same step label twice in a row: kept": 879,
        "newline, control character or run of blanks inside: trimmed": 35,
    }
    assert {step.number for step in manifest.steps} == set(range(1, 779))
    assert len({step.label for step in manifest.steps}) == 748  # 749 as they stand: two differ by a blank only
    assert len({clip.label for clip in manifest.clips}) == 180


def test_real_table_names_the_same_steps(shared: Path, tmp_path: Path) -> None:
    """All of ProcedureVRL's 10,099 steps of 2,594 videos are COIN's, with COIN's number once 1 is added."""
    shutil.copy(shared / "data/coin/procedurevrl_coin_step_test.csv", tmp_path)
    manifest = coin.load(tmp_path)
    assert counts(manifest)[""] == {"videos": 2_594, "clips": 2_594, "captions": 0, "steps": 10_099}
    assert totals(manifest.oddities) == {"same step label twice in a row: kept": 816}
    ours = {(step.clip, step.start, step.end, step.number) for step in manifest.steps}
    assert len(ours) == 10_099
    assert ours <= {(s.clip, s.start, s.end, s.number) for s in coin.load(shared / "data/coin").steps}
