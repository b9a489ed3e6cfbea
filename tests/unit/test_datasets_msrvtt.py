"""MSR-VTT: a set of four videos made here, and the real annotations."""

import csv
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import msrvtt
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import write


def video(number: int, split: str) -> dict[str, Any]:
    """One record; the video is as many seconds long as its number says."""
    return {
        "video_id": f"video{number}",
        "split": split,
        "category": number % 2,
        "start time": 10.5,
        "end time": 10.5 + number,
    }


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
        category__txt="music\t0\nnews/events\t1\n",
    )
    write(root / "ce_lists", train_list_miech__txt="video12\nvideo11", test_list_miech__txt="video10\nvideo9\n")
    write(root / "videos", video9__MP4="", video10__txt="")
    write(root / "videos/deep", video12__webm="", video12__avi="")
    manifest = msrvtt.load(root)
    assert manifest.videos == (
        Video("video9", root / "videos/video9.MP4", 9.0),
        Video("video10", None, 10.0),
        Video("video11", None, 11.0),
        Video("video12", root / "videos/deep/video12.webm", 12.0),
    )
    assert manifest.clips == tuple(
        Clip(f"video{n}", f"video{n}", 0.0, None, ("music", "news/events")[n % 2]) for n in (9, 10, 11, 12)
    )
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
        Part("miech", "train", ("video11", "video12"), ("3", "4")),
        Part("miech", "test", ("video9", "video10"), ("0", "1", "2")),
    )
    assert manifest.notes == (
        "annotations: MSRVTT_data.json",
        "2 sentences of MSRVTT_JSFUSION_test.csv are captions of their own (ret…)",
        "MSRVTT_train.7k.csv is not beside the annotations: derived, 2 videos",
        f"2 videos have their file in {root / 'videos'}; 1 have more than one, the first by suffix counts",
    )
    never = "never train on one and test on the other"
    assert {(o.kind, o.rule): o.records for o in manifest.oddities} == {
        ("blanks at the ends", "trimmed"): ("2",),
        ("newline, control character or run of blanks inside", "trimmed"): ("2", "ret10"),
        ("characters outside ASCII", "kept"): ("3",),
        ("caption repeats another of its clip", "kept"): ("1",),
        (msrvtt.NOT_LITERAL, "kept"): ("ret10",),
        (msrvtt.UNKNOWN, "dropped"): ("video99: MSRVTT_JSFUSION_test.csv", "video77: MSRVTT_train.9k.csv"),
        ("videos of another split's test in a train list", "kept"): (
            f"miech/test in full/train: 1 of its videos, first video9: {never}",
            f"full/val in split1/train: 1 of its videos, first video10: {never}",
            f"miech/test in split1/train: 2 of its videos, first video10: {never}",
            f"full/val in split2/train: 1 of its videos, first video10: {never}",
            f"miech/test in split2/train: 2 of its videos, first video10: {never}",
            f"full/test in miech/train: 2 of its videos, first video11: {never}",
            f"split1/test in miech/train: 2 of its videos, first video11: {never}",
            f"split2/test in miech/train: 2 of its videos, first video11: {never}",
        ),
    }


def test_sentences_of_the_test_that_are_odd(tmp_path: Path) -> None:
    """One but for its blanks its video's; one also another video's; one twice."""
    rows = retrieval(("ret1", 12, "un  café"), ("ret2", 12, "a dog runs"), ("ret3", 11, "a dog runs"))
    manifest = msrvtt.load(write(tmp_path, MSRVTT_data__json=WHOLE, MSRVTT_JSFUSION_test__csv=rows))
    found = {o.kind: o.records for o in manifest.oddities}
    assert found[msrvtt.NOT_LITERAL] == ("ret1: only its blanks differ", "ret2", "ret3")
    assert found[msrvtt.OTHERS] == ("ret2: a dog runs", "ret3: a dog runs")
    assert found[msrvtt.TWICE] == ("ret3: a dog runs",)


def test_captions_on_several_videos_and_without_text(tmp_path: Path) -> None:
    more = [sentence(5, 9, "a boat"), sentence(6, 9, " \t")]
    whole = WHOLE | {"sentences": WHOLE["sentences"] + more}
    manifest = msrvtt.load(write(tmp_path, MSRVTT_data__json=whole))
    found = {(o.kind, o.rule): o.records for o in manifest.oddities}
    assert found["caption text on several videos", "kept"] == ("a boat: 2 videos",)
    assert found["caption without text", "dropped"] == ("6",)
    assert [caption.id for caption in manifest.captions] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("music\t0\n", "no category 1, which video9 has; download it again"),
        ("music\t0\nnews\t", "'news'; expected a name, a tab and a number of its own"),
        ("music\t0\nnews\t0\n", "'news.t0'; expected a name, a tab and a number of its own"),
    ],
)
def test_categories_that_are_cut_off(tmp_path: Path, text: str, message: str) -> None:
    root = write(tmp_path, MSRVTT_data__json=WHOLE, category__txt=text)
    with pytest.raises(BadDataset, match="category.txt: " + message):
        msrvtt.load(root)


def test_categories_without_their_names(tmp_path: Path) -> None:
    manifest = msrvtt.load(write(tmp_path, MSRVTT_data__json=WHOLE))
    assert [clip.label for clip in manifest.clips] == ["1", "0", "1", "0"]


def test_lists_of_miech(tmp_path: Path) -> None:
    """Beside the annotations or in ce_lists; without its train list only the test."""
    write(tmp_path / "annotations", MSRVTT_data__json=WHOLE, test_list_miech__txt="video12\n")
    manifest = msrvtt.load(tmp_path)
    assert [(p.split, p.name) for p in manifest.splits if p.split != "full"] == [("miech", "test")]
    assert "train_list_miech.txt is not beside the annotations: derived, 0 videos" in manifest.notes
    write(tmp_path / "annotations" / "ce_lists", train_list_miech__txt="video9\nvideo12")
    with pytest.raises(
        BadDataset, match="miech: 1 videos of its train list .*first video12; use lists of one protocol"
    ):
        msrvtt.load(tmp_path)
    (tmp_path / "annotations/ce_lists/train_list_miech.txt").write_bytes(b"video\xff")
    with pytest.raises(BadDataset, match="train_list_miech.txt, row 1: byte 5 is not UTF-8"):
        msrvtt.load(tmp_path)


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
        BadDataset, match=r"split1: 1 videos of its train list \(MSRVTT_train.9k.csv\) .*, first video12; use lists"
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
        ({"videos": [video(9, "train")]}, "sen_id 2 is about 'video10', not among the videos"),
        ({"sentences": [sentence(0, 9, "a"), sentence(0, 9, "b")]}, "sen_id 0 stands twice"),
        ({"sentences": [sentence(0, 9, "a") | {"caption": 7}]}, r"sentences\[0\] is .*caption \(text\)"),
        ({"videos": [video(9, "train") | {"category": "x"}]}, r"videos\[0\] is .*category \(integer\)"),
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
    with pytest.raises(BadDataset, match=r"no MSR-VTT annotations in .*: expected MSRVTT_data.json, or "):
        msrvtt.load(tmp_path)
    with pytest.raises(BadDataset, match="absent does not exist; expected MSRVTT_data.json"):
        msrvtt.load(tmp_path / "absent")


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return msrvtt.load(shared / "data/msrvtt", shared / "data/videos/msrvtt")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert set(found) == set(msrvtt.EXPECTED)
    assert differences(found, msrvtt.EXPECTED) == []
    assert found["miech/test"] == {"videos": 1_000, "clips": 1_000, "captions": 20_000, "gallery": 1_000}
    assert found["split1/test"]["captions"] == 1_000
    assert set(Counter(c.clip for c in real.captions if not c.id.startswith("ret")).values()) == {20}
    assert [v.id for v in real.videos if v.path] == [f"video{n}" for n in (*range(7010, 7020), 7500)]
    assert len({clip.label for clip in real.clips}) == 20


def test_real_oddities(real: Manifest, shared: Path) -> None:
    """Against the shared folder's README, which counts the texts letter by letter."""
    found = totals(real.oddities)
    inside = found.pop("newline, control character or run of blanks inside: trimmed")
    repeated = found.pop("caption repeats another of its clip: kept")
    nearly = found.pop("caption repeats another of its clip but for blanks: kept")
    common = found.pop("caption text on several videos: kept")
    assert found == {
        "blanks at the ends: trimmed": 1_266,
        "characters outside ASCII: kept": 10,
        f"{msrvtt.NOT_LITERAL}: kept": 35,
        f"{msrvtt.OTHERS}: kept": 114,
        f"{msrvtt.TWICE}: kept": 5,
        "videos of another split's test in a train list: kept": 10,
    }
    folder = shared / "data/msrvtt"
    with zipfile.ZipFile(folder / "train_val_annotation.zip") as archive:
        member = next(name for name in archive.namelist() if name.endswith("train_val_videodatainfo.json"))
        sentences = orjson.loads(archive.read(member))["sentences"]
    sentences += orjson.loads((folder / "test_videodatainfo.json").read_bytes())["sentences"]
    raw = [(s["video_id"], s["caption"]) for s in sentences]
    # One caption has its double blank at its end.
    assert (inside, sum("  " in text for _, text in raw)) == (3_434, 3_435)
    assert (repeated, len(raw) - len(set(raw))) == (14_632, 14_632)
    # 15 more are equal, and 20 more stand on several videos, once their blanks are trimmed.
    assert nearly == 15
    several = Counter(text for _, text in set(raw))
    assert (common, sum(count > 1 for count in several.values())) == (5_545, 5_525)
    assert several["a person is playing a video game"] == 393


def test_real_leaks(real: Manifest) -> None:
    records = next(o.records for o in real.oddities if o.kind.startswith("videos of another split"))
    shared = {record.split(" of its videos")[0] for record in records}
    assert {"split1/test in miech/train: 453", "full/test in split1/train: 1990"} <= shared
    # 1,000 less the 296 that 1k-A tests on too.
    assert "miech/test in split1/train: 704" in shared
    assert not any(part in record for record in shared for part in ("test in split1/test", "split1/test in split2"))


def test_real_sentences(real: Manifest) -> None:
    texts = Counter(c.text for c in real.captions if c.id.startswith("ret"))
    assert texts["a man playing video games"] == 3
    assert sum("\u0432eautiful" in c.text for c in real.captions) == 1
    odd = next(o for o in real.oddities if o.kind == msrvtt.NOT_LITERAL)
    assert sum(record.endswith("only its blanks differ") for record in odd.records) == 23


def test_real_records(real: Manifest) -> None:
    assert real.captions[0] == Caption("0", "video2960", "a cartoon animals runs through an ice cave in a video game")
    assert real.captions[200_000] == Caption("ret0", "video9770", "a person is connecting something to system")
    assert real.captions[-1].id == "ret999"
    assert real.clips[1] == Clip("video1", "video1", 0.0, None, "food/drink")
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
    assert totals(manifest.oddities)[f"{msrvtt.UNKNOWN}: dropped"] == 8_540
