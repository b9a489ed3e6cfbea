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
from tests.whole.command import arrays, assert_same, error, pipeline

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
    told, _ = pipeline("run", "merge", "--root", source, "--out", out, "--workers", 0)
    assert "300 videos" in told
    return out


def test_a_partition_in_order_with_enough_words(source: Path, whole: Path) -> None:
    videos = json.loads(source.read_bytes())
    with h5py.File(whole) as file:
        ids, of = list(file["videos/id"].asstr()), file["clips/video"][()]
        first, count = file["captions/source_first"][()], file["captions/source_count"][()]
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


def test_merged_captions_are_tagged_weighed_and_sound(whole: Path) -> None:
    pipeline("run", "idf", "--features", whole, "--workers", 0)
    assert "no problems" in pipeline("verify", whole)[0]
    assert "words/text" in arrays(whole)


def test_captions_without_stop_words_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    video = {"start": [0, 2, 4], "end": [2, 4, 6], "text": ["cut onion pan", "stir salt", "serve plate hot"]}
    path.write_text(json.dumps({f"v{n}": video for n in range(20)}))
    _, err = pipeline("run", "merge", "--root", path, "--out", tmp_path / "c.h5", "--workers", 0)
    assert "has no stop words (caption.json is so)" in err


def test_a_clip_without_words_has_no_caption(tmp_path: Path) -> None:
    path = tmp_path / "raw_caption.json"
    path.write_text(json.dumps({"v": {"start": [0, 50], "end": [2, 51], "text": ["   ", "so we go"]}}))
    pipeline("run", "merge", "--root", path, "--out", tmp_path / "c.h5", "--workers", 0)
    found = arrays(tmp_path / "c.h5")
    assert len(found["clips/id"]) == 2
    assert list(found["captions/clip"]) == [1]
    assert "no problems" in pipeline("verify", tmp_path / "c.h5")[0]


def test_wrong_inputs(source: Path, tmp_path: Path) -> None:
    run = ["run", "merge", "--workers", 0, "--out", tmp_path / "c.h5", "--root"]
    cut = tmp_path / "cut.json"
    cut.write_bytes(source.read_bytes()[:-5000])
    assert "cut.json" in error(*run, cut)
    assert "does not exist" in error(*run, tmp_path / "absent")
    assert "--min-words 0: expected 1 or more" in error(*run, source, "--min-words", 0)
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
