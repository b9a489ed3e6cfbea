"""Charades-STA: three videos made here, and the real annotations."""

from pathlib import Path

import pytest

from pipeline import datasets
from pipeline.counts import counts, differences
from pipeline.datasets import charades_sta
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records, write

TRAIN, TEST = "charades_sta_train.txt", "charades_sta_test.txt"


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        charades_sta_train__txt=(
            "B10 2 31##a  person reads.\nB10 2.0 30.50##person sits.\nB10 2.0 30.50##person sits.\nB10 30 40##late.\n"
            "B10 8.0 7.0##inverted.\nB2 4.0 4.0##empty.\nB2 9.0 1.5##inverted. \n"
        ),
        charades_sta_test__txt="A1 1.5 90.0##person sits.\r\nA1 0.0 3.18## person ## eats.\r\nA1 3 4## \r\n",
        Charades_v1_train__csv='id,script,length\nB10,"a, ""b""",30\nB2,,9\nnone,,1.5\n',
        valid_videos__txt="B10\nA1\nextra",
    )
    write(root / "videos", A1__mkv="")
    manifest = charades_sta.load(root)
    assert manifest.videos == (Video("A1", root / "videos/A1.mkv"), Video("B10", None, 30.0))
    assert manifest.clips == (
        Clip("A1_0.0_3.18", "A1", 0.0, 3.18),
        Clip("A1_1.5_90.0", "A1", 1.5, 90.0),
        Clip("B10_2.0_30.0", "B10", 2.0, 30.0),
    )
    assert manifest.captions == (
        Caption("A1#0", "A1_0.0_3.18", "person ## eats."),
        Caption("A1#1", "A1_1.5_90.0", "person sits."),
        Caption("B10#0", "B10_2.0_30.0", "person sits."),
        Caption("B10#1", "B10_2.0_30.0", "person sits."),
        Caption("B10#2", "B10_2.0_30.0", "a person reads."),
    )
    assert manifest.splits == (
        Part("charades_sta", "train", ("B10_2.0_30.0",), ("B10#0", "B10#1", "B10#2")),
        Part("charades_sta", "test", ("A1_0.0_3.18", "A1_1.5_90.0"), ("A1#0", "A1#1")),
    )
    assert records(manifest) == {
        ("end before start", "dropped"): ("B2#1: 9 to 1.5", "B10#3: 8 to 7"),
        ("zero length", "dropped"): ("B2#0: 4",),
        ("start at or past the end of the video", "dropped"): ("B10#4: 30 of 30 s",),
        ("end past the end of the video", "clamped"): (
            "B10#0: 30.5 to 30, by 0.5 s",
            "B10#1: 30.5 to 30, by 0.5 s",
            "B10#2: 31 to 30, by 1 s",
        ),
        ("caption without text", "dropped"): ("A1#2",),
        ("blanks at the ends", "trimmed"): ("A1#0", "B2#1"),
        ("newline, control character or run of blanks inside", "trimmed"): ("B10#2",),
        ("caption repeats another of its clip", "kept"): ("B10#1",),
        ("caption text on several videos", "kept"): ("person sits.: 2 videos",),
        (charades_sta.NO_SEGMENT, "dropped"): ("B2",),
        (charades_sta.UNLISTED, "kept"): ("B2",),
        (charades_sta.UNKNOWN, "dropped"): ("extra",),
    }
    assert manifest.notes == (
        f"annotations: {TRAIN}, {TEST}",
        "Charades_v1_test.csv is not there",
        "1 of 3 videos have no length, so their segments were not cut",
        "valid_videos.txt: 2 of 3 videos",
        f"1 videos have their file in {root / 'videos'}",
    )


def test_inverted_comes_before_outside(tmp_path: Path) -> None:
    """The three real lines that start at or behind the length are inverted, too: one rule takes them."""
    root = write(
        tmp_path,
        charades_sta_train__txt="LEOL6 8.0 7.0##a.\nLEOL6 1.0 2.0##b.\n",
        Charades_v1_train__csv="id,length\nLEOL6,7.5\n",
    )
    assert records(charades_sta.load(root)) == {("end before start", "dropped"): ("LEOL6#1: 8 to 7",)}


def test_where_files_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "annotation", charades_sta_test__head10__txt="A 1 2##few.\n")
    assert charades_sta.load(tmp_path).notes[0] == "annotations: charades_sta_test.head10.txt"
    write(tmp_path / "annotation", charades_sta_test__txt="B 1 2##whole.\n")
    write(tmp_path / "annotation/Charades", Charades_v1_test__csv="id,length\nB,1.5\n")
    manifest = charades_sta.load(tmp_path)
    assert [(clip.id, clip.end) for clip in manifest.clips] == [("B_1.0_1.5", 1.5)]
    assert [(part.split, part.name) for part in manifest.splits] == [("charades_sta", "test")]
    write(tmp_path, charades_sta_test__txt="C 1 2##root.\n")
    assert [clip.id for clip in charades_sta.load(tmp_path).clips] == ["C_1.0_2.0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no sentences; download it again"),
        ("\n \n", "no sentences; download it again"),
        ("A 1.0 2.0##a.\nA 2.0 3.0##and", "row 2: the line has no end, so it is cut off"),
        ("A 1.0 2.0##a.\nA 2.0##a.\n", "row 2: 'A 2.0##a.'; expected a video, start and end"),
        ("A 1.0 2.0#a.\n", "row 1: "),
        ("A -1.0 2.0##a.\n", "row 1: "),
        ("A nan 2.0##a.\n", "row 1: "),
        ("A 1.0 inf##a.\n", "row 1: "),
        ("A 1e1 2.0##a.\n", "row 1: "),
        ("\n../A 1.0 2.0##a.\n", "row 2: '../A' cannot be a video id"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadDataset) as caught:
        charades_sta.load(write(tmp_path, charades_sta_train__txt=text))
    assert f"{tmp_path / TRAIN}" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,seconds\nA,3\n", "no column 'length'"),
        ("id,length\nA,3\nB,\n", "row 3: length is ''; expected seconds above 0"),
        ("id,length\nA,0.0\n", "row 2: length is '0.0'"),
        ("id,length\nA,nan\n", "row 2: length is 'nan'"),
        ("id,length\nA,16.6", "row 2: the line has no end"),
        ("id,length\nA,3\nA,4\n", "A has another length here or in the other table"),
        ("id,length\nA\n", "row 2: 1 fields, but 2 columns"),
    ],
)
def test_lengths_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    root = write(tmp_path, charades_sta_train__txt="A 1 2##a.\n", Charades_v1_train__csv=text)
    with pytest.raises(BadDataset, match=f"Charades_v1_train.csv.*{message}") as caught:
        charades_sta.load(root)
    assert "\n" not in str(caught.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no Charades-STA sentences in .*: expected charades_sta_train.txt"):
        charades_sta.load(tmp_path)
    root = write(tmp_path, charades_sta_train__txt="A 1 2##a.\n", charades_sta_test__txt="A 3 4##b.\n")
    with pytest.raises(
        BadDataset, match=r"charades_sta_test.txt: A is in train and test; use the files of one release"
    ):
        charades_sta.load(root)
    (root / TEST).write_bytes(b"B 1 2##\xff\n")
    with pytest.raises(BadDataset, match=r"charades_sta_test.txt, row 1: byte 7 is not UTF-8"):
        charades_sta.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return charades_sta.load(shared / "data/charades_sta")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert differences(found, datasets.expected("charades_sta")) == []
    assert found == {
        "": {"videos": 6_670, "clips": 11_768, "captions": 16_124},
        "charades_sta/train": {"videos": 5_336, "clips": 9_191, "captions": 12_404, "gallery": 9_191},
        "charades_sta/test": {"videos": 1_334, "clips": 2_577, "captions": 3_720, "gallery": 2_577},
    }
    assert real.notes[1:4] == (
        "Charades_v1_train.csv is not there",
        "5,338 of 6,672 videos have no length, so their segments were not cut",
        "valid_videos.txt: 6,672 of 6,672 videos",
    )


def test_real_oddities(real: Manifest) -> None:
    """As the shared folder's README counts them. Its 1,805 ends behind the video in train, and its 3 starts, need
    `Charades_v1_train.csv`, which is not there: no video of train has a length, every one of test has.
    """
    assert totals(real.oddities) == {
        "end before start: dropped": 4,
        "end past the end of the video: clamped": 562,
        "newline, control character or run of blanks inside: trimmed": 42,
        "caption text on several videos: kept": 1_444,
        "video without a segment: dropped": 2,
    }
    found = records(real)
    assert found["end before start", "dropped"] == (
        "AKKWU#0: 38 to 13",
        "AKKWU#1: 38 to 13",
        "IOL8Q#1: 20.9 to 12",
        "LEOL6#0: 8 to 7",
    )
    assert found["video without a segment", "dropped"] == ("AKKWU", "LEOL6")
    clamped = [float(r.split("by ")[1].split()[0]) for r in found["end past the end of the video", "clamped"]]
    assert sum(by > 1 for by in clamped) == 228


def test_real_segments_that_share_sentences(real: Manifest) -> None:
    """The README's 3,214 and 1,142 sentences are those beyond the first of their segment as annotated.

    Of train's, one is an inverted line. Of test's segments, two are one once both are cut at the video's end.
    """
    found = counts(real)
    train, test = (found[f"charades_sta/{part}"] for part in charades_sta.PARTS)
    assert train["captions"] - train["clips"] == 3_214 - 1
    assert test["captions"] - test["clips"] == 1_142 + 1


def test_real_records(real: Manifest) -> None:
    clips = {clip.id: clip for clip in real.clips}
    assert clips["AO8RW_0.0_6.9"] == Clip("AO8RW_0.0_6.9", "AO8RW", 0.0, 6.9)
    told = {caption.text for caption in real.captions if caption.clip == "3MSZA_24.3_30.4"}
    assert "person turn a light on." in told
    assert "person turn the light switch on." in told
    assert Video("3MSZA", None, 30.96) in real.videos
