"""MSR-VTT: a set of four videos made here, and the real annotations."""

import csv
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.datasets import msrvtt
from pipeline.errors import BadDataset
from pipeline.records import Caption, Clip, Manifest, Part, Video


def video(number: int, split: str) -> dict[str, Any]:
    """One record; the video is as many seconds long as its number says."""
    return {"video_id": f"video{number}", "split": split, "start time": 10.5, "end time": 10.5 + number}


def sentence(sen_id: int, number: int, caption: str) -> dict[str, Any]:
    return {"sen_id": sen_id, "video_id": f"video{number}", "caption": caption}


TRAIN_VAL = {
    "videos": [video(10, "validate"), video(9, "train")],
    "sentences": [sentence(2, 10, " a  man\tsings "), sentence(0, 9, "a dog runs"), sentence(1, 9, "a dog runs")],
}
TEST = {
    "videos": [video(11, "test"), video(12, "test")],
    "sentences": [sentence(3, 12, "un café"), sentence(4, 11, "a boat")],
}
WHOLE = {key: TRAIN_VAL[key] + TEST[key] for key in TRAIN_VAL}


def write(folder: Path, **files: Any) -> Path:
    """Write each value as JSON, or as text, under its name: `__` stands for `.`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value.encode() if isinstance(value, str) else orjson.dumps(value)
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def retrieval(*rows: tuple[str, int, str]) -> str:
    return "key,vid_key,video_id,sentence\n" + "".join(f"{key},msr{n},video{n},{text}\n" for key, n, text in rows)


def part(manifest: Manifest, split: str, name: str) -> Part:
    return next(part for part in manifest.splits if (part.split, part.name) == (split, name))


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        MSRVTT_data__json=WHOLE,
        MSRVTT_JSFUSION_test__csv=retrieval(("ret10", 12, "a  coffee"), ("ret9", 11, "a boat"), ("ret8", 99, "x")),
        MSRVTT_train__9k__csv="video_id\nvideo10\nvideo9\nvideo77\n",
    )
    write(root / "videos", video9__MP4="", video10__txt="")
    write(root / "videos/deep", video12__webm="", video12__avi="")
    manifest = msrvtt.load(root)
    assert manifest.videos == (
        Video("video9", root / "videos/video9.MP4", 9.0),
        Video("video10", None, 10.0),
        Video("video11", None, 11.0),
        Video("video12", root / "videos/deep/video12.webm", 12.0),
    )
    assert manifest.clips == tuple(Clip(f"video{n}", f"video{n}", 0.0, None) for n in (9, 10, 11, 12))
    assert manifest.captions == (
        Caption("0", "video9", "a dog runs"),
        Caption("1", "video9", "a dog runs"),
        Caption("2", "video10", "a man sings"),
        Caption("3", "video12", "un café"),
        Caption("4", "video11", "a boat"),
        Caption("ret9", "video11", "a boat"),
        Caption("ret10", "video12", "a coffee"),
    )
    train = (("video9", "video10"), ("0", "1", "2"))
    assert manifest.splits == (
        Part("full", "train", ("video9",), ("0", "1")),
        Part("full", "val", ("video10",), ("2",)),
        Part("full", "test", ("video11", "video12"), ("3", "4")),
        Part("split1", "train", *train),
        Part("split1", "test", ("video11", "video12"), ("ret9", "ret10")),
        Part("split2", "train", *train),
        Part("split2", "test", ("video11", "video12"), ("ret9", "ret10")),
    )
    assert manifest.notes == (
        "annotations: MSRVTT_data.json",
        "not the whole data set: videos 4 of 10,000, captions 5 of 200,000, full/train 1 of 6,513, full/val 1 of 497, "
        "full/test 2 of 2,990, split1/train 2 of 9,000, split1/test 2 of 1,000, split2/train 2 of 7,010, "
        "split2/test 2 of 1,000",
        "1 captions trimmed of blanks",
        "1 captions have characters outside ASCII: kept",
        "1 captions repeat another of their video, in 1 videos: kept",
        "2 sentences of MSRVTT_JSFUSION_test.csv are captions of their own (ret…): 1 are not literally among their "
        "video's captions, 0 repeat another's text",
        "1 of 3 rows of MSRVTT_JSFUSION_test.csv are not in the annotations: left out",
        "1 of 3 rows of MSRVTT_train.9k.csv are not in the annotations: left out",
        "MSRVTT_train.7k.csv is not beside the annotations: derived, 2 videos",
        f"2 of 4 videos have their file in {root / 'videos'}",
        f"1 videos have more than one file, e.g. video12: took {root / 'videos/deep/video12.webm'}",
    )


def test_both_generations_give_the_same(tmp_path: Path) -> None:
    one = write(tmp_path / "one", MSRVTT_data__json=WHOLE)
    two = write(tmp_path / "two/annotation", train_val_videodatainfo__json=TRAIN_VAL, test_videodatainfo__json=TEST)
    zipped = tmp_path / "zipped/annotations"
    zipped.mkdir(parents=True)
    for name, member, data in (
        ("train_val_annotation.zip", "train_val_annotation/train_val_videodatainfo.json", TRAIN_VAL),
        ("test_videodatainfo.json.zip", "test_videodatainfo.json", TEST),
    ):
        with zipfile.ZipFile(zipped / name, "w") as archive:
            archive.writestr(member, orjson.dumps(data))
    first, second, third = (msrvtt.load(root) for root in (one, two.parent, zipped.parent))
    assert first.videos == second.videos == third.videos
    assert first.captions == second.captions == third.captions
    assert first.splits == second.splits == third.splits
    assert second.notes[0] == "annotations: train_val_videodatainfo.json, test_videodatainfo.json"
    assert third.notes[0] == "annotations: train_val_annotation.zip, test_videodatainfo.json.zip"


def test_whole_files_win_over_subsets_and_plain_ones_over_zips(tmp_path: Path) -> None:
    subset = {"videos": [video(9, "train")], "sentences": [sentence(0, 9, "a dog runs")]}
    root = write(tmp_path, MSRVTT_data__subset__json=subset, train_val_videodatainfo__subset__json=subset)
    assert msrvtt.load(root).notes[0] == "annotations: MSRVTT_data.subset.json"
    write(root, train_val_videodatainfo__json=TRAIN_VAL, train_val_annotation__zip="not read")
    manifest = msrvtt.load(root)
    assert manifest.notes[0] == "annotations: train_val_videodatainfo.json"
    assert [(part.split, part.name) for part in manifest.splits] == [("full", "train"), ("full", "val")]
    write(root, MSRVTT_data_2__json=WHOLE)
    assert msrvtt.load(root).notes[0] == "annotations: MSRVTT_data_2.json"


def test_without_the_test_list_only_full(tmp_path: Path) -> None:
    manifest = msrvtt.load(write(tmp_path, MSRVTT_data__json=WHOLE))
    assert {part.split for part in manifest.splits} == {"full"}
    assert "MSRVTT_JSFUSION_test.csv is not beside the annotations: no split1 and split2" in manifest.notes


def test_train_lists_are_derived_without_their_files(tmp_path: Path) -> None:
    root = write(tmp_path, MSRVTT_data__json=WHOLE, MSRVTT_JSFUSION_test__csv=retrieval(("ret0", 12, "a coffee")))
    manifest = msrvtt.load(root)
    assert part(manifest, "split1", "train").clips == ("video9", "video10", "video11")
    assert part(manifest, "split2", "train").clips == ("video9", "video10")
    assert "MSRVTT_train.9k.csv is not beside the annotations: derived, 3 videos" in manifest.notes


def test_lists_may_lie_in_the_root(tmp_path: Path) -> None:
    write(tmp_path / "annotations", MSRVTT_data__json=WHOLE)
    write(tmp_path, MSRVTT_JSFUSION_test__csv=retrieval(("ret0", 12, "a coffee")))
    assert part(msrvtt.load(tmp_path), "split1", "test").captions == ("ret0",)


def test_videos_of_the_original_folders_or_of_another(tmp_path: Path) -> None:
    root = write(tmp_path / "root", MSRVTT_data__json=WHOLE, video9__mp4="")
    write(tmp_path / "other", video11__mkv="")
    assert [v.id for v in msrvtt.load(root).videos if v.path] == ["video9"]
    assert [v.path for v in msrvtt.load(root, tmp_path / "other").videos if v.path] == [tmp_path / "other/video11.mkv"]
    write(root / "TrainValVideo", video10__mp4="")
    write(root / "TestVideo", video12__mp4="")
    assert [v.id for v in msrvtt.load(root).videos if v.path] == ["video10", "video12"]
    with pytest.raises(BadDataset, match="absent does not exist; expected the video files"):
        msrvtt.load(root, tmp_path / "absent")


def test_a_leak_is_an_error(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        MSRVTT_data__json=WHOLE,
        MSRVTT_JSFUSION_test__csv=retrieval(("ret0", 12, "a coffee")),
        MSRVTT_train__9k__csv="video_id\nvideo9\nvideo12\n",
    )
    with pytest.raises(
        BadDataset, match=r"split1: 1 videos .*MSRVTT_train.9k.csv.* MSRVTT_JSFUSION_test.csv, first video12"
    ):
        msrvtt.load(root)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"videos": [video(9, "dev")]}, r"videos\[0\] is .*split \(train, validate, test\)"),
        ({"videos": [video(9, "train"), video(0, "train")]}, r"videos\[1\] is .*0 <= 'start time' < 'end time'"),
        ({"videos": [{"video_id": "video9"}]}, r"videos\[0\] is .*expected video_id"),
        ({"videos": [video(9, "train") | {"video_id": "a\nb"}]}, r"videos\[0\]: 'a\\nb' cannot be a video id"),
        ({"videos": [video(9, "train")] * 2}, "video video9 stands twice"),
        ({"videos": [video(9, "train")]}, "sen_id 2 is about 'video10', which is not among the videos"),
        ({"sentences": [sentence(0, 9, "a"), sentence(0, 9, "b")]}, "sen_id 0 stands twice"),
        ({"sentences": [sentence(0, 9, " ")]}, r"sentences\[0\] is .*caption \(text, not empty\)"),
        (
            {"sentences": [{"sen_id": "0", "video_id": "video9", "caption": "a"}]},
            r"sentences\[0\] is .*sen_id \(integer\)",
        ),
        ({"sentences": {}}, "expected an object with the lists 'videos' and 'sentences'"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    root = write(tmp_path, MSRVTT_data__json=WHOLE | changed)
    with pytest.raises(BadDataset, match="MSRVTT_data.json: " + message):
        msrvtt.load(root)


def test_a_test_list_with_a_key_twice(tmp_path: Path) -> None:
    rows = retrieval(("ret0", 12, "a"), ("ret0", 11, "b"))
    root = write(tmp_path, MSRVTT_data__json=WHOLE, MSRVTT_JSFUSION_test__csv=rows)
    with pytest.raises(BadDataset, match="MSRVTT_JSFUSION_test.csv, row 3: .*expected a key of its own"):
        msrvtt.load(root)


def test_no_annotations(tmp_path: Path) -> None:
    with pytest.raises(
        BadDataset, match=r"no MSR-VTT annotations in .*: expected MSRVTT_data.json, or .*pipeline list"
    ):
        msrvtt.load(tmp_path)
    with pytest.raises(BadDataset, match="absent does not exist; expected MSRVTT_data.json"):
        msrvtt.load(tmp_path / "absent")


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return msrvtt.load(shared / "data/msrvtt", shared / "data/videos/msrvtt")


def test_real_counts(real: Manifest) -> None:
    assert len(real.videos) == 10_000
    assert len(real.captions) == 201_000
    assert {(p.split, p.name): (len(p.clips), len(p.captions)) for p in real.splits} == {
        ("full", "train"): (6_513, 130_260),
        ("full", "val"): (497, 9_940),
        ("full", "test"): (2_990, 59_800),
        ("split1", "train"): (9_000, 180_000),
        ("split1", "test"): (1_000, 1_000),
        ("split2", "train"): (7_010, 140_200),
        ("split2", "test"): (1_000, 1_000),
    }
    assert set(Counter(c.clip for c in real.captions if not c.id.startswith("ret")).values()) == {20}
    assert [v.id for v in real.videos if v.path] == [f"video{n}" for n in (*range(7010, 7020), 7500)]
    assert not any(note.startswith("not the whole") for note in real.notes)


def test_real_oddities(real: Manifest) -> None:
    """The counts that the shared folder's README gives for the files as published."""
    assert real.notes[:4] == (
        "annotations: train_val_annotation.zip, test_videodatainfo.json",
        "4,533 captions trimmed of blanks",
        "10 captions have characters outside ASCII: kept",
        "14,632 captions repeat another of their video, in 6,595 videos: kept",
    )
    assert real.notes[4].endswith("(ret…): 35 are not literally among their video's captions, 5 repeat another's text")
    texts = Counter(c.text for c in real.captions if c.id.startswith("ret"))
    assert texts["a man playing video games"] == 3
    assert sum("\u0432eautiful" in c.text for c in real.captions) == 1


def test_real_records(real: Manifest) -> None:
    assert real.captions[0] == Caption("0", "video2960", "a cartoon animals runs through an ice cave in a video game")
    assert real.captions[200_000] == Caption("ret0", "video9770", "a person is connecting something to system")
    assert real.captions[-1].id == "ret999"
    assert [v.id for v in real.videos] == [f"video{n}" for n in range(10_000)]
    assert real.videos[7010].duration == pytest.approx(419.65 - 401.51)


def test_real_lists_are_what_is_derived_without_them(shared: Path, real: Manifest) -> None:
    with (shared / "data/msrvtt/MSRVTT_train.7k.csv").open() as file:
        listed = {row["video_id"] for row in csv.DictReader(file)}
    train, val = (set(part(real, "full", name).clips) for name in ("train", "val"))
    assert set(part(real, "split2", "train").clips) == listed == train | val
    everything, test = {v.id for v in real.videos}, set(part(real, "split1", "test").clips)
    assert set(part(real, "split1", "train").clips) == everything - test


def test_real_subset(shared: Path, tmp_path: Path) -> None:
    for name in ("MSRVTT_data.subset.json", "MSRVTT_JSFUSION_test.csv", "MSRVTT_train.9k.csv"):
        (tmp_path / name).symlink_to(shared / "data/msrvtt" / name)
    manifest = msrvtt.load(tmp_path)
    sizes = {(p.split, p.name): len(p.clips) for p in manifest.splits}
    assert (len(manifest.videos), len(manifest.captions)) == (1_460, 30_200)
    # 1,460 less the thousand of the test; 400 of train and 50 of val.
    assert sizes["split1", "test"] == 1_000
    assert sizes["split1", "train"] == 460
    assert sizes["split2", "train"] == 450
    assert "8,540 of 9,000 rows of MSRVTT_train.9k.csv are not in the annotations: left out" in manifest.notes
