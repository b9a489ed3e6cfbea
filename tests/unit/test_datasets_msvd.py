"""MSVD: clips made here in its three forms, and the real annotations."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import msvd
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records, write

A, B, C = "-a_b_5_15", "qq_0_4", "-a_b_20_21"
CAPTIONS = {A: [" a  dog", "a dog", "oh"], B: ["", "a dog"], C: ["a cat", "a cat"]}
MAPPING = f"{A} vid1\n{B} vid2\n{C} vid10"


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        captions_msvd__json=CAPTIONS,
        youtube_mapping__txt=MAPPING,
        train_list__txt=f"{A}\nabsent_0_1\n",
        test_list__txt="vid10.avi",
        val_list__txt="",
    )
    write(root / "videos", vid1__avi="", **{f"{C}.mp4": "", "vid10.mp4": "", "vid3.mp4": ""})
    manifest = msvd.load(root)
    assert manifest.videos == (
        Video(A, root / "videos/vid1.avi", 10.0),
        Video(C, root / "videos/-a_b_20_21.mp4", 1.0),
        Video(B, None, 4.0),
    )
    assert manifest.clips == (Clip(A, A), Clip(C, C), Clip(B, B))
    assert manifest.captions == (
        Caption(f"{A}#0", A, "a dog"),
        Caption(f"{A}#1", A, "a dog"),
        Caption(f"{A}#2", A, "oh"),
        Caption(f"{C}#0", C, "a cat"),
        Caption(f"{C}#1", C, "a cat"),
        Caption(f"{B}#1", B, "a dog"),
    )
    assert manifest.splits == (
        Part("msvd", "train", (A,), (f"{A}#0", f"{A}#1", f"{A}#2")),
        Part("msvd", "test", (C,), (f"{C}#0", f"{C}#1")),
    )
    assert records(manifest) == {
        ("blanks at the ends", "trimmed"): (f"{A}#0",),
        ("newline, control character or run of blanks inside", "trimmed"): (f"{A}#0",),
        ("caption without text", "dropped"): (f"{B}#0",),
        ("caption repeats another of its clip", "kept"): (f"{A}#1", f"{C}#1"),
        ("caption text on several videos", "kept"): ("a dog: 2 videos",),
        (msvd.ONE_WORD, "kept"): (f"{A}#2: oh",),
        (msvd.SAME_SOURCE, "kept"): (A, C),
        (msvd.ACROSS, "kept"): ("-a_b: train and test",),
        (msvd.UNKNOWN, "dropped"): ("absent_0_1: train_list.txt",),
        (msvd.UNLISTED, "kept"): (B,),
    }
    assert manifest.notes == (
        "captions: captions_msvd.json",
        f"by YouTube's ids: 1 videos have their file in {root / 'videos'}",
        f"by vidN: 1 videos have their file in {root / 'videos'}",
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_words(tmp_path: Path, protocol: int) -> None:
    words = {name: [text.split(" ") for text in texts] for name, texts in CAPTIONS.items()}
    root = write(tmp_path / "pickle/annotations", **{"raw-captions.pkl": pickle.dumps(words, protocol)}).parent
    one = msvd.load(root, allow_pickle=True)
    other = msvd.load(write(tmp_path / "json", captions_msvd__json=CAPTIONS))
    assert one.captions == other.captions
    assert one.notes == (
        "captions: raw-captions.pkl",
        *(f"{name}_list.txt is not beside the captions: no msvd/{name}" for name in ("train", "val", "test")),
        f"0 videos have their file in {tmp_path / 'pickle'}",
    )


class Evil:
    """What a pickle can do to whoever reads it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    root = write(tmp_path / "root", **{"raw-captions.pkl": pickle.dumps({A: [Evil(target)]}, protocol)})
    with pytest.raises(
        BadDataset, match=r"raw-captions.pkl: not a pickle of captions \(it asks for \w+.mkdir"
    ) as caught:
        msvd.load(root, allow_pickle=True)
    assert "\n" not in str(caught.value)
    assert not target.exists()


@pytest.mark.parametrize("value", [{A: [{"a"}]}, {A: [Path("a")]}, {A: [range(3)]}, {A: [complex(1)]}])
def test_a_pickle_of_other_things(tmp_path: Path, value: Any) -> None:
    root = write(tmp_path, **{"raw-captions.pkl": pickle.dumps(value, 2)})
    with pytest.raises(BadDataset, match="raw-captions.pkl: not a pickle of captions .it asks for "):
        msvd.load(root, allow_pickle=True)


def test_a_pickle_that_is_cut_off_or_none(tmp_path: Path) -> None:
    whole = pickle.dumps({A: [["a", "dog"]]})
    for size in range(len(whole)):
        root = write(tmp_path, **{"raw-captions.pkl": whole[:size]})
        with pytest.raises(BadDataset, match="raw-captions.pkl: "):
            msvd.load(root, allow_pickle=True)
    for data in (b"\x80\x04\x95", b"hello", b"(lp0\n", b"I1\n.", b"\x80\x04C\x01a."):
        with pytest.raises(BadDataset, match="raw-captions.pkl: "):
            msvd.load(write(tmp_path, **{"raw-captions.pkl": data}), allow_pickle=True)


CHINESE = "id,video_id,sentence\r\n7,vid10.mp4,一只猫\r\n2,vid1.mp4, 一只狗。 \r\n10,vid1.mp4,狗\r\n"


def test_chinese(tmp_path: Path) -> None:
    root = write(
        tmp_path, msvd_cn_captions_release_utf8__csv=CHINESE, youtube_mapping__txt=MAPPING, test_list__txt=f"{A}\n{C}\n"
    )
    manifest = msvd.load(root)
    assert manifest.videos == (Video(A, None, 10.0), Video(C, None, 1.0))
    assert manifest.captions == (
        Caption(f"{A}#2", A, "一只狗。"),
        Caption(f"{A}#10", A, "狗"),
        Caption(f"{C}#7", C, "一只猫"),
    )
    assert manifest.splits == (Part("msvd", "test", (A, C), (f"{A}#2", f"{A}#10", f"{C}#7")),)
    assert records(manifest) == {
        ("blanks at the ends", "trimmed"): (f"{A}#2",),
        ("characters outside ASCII", "kept"): (f"{A}#2", f"{A}#10", f"{C}#7"),
        (msvd.SAME_SOURCE, "kept"): (A, C),
    }
    write(root, captions_msvd__json=CAPTIONS)
    assert msvd.load(root).notes[:2] == (
        "captions: captions_msvd.json",
        "msvd_cn_captions_release_utf8.csv is not read: one file of captions counts",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHINESE + "7,vid1.mp4,x\r\n", "row 5: .*expected an id of its own"),
        (CHINESE + "8,vid9.mp4,x\r\n", "row 5: .*a vidN of youtube_mapping.txt"),
        (CHINESE + "-8,vid1.mp4,x\r\n", "row 5: "),
        (CHINESE + "8,vid1.mp4", "row 5: 2 fields, but 3 columns; the file is cut off"),
        ("id,video_id,sentence\r\n", "no rows"),
        ("id,video\r\n", "no column 'video_id'"),
    ],
)
def test_chinese_rows_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    root = write(tmp_path, msvd_cn_captions_release_utf8__csv=text, youtube_mapping__txt=MAPPING)
    with pytest.raises(BadDataset, match="msvd_cn_captions_release_utf8.csv.*" + message):
        msvd.load(root)


def test_chinese_needs_the_other_ids(tmp_path: Path) -> None:
    root = write(tmp_path, msvd_cn_captions_release_utf8__csv=CHINESE)
    with pytest.raises(BadDataset, match="its videos are called vidN; put youtube_mapping.txt beside it"):
        msvd.load(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a_0_1 vid1\nb_0_1 vid1", "'b_0_1 vid1'; expected an id of YouTube and a vidN of its own"),
        ("a_0_1 vid1\na_0_1 vid2", "a_0_1 stands twice"),
        ("a_0_1 vid1\nb_0_1", "'b_0_1'; expected"),
        ("a_0_1 vid1\nb_0_1 vi", "'b_0_1 vi'; expected"),
        ("/a vid1", "cannot be a video id"),
    ],
)
def test_other_ids_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    root = write(tmp_path, captions_msvd__json=CAPTIONS, youtube_mapping__txt=text)
    with pytest.raises(BadDataset, match="youtube_mapping.txt: .*" + message):
        msvd.load(root)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected an object"),
        ({}, "expected an object"),
        ({A: []}, f"'{A}' is .*expected an id of its own with its captions"),
        ({A: "a dog"}, f"'{A}' is "),
        ({A: [1]}, f"'{A}' is "),
        ({A: [["a", 1]]}, f"'{A}' is "),
        ({A: ["a"], "vid1": ["a"]}, "'vid1' is .*an id of its own"),
        ({"../a": ["a"]}, "cannot be a video id"),
    ],
)
def test_captions_that_cannot_be_used(tmp_path: Path, value: Any, message: str) -> None:
    root = write(tmp_path, captions_msvd__json=value, youtube_mapping__txt=MAPPING)
    with pytest.raises(BadDataset, match="captions_msvd.json: .*" + message):
        msvd.load(root)


def test_lists_that_cannot_be_used(tmp_path: Path) -> None:
    root = write(tmp_path, captions_msvd__json=CAPTIONS, youtube_mapping__txt=MAPPING, train_list__txt=f"{B}\n{A}")
    write(root, val_list__txt="vid2\n")
    with pytest.raises(BadDataset, match=f"{B} is in train_list.txt and in val_list.txt; leave it in one"):
        msvd.load(root)
    write(root, val_list__txt=b"\xff")
    with pytest.raises(BadDataset, match="val_list.txt, row 1: byte 0 is not UTF-8"):
        msvd.load(root)


def test_no_annotations_and_cut_ones(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no MSVD captions in .*: expected captions_msvd.json"):
        msvd.load(tmp_path)
    write(tmp_path, captions_msvd__head1__json={A: ["a dog"]})
    assert msvd.load(tmp_path).notes[0] == "captions: captions_msvd.head1.json"
    write(tmp_path, captions_msvd__json=CAPTIONS)
    assert msvd.load(tmp_path).notes[0] == "captions: captions_msvd.json"


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return msvd.load(shared / "data/msvd")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert set(found) == set(msvd.EXPECTED)
    assert differences(found, msvd.EXPECTED) == []
    assert [len(part.clips) for part in real.splits] == [1_200, 100, 670]
    each = [0] * 1970
    place = {video.id: n for n, video in enumerate(real.videos)}
    for caption in real.captions:
        each[place[caption.clip]] += 1
    assert (min(each), max(each)) == (18, 81)
    assert sum(video.id.startswith("-") for video in real.videos) == 46
    assert all(video.duration > 0 for video in real.videos)


def test_real_oddities(real: Manifest) -> None:
    """As the shared folder's README counts them; that two parts share a video, and common texts, it does not say."""
    assert totals(real.oddities) == {
        "caption repeats another of its clip: kept": 10_845,
        f"{msvd.ONE_WORD}: kept": 60,
        f"{msvd.SAME_SOURCE}: kept": 658,
        f"{msvd.ACROSS}: kept": 1,
        "caption text on several videos: kept": 3_480,
    }
    assert records(real)[msvd.ACROSS, "kept"] == ("bQJQGoJF7_k: train and val",)


def test_real_chinese(shared: Path, tmp_path: Path) -> None:
    for name in ("msvd_cn_captions_release_utf8.csv", "youtube_mapping.txt", "test_list.txt"):
        (tmp_path / name).symlink_to(shared / "data/msvd" / name)
    manifest = msvd.load(tmp_path)
    found = counts(manifest)
    assert found[""] == {"videos": 1_970, "clips": 1_970, "captions": 11_758}
    assert found["msvd/test"]["clips"] == 670
    odd = totals(manifest.oddities)
    assert odd["characters outside ASCII: kept"] == 11_758
    assert odd["caption repeats another of its clip: kept"] == 653  # 650 before blanks at the ends are trimmed
    assert odd["blanks at the ends: trimmed"] == 21
