"""YouCook2: videos made here in its three forms, and the real annotations."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import youcook2
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records, write


def told(subset: str, seconds: float, *segments: tuple[int, float, float, str]) -> dict[str, Any]:
    annotations = [{"id": n, "segment": [start, end], "sentence": text} for n, start, end, text in segments]
    return {"duration": seconds, "subset": subset, "recipe_type": "113", "annotations": annotations}


OFFICIAL = {
    "database": {
        "vv": told("validation", 30, (10, 20, 31, " stir"), (9, 1, 5, "cut  it"), (2, 1, 5, "peel"), (3, 4, 9, " ")),
        "-t": told("training", 20, (0, 7, 3, "a"), (1, 5, 5, "b"), (2, 20, 21, "c"), (3, 0, 4, "stir")),
        "none": told("training", 20),
    }
}


def milnce(*rows: str) -> str:
    return "\n".join(["end,start,task,text,video_id", *rows]) + "\n"


def same(*names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return names, names


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        youcookii_annotations_trainval__json=OFFICIAL,
        yc2_val_anet_format__json="not read",
        youcookii_translations_ja_train__json="not read",
        validation_youcook__csv=milnce(
            "31,20,113,fry,vv", "5,1,113,cut it,vv", "6,1,113,taste,vv", "9,0.5,7,eat,new", "4,2,7,wash,new"
        ),
        train_list__txt="113/-t\n113/vv\n",
        val_list__txt="7/absent",
        yc2_duration_frame__csv="vv,30.0004,900\n-t,20.5,600\nnew,8,240\r\n",
    )
    write(root / "videos/deep", **{"-t.mkv": "", "vv.txt": ""})
    manifest = youcook2.load(root)
    assert manifest.videos == (
        Video("-t", root / "videos/deep/-t.mkv", 20.0),
        Video("new", None, 8.0),
        Video("vv", None, 30.0),
    )
    assert manifest.clips == (
        Clip("-t_3", "-t", 0.0, 4.0, "113"),
        Clip("new@milnce#0", "new", 0.5, 8.0, "7"),
        Clip("new@milnce#1", "new", 2.0, 4.0, "7"),
        Clip("vv_2", "vv", 1.0, 5.0, "113"),
        Clip("vv_9", "vv", 1.0, 5.0, "113"),
        Clip("vv_10", "vv", 20.0, 30.0, "113"),
        Clip("vv@milnce#0", "vv", 1.0, 6.0, "113"),
    )
    assert manifest.captions == (
        Caption("-t_3", "-t_3", "stir"),
        Caption("new@milnce#0", "new@milnce#0", "eat"),
        Caption("new@milnce#1", "new@milnce#1", "wash"),
        Caption("vv_2", "vv_2", "peel"),
        Caption("vv_9", "vv_9", "cut it"),
        Caption("vv_10", "vv_10", "stir"),
        Caption("vv@milnce#0", "vv@milnce#0", "taste"),
    )
    assert manifest.splits == (
        Part("youcook2", "train", *same("-t_3")),
        Part("youcook2", "val", *same("vv_2", "vv_9", "vv_10")),
        Part("milnce", "val", *same("new@milnce#0", "new@milnce#1", "vv_9", "vv_10", "vv@milnce#0")),
    )
    assert records(manifest) == {
        ("end before start", "dropped"): ("-t_0: 7 to 3",),
        ("zero length", "dropped"): ("-t_1: 5",),
        ("start at or past the end of the video", "dropped"): ("-t_2: 20 of 20 s",),
        ("end past the end of the video", "clamped"): ("new@milnce#0: 9 to 8, by 1 s", "vv_10: 31 to 30, by 1 s"),
        ("caption without text", "dropped"): ("vv_3",),
        ("blanks at the ends", "trimmed"): ("vv_10",),
        ("newline, control character or run of blanks inside", "trimmed"): ("vv_9",),
        ("caption text on several videos", "kept"): ("stir: 2 videos",),
        (youcook2.OVERLAP, "kept"): (
            "new@milnce#1: new@milnce#0",
            "vv_9: vv_2, the same span",
            "vv@milnce#0: vv_2",
            "vv@milnce#0: vv_9",
        ),
        (youcook2.NO_SEGMENT, "dropped"): ("none",),
        (youcook2.NOT_ANNOTATED, "kept"): ("new@milnce#0: 0.5 to 9", "new@milnce#1: 2 to 4", "vv@milnce#0: 1 to 6"),
        (youcook2.OTHER_TEXT, "dropped"): ("vv_10: fry",),
        (youcook2.NOT_LISTED, "kept"): (
            "new: in no part, listed in none",
            "none: train, listed in none",
            "vv: val, listed in train",
        ),
        (youcook2.UNKNOWN, "dropped"): ("absent: val_list.txt",),
        (youcook2.OTHER_SECONDS, "kept"): ("-t: 20, there 20.5",),
    }
    assert manifest.notes == (
        "annotations: youcookii_annotations_trainval.json, validation_youcook.csv",
        "not read, as one file counts: yc2_val_anet_format.json",
        "5 rows of validation_youcook.csv: 2 are annotated segments",
        f"1 videos have their file in {root / 'videos'}",
    )


def test_rows_of_one_span_take_the_segment_of_their_text(tmp_path: Path) -> None:
    root = write(tmp_path, youcookii_annotations_trainval__json=OFFICIAL)
    write(root, validation_youcook__csv=milnce("5,1,113,peel,vv", "5,1,113,cut it,vv", "5,1,113,again,vv"))
    manifest = youcook2.load(root)
    # "again" comes first and takes the first of the two, "cut it" its own, "peel" finds none free.
    assert records(manifest)[youcook2.OTHER_TEXT, "dropped"] == ("vv_2: again",)
    assert records(manifest)[youcook2.NOT_ANNOTATED, "kept"] == ("vv@milnce#0: 1 to 5",)
    assert manifest.splits[-1] == Part("milnce", "val", *same("vv_2", "vv_9", "vv@milnce#0"))


def test_a_row_of_a_video_to_train_is_a_leak(tmp_path: Path) -> None:
    root = write(tmp_path, youcookii_annotations_trainval__json=OFFICIAL)
    write(root, validation_youcook__csv=milnce("4,0,113,stir,-t"))
    leak = "milnce/val in youcook2/train: 1 of its videos, first -t: never train on one and test on the other"
    assert records(youcook2.load(root))["videos of another split's test in a train list", "kept"] == (leak,)


def test_the_form_of_activitynet(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "annotations",
        yc2_train_anet_format__json={"a": {"duration": 9, "timestamps": [[3, 4], [1, 2]], "sentences": ["x", "y"]}},
        yc2_val_anet_format__json={"b": {"duration": 9.5, "timestamps": [[0, 9]], "sentences": ["z"]}},
        train_list__txt="405/a",
    )
    manifest = youcook2.load(tmp_path)
    assert manifest.clips == (
        Clip("a_0", "a", 3.0, 4.0, "405"),
        Clip("a_1", "a", 1.0, 2.0, "405"),
        Clip("b_0", "b", 0.0, 9.0, ""),
    )
    assert [(part.name, part.clips) for part in manifest.splits] == [("train", ("a_0", "a_1")), ("val", ("b_0",))]
    assert manifest.notes[0] == "annotations: yc2_train_anet_format.json, yc2_val_anet_format.json"
    (folder / "yc2_val_anet_format.json").write_bytes((folder / "yc2_train_anet_format.json").read_bytes())
    with pytest.raises(BadDataset, match="yc2_val_anet_format.json: a is in train too; use the files of one release"):
        youcook2.load(tmp_path)


def test_the_csv_alone(tmp_path: Path) -> None:
    manifest = youcook2.load(write(tmp_path, validation_youcook__csv=milnce("9,5,77,stir,b", "3,1,77,cut,a")))
    assert manifest.videos == (Video("a", None, 0.0), Video("b", None, 0.0))
    assert manifest.splits == (Part("milnce", "val", *same("a@milnce#0", "b@milnce#0")),)
    assert manifest.notes[1] == "2 rows of validation_youcook.csv: 0 are annotated segments"


def test_whole_files_win_over_subsets(tmp_path: Path) -> None:
    few = {"database": {"few": told("training", 9, (0, 1, 2, "a"))}}
    write(tmp_path, **{"youcookii_annotations_trainval.head5.json": few})
    assert [video.id for video in youcook2.load(tmp_path).videos] == ["few"]
    write(tmp_path, youcookii_annotations_trainval__json=OFFICIAL)
    assert [video.id for video in youcook2.load(tmp_path).videos] == ["-t", "vv"]


def test_translations_alone_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r".*: no YouCook2 segments; expected youcookii_annotations_trainval.json"):
        youcook2.load(tmp_path)
    write(tmp_path, youcookii_translations_ja_train__json={})
    with pytest.raises(BadDataset, match=r": no YouCook2 segments; expected youcookii_annotations"):
        youcook2.load(tmp_path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "expected an object of videos"),
        ({"database": []}, "expected an object of videos"),
        ({"database": {"a": told("testing", 9)}}, "a is .*expected duration, subset"),
        ({"database": {"a": told("training", 0)}}, "a is "),
        ({"database": {"a": told("training", 9, (0, -1, 2, "a"))}}, "a is "),
        ({"database": {"a": told("training", 9, (0, 1, 2, "a"), (0, 3, 4, "b"))}}, "a is "),
        ({"database": {"a": told("training", 9) | {"annotations": [7]}}}, "a is "),
        ({"database": {"a": told("training", 9) | {"annotations": [{"id": 0, "segment": [1, 2]}]}}}, "a is "),
        ({"database": {"a": told("training", 9) | {"recipe_type": None}}}, "a is "),
        ({"database": {"../a": told("training", 9)}}, "cannot be a video id"),
        ('{"database": {', "not whole JSON"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, value: Any, message: str) -> None:
    root = write(tmp_path, youcookii_annotations_trainval__json=value)
    with pytest.raises(BadDataset, match="youcookii_annotations_trainval.json: .*" + message) as caught:
        youcook2.load(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"duration": 9, "timestamps": [[1, 2]], "sentences": []},
        {"duration": 9, "timestamps": [[1]], "sentences": ["a"]},
        {"duration": "9", "timestamps": [[1, 2]], "sentences": ["a"]},
    ],
)
def test_records_in_the_form_of_activitynet_that_cannot_be_used(tmp_path: Path, record: Any) -> None:
    root = write(tmp_path, yc2_val_anet_format__json={"a": record})
    with pytest.raises(BadDataset, match="yc2_val_anet_format.json: a is .*or duration, timestamps, sentences"):
        youcook2.load(root)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,5,77,stir,b", "row 2: .*expected start and end in seconds from 0"),
        ("9,-5,77,stir,b", "row 2: .*expected start and end"),
        ("nan,5,77,stir,b", "row 2: .*expected start and end"),
        ("9,5,77,stir", "row 2: 4 fields, but 5 columns"),
        ("9,5,77,stir,", "row 2: '' cannot be a video id"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, row: str, message: str) -> None:
    root = write(tmp_path, validation_youcook__csv=milnce(row))
    with pytest.raises(BadDataset, match="validation_youcook.csv, " + message):
        youcook2.load(root)


@pytest.mark.parametrize("text", ["vv,30\n", "vv,30,x\n", "vv,30,9\nvv,30,9\n", "vv,nan,9\n"])
def test_durations_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, youcookii_annotations_trainval__json=OFFICIAL, yc2_duration_frame__csv=text)
    with pytest.raises(BadDataset, match=r"yc2_duration_frame.csv: 'vv,.*'; expected an id of its own, seconds and"):
        youcook2.load(root)


def test_lists_that_are_not_text(tmp_path: Path) -> None:
    root = write(tmp_path, youcookii_annotations_trainval__json=OFFICIAL)
    (root / "val_list.txt").write_bytes(b"\xff")
    with pytest.raises(BadDataset, match="val_list.txt, row 1: byte 0 is not UTF-8"):
        youcook2.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return youcook2.load(shared / "data/youcook2")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert set(found) == set(youcook2.EXPECTED)
    assert differences(found, youcook2.EXPECTED) == []
    assert found["milnce/val"] == {"videos": 436, "clips": 3_350, "captions": 3_350, "gallery": 3_350}
    assert sum(video.id.startswith("-") for video in real.videos) == 23
    assert real.notes[2] == "3,350 rows of validation_youcook.csv: 3,350 are annotated segments"


def test_real_oddities(real: Manifest) -> None:
    """The README of the shared folder counts overlapping pairs, 43, and among them the same segment twice, 1."""
    assert totals(real.oddities) == {
        f"{youcook2.OVERLAP}: kept": 43,
        f"{youcook2.OTHER_SECONDS}: kept": 1,
        "blanks at the ends: trimmed": 5,
        "newline, control character or run of blanks inside: trimmed": 136,
        "caption text on several videos: kept": 404,
    }
    found = records(real)
    assert [record for record in found[youcook2.OVERLAP, "kept"] if record.endswith("the same span")] == [
        "oJZUxU9szWA_1: oJZUxU9szWA_0, the same span"
    ]
    assert found[youcook2.OTHER_SECONDS, "kept"] == ("sGzBQrg1adY: 706.68, there 706.62",)


def test_real_records(real: Manifest) -> None:
    clips = {clip.id: clip for clip in real.clips}
    assert clips["GLd3aX16zBg_1"] == Clip("GLd3aX16zBg_1", "GLd3aX16zBg", 114.0, 127.0, "113")
    captions = {caption.id: caption.text for caption in real.captions}
    assert captions["xHr8X2Wpmno_0"] == "pick the ends off the verdalago"


def test_real_files_in_other_forms_agree(real: Manifest, shared: Path, tmp_path: Path) -> None:
    for name in ("yc2_val_anet_format.json", "val_list.txt"):
        (tmp_path / name).symlink_to(shared / "data/youcook2" / name)
    other = youcook2.load(tmp_path)
    val = next(part for part in real.splits if (part.split, part.name) == ("youcook2", "val"))
    assert other.splits == (val,)
    assert set(other.clips) <= set(real.clips)
    assert set(other.captions) <= set(real.captions)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "validation_youcook.csv").symlink_to(shared / "data/youcook2/validation_youcook.csv")
    assert counts(youcook2.load(alone))["milnce/val"] == youcook2.EXPECTED["milnce/val"]
