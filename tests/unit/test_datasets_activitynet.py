"""ActivityNet Captions: three videos made here, and the real annotations."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import activitynet
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Part, Video
from tests.unit.written import records, write

SWAPPED, PLAIN = "v_0bosp4-pyTM", "v_plain"


def told(duration: float, *moments: tuple[float, float, str]) -> dict[str, Any]:
    return {
        "duration": duration,
        "timestamps": [[start, end] for start, end, _ in moments],
        "sentences": [text for _, _, text in moments],
    }


def test_every_record(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        train__json={
            PLAIN: told(20, (8, 9, "Last."), (7, 3, "Bad."), (5, 5, " Zero."), (1, 20.5, "First  one."), (2, 4, " ")),
            SWAPPED: told(10.099999999999998, (6, 5.5, "Second."), (0, 5, "First."), (0, 10.1, "Whole.")),
        },
        val_1__json={"v_told": told(4, (0, 4, "One.")), "v_only": told(4, (4, 5, "Behind."))},
        val_2__json={"v_told": told(5, (1, 4.5, "Two."))},
    )
    write(root / "ce_lists", train_list__txt=f"{PLAIN}\nv_absent", val_2_list__txt="v_told\n")
    write(root / "videos", v_told__mkv="")
    manifest = activitynet.load(root)
    assert manifest.videos == (
        Video("v_0bosp4-pyTM", None, 10.1),
        Video("v_only", None, 4.0),
        Video("v_plain", None, 20.0),
        Video("v_told", root / "videos/v_told.mkv", 4.0),
    )
    assert manifest.clips == (
        Clip("v_0bosp4-pyTM", "v_0bosp4-pyTM"),
        Clip("v_0bosp4-pyTM@train#0", "v_0bosp4-pyTM", 5.5, 6.0),
        Clip("v_0bosp4-pyTM@train#1", "v_0bosp4-pyTM", 0.0, 5.0),
        Clip("v_0bosp4-pyTM@train#2", "v_0bosp4-pyTM", 0.0, 10.1),
        Clip("v_only", "v_only"),
        Clip("v_plain", "v_plain"),
        Clip("v_plain@train#0", "v_plain", 8.0, 9.0),
        Clip("v_plain@train#3", "v_plain", 1.0, 20.0),
        Clip("v_told", "v_told"),
        Clip("v_told@val_1#0", "v_told", 0.0, 4.0),
        Clip("v_told@val_2#0", "v_told", 1.0, 4.0),
    )
    assert manifest.captions == (
        Caption("v_0bosp4-pyTM@train#0", "v_0bosp4-pyTM@train#0", "Second."),
        Caption("v_0bosp4-pyTM@train#1", "v_0bosp4-pyTM@train#1", "First."),
        Caption("v_0bosp4-pyTM@train#2", "v_0bosp4-pyTM@train#2", "Whole."),
        Caption("v_plain@train#0", "v_plain@train#0", "Last."),
        Caption("v_plain@train#3", "v_plain@train#3", "First one."),
        Caption("v_told@val_1#0", "v_told@val_1#0", "One."),
        Caption("v_told@val_2#0", "v_told@val_2#0", "Two."),
        Caption("v_0bosp4-pyTM@train", "v_0bosp4-pyTM", "First. Whole. Second."),
        Caption("v_only@val_1", "v_only", "Behind."),
        Caption("v_plain@train", "v_plain", "First one. Zero. Bad. Last."),
        Caption("v_told@val_1", "v_told", "One."),
        Caption("v_told@val_2", "v_told", "Two."),
    )
    moments = (*(f"v_0bosp4-pyTM@train#{n}" for n in range(3)), "v_plain@train#0", "v_plain@train#3")
    assert manifest.splits == (
        Part("grounding", "train", moments, moments),
        Part("grounding", "val_1", ("v_told@val_1#0",), ("v_told@val_1#0",)),
        Part("grounding", "val_2", ("v_told@val_2#0",), ("v_told@val_2#0",)),
        Part("paragraph", "train", ("v_0bosp4-pyTM", "v_plain"), ("v_0bosp4-pyTM@train", "v_plain@train")),
        Part("paragraph", "val_1", ("v_only", "v_told"), ("v_only@val_1", "v_told@val_1")),
        Part("paragraph", "val_2", ("v_told",), ("v_told@val_2",)),
    )
    assert records(manifest) == {
        ("end before start", "swapped"): ("v_0bosp4-pyTM@train#0: 6 to 5.5",),
        ("end before start", "dropped"): ("v_plain@train#1: 7 to 3",),
        ("zero length", "dropped"): ("v_plain@train#2: 5",),
        ("start at or past the end of the video", "dropped"): ("v_only@val_1#0: 4 of 4 s",),
        ("end past the end of the video", "clamped"): (
            "v_plain@train#3: 20.5 to 20, by 0.5 s",
            "v_told@val_2#0: 4.5 to 4, by 0.5 s",
        ),
        ("caption without text", "dropped"): ("v_plain@train#4",),
        ("blanks at the ends", "trimmed"): ("v_plain@train#2",),
        ("newline, control character or run of blanks inside", "trimmed"): ("v_plain@train#3",),
        (activitynet.DURATIONS, "kept"): ("v_told: 4 in val_1, 5 in val_2",),
        (activitynet.UNLISTED, "kept"): ("v_0bosp4-pyTM: train_list.txt",),
        (activitynet.UNKNOWN, "dropped"): ("v_absent: train_list.txt",),
    }
    assert manifest.notes == (
        "annotations: train.json, val_1.json, val_2.json",
        "train_list.txt: 1 of 2 videos",
        "val_2_list.txt: 1 of 1 videos",
        f"1 videos have their file in {root / 'videos'}",
    )


def test_only_the_published_segments_of_train_are_swapped(tmp_path: Path) -> None:
    manifest = activitynet.load(write(tmp_path, val_1__json={SWAPPED: told(9, (6, 5, "a"))}))
    assert records(manifest) == {("end before start", "dropped"): (f"{SWAPPED}@val_1#0: 6 to 5",)}
    assert manifest.notes[1:3] == ("train.json is not there", "val_2.json is not there")
    assert [(part.split, part.name) for part in manifest.splits] == [("paragraph", "val_1")]


def test_whole_files_win_over_subsets(tmp_path: Path) -> None:
    write(tmp_path / "annotations", train__subset__json={"v_few": told(9, (1, 2, "a"))})
    assert activitynet.load(tmp_path).notes[0] == "annotations: train.subset.json"
    write(tmp_path / "annotations", train__json={"v_all": told(9, (1, 2, "a"))})
    assert [video.id for video in activitynet.load(tmp_path).videos] == ["v_all"]
    write(tmp_path, val_2__head100__json={"v_root": told(9, (1, 2, "a"))})
    assert [video.id for video in activitynet.load(tmp_path).videos] == ["v_root"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected an object of videos"),
        ({}, "expected an object of videos"),
        ({"v_a": {"duration": 9, "timestamps": [[1, 2]]}}, "v_a is .*expected duration"),
        ({"v_a": told(0, (1, 2, "a"))}, "v_a is "),
        ({"v_a": told(9)}, "v_a is "),
        ({"v_a": told(9, (-1, 2, "a"))}, "v_a is "),
        ({"v_a": told(9, (1, 2, "a")) | {"timestamps": [[1, None]]}}, "v_a is "),
        ({"v_a": told(9, (1, 2, "a")) | {"timestamps": [[1, 2, 3]]}}, "v_a is "),
        ({"v_a": told(9, (1, 2, "a")) | {"sentences": ["a", "b"]}}, "v_a is "),
        ({"v_a": told(9, (1, 2, "a")) | {"sentences": [1]}}, "v_a is "),
        ({"v_a/../b": told(9, (1, 2, "a"))}, "cannot be a video id"),
        ('{"v_a": ', "not whole JSON"),
    ],
)
def test_records_that_cannot_be_used(tmp_path: Path, value: Any, message: str) -> None:
    root = write(tmp_path, val_1__json=value)
    with pytest.raises(BadDataset, match="val_1.json: .*" + message) as caught:
        activitynet.load(root)
    assert "\n" not in str(caught.value)


def test_other_damage(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no ActivityNet Captions in .*: expected train.json"):
        activitynet.load(tmp_path)
    one = {"v_a": told(9, (1, 2, "a"))}
    root = write(tmp_path, train__json=one, val_2__json=one)
    with pytest.raises(BadDataset, match=r"val_2.json: v_a is in train.json too; use the files of one release"):
        activitynet.load(root)
    (root / "val_2.json").unlink()
    write(root / "ce_lists")
    (root / "ce_lists/train_list.txt").write_bytes(b"v_\xff")
    with pytest.raises(BadDataset, match=r"train_list.txt, row 1: byte 2 is not UTF-8"):
        activitynet.load(root)


@pytest.fixture(scope="module")
def real(shared: Path) -> Manifest:
    return activitynet.load(shared / "data/activitynet", shared / "data/videos/activitynet")


def test_real_counts(real: Manifest) -> None:
    found = counts(real)
    assert set(found) == set(activitynet.EXPECTED)
    assert differences(found, activitynet.EXPECTED) == []
    assert found[""] == {"videos": 14_926, "clips": 86_881, "captions": 91_766}
    assert [found[f"grounding/{part}"]["clips"] for part in activitynet.PARTS] == [37_419, 17_505, 17_031]
    assert {video.id for video in real.videos if video.path} == {"v_GGSY1Qvo990", "v_ZNVhz7ctTq0"}


def test_real_oddities(real: Manifest) -> None:
    """As the shared folder's README counts them; inside are 606 once the ends are trimmed, 3,603 with them."""
    assert totals(real.oddities) == {
        "blanks at the ends: trimmed": 48_853,
        "newline, control character or run of blanks inside: trimmed": 606,
        "characters outside ASCII: kept": 56,
        "end before start: swapped": 2,
        "zero length: dropped": 2,
        "end past the end of the video: clamped": 29 + 5 + 1,
        "caption text on several videos: kept": 414,
    }
    found = records(real)
    assert found["zero length", "dropped"] == ("v_4rKTw99bM8g@train#1: 4.97", "v_N7ppHQNikv8@train#2: 34.77")
    assert {name.split("@")[0] for name in found["end before start", "swapped"]} == set(activitynet.SWAPPED_IN)
    clamped = found["end past the end of the video", "clamped"]
    assert all(record.endswith("by 0.01 s") for record in clamped)
    assert [sum(f"@{part}#" in record for record in clamped) for part in activitynet.PARTS] == [29, 5, 1]
    assert sum("\n" in caption.text for caption in real.captions) == 0


def test_real_raw_texts(shared: Path) -> None:
    """What the README counts before anything is trimmed."""
    texts = [
        text
        for part in activitynet.PARTS
        for video in orjson.loads((shared / f"data/activitynet/{part}.json").read_bytes()).values()
        for text in video["sentences"]
    ]
    assert len(texts) == 71_957
    assert sum("  " in text for text in texts) == 3_603
    assert sum("\n" in text for text in texts) == 10
    assert sum(" ".join(text.split()) != text.strip() for text in texts) == 606


def test_real_records(real: Manifest) -> None:
    clips = {clip.id: clip for clip in real.clips}
    assert (clips["v_rhOtqArO-3Y@train#5"].start, clips["v_rhOtqArO-3Y@train#5"].end) == (150.31, 173.44)
    captions = {caption.id: caption for caption in real.captions}
    assert captions["v_QOlSCBRmfWY@train"].text == (
        "A young woman is seen standing in a room and leads into her dancing. The girl dances around the room while "
        "the camera captures her movements. She continues dancing around the room and ends by laying on the floor."
    )
    assert clips["v_uqiMw7tQ1Cc@val_2#1"] == Clip("v_uqiMw7tQ1Cc@val_2#1", "v_uqiMw7tQ1Cc", 4.14, 33.36)
