"""DiDeMo: six videos made here, and the real annotations."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import didemo
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records


def row(number: int, video: str, text: str, *times: tuple[int, int], chunks: int = 6) -> dict[str, Any]:
    return {
        "annotation_id": number,
        "video": video,
        "num_segments": chunks,
        "times": [list(time) for time in times or ((0, 0),) * 4],
        "description": text,
        "dl_link": "",
    }


def write(folder: Path, **files: Any) -> Path:
    """Write each list of records as `NAME_data.json`, each text as `NAME_list.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        if isinstance(value, str):
            (folder / f"{name}_list.txt").write_text(value)
        else:
            (folder / f"{name}_data.json").write_bytes(orjson.dumps(value))
    return folder


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        val=[
            row(9, "b10.mov", "Second.\n", (0, 1), (2, 2), (0, 1), (0, 1)),
            row(2, "b10.mp4", "First.", (1, 1), (0, 5), (5, 4), (4, 6), (6, 6), (2, 0), chunks=5),
            row(30, "b10.mov", "Second.", (3, 5), (3, 5), (1, 1), (1, 1)),
            row(4, "b9.", "A  cat.", (5, 5)),
            row(5, "b9.", " "),
            row(6, "silent.avi", "\n"),
        ],
        test=[row(7, "c.m2ts", "Second."), row(8, "d.", "Dog.")],
    )
    write(root / "ce_lists", val="b10.mov\nb9.\nsilent.avi\nextra.mp4", train="b10.mov")
    write(root / "videos")
    for name in ("b9.", "c.m2ts", "d..mp4", "d.avi"):
        (root / "videos" / name).touch()
    manifest = didemo.load(root)
    assert manifest.videos == (
        Video("b9", root / "videos/b9.", 30.0, "b9."),
        Video("b10", None, 30.0, "b10.mov"),
        Video("c", root / "videos/c.m2ts", 30.0, "c.m2ts"),
        Video("d", root / "videos/d.avi", 30.0, "d."),
        Video("silent", None, 30.0, "silent.avi"),
    )
    assert manifest.clips == tuple(Clip(name, name, 0.0, 30.0) for name in ("b9", "b10", "c", "d", "silent"))
    four = ((0.0, 5.0),) * 4
    assert manifest.captions == (
        Caption("2", "b10", "First.", ((5.0, 10.0), (0.0, 25.0), (20.0, 25.0))),
        Caption("4", "b9", "A cat.", ((25.0, 30.0),)),
        Caption("7", "c", "Second.", four),
        Caption("8", "d", "Dog.", four),
        Caption("9", "b10", "Second.", ((0.0, 10.0), (10.0, 15.0), (0.0, 10.0), (0.0, 10.0))),
        Caption("30", "b10", "Second.", ((15.0, 30.0), (15.0, 30.0), (5.0, 10.0), (5.0, 10.0))),
        Caption("b9@paragraph", "b9", "A cat."),
        Caption("b10@paragraph", "b10", "First. Second. Second."),
        Caption("c@paragraph", "c", "Second."),
        Caption("d@paragraph", "d", "Dog."),
        Caption("b10@ce", "b10", "Second. Second."),
    )
    assert manifest.splits == (
        Part("didemo", "val", ("b9", "b10", "silent"), ("2", "4", "9", "30")),
        Part("didemo", "test", ("c", "d"), ("7", "8")),
        Part("paragraph", "val", ("b9", "b10", "silent"), ("b9@paragraph", "b10@paragraph")),
        Part("paragraph", "test", ("c", "d"), ("c@paragraph", "d@paragraph")),
        Part("ce", "val", ("b9", "b10", "silent"), ("b9@paragraph", "b10@ce")),
    )
    assert records(manifest) == {
        ("blanks at the ends", "trimmed"): ("9",),
        ("newline, control character or run of blanks inside", "trimmed"): ("4",),
        ("caption without text", "dropped"): ("5", "6"),
        ("zero length", "dropped"): ("2: 25",),
        ("end before start", "dropped"): ("2: 10 to 5",),
        ("start at or past the end of the video", "dropped"): ("2: 30 of 25 s",),
        ("end past the end of the video", "clamped"): ("2: 30 to 25, by 5 s", "2: 35 to 25, by 10 s"),
        ("caption repeats another of its clip but for blanks", "kept"): ("30",),
        ("caption text on several videos", "kept"): ("Second.: 2 videos",),
        (didemo.DISAGREE, "kept"): ("2", "9", "30"),
        (didemo.NO_MAJORITY, "kept"): ("2", "30"),
        (didemo.NOT_FOUR, "kept"): ("2: 6", "4: 1"),
        (didemo.DOT, "kept"): ("4: b9.", "5: b9.", "8: d."),
        (didemo.TWO_NAMES, "kept"): ("b10: b10.mov b10.mp4",),
        (didemo.CHUNKS, "kept"): ("b10: 5 and 6",),
        (didemo.UNLISTED, "kept"): ("b10.mp4: val_list.txt",),
        (didemo.UNKNOWN, "dropped"): ("extra.mp4: val_list.txt",),
    }
    assert manifest.notes == (
        "annotations: val_data.json, test_data.json",
        "train_data.json is not there",
        "val_list.txt: 3 of 4 file names",
        "test_list.txt is not there: no ce/test",
        f"3 videos have their file in {root / 'videos'}",
    )


def test_lists_may_lie_beside_the_annotations_and_tell_the_name(tmp_path: Path) -> None:
    write(tmp_path, train=[row(1, "a.avi", "A."), row(2, "a.mov", "B.")])
    assert didemo.load(tmp_path).videos == (Video("a", None, 30.0, "a.avi"),)
    (tmp_path / "train_list.txt").write_text("a.mov\n")
    manifest = didemo.load(tmp_path)
    assert manifest.videos == (Video("a", None, 30.0, "a.mov"),)
    assert manifest.splits[-1] == Part("ce", "train", ("a",), ("a@ce",))


def test_where_files_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "annotations", val=[row(1, "a.mov", "A.")])
    whole = tmp_path / "annotations/val_data.json"
    whole.rename(whole.with_name("val_data.head1.json"))
    assert didemo.load(tmp_path).notes[0] == "annotations: val_data.head1.json"
    write(tmp_path / "annotations", val=[row(1, "b.mov", "A.")])
    assert [video.id for video in didemo.load(tmp_path).videos] == ["b"]
    write(tmp_path, test=[row(1, "c", "A.")])
    assert didemo.load(tmp_path).videos == (Video("c", None, 30.0),)


GOOD = row(1, "a.mov", "A.")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "expected a list of descriptions"),
        ([GOOD | {"annotation_id": "1"}], r"\[0\] is .*expected annotation_id"),
        ([GOOD | {"annotation_id": -1}], r"\[0\] is "),
        ([GOOD | {"video": None}], r"\[0\] is "),
        ([GOOD | {"description": 1}], r"\[0\] is "),
        ([GOOD | {"num_segments": 0}], r"\[0\] is "),
        ([GOOD | {"num_segments": 7}], r"\[0\] is "),
        ([GOOD | {"times": []}], r"\[0\] is "),
        ([GOOD | {"times": [[0]]}], r"\[0\] is "),
        ([GOOD | {"times": [[0, 1.5]]}], r"\[0\] is "),
        ([GOOD | {"times": [[-1, 1]]}], r"\[0\] is "),
        ([{"annotation_id": 1}], r"\[0\] is "),
        (["a"], r"\[0\] is "),
        ([GOOD, row(2, "../a.mov", "A.")], r"\[1\]: '../a' cannot be a video id"),
        ([GOOD, row(1, "b.mov", "A.")], "annotation_id 1 stands twice in the annotations; keep one"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, value: Any, message: str) -> None:
    root = write(tmp_path)
    (root / "test_data.json").write_bytes(orjson.dumps(value))
    with pytest.raises(BadDataset, match="test_data.json: " + message) as caught:
        didemo.load(root)
    assert "\n" not in str(caught.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no DiDeMo in .*: expected train_data.json"):
        didemo.load(tmp_path)
    root = write(tmp_path, train=[GOOD], test=[row(2, "a.mp4", "B.")])
    with pytest.raises(BadDataset, match=r"test_data.json: a is in train too; use the files of one release"):
        didemo.load(root)
    (root / "test_data.json").write_text("[{")
    with pytest.raises(BadDataset, match=r"test_data.json: it is not whole JSON"):
        didemo.load(root)
    (root / "test_data.json").unlink()
    (root / "train_list.txt").write_bytes(b"a\xff.mov")
    with pytest.raises(BadDataset, match=r"train_list.txt, row 1: byte 1 is not UTF-8"):
        didemo.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return didemo.load(shared / "data/didemo")


def test_real_counts(real: Manifest) -> None:
    """Train is not there."""
    val, test = {"videos": 1_065, "clips": 1_065, "gallery": 1_065}, {"videos": 1_004, "clips": 1_004, "gallery": 1_004}
    found = counts(real)
    assert found == {
        "": {"videos": 2_069, "clips": 2_069, "captions": 4_180 + 4_021 + 1_065 + 1_004 + 62},
        "didemo/val": val | {"captions": 4_180},
        "didemo/test": test | {"captions": 4_021},
        "paragraph/val": val | {"captions": 1_065},
        "paragraph/test": test | {"captions": 1_004},
        "ce/val": val | {"captions": 1_065},
        "ce/test": test | {"captions": 1_004},
    }
    assert differences(found, didemo.EXPECTED) == [
        "didemo/train: 0 of 33,005 captions",
        *(f"ce/train: 0 of 8,392 {what}" for what in ("videos", "clips", "captions", "gallery")),
    ]
    assert real.notes[2:4] == (
        "val_list.txt: 1,065 of 1,094 file names",
        "test_list.txt: 1,004 of 1,037 file names",
    )


def test_real_oddities(real: Manifest, shared: Path) -> None:
    """As the shared folder's README counts them. Its 15 captions that end in a newline are among the 24 with blanks at
    their ends; its 29 and 33 videos that no list has are the other names of videos that are listed.
    """
    assert totals(real.oddities) == {
        f"{didemo.DISAGREE}: kept": 5_383,
        f"{didemo.NO_MAJORITY}: kept": 638,
        f"{didemo.NOT_FOUR}: kept": 27,
        f"{didemo.DOT}: kept": 172,
        f"{didemo.TWO_NAMES}: kept": 29 + 33,
        f"{didemo.UNLISTED}: kept": 29 + 33,
        f"{didemo.CHUNKS}: kept": 1,
        "blanks at the ends: trimmed": 24,
        "newline, control character or run of blanks inside: trimmed": 1,
        "caption repeats another of its clip: kept": 1,
        "caption text on several videos: kept": 59,
    }
    found = records(real)
    unlisted = [record.split(": ") for record in found[didemo.UNLISTED, "kept"]]
    assert [sum(file == f"{part}_list.txt" for _, file in unlisted) for part in ("val", "test")] == [29, 33]
    two = {record.split(": ")[0] for record in found[didemo.TWO_NAMES, "kept"]}
    assert {name.rpartition(".")[0] for name, _ in unlisted} == two
    raw = [r for part in ("val", "test") for r in orjson.loads((shared / f"data/didemo/{part}_data.json").read_bytes())]
    ended = {str(record["annotation_id"]) for record in raw if record["description"].endswith("\n")}
    assert len(ended) == 15
    assert ended <= set(found["blanks at the ends", "trimmed"])


def test_real_records(real: Manifest) -> None:
    captions = {caption.id: caption for caption in real.captions}
    video = "35034348999@N01_6060447507_dc1a90b8ef"
    assert Video(video, None, 30.0, f"{video}.mov") in real.videos
    assert captions["49152"] == Caption(
        "49152",
        video,
        "the man in the hat briefly bends over the machine",
        ((5.0, 10.0), (5.0, 10.0), (5.0, 10.0), (0.0, 5.0)),
    )
    playground = "11018968@N00_8739669376_cf5ce0ec22"
    listed = "little girl scratches her head then starts talking camera zooms out from girl on playground"
    assert captions[f"{playground}@ce"].text == listed
    assert captions[f"{playground}@paragraph"].text == f"{listed} a girl runs hand through her hair."
