"""EPIC-KITCHENS-100: tables of a few narrations made here, and the real ones."""

from pathlib import Path

import pytest

from pipeline.counts import counts
from pipeline.datasets import epic_kitchens100
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Oddity, Part, Video

HEADER = "narration_id,video_id,start_timestamp,stop_timestamp,narration,verb,all_nouns,all_noun_classes\n"


def row(name: str, start: str, stop: str, text: str = "take plate", **other: str) -> str:
    cells = {"video": name.rpartition("_")[0], "verb": "take", "nouns": "['plate']", "classes": "[2]"} | other
    return f'{name},{cells["video"]},{start},{stop},{text},{cells["verb"]},"{cells["nouns"]}","{cells["classes"]}"\n'


def write(root: Path, test: str, train: str = "", sentences: str = "", name: str = "test") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / f"EPIC_100_retrieval_{name}.csv").write_text(HEADER + test)
    if train:
        (root / "EPIC_100_retrieval_train.csv").write_text(HEADER + train)
    if sentences:
        (root / "EPIC_100_retrieval_test_sentence.csv").write_text("narration_id,narration\n" + sentences)
    return root


def test_every_record(tmp_path: Path) -> None:
    test = [
        row("P01_2_10", "01:02:03.50", "01:02:04.50", "take  lid", verb=" pick-up "),
        row("P01_2_9", "00:05:27.28", "00:05:28.27"),
        row("P01_2_1", "00:05:28.27", "00:05:30", " "),
        row("P01_10_0", "00:00:03.00", "00:00:03.00"),
        row("P01_10_1", "00:00:04.00", "00:00:03.00"),
        row("P01_10_2", "00:00:00.00", "00:00:09.00"),
        row("P01_10_3", "00:00:02.00", "00:00:05.00", "cut"),
        row("P01_10_4", "00:00:08.99", "00:00:10.00", "cut"),
    ]
    sentences = "P01_2_9,take plate\nP01_10_3,cut it\nP09_1_1,cut it\nP01_2_10,take lid\n"
    root = write(tmp_path, "".join(test), row("P03_1_7", "00:00:01", "00:00:03", "cut"), sentences)
    (root / "P01/videos").mkdir(parents=True)
    (root / "P01/videos/P01_2.MP4").touch()
    assert epic_kitchens100.load(root) == Manifest(
        dataset="epic_kitchens100",
        videos=(Video("P01_2", root / "P01/videos/P01_2.MP4"), Video("P01_10", None), Video("P03_1", None)),
        clips=(
            Clip("P01_2_9", "P01_2", 327.28, 328.27, "take"),
            Clip("P01_2_1", "P01_2", 328.27, 330.0, "take"),
            Clip("P01_2_10", "P01_2", 3723.5, 3724.5, "pick-up"),
            Clip("P01_10_2", "P01_10", 0.0, 9.0, "take"),
            Clip("P01_10_3", "P01_10", 2.0, 5.0, "take"),
            Clip("P01_10_4", "P01_10", 8.99, 10.0, "take"),
            Clip("P03_1_7", "P03_1", 1.0, 3.0, "take"),
        ),
        captions=(
            Caption("P01_2_9", "P01_2_9", "take plate"),
            Caption("P01_2_10", "P01_2_10", "take lid"),
            Caption("P01_10_2", "P01_10_2", "take plate"),
            Caption("P01_10_3", "P01_10_3", "cut"),
            Caption("P01_10_4", "P01_10_4", "cut"),
            Caption("P03_1_7", "P03_1_7", "cut"),
        ),
        splits=(
            Part("epic100", "train", ("P03_1_7",), ("P03_1_7",)),
            Part(
                "epic100",
                "test",
                ("P01_2_9", "P01_2_1", "P01_2_10", "P01_10_2", "P01_10_3", "P01_10_4"),
                ("P01_2_9", "P01_2_10", "P01_10_2", "P01_10_3", "P01_10_4"),
            ),
        ),
        oddities=(
            Oddity("caption text on several videos", "kept", ("take plate: 2 videos", "cut: 2 videos")),
            Oddity("caption without text", "dropped", ("P01_2_1",)),
            Oddity("end before start", "dropped", ("P01_10_1: 4 to 3",)),
            Oddity("newline, control character or run of blanks inside", "trimmed", ("P01_2_10",)),
            Oddity("sentence listed more than once", "kept", ("P09_1_1: as P01_10_3: cut it",)),
            Oddity("sentence whose narration is not in the table", "kept", ("P09_1_1: cut it",)),
            Oddity("sentence whose narration says something else", "kept", ("P01_10_3: 'cut', listed as 'cut it'",)),
            Oddity("span shorter than 1 s", "kept", ("P01_2_9: 0.99 s",)),
            Oddity(
                "span that overlaps another of its video",
                "kept",
                ("P01_10_3: with P01_10_2", "P01_10_4: with P01_10_2"),
            ),
            Oddity("zero length", "dropped", ("P01_10_0: 3",)),
        ),
        notes=(
            "annotations: EPIC_100_retrieval_train.csv, EPIC_100_retrieval_test.csv",
            "EPIC_100_retrieval_train_sentence.csv is not beside EPIC_100_retrieval_train.csv",
            "EPIC_100_retrieval_test_sentence.csv: 4 sentences, the narrations of 3 are in EPIC_100_retrieval_test.csv",
            f"1 videos have their file in {root}",
        ),
    )


def test_which_files_are_read(tmp_path: Path) -> None:
    """A whole table wins over a cut one, and only with a whole one are sentences missing from it."""
    one = row("P01_1_1", "00:00:01", "00:00:03")
    root = write(tmp_path / "retrieval_annotations", one, "", "P01_1_1,take plate\nP09_9_9,cut\n", "test.head2").parent
    manifest = epic_kitchens100.load(root)
    assert not manifest.oddities
    assert manifest.notes[1].startswith(
        "EPIC_100_retrieval_test_sentence.csv: 2 sentences, the narrations of 1 are in "
    )
    write(root / "retrieval_annotations", one)
    assert totals(epic_kitchens100.load(root).oddities) == {"sentence whose narration is not in the table: kept": 1}
    write(root / "annotations", row("P01_1_2", "00:00:01", "00:00:03"))
    assert [clip.id for clip in epic_kitchens100.load(root).clips] == ["P01_1_2"]


GOOD = row("P01_1_1", "00:00:01", "00:00:03")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (GOOD + GOOD, r"narration P01_1_1 stands twice in the test table"),
        (GOOD + row("P01_1_2", "00:00:1", "00:00:03"), r"test.csv, row 3: '00:00:1' is no time; expected HH:MM:SS.ss"),
        (row("P01_1_2", "00:00:01", "00:61:03"), r"test.csv, row 2: '00:61:03' is no time"),
        (row("P01_1_2", "-00:00:01", "00:01:03"), r"test.csv, row 2: '-00:00:01' is no time"),
        (row("P01_1_2", "nan", "00:01:03"), r"test.csv, row 2: 'nan' is no time"),
        (row("P01_1_2", "00:00:01", ""), r"test.csv, row 2: '' is no time"),
        (row("P01_1_2", "00:00:01", "00:00:03", nouns="['plate'"), r"row 2: all_nouns is .*; expected a list"),
        (row("P01_1_2", "00:00:01", "00:00:03", nouns="open()"), r"row 2: all_nouns is 'open\(\)'; expected a list"),
        (row("P01_1_2", "00:00:01", "00:00:03", classes="2"), r"row 2: all_noun_classes is '2'; expected a list"),
        (row("P01_1_2", "00:00:01", "00:00:03", video="P01_2"), r"row 2: narration P01_1_2 cannot be of video P01_2"),
        (row("P01_1_2", "00:00:01", "00:00:03", video="../a"), r"row 2: '../a' cannot be a video id"),
        (GOOD[:-3], r"test.csv, row 2: "),
        ("P01_1_2,P01_1,00:00:01\n", r"test.csv, row 2: 3 fields, but 8 columns"),
    ],
)
def test_damaged(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(BadDataset, match=message) as error:
        epic_kitchens100.load(write(tmp_path, lines))
    assert "\n" not in str(error.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no retrieval annotations of EPIC-KITCHENS-100 in .*; expected EPIC_100_"):
        epic_kitchens100.load(tmp_path)
    both = write(tmp_path / "both", GOOD, row("P01_1_2", "00:00:01", "00:00:03"))
    with pytest.raises(BadDataset, match="video P01_1 is in train and in test, narration P01_1_1; keep one"):
        epic_kitchens100.load(both)
    cut = write(tmp_path / "cut", GOOD, sentences="P01_1_1,take pl")
    with pytest.raises(BadDataset, match="test_sentence.csv, row 2: the line has no end, so it is cut off"):
        epic_kitchens100.load(cut)
    (cut / "EPIC_100_retrieval_test.csv").write_text("narration_id,video_id\nP01_1_1,P01_1\n")
    with pytest.raises(BadDataset, match="test.csv: no column 'start_timestamp'"):
        epic_kitchens100.load(cut)


def test_real(shared: Path) -> None:
    """The first 2,000 rows of test. Of 3,842 listed sentences seven repeat another, so 3,835 are distinct."""
    manifest = epic_kitchens100.load(shared / "data/epic_kitchens")
    part = {"videos": 23, "clips": 2_000, "captions": 2_000}
    assert counts(manifest) == {"": part, "epic100/test": part | {"gallery": 2_000}}
    assert totals(manifest.oddities) == {
        "span that overlaps another of its video: kept": 616,
        "span shorter than 1 s: kept": 405,
        "caption text on several videos: kept": 146,
        "sentence listed more than once: kept": 7,
        "sentence whose narration says something else: kept": 1,
    }
    other = next(oddity for oddity in manifest.oddities if oddity.kind == epic_kitchens100.OTHER_TEXT)
    assert other.records == ("P01_14_59: 'looking for something', listed as 'put down down slice'",)
    assert manifest.notes[1] == (
        "EPIC_100_retrieval_test_sentence.csv: 3,842 sentences, the narrations of 933 are in "
        "EPIC_100_retrieval_test.head2000.csv"
    )
    assert manifest.clips[0] == Clip("P01_11_0", "P01_11", 0.0, 1.89, "take")
