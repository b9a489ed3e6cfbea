"""WebVid: tables of a few videos made here, and the real one of test."""

from pathlib import Path

import pytest

from pipeline.counts import counts
from pipeline.datasets import webvid
from pipeline.errors import BadDataset
from pipeline.records import Caption, Clip, Manifest, Oddity, Part, Video

HEADER = "videoid,name,page_dir,duration\n"


def write(root: Path, **tables: str) -> Path:
    """Write each table under its name."""
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (root / f"{name}.csv").write_text(HEADER + rows)
    return root


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        results_2M_train=(
            '10,"Surf,  café ",a_b,PT01H02M03S\n9,Cat,a_b,PT00H00M00S\n9,Cat,c,PT00H00M00S\n11,B,a,PT9S\n'
            "11,A,a,PT8.5S\n5,Dog,a_b,PT00H00M17S\n6,Cow,a_b,PT00H00M17S\n"
        ),
        results_2M_val="6,Cow,a_b,PT00H00M17S\n5,Dog,a_b,PT00H00M17S\n8, ,a_b,PT02M\n",
        test_webvid="5,Cat,a_b,PT00H00M16S\n",
    )
    (root / "videos/a_b").mkdir(parents=True)
    (root / "videos/a_b/10.mp4").touch()
    assert webvid.load(root) == Manifest(
        dataset="webvid",
        videos=(
            Video("5", None, 16.0),
            Video("6", None, 17.0),
            Video("8", None, 120.0),
            Video("9", None, 0.0),
            Video("10", root / "videos/a_b/10.mp4", 3723.0),
            Video("11", None, 8.5),
        ),
        clips=tuple(Clip(name, name) for name in ("5", "6", "8", "9", "10", "11")),
        captions=(
            Caption("5", "5", "Cat"),
            Caption("6", "6", "Cow"),
            Caption("9", "9", "Cat"),
            Caption("10", "10", "Surf, café"),
            Caption("11", "11", "A"),
        ),
        splits=(
            Part("webvid", "train", ("9", "10", "11"), ("9", "10", "11")),
            Part("webvid", "val", ("6", "8"), ("6",)),
            Part("webvid", "test", ("5",), ("5",)),
        ),
        oddities=(
            Oddity("blanks at the ends", "trimmed", ("10",)),
            Oddity("caption text on several videos", "kept", ("Cat: 2 videos",)),
            Oddity("caption without text", "dropped", ("8",)),
            Oddity("characters outside ASCII", "kept", ("10",)),
            Oddity("duration of zero", "kept", ("9",)),
            Oddity("newline, control character or run of blanks inside", "trimmed", ("10",)),
            Oddity("video listed twice in a table", "dropped", ("9: results_2M_train.csv",)),
            Oddity(
                "video listed twice in a table, with another caption or duration",
                "dropped",
                ("11: results_2M_train.csv",),
            ),
            Oddity(
                "video that another part has too",
                "dropped",
                ("5: in test, left out of val", "5: in test, left out of train", "6: in val, left out of train"),
            ),
        ),
        notes=(
            "tables: test_webvid.csv, results_2M_val.csv, results_2M_train.csv",
            f"1 videos have their file in {root / 'videos'}",
        ),
    )


def test_which_tables_are_read(tmp_path: Path) -> None:
    """In the first folder that has any; whole ones before cut ones, part by part; other names are not tables of it."""
    root = write(
        tmp_path, test_webvid_head9="1,Cat,a,PT1S\n", webvid="no,table,of,it\n", other_train="no,table,of,it\n"
    )
    write(root / "annotations", results_2M_train="2,Cat,a,PT1S\n")
    assert [video.id for video in webvid.load(root).videos] == ["1"]
    write(root, test_webvid="3,Cat,a,PT1S\n", my_webvid_train="4,Cat,a,PT1S\n")
    assert [(part.name, part.clips) for part in webvid.load(root).splits] == [("train", ("4",)), ("test", ("3",))]
    write(root, results_10M_train="5,Cat,a,PT1S\n")
    with pytest.raises(
        BadDataset, match=r"my_webvid_train.csv, results_10M_train.csv are several tables of train; keep"
    ):
        webvid.load(root)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", r"webvid_test.csv: no rows"),
        ("1,Cat,a,PT1S\n2,Cat,a,PT1", r"webvid_test.csv, row 3: duration of video 2 is 'PT1'; expected PT00H00M17S"),
        ("1,Cat,a,PT1S\n2,Cat,a,PT1S", r"webvid_test.csv, row 3: the line has no end, so it is cut off"),
        ("1,Cat,a,17\n", r"webvid_test.csv, row 2: duration of video 1 is '17'"),
        ("1,Cat,a,PT\n", r"webvid_test.csv, row 2: duration of video 1 is 'PT'"),
        ("1,Cat,a,\n", r"webvid_test.csv, row 2: duration of video 1 is ''"),
        ("1,Cat,a,PT-1S\n", r"webvid_test.csv, row 2: duration of video 1 is 'PT-1S'"),
        (",Cat,a,PT1S\n", r"webvid_test.csv, row 2: '' cannot be a video id"),
        ("1,Cat, big,a,PT1S\n", r"webvid_test.csv, row 2: 5 fields, but 4 columns"),
        ('1,"Cat,a,PT1S\n', r"webvid_test.csv, row \d: .*quote is open"),
    ],
)
def test_damaged(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(BadDataset, match=message) as error:
        webvid.load(write(tmp_path, webvid_test=rows))
    assert "\n" not in str(error.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no table of WebVid in .*; expected results_2M_train.csv"):
        webvid.load(tmp_path)
    (tmp_path / "webvid_test.csv").write_text("videoid,name\n1,a\n")
    with pytest.raises(BadDataset, match="webvid_test.csv: no column 'duration'"):
        webvid.load(tmp_path)


def test_real(shared: Path) -> None:
    """Twenty rows of test, in which nothing is odd."""
    manifest = webvid.load(shared / "data/webvid")
    part = {"videos": 20, "clips": 20, "captions": 20}
    assert counts(manifest) == {"": part, "webvid/test": part | {"gallery": 20}}
    assert manifest.oddities == ()
    assert {video.id: video.duration for video in manifest.videos}["1053841541"] == 17.0
    assert max(video.duration for video in manifest.videos) == 60.0
    assert manifest.captions[0].text == "Horse grazing - seperated on green screen"
