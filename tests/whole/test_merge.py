"""HowTo100M's captions merged by the command."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline import merged
from pipeline.captions import Block
from pipeline.merging import merge
from pipeline.stages import merge as stage
from tests.whole.command import arrays, assert_same, error, inside, pipeline

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A caption file of 300 made videos, about 33,000 captions."""
    path = tmp_path_factory.mktemp("source") / "raw_caption.json"
    subprocess.run([sys.executable, ROOT / "benchmarks/make_raw_caption.py", path, "--videos", "300"], check=True)
    return path


@pytest.fixture(scope="module")
def whole(source: Path) -> Path:
    """Merged in a plain loop, in one range."""
    out = source.parent / "whole.h5"
    told, _ = inside("run", "merge", "--root", source, "--out", out, "--workers", 0)
    assert "300 videos" in told
    return out


def test_a_partition_in_order_with_enough_words(source: Path, whole: Path) -> None:
    videos = json.loads(source.read_bytes())
    with h5py.File(whole) as file:
        ids, of = list(file["videos/id"].asstr()), file["clips/video"][()]
        first, count = file["clips/source_first"][()], file["clips/source_count"][()]
        start, end, text = file["clips/start"][()], file["clips/end"][()], list(file["captions/text"].asstr())
        assert np.array_equal(file["captions/clip"][()], np.arange(len(text)))
        clip_ids = list(file["clips/id"].asstr())
    assert ids == list(videos)
    assert (start < end).all()
    assert len(set(clip_ids)) == len(clip_ids)
    assert clip_ids[0] == f"{ids[0]}@0"
    short = 0
    for number, video in enumerate(ids):
        own = np.flatnonzero(of == number)
        cues = videos[video]
        covered = [k for c in own for k in range(first[c], first[c] + count[c])]
        assert covered == list(range(len(cues["text"])))
        assert all(end[c] - start[c] <= 30 or count[c] == 1 for c in own)
        short += sum(len(text[c].split()) < 10 for c in own)
    assert short < 0.02 * len(text)  # only where gaps or the limit of seconds left no neighbour


def test_the_same_file_from_any_ranges_and_workers(
    source: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "workers.h5"
    pipeline("run", "merge", "--root", source, "--out", out, "--workers", 2)
    assert_same(whole, out)
    monkeypatch.setattr(stage, "BYTES", 100_003)
    small = stage.Merge(root=str(source), out=tmp_path / "small.h5")
    items = small.items()
    assert len(items) > 15
    small.work(items[::2])
    assert [item.id for item in small.items()] == [item.id for item in items[1::2]]  # a run that goes on does the rest
    small.save(small.work(items[1::2]))
    assert_same(whole, small.out)
    assert not small.out.with_name("small.h5.merge").exists()


def test_merged_captions_are_tagged_weighed_and_sound(source: Path, tmp_path: Path) -> None:
    some = dict(list(json.loads(source.read_bytes()).items())[:20])  # tagging all 300 takes half a minute
    (tmp_path / "raw_caption.json").write_text(json.dumps(some))
    out = tmp_path / "c.h5"
    inside("run", "merge", "--root", tmp_path, "--out", out, "--workers", 0)
    inside("run", "idf", "--features", out, "--workers", 0)
    assert "no problems" in inside("verify", out)[0]
    assert "words/text" in arrays(out)


def test_captions_without_stop_words_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    video = {"start": [0, 2, 4], "end": [2, 4, 6], "text": ["cut onion pan", "stir salt", "serve plate hot"]}
    path.write_text(json.dumps({f"v{n}": video for n in range(20)}))
    _, err = inside("run", "merge", "--root", path, "--out", tmp_path / "c.h5", "--workers", 0)
    assert "has no stop words (caption.json is so)" in err


def test_a_clip_without_words_has_no_caption(tmp_path: Path) -> None:
    path = tmp_path / "raw_caption.json"
    path.write_text(json.dumps({"v": {"start": [0, 50], "end": [2, 51], "text": ["   ", "so we go"]}}))
    inside("run", "merge", "--root", path, "--out", tmp_path / "c.h5", "--workers", 0)
    found = arrays(tmp_path / "c.h5")
    assert len(found["clips/id"]) == 2
    assert list(found["captions/clip"]) == [1]
    assert "no problems" in inside("verify", tmp_path / "c.h5")[0]


def test_wrong_inputs(source: Path, tmp_path: Path) -> None:
    run = ["run", "merge", "--workers", 0, "--out", tmp_path / "c.h5", "--root"]
    cut = tmp_path / "cut.json"
    cut.write_bytes(source.read_bytes()[:-5000])
    assert "cut.json" in error(*run, cut)
    assert "does not exist" in error(*run, tmp_path / "absent")
    assert "--min-words 0: expected 1 or more" in error(*run, source, "--min-words", 0)
    assert "--max-gap nan: expected 0 or more" in error(*run, source, "--max-gap", "nan")
    twice = tmp_path / "twice.json"
    record = json.dumps({"start": [0], "end": [1], "text": ["so it is"]})
    twice.write_text(f'{{"v": {record}, "w": {record}, "v": {record}}}')
    assert "a video stands twice; keep one of its records: v" in error(*run, twice)
    (tmp_path / "c.h5").touch()
    assert "is there already" in error(*run, source)


def test_merge_is_what_the_pure_function_says(source: Path, tmp_path: Path) -> None:
    place = merged.find(str(source), tmp_path / "x.h5", {"min_words": 12, "max_gap": 1.0, "max_seconds": 9.0})
    merged.merge_range(place, Block(0, 50_000))
    columns = next(place.kept().read([Block(0, 50_000)]))
    expected = [clip for cues in merged.part(source, 0, 50_000) for clip in merge(cues, 12, 1.0, 9.0)]
    assert columns["start"].tolist() == [clip.start for clip in expected]
    assert columns["text"].tobytes().decode() == "".join(f"{clip.text}\0" for clip in expected if clip.text)


def test_a_folder_of_files_is_merged_in_ranges_as_the_one_file_is(
    source: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "captions"
    folder.mkdir()
    for video, cues in json.loads(source.read_bytes()).items():
        rows = [[text, start, end] for text, start, end in zip(cues["text"], cues["start"], cues["end"], strict=True)]
        (folder / f"{video}.json").write_text(json.dumps(rows))
    monkeypatch.setattr(stage, "BYTES", 40 * merged.FILE_BYTES)
    small = stage.Merge(root=str(tmp_path), out=tmp_path / "small.h5")
    items = small.items()
    assert len(items) == 8
    small.save(small.work(items))
    one, two = arrays(whole), arrays(small.out)
    assert sorted(one["captions/text"]) == sorted(two["captions/text"])
    assert len(one["clips/id"]) == len(two["clips/id"])


def test_a_file_of_a_folder_that_changes_is_merged_again(tmp_path: Path) -> None:
    path = tmp_path / "captions/v.csv"
    path.parent.mkdir()
    path.write_text("start,end,text\n0,2,so we go\n")
    settings = {"min_words": 10, "max_gap": 5.0, "max_seconds": 30.0}
    place = merged.find(str(tmp_path), tmp_path / "x.h5", settings)
    merged.merge_range(place, Block(0, 1))
    assert place.kept().left([Block(0, 1)]) == []
    path.write_text("start,end,text\n0,2,so we went\n")
    assert len(merged.find(str(tmp_path), tmp_path / "x.h5", settings).kept().left([Block(0, 1)])) == 1


def test_held_out_videos_are_a_part_and_repairs_are_listed(tmp_path: Path) -> None:
    """The idf of the file is over the captions of the other videos."""
    video = {"start": [0, 9, 4], "end": [2, 8, 6], "text": ["so we go on", "", "and then we stop"]}
    (tmp_path / "raw_caption.json").write_text(json.dumps({"a": video, "b": video}))
    (tmp_path / "htm_holdout_vid.txt").write_text("a\n")
    out = tmp_path / "c.h5"
    inside("run", "merge", "--root", tmp_path, "--out", out, "--workers", 0)
    found = arrays(out)
    assert list(found["clips/source_first"]) == [0, 0]
    assert list(found["clips/source_count"]) == [3, 3]
    for part, position in (("test", 0), ("train", 1)):
        assert list(found[f"splits/holdout/{part}/clips"]) == [position]
        assert list(found[f"splits/holdout/{part}/captions"]) == [position]
    lines = [json.loads(line) for line in (tmp_path / "c.oddities.jsonl").read_text().splitlines()]
    assert [line["record"] for line in lines] == ["a: 1 captions"] * 2 + ["b: 1 captions"] * 2
    assert {line["oddity"] for line in lines} == {"end at or before start, or no time", "not in the order of time"}
    told, _ = inside("run", "idf", "--features", out, "--workers", 0, "--split", "holdout")
    assert "1 training captions (holdout/train)" in told
    assert "no problems" in inside("verify", out)[0]
    assert "holds merged captions, which those of --dataset would replace" in error(
        "run", "tag", "--dataset", "howto100m", "--root", tmp_path, "--features", out
    )
