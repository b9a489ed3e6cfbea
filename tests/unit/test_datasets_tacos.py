"""TACoS: three videos made here, and the real annotations."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline import datasets
from pipeline.counts import counts, differences
from pipeline.datasets import tacos
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records


def told(fps: float, frames: int, *moments: tuple[int, int, str]) -> dict[str, Any]:
    return {
        "timestamps": [[start, end] for start, end, _ in moments],
        "sentences": [text for _, _, text in moments],
        "fps": fps,
        "num_frames": frames,
    }


def write(folder: Path, **files: Any) -> Path:
    """Write each value as JSON, or as text, under its name and `.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = value.encode() if isinstance(value, str) else orjson.dumps(value)
        (folder / f"{name}.json").write_bytes(data)
    return folder


def test_every_record(tmp_path: Path) -> None:
    late = told(10, 100, (50, 110, "He eats."), (20, 30, "He  cuts."), (50, 100, "He eats."), (50, 105, "He eats. "))
    none = told(10, 100, (40, 30, "Bad."), (30, 30, "Empty."), (100, 120, "Late."), (1, 2, "\n"))
    root = write(
        tmp_path,
        train={"s10-d1.avi": late, "s9-d1.avi": none},
        test={"s2": told(2.5, 50, (0, 25, "He cuts."))},
    )
    write(root / "videos")
    (root / "videos/s10-d1.avi").touch()
    (root / "videos/s10-d1.mp4").touch()
    manifest = tacos.load(root)
    assert manifest.videos == (
        Video("s2", None, 20.0),
        Video("s10-d1", root / "videos/s10-d1.mp4", 10.0, "s10-d1.avi"),
    )
    assert manifest.clips == (
        Clip("s2_0_25", "s2", 0.0, 10.0),
        Clip("s10-d1_20_30", "s10-d1", 2.0, 3.0),
        Clip("s10-d1_50_100", "s10-d1", 5.0, 10.0),
    )
    assert manifest.captions == (
        Caption("s2#0", "s2_0_25", "He cuts."),
        Caption("s10-d1#0", "s10-d1_50_100", "He eats."),
        Caption("s10-d1#1", "s10-d1_20_30", "He cuts."),
        Caption("s10-d1#2", "s10-d1_50_100", "He eats."),
        Caption("s10-d1#3", "s10-d1_50_100", "He eats."),
    )
    assert manifest.splits == (
        Part("tacos", "train", ("s10-d1_20_30", "s10-d1_50_100"), ("s10-d1#0", "s10-d1#1", "s10-d1#2", "s10-d1#3")),
        Part("tacos", "test", ("s2_0_25",), ("s2#0",)),
    )
    assert records(manifest) == {
        ("end before start", "dropped"): ("s9-d1#0: 4 to 3",),
        ("zero length", "dropped"): ("s9-d1#1: 3",),
        ("start at or past the end of the video", "dropped"): ("s9-d1#2: 10 of 10 s",),
        ("end past the end of the video", "clamped"): (
            "s10-d1#0: 11 to 10, by 1 s",
            "s10-d1#3: 10.5 to 10, by 0.5 s",
        ),
        ("caption without text", "dropped"): ("s9-d1#3",),
        ("blanks at the ends", "trimmed"): ("s10-d1#3",),
        ("newline, control character or run of blanks inside", "trimmed"): ("s10-d1#1",),
        ("caption repeats another of its clip", "kept"): ("s10-d1#2",),
        ("caption repeats another of its clip but for blanks", "kept"): ("s10-d1#3",),
        ("caption text on several videos", "kept"): ("He cuts.: 2 videos",),
        (tacos.NO_SEGMENT, "dropped"): ("s9-d1",),
    }
    assert manifest.notes == (
        "annotations: train.json, test.json",
        "val.json is not there",
        f"1 videos have their file in {root / 'videos'}; 1 have more than one, the first by suffix counts",
    )


def test_where_files_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "annotations", **{"val.subset": {"s1.avi": told(10, 20, (0, 5, "a"))}})
    assert tacos.load(tmp_path).notes[0] == "annotations: val.subset.json"
    write(tmp_path / "annotations", val={"s2.avi": told(10, 20, (0, 5, "a"))})
    assert [video.id for video in tacos.load(tmp_path).videos] == ["s2"]
    write(tmp_path, test={"s3.avi": told(10, 20, (0, 5, "a"))})
    assert [video.id for video in tacos.load(tmp_path).videos] == ["s3"]


GOOD = told(29.4, 100, (0, 9, "a"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected an object of videos"),
        ({}, "expected an object of videos"),
        ({"s1.avi": {"timestamps": [[0, 9]], "sentences": ["a"], "fps": 29.4}}, "s1.avi is .*expected fps"),
        ({"s1.avi": GOOD | {"fps": 0}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"fps": "29.4"}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"num_frames": 0}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"num_frames": 99.5}}, "s1.avi is "),
        ({"s1.avi": told(29.4, 100)}, "s1.avi is "),
        ({"s1.avi": told(29.4, 100, (-1, 9, "a"))}, "s1.avi is "),
        ({"s1.avi": GOOD | {"timestamps": [[0, 9.5]]}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"timestamps": [[0, None]]}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"timestamps": [[0, 9, 9]]}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"sentences": ["a", "b"]}}, "s1.avi is "),
        ({"s1.avi": GOOD | {"sentences": [1]}}, "s1.avi is "),
        ({"s1.avi": GOOD, "s1": GOOD}, "s1 is in train too; use the files of one release"),
        ({"../s1.avi": GOOD}, "cannot be a video id"),
        ({".avi": GOOD}, "cannot be a video id"),
        ('{"s1.avi": {"timestamps": [[0, 9]', "not whole JSON"),
        ('{"s1.avi": {"timestamps": [[0, NaN]]}}', "not whole JSON"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, value: Any, message: str) -> None:
    root = write(tmp_path, train=value)
    with pytest.raises(BadDataset, match="train.json: .*" + message) as caught:
        tacos.load(root)
    assert "\n" not in str(caught.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no TACoS in .*: expected train.json"):
        tacos.load(tmp_path)
    root = write(tmp_path, train={"s1.avi": GOOD}, test={"s1.avi": GOOD})
    with pytest.raises(BadDataset, match=r"test.json: s1 is in train too; use the files of one release"):
        tacos.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return tacos.load(shared / "data/tacos")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert differences(found, datasets.expected("tacos")) == []
    assert found == tacos.EXPECTED


def test_real_oddities(real: Manifest) -> None:
    """As the shared folder's README counts them, part by part; it does not count blanks and what they hide."""
    assert totals(real.oddities) == {
        "end past the end of the video: clamped": 43 + 0 + 5,
        "caption repeats another of its clip: kept": 1_201 + 516 + 567,
        "caption repeats another of its clip but for blanks: kept": 17,
        "blanks at the ends: trimmed": 53,
        "newline, control character or run of blanks inside: trimmed": 64,
        "caption text on several videos: kept": 887,
    }
    found = records(real)
    part_of = {caption: part.name for part in real.splits for caption in part.captions}
    for kind, rule, numbers in (
        ("end past the end of the video", "clamped", [43, 0, 5]),
        ("caption repeats another of its clip", "kept", [1_201, 516, 567]),
    ):
        parts = [part_of[record.split(":")[0]] for record in found[kind, rule]]
        assert [parts.count(part) for part in tacos.PARTS] == numbers
    # A segment that stands twice or more: its sentences beyond the first.
    assert [len(part.captions) - len(part.clips) for part in real.splits] == [6_260, 2_435, 2_463]


def test_real_records(real: Manifest) -> None:
    assert Video("s17-d69", None, 12438 / 29.4, "s17-d69.avi") in real.videos
    assert Clip("s17-d69_224_358", "s17-d69", 224 / 29.4, 358 / 29.4) in real.clips
    assert Caption("s17-d69#0", "s17-d69_224_358", "He took out a pan") in real.captions
    assert {video.original for video in real.videos} == {f"{video.id}.avi" for video in real.videos}
