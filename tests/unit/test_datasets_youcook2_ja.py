"""YouCook2 in Japanese: videos made here, and the real translations."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.counts import counts, differences
from pipeline.datasets import youcook2, youcook2_ja
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Part, Video
from tests.unit.written import records, write

FILM = {
    "duration": 20.5,
    "subset": "training",
    "recipe_type": "113",
    "annotations": [
        {"id": 0, "segment": [1, 5], "sentence": "cut"},
        {"id": 1, "segment": [19, 22], "sentence": "stir"},
        {"id": 2, "segment": [7, 7], "sentence": "eat"},
    ],
}


def lay(root: Path, sentences: Any, film: Any = FILM) -> Path:
    return write(
        root,
        youcookii_annotations_trainval__json={"database": {"v": film}},
        youcookii_translations_ja_train__json={"database": {"v": {"subset": "training", "annotations": sentences}}},
    )


def test_sentences_take_the_spans_of_the_official_file(tmp_path: Path) -> None:
    texts = {0: " 切ります", 1: "混ぜ\u200bます", 2: "食べます", 3: "洗います", 4: " "}
    manifest = youcook2_ja.load(lay(tmp_path, [{"id": n, "sentence": text} for n, text in texts.items()]))
    assert manifest.videos == (Video("v", None, 20.5),)
    assert manifest.clips == (Clip("v_0", "v", 1.0, 5.0, "113"), Clip("v_1", "v", 19.0, 20.5, "113"))
    assert manifest.captions == (Caption("v_0", "v_0", "切ります"), Caption("v_1", "v_1", "混ぜ\u200bます"))
    assert manifest.splits == (Part("youcook2_ja", "train", ("v_0", "v_1"), ("v_0", "v_1")),)
    assert records(manifest) == {
        ("blanks at the ends", "trimmed"): ("v_0",),
        ("characters outside ASCII", "kept"): ("v_0", "v_1", "v_2"),
        ("encoding damage or invisible characters", "kept"): ("v_1",),
        ("end past the end of the video", "clamped"): ("v_1: 22 to 20.5, by 1.5 s",),
        ("sentence without a segment in the official annotations", "dropped"): ("v_3", "v_4"),
        ("zero length", "dropped"): ("v_2: 7",),
    }


@pytest.mark.parametrize(
    ("sentences", "film", "message"),
    [
        ([{"id": 0, "sentence": "a"}, {"id": 0, "sentence": "b"}], FILM, "v has .* expected an id of its own"),
        ([{"id": 0}], FILM, "v has .* and a sentence"),
        ("no list", FILM, "v is .*; expected subset and annotations"),
        ([{"id": 0, "sentence": "a"}], {**FILM, "duration": 0}, "v is .*; expected duration, recipe_type"),
        ([{"id": 0, "sentence": "a"}], {**FILM, "annotations": [{"id": 0}]}, "v has .*; expected id, segment"),
    ],
)
def test_records_of_another_shape(tmp_path: Path, sentences: Any, film: Any, message: str) -> None:
    with pytest.raises(BadDataset, match=message):
        youcook2_ja.load(lay(tmp_path, sentences, film))


def test_a_video_translated_twice(tmp_path: Path) -> None:
    root = lay(tmp_path, [{"id": 0, "sentence": "a"}])
    other = root / "youcookii_translations_ja_val.json"
    other.write_bytes((root / "youcookii_translations_ja_train.json").read_bytes())
    with pytest.raises(BadDataset, match="v is in another file too"):
        youcook2_ja.load(root)


def test_translations_without_segments(tmp_path: Path) -> None:
    (lay(tmp_path, []) / "youcookii_annotations_trainval.json").unlink()
    with pytest.raises(BadDataset, match="no translations beside the official annotations; expected youcookii"):
        youcook2_ja.load(tmp_path)


def test_real_translations(shared: Path) -> None:
    manifest = youcook2_ja.load(shared / "data/youcook2")
    assert differences(counts(manifest), youcook2_ja.EXPECTED) == []
    english = {clip.id: clip for clip in youcook2.load(shared / "data/youcook2").clips}
    assert all(english[clip.id] == clip for clip in manifest.clips)
    assert totals(manifest.oddities)["encoding damage or invisible characters: kept"] == 1
