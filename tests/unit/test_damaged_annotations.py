"""What damaged annotations once led to, as tests/whole/fuzz found: now they load, or a line names the file."""

from __future__ import annotations

import contextlib
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import datasets, sources
from pipeline.asr import stream
from pipeline.errors import BadDataset
from pipeline.tables import write_tables
from tests.contract import makers
from tests.unit.features import ATTRS
from tests.unit.written import write


def use(name: str, folder: Path, file: str, change: Callable[[bytes], bytes]) -> None:
    """Load a small data set of which one file is changed, and write its tables."""
    root = makers.get(name).make(folder, list)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(change(whole))
    assert (folder / file).read_bytes() != whole
    write_tables(folder / "tables.h5", ATTRS, datasets.load(name, root))


def refused(name: str, folder: Path, file: str, change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(BadDataset, match=why) as caught:
        use(name, folder, file, change)
    assert Path(file).name in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1_000


def swap(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old.encode(), new.encode())


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place of nested lists and objects, as (list or object, index or key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


JSON = [
    (name, file)
    for name in makers.names()
    for file in makers.get(name).ANNOTATIONS
    if file.endswith((".json", ".jsonl"))
]


@pytest.mark.parametrize(("name", "file"), JSON)
def test_lists_that_are_too_deep_to_be_written(name: str, file: str, tmp_path: Path) -> None:
    """The reader takes a thousand lists in lists, and `repr`, for the message, does not."""
    root = makers.get(name).make(tmp_path, list)
    lines = (tmp_path / file).read_text().splitlines() if file.endswith(".jsonl") else [(tmp_path / file).read_text()]
    refused = 0
    for number in range(0, len(places(json.loads(lines[0]))), 2):
        value = json.loads(lines[0])
        holder, key = places(value)[number]
        holder[key] = "@deep@"
        text = json.dumps(value).replace('"@deep@"', "[" * 1_015 + "]" * 1_015)
        (tmp_path / file).write_text("\n".join([text, *lines[1:]]) + "\n")
        with contextlib.suppress(BadDataset):
            datasets.load(name, root)
            continue
        refused += 1
    assert refused


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("youcook2", "youcookii_annotations_trainval.json", '"100"', '"1\\u000000"'),
        ("youcook2", "validation_youcook.csv", ",77,", ",7\0007,"),
        ("youcook2_ja", "youcookii_annotations_trainval.json", '"recipe_type":"', '"recipe_type":"\\u0000'),
        ("coin", "COIN.json", '"class":"Task', '"class":"Task\\u0000'),
        ("howto100m", "HowTo100M_v1.csv", "7\n", "7\0\n"),
    ],
)
def test_labels_lose_what_no_file_can_hold(name: str, file: str, old: str, new: str, tmp_path: Path) -> None:
    use(name, tmp_path, file, swap(old, new))


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "why"),
    [
        ("didemo", "val_data.json", '.mov"', '.\\u0000mov"', "cannot be a video id"),
        ("coin", "COIN.json", '"id":"8"', f'"id":"{"9" * 30}"', "expected id"),
        ("coin", "COIN.json", '"id":"8"', f'"id":"{"9" * 5_000}"', "expected id"),
        ("crosstask", "crosstask_release/tasks_primary.txt", "\n3\n", f"\n{'3' * 5_000}\n", "is not five lines"),
        ("tacos", "train.json", '"fps":29.4', '"fps":1e-320', "expected fps"),
        ("webvid", "test_webvid.csv", "PT00H", f"PT{'9' * 400}H", "expected PT00H00M17S"),
        ("charades_sta", "charades_sta_train.txt", " 5.5 ", f" {'9' * 400} ", "expected a video"),
        ("charades_sta", "Charades_v1_test.csv", "3", f"{'9' * 400}", "expected seconds"),
        ("epic_kitchens100", "EPIC_100_retrieval_test.csv", "P03_1_0", "P03_1_1", "stands twice"),
        ("msrvtt", "MSRVTT_data.json", '"video_id":"video5"', f'"video_id":"{"x" * 5_000}"', "cannot be a video id"),
        ("howto100m", "htm_holdout_vid.txt", "-videoid004", "-video" + "\0" * 5_000, "cannot be a video id"),
        ("webvid", "test_webvid.csv", "videoid", "x" * 100_000, "no column 'videoid'; there are: xxx"),
        ("webvid", "test_webvid.csv", "videoid", '"video\nid"', "there are: video id,"),
        ("webvid", "test_webvid.csv", "videoid", "name," * 9_000 + "videoid", "a column name stands twice"),
        ("msrvtt", "MSRVTT_JSFUSION_test.csv", "ret9", "r\0t9", "cannot be a video id"),
        ("msrvtt", "MSRVTT_JSFUSION_test.csv", "ret9", "23", "expected a key of its own"),
        ("files", "table.csv", "v7.mp4", f"{'9' * 5_000}://v7.mp4", "999:// cannot be read"),
        ("files", "table.csv", ",train", ",tr\0" + "a" * 9_000, "control characters in path"),
    ],
)  # fmt: skip
def test_refused_in_a_short_line(name: str, file: str, old: str, new: str, why: str, tmp_path: Path) -> None:
    refused(name, tmp_path, file, swap(old, new), why)


def test_coin_s_csv_with_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    root = write(tmp_path, coin_step_test__csv="a.\0mp4 1 30.0 2.0 5.0\n")
    with pytest.raises(BadDataset, match="coin_step_test.csv, row 1: 'a.*' cannot be a video id"):
        datasets.load("coin", root)


def test_subtitles_of_many_digits(tmp_path: Path) -> None:
    write(tmp_path, a__mp4=b"", a__srt=f"{'9' * 400}:00:01,000 --> {'9' * 400}:00:02,000\ntext\n")
    with pytest.raises(BadDataset, match=r"a.srt, line 1: '999.*; expected 00:00:01.500"):
        datasets.load("files", tmp_path)


def test_a_list_with_an_address_that_is_none(tmp_path: Path) -> None:
    write(tmp_path, videos__txt="a.mp4\nhttp://[x\n")
    with pytest.raises(BadDataset, match=r"videos.txt, row 2: 'http://\[x' is no address"):
        datasets.load("files", tmp_path / "videos.txt")


def test_captions_whose_times_are_long(tmp_path: Path) -> None:
    write(tmp_path, a__csv=f"start,end,text\n{'[' * 9_000},1,x\n")
    with pytest.raises(BadDataset, match=r"a.csv: could not convert string to float: '\[") as caught:
        list(stream(tmp_path))
    assert len(str(caught.value)) < 1_000


def test_links_to_nowhere(tmp_path: Path) -> None:
    root = makers.get("howto100m").make(tmp_path, list)
    (root / "htm_holdout_vid.txt").unlink()
    (root / "htm_holdout_vid.txt").symlink_to(tmp_path / "nowhere")
    assert not any(part.split == "holdout" for part in datasets.load("howto100m", root).splits)


def test_a_zip_that_would_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST_MEMBER", 1 << 20)
    with zipfile.ZipFile(tmp_path / "train_val_annotation.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train_val_videodatainfo.json", b" " * (1 << 21))
    assert (tmp_path / "train_val_annotation.zip").stat().st_size < 9_000
    with pytest.raises(BadDataset, match="zip: train_val_videodatainfo.json is 2,097,152 bytes; expected 1,048,576"):
        datasets.load("msrvtt", tmp_path)


def test_a_pickle_s_error_of_two_lines_is_one(tmp_path: Path) -> None:
    (tmp_path / "caption.pickle").write_bytes(b"P1\n.")
    with pytest.raises(BadDataset, match="caption.pickle: not a whole pickle") as caught:
        list(stream(tmp_path / "caption.pickle"))
    assert "\n" not in str(caught.value)


def test_a_pickle_of_numbers_that_cannot_be_written(tmp_path: Path) -> None:
    raw = pickle.dumps({"a": {"start": [1 << 99_999], "end": [1.0], "text": [1 << 99_999]}})
    (tmp_path / "caption.pickle").write_bytes(raw)
    with pytest.raises(BadDataset, match="caption.pickle, a: .*; expected seconds"):
        list(stream(tmp_path / "caption.pickle"))
