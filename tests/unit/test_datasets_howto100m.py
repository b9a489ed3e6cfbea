"""HowTo100M: a few videos made here, and the real lists."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipeline.counts import counts
from pipeline.datasets import howto100m
from pipeline.datasets.howto100m import captions_of
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Oddity, Part, Video
from tests.unit.written import write

TABLE = "video_id,category_1,category_2,rank,task_id\n"
SPOKEN = [
    (4.0, 6.0, "and then you  add it"),
    (0.0, 2.5, "so this is it"),
    (6.0, 6.0, "to the"),
    (7.0, 6.5, "of the"),
    (float("nan"), 9.0, "in it"),
    (8.0, 9.0, " \n"),
    (9.0, 12.0, "that is the end"),
    (12.0, 13.0, "it was on the"),
    (-1.0, 3.0, "at the"),
]


def record(rows: list[tuple[float, float, str]]) -> dict[str, list[Any]]:
    return {"start": [row[0] for row in rows], "end": [row[1] for row in rows], "text": [row[2] for row in rows]}


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        HowTo100M_v1__csv=TABLE + "-b,F,G,1,9\n-a10,F,G,1,22\n-a9,F,G,2,7\n-b,F,G,2,10\n",
        htm_holdout_vid__txt="-b\n-a9\n-none\n-b\n",
        procedurevrl_howto100m_full_test__csv="-a9.mp4 3 11.5\n-c.mp4 4 1\n",
        raw_caption__json=json.dumps({"-a9": record(SPOKEN), "-x": record(SPOKEN[:2]), "-b": record([])}),
    )
    (root / "videos").mkdir()
    (root / "videos/-a9.webm").touch()
    assert howto100m.load(root) == Manifest(
        dataset="howto100m",
        videos=(
            Video("-a9", root / "videos/-a9.webm", 11.5),
            Video("-a10", None),
            Video("-b", None),
        ),
        clips=(
            Clip("-a9", "-a9", label="7"),
            Clip("-a9@1", "-a9", 0.0, 2.5, "7"),
            Clip("-a9@2", "-a9", 4.0, 6.0, "7"),
            Clip("-a9@6", "-a9", 9.0, 11.5, "7"),
            Clip("-a10", "-a10", label="22"),
            Clip("-b", "-b", label="9"),
        ),
        captions=(
            Caption("-a9@1", "-a9@1", "so this is it"),
            Caption("-a9@2", "-a9@2", "and then you add it"),
            Caption("-a9@6", "-a9@6", "that is the end"),
        ),
        splits=(
            Part("holdout", "train", ("-a10",), ()),
            Part(
                "holdout",
                "test",
                ("-a9", "-a9@1", "-a9@2", "-a9@6", "-b"),
                ("-a9@1", "-a9@2", "-a9@6"),
            ),
        ),
        oddities=(
            Oddity("caption without text", "dropped", ("-a9@5",)),
            Oddity("captions of a video that HowTo100M_v1.csv lacks", "dropped", ("-x: 2 captions",)),
            Oddity("end before start", "dropped", ("-a9@4: 7 to 6.5",)),
            Oddity("end past the end of the video", "clamped", ("-a9@6: 12 to 11.5, by 0.5 s",)),
            Oddity("in a list but not in HowTo100M_v1.csv", "dropped", ("-c", "-none")),
            Oddity("newline, control character or run of blanks inside", "trimmed", ("-a9@2",)),
            Oddity("start at or past the end of the video", "dropped", ("-a9@7: 12 of 11.5 s",)),
            Oddity("start or end that is no time", "dropped", ("-a9@0: -1 to 3", "-a9@8: nan to 9")),
            Oddity("video listed twice", "dropped", ("-b: HowTo100M_v1.csv", "-b: htm_holdout_vid.txt")),
            Oddity("zero length", "dropped", ("-a9@3: 6",)),
        ),
        notes=(
            "lists: HowTo100M_v1.csv, htm_holdout_vid.txt, procedurevrl_howto100m_full_test.csv",
            "captions: raw_caption.json, 11 of 3 videos",
            f"1 videos have their file in {root}/videos",
        ),
    )


def test_without_the_csv_every_named_video_counts(tmp_path: Path) -> None:
    root = write(
        tmp_path / "annotation",
        htm_holdout_vid__txt="-b\n-a\n",
        procedurevrl_howto100m_full_test__csv="-a.mp4 3 11.5\n-c.mp4 4 1\n",
        sentencified_htm_370k__json=json.dumps({"-d": record(SPOKEN[:1])}),
    )
    loaded = howto100m.load(tmp_path)
    assert loaded.videos == (Video("-a", None, 11.5), Video("-b", None), Video("-c", None, 1.0), Video("-d", None))
    assert {clip.id: clip.label for clip in loaded.clips} == {"-a": "3", "-b": "", "-c": "4", "-d": "", "-d@0": ""}
    assert loaded.splits == (
        Part("holdout", "train", ("-c", "-d", "-d@0"), ("-d@0",)),
        Part("holdout", "test", ("-a", "-b"), ()),
    )
    assert captions_of(tmp_path) == root / "sentencified_htm_370k.json"


CONTENT = {"-a": record(SPOKEN[:2]), "-b": record(SPOKEN[1:2])}
WITHOUT = {"-a": record([(0, 2, "cook fish"), (2, 3, "salt")])}


def test_which_captions_count(tmp_path: Path) -> None:
    """The least first: each that is added wins over those before it."""
    root = write(tmp_path, htm_holdout_vid__txt="-a\n")
    with pytest.raises(BadDataset, match="no captions in .*: expected one of raw_caption"):
        captions_of(root)
    assert howto100m.load(root).notes[1] == "captions: none beside the lists"
    (root / "caption.pickle").write_bytes(pickle.dumps(CONTENT))
    assert captions_of(root).name == "caption.pickle"
    write(root, caption__json=json.dumps(WITHOUT))
    assert howto100m.load(root).notes[1:3] == (
        "captions: caption.json, 2 of 1 videos",
        "WARNING: caption.json has no stop words: what was said is not whole; prefer raw_caption.json",
    )
    write(root / "captions", **{"-a__csv": "start,end,text\n0,2,so it is\n"})
    assert howto100m.load(root).captions == (Caption("-a@0", "-a@0", "so it is"),)
    write(root, sentencified_htm_1200k__json=json.dumps(CONTENT))
    assert captions_of(root).name == "sentencified_htm_1200k.json"
    write(root, raw_caption__head9__json=json.dumps(CONTENT))
    assert captions_of(root).name == "raw_caption.head9.json"
    write(root, raw_caption__json=json.dumps(CONTENT))
    assert captions_of(root).name == "raw_caption.json"
    assert howto100m.load(root).notes[1] == "captions: raw_caption.json, 3 of 2 videos"
    write(root, raw_caption2__json=json.dumps(CONTENT))
    with pytest.raises(BadDataset, match="raw_caption.json, raw_caption2.json are several of one kind; keep one"):
        captions_of(root)


def test_captions_that_are_too_many_stay_for_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(howto100m, "LARGEST", 100)
    root = write(tmp_path, htm_holdout_vid__txt="-a\n", caption__json=json.dumps(CONTENT))
    loaded = howto100m.load(root)
    assert (len(loaded.clips), loaded.captions) == (1, ())
    assert loaded.notes[1:3] == (
        "captions: caption.json is larger than 0 MB: pipeline run merge makes clips of it",
        "WARNING: caption.json has no stop words: what was said is not whole; prefer raw_caption.json",
    )
    (root / "caption.json").rename(root / "raw_caption.json")
    assert [note for note in howto100m.load(root).notes if "WARNING" in note] == []
    (root / "htm_holdout_vid.txt").unlink()
    with pytest.raises(BadDataset, match="no list of videos in .*; expected HowTo100M_v1.csv or an id list beside"):
        howto100m.load(root)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no HowTo100M annotations in .*: expected HowTo100M_v1.csv or lists"),
        ({"HowTo100M_v1__csv": "video_id,rank\na,1\n"}, "HowTo100M_v1.csv: no column 'task_id'"),
        ({"HowTo100M_v1__csv": TABLE + "a,F,G,1,77\nb,F,G,1,7"}, "HowTo100M_v1.csv: the last line has no end"),
        ({"HowTo100M_v1__csv": TABLE + "../a,F,G,1,77\n"}, "HowTo100M_v1.csv, row 2: '../a' cannot be a video id"),
        ({"HowTo100M_v1__csv": TABLE}, "no list of videos in"),
        ({"htm_holdout_vid__txt": ""}, "htm_holdout_vid.txt: the last line has no end"),
        ({"htm_holdout_vid__txt": "-a\n\n/b\n"}, "htm_holdout_vid.txt, row 3: '/b' cannot be a video id"),
        ({"procedurevrl_howto100m_full_test__csv": "a.mp4 1 2.5\nb.mp4 1\n"}, "row 2: 'b.mp4 1'; expected FILE LABEL"),
        ({"procedurevrl_howto100m_full_test__csv": "a.mp4 1 nan\n"}, "row 1: 'a.mp4 1 nan'; expected FILE LABEL SEC"),
        ({"procedurevrl_howto100m_full_test__csv": "a.mp4 1 x\n"}, "row 1: 'a.mp4 1 x'"),
        ({"procedurevrl_howto100m_full_test__csv": "a.mp4 -1 2\n"}, "row 1: 'a.mp4 -1 2'"),
        ({"procedurevrl_howto100m_full_test__csv": "a.mp4 1 0\n"}, "row 1: 'a.mp4 1 0'"),
        ({"raw_caption__json": json.dumps(CONTENT)[:-9]}, "raw_caption.json, byte 100, '-b': the file does not end"),
        ({"raw_caption__json": json.dumps(CONTENT).replace("-b", "-a")}, "raw_caption.json: video -a stands twice"),
    ],
)
def test_damaged(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(BadDataset, match=message) as caught:
        howto100m.load(write(tmp_path, **files))
    assert "\n" not in str(caught.value)


def test_a_list_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "htm_holdout_vid.txt").write_bytes(b"-a\xff\n")
    with pytest.raises(BadDataset, match="htm_holdout_vid.txt: byte 2 is not UTF-8"):
        howto100m.load(tmp_path)


def test_real_lists(shared: Path) -> None:
    """1,000 videos are held out, every id with a dash in front; 4,000 others have a length."""
    loaded = howto100m.load(shared / "data/howto100m")
    assert counts(loaded) == {
        "": {"videos": 5_000, "clips": 5_000, "captions": 0},
        "holdout/train": {"videos": 4_000, "clips": 4_000, "captions": 0, "gallery": 0},
        "holdout/test": {"videos": 1_000, "clips": 1_000, "captions": 0, "gallery": 0},
    }
    assert howto100m.EXPECTED["holdout/test"]["videos"] == 1_000
    assert all(video.startswith("-") for video in loaded.splits[1].clips)
    assert totals(loaded.oddities) == {}
    assert sum(video.duration > 0 for video in loaded.videos) == 4_000
    known = {video.id: video.duration for video in loaded.videos}
    assert (known["_2Q4-X7B8Jc"], known["---0tKA3iYI"]) == (762.07, 0.0)
    assert {clip.id: clip.label for clip in loaded.clips}["_2Q4-X7B8Jc"] == "356"


def test_real_recognised_speech(shared: Path) -> None:
    """A folder of one file a video is a data set too: of four videos, three have no speech."""
    loaded = howto100m.load(shared / "data/asr")
    assert captions_of(shared / "data/asr") == shared / "data/asr"
    assert counts(loaded) == {"": {"videos": 4, "clips": 4 + 9, "captions": 9}}
    assert totals(loaded.oddities) == {}
    assert loaded.captions[0].text.startswith("Turning to chapter 2, advanced problems")
