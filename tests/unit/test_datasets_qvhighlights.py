"""QVHighlights: four videos made here, and the real annotations."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import qvhighlights
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records


def query(qid: int, vid: str, text: str, *windows: tuple[float, float], duration: float = 150) -> dict[str, Any]:
    record: dict[str, Any] = {"qid": qid, "query": text, "duration": duration, "vid": vid}
    return record | ({"relevant_windows": list(windows)} if windows else {})


def write(folder: Path, **files: Any) -> Path:
    """Write each list of records, or text, as `highlight_NAME_release.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value if isinstance(value, str) else "".join(orjson.dumps(line).decode() + "\n" for line in value)
        (folder / f"highlight_{name}_release.jsonl").write_text(data)
    return folder


A, B, C = "-a_9.0_159.0", "b_10.0_160.0", "c_60.0_210.0"


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        train=[
            query(12, B, "A man  sings.", (100, 150.5), (10, 20)),
            query(3, A, "A man sings. ", (30, 20), (40, 40), (150, 152), (5, 6), (5.5, 8)),
            query(4, A, "A dog.", (6, 7), (5, 6)),
            query(5, A, " ", (5, 6)),
        ],
        test=[query(7, C, "A cat.", duration=148), query(6, "no cut", "A man sings.", duration=30)],
    )
    write(root / "videos")
    for name in (f"{A}.mp4", C):  # a name without suffix is not found: it would seem to have the suffix .0
        (root / "videos" / name).touch()
    manifest = qvhighlights.load(root)
    assert manifest.videos == (
        Video(A, root / f"videos/{A}.mp4", 150.0),
        Video(B, None, 150.0),
        Video(C, None, 148.0),
        Video("no cut", None, 30.0),
    )
    assert manifest.clips == tuple(Clip(name, name) for name in (A, B, C, "no cut"))
    assert manifest.captions == (
        Caption("3", A, "A man sings.", ((5.0, 6.0), (5.5, 8.0))),
        Caption("4", A, "A dog.", ((6.0, 7.0), (5.0, 6.0))),
        Caption("6", "no cut", "A man sings."),
        Caption("7", C, "A cat."),
        Caption("12", B, "A man sings.", ((100.0, 150.0), (10.0, 20.0))),
    )
    assert manifest.splits == (
        Part("qvhighlights", "train", (A, B), ("3", "4", "12")),
        Part("qvhighlights", "test", (C, "no cut"), ("6", "7")),
    )
    assert records(manifest) == {
        ("end before start", "dropped"): ("3#0: 30 to 20",),
        ("zero length", "dropped"): ("3#1: 40",),
        ("start at or past the end of the video", "dropped"): ("3#2: 150 of 150 s",),
        ("end past the end of the video", "clamped"): ("12#0: 150.5 to 150, by 0.5 s",),
        ("caption without text", "dropped"): ("5",),
        ("blanks at the ends", "trimmed"): ("3",),
        ("newline, control character or run of blanks inside", "trimmed"): ("12",),
        ("caption text on several videos", "kept"): ("A man sings.: 3 videos",),
        (qvhighlights.OVERLAP, "kept"): ("3#4: 3#3", "4#1: 3#3", "4#0: 3#4", "4#1: 3#4"),
        (qvhighlights.SAME, "kept"): ("4#1: 3#3",),
        (qvhighlights.OTHER_LENGTH, "kept"): (f"7: {C} lasts 148 s",),
    }
    assert manifest.notes == (
        "annotations: highlight_train_release.jsonl, highlight_test_release.jsonl",
        "highlight_val_release.jsonl is not there",
        "2 queries of test have no windows, as published",
        f"1 videos have their file in {root / 'videos'}",
    )


def test_where_files_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "annotations", val=[query(1, A, "a", (1, 2))])
    whole = tmp_path / "annotations/highlight_val_release.jsonl"
    whole.rename(whole.with_name("highlight_val_release.head1.jsonl"))
    assert qvhighlights.load(tmp_path).notes[0] == "annotations: highlight_val_release.head1.jsonl"
    write(tmp_path / "annotations", val=[query(2, B, "a", (1, 2))])
    assert [video.id for video in qvhighlights.load(tmp_path).videos] == [B]
    write(tmp_path, test=[query(3, C, "a")])
    assert [video.id for video in qvhighlights.load(tmp_path).videos] == [C]


GOOD = query(1, A, "a", (1, 2))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"qid": 1, "query": "a", "duration": 150}, "row 2: no column 'vid'"),
        (GOOD | {"qid": "1"}, "row 2: .*expected qid"),
        (GOOD | {"qid": -1}, "row 2: .*expected qid"),
        (GOOD | {"query": None}, "row 2: .*expected qid"),
        (GOOD | {"duration": 0}, "row 2: .*expected qid"),
        (GOOD | {"duration": "150"}, "row 2: .*expected qid"),
        (GOOD | {"relevant_windows": []}, "row 2: .*expected qid"),
        (GOOD | {"relevant_windows": [[1]]}, "row 2: .*expected qid"),
        (GOOD | {"relevant_windows": [[-1, 2]]}, "row 2: .*expected qid"),
        (GOOD | {"relevant_windows": [[1, "2"]]}, "row 2: .*expected qid"),
        (GOOD | {"relevant_windows": {"1": 2}}, "row 2: .*expected qid"),
        (query(1, A, "a"), "row 2: .*expected qid"),
        (query(1, "../a", "a", (1, 2)), "row 2: '../a' cannot be a video id"),
        (query(9, A, "a", (1, 2)), "row 2: qid 9 stands twice"),
        (query(1, B, "a", (1, 2), duration=149), f"row 2: {B} lasts 149 s, in qid 9 not"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    root = write(tmp_path, val=[query(9, B, "first", (1, 2)), record])
    with pytest.raises(BadDataset, match="highlight_val_release.jsonl, " + message) as caught:
        qvhighlights.load(root)
    assert "\n" not in str(caught.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no QVHighlights in .*: expected highlight_train_release.jsonl"):
        qvhighlights.load(tmp_path)
    root = write(tmp_path, val=[GOOD], test=[query(2, A, "b")])
    with pytest.raises(BadDataset, match=f"test_release.jsonl, row 1: {A} is in val too; use the files of one release"):
        qvhighlights.load(root)
    write(root, test="\n")
    with pytest.raises(BadDataset, match=r"test_release.jsonl: no queries; download it again"):
        qvhighlights.load(root)
    write(root, test='{"qid": 2, "query": "a')
    with pytest.raises(BadDataset, match=r"test_release.jsonl, row 1: not JSON"):
        qvhighlights.load(root)
    write(root, test=[query(2, B, "b") | {"relevant_windows": [[1, None]]}])
    with pytest.raises(BadDataset, match=r"test_release.jsonl, row 1: .*expected qid"):
        qvhighlights.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return qvhighlights.load(shared / "data/qvhighlights")


def test_real_counts(real: Manifest) -> None:
    """Train is not there."""
    found = counts(real)
    assert found == {
        "": {"videos": 3_048, "clips": 3_048, "captions": 3_092},
        "qvhighlights/val": {"videos": 1_519, "clips": 1_519, "captions": 1_550, "gallery": 1_519},
        "qvhighlights/test": {"videos": 1_529, "clips": 1_529, "captions": 1_542, "gallery": 1_529},
    }
    assert differences(found, qvhighlights.EXPECTED) == [
        "in all: 3,048 of 10,148 videos",
        "in all: 3,048 of 10,148 clips",
        "in all: 3,092 of 10,310 captions",
        "qvhighlights/train: 0 of 7,218 captions",
    ]


def test_real_oddities(real: Manifest) -> None:
    """The shared folder's README counts val only: 39 queries with another length, 43 pairs of windows of one video
    that overlap, 8 of them the same; no two of one query do.
    """
    assert totals(real.oddities) == {
        f"{qvhighlights.OTHER_LENGTH}: kept": 39 + 47,
        f"{qvhighlights.OVERLAP}: kept": 43,
        f"{qvhighlights.SAME}: kept": 8,
        "characters outside ASCII: kept": 2,
        "newline, control character or run of blanks inside: trimmed": 16 + 18,
        "caption text on several videos: kept": 5,
    }
    found = records(real)
    val = set(real.splits[0].captions)
    assert sum(record.split(":")[0] in val for record in found[qvhighlights.OTHER_LENGTH, "kept"]) == 39
    pairs = [record.split(": ") for record in found[qvhighlights.OVERLAP, "kept"]]
    assert all(one.split("#")[0] != two.split("#")[0] for one, two in pairs)


def test_real_records(real: Manifest) -> None:
    captions = {caption.id: caption for caption in real.captions}
    text = "A girl and her mother cooked while talking with each other on facetime."
    assert captions["2579"] == Caption("2579", "NUsG9BgSes0_210.0_360.0", text, ((82.0, 150.0),))
    val, test = real.splits
    assert all(captions[name].windows for name in val.captions)
    assert not any(captions[name].windows for name in test.captions)
