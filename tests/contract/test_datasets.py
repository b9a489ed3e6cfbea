"""What every data set keeps, whichever files are in `pipeline/datasets`."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline import datasets
from pipeline.datasets import files, toy
from pipeline.errors import BadDataset, BadSetting, UnknownName
from pipeline.records import Manifest

Shuffle = Callable[[list[Any]], list[Any]]


def make_toy(root: Path, shuffle: Shuffle) -> Path:
    """All files, not drawn."""
    for film in shuffle(list(toy.FILMS)):
        (root / f"{film.id}.mp4").write_bytes(b"already there")
    return root


def make_files(root: Path, shuffle: Shuffle) -> Path:
    """A table of five videos, two clips each, two captions a clip."""
    rows = [
        f"v{v},v{v}.mp4,{start},{start + 2.5},caption {n} of {v},{'test' if v == 11 else 'train'}"
        for v in range(7, 12)
        for start in (0, 2)
        for n in (1, 2)
    ]
    (root / "table.csv").write_text("\n".join([",".join(files.COLUMNS), *shuffle(rows)]))
    (root / "v7.mp4").touch()
    return root / "table.csv"


def make_msrvtt(root: Path, shuffle: Shuffle) -> Path:
    """Twelve videos with two captions each, and the three lists."""
    parts = ["train"] * 6 + ["validate"] * 2 + ["test"] * 4
    videos = [
        {"video_id": f"video{n}", "start time": 1.5, "end time": 12, "split": part} for n, part in enumerate(parts)
    ]
    sentences = [{"sen_id": n, "video_id": f"video{n * 5 % 12}", "caption": f"caption {n}"} for n in range(24)]
    data = {"videos": shuffle(videos), "sentences": shuffle(sentences)}
    (root / "MSRVTT_data.json").write_bytes(orjson.dumps(data))
    test = [f"ret{n},msr{n},video{n},a sentence about {n}" for n in (9, 10, 11)]
    lists = {
        "MSRVTT_JSFUSION_test.csv": ["key,vid_key,video_id,sentence", *shuffle(test)],
        "MSRVTT_train.9k.csv": ["video_id", *shuffle([f"video{n}" for n in range(9)])],
        "MSRVTT_train.7k.csv": ["video_id", *shuffle([f"video{n}" for n in range(8)])],
    }
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")
    return root


MAKE: dict[str, Callable[[Path, Shuffle], Path]] = {"files": make_files, "msrvtt": make_msrvtt, "toy": make_toy}
ANNOTATIONS = {"files": ["table.csv"], "msrvtt": ["MSRVTT_data.json", "MSRVTT_JSFUSION_test.csv"], "toy": []}
"""What is read of each data set above, and cannot be cut off unnoticed."""

each = pytest.mark.parametrize("name", datasets.names())


@pytest.fixture
def loaded(name: str, tmp_path: Path) -> Manifest:
    return datasets.load(name, MAKE[name](tmp_path, list))


def test_every_data_set_is_in_this_test() -> None:
    assert datasets.names() == sorted(MAKE) == sorted(ANNOTATIONS)


@each
def test_says_what_it_is(name: str) -> None:
    module = datasets.get(name)
    assert module.HINT
    assert "\n" not in module.HINT
    for word in ("Source", "Repair rules", "ROOT"):
        assert word in (module.__doc__ or ""), word


@each
def test_ids_are_unique(name: str, loaded: Manifest) -> None:
    assert loaded.dataset == name
    for records in (loaded.videos, loaded.clips, loaded.captions):
        assert records
        assert len({record.id for record in records}) == len(records)
    assert len({(part.split, part.name) for part in loaded.splits}) == len(loaded.splits)


@each
def test_spans_are_spans(name: str, loaded: Manifest) -> None:
    for clip in loaded.clips:
        assert clip.start >= 0
        assert clip.end is None or clip.start < clip.end
    assert all(video.duration >= 0 for video in loaded.videos)


@each
def test_captions_have_clips_and_clips_have_videos(name: str, loaded: Manifest) -> None:
    assert {clip.video for clip in loaded.clips} == {video.id for video in loaded.videos}
    assert {caption.clip for caption in loaded.captions} <= {clip.id for clip in loaded.clips}
    assert all(caption.text == " ".join(caption.text.split()) != "" for caption in loaded.captions)


@each
def test_parts_hold_what_there_is_and_share_no_clip(name: str, loaded: Manifest) -> None:
    clip_of = {caption.id: caption.clip for caption in loaded.captions}
    clips = {clip.id for clip in loaded.clips}
    seen: dict[str, set[str]] = {}
    assert loaded.splits
    for part in loaded.splits:
        assert part.clips
        assert len(set(part.clips)) == len(part.clips)
        assert len(set(part.captions)) == len(part.captions)
        assert set(part.clips) <= clips
        assert {clip_of[caption] for caption in part.captions} <= set(part.clips)
        assert not seen.setdefault(part.split, set()) & set(part.clips)
        seen[part.split] |= set(part.clips)


@each
def test_the_order_of_records_does_not_matter(name: str, loaded: Manifest, tmp_path: Path) -> None:
    random_order = random.Random(7)
    root = MAKE[name](tmp_path, lambda records: random_order.sample(records, len(records)))
    assert datasets.load(name, root) == loaded


@each
def test_media_files_are_found(name: str, loaded: Manifest) -> None:
    assert all(video.path.is_file() for video in loaded.videos if video.path)


@pytest.mark.parametrize(("name", "file"), [(name, file) for name in datasets.names() for file in ANNOTATIONS[name]])
def test_a_truncated_file_is_named(name: str, file: str, tmp_path: Path) -> None:
    root = MAKE[name](tmp_path, list)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: whole.rindex(b",") - 1])
    with pytest.raises(BadDataset, match=file):
        datasets.load(name, root)


@pytest.mark.parametrize("name", [name for name in datasets.names() if ANNOTATIONS[name]])
def test_a_root_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="absent does not exist; expected "):
        datasets.load(name, tmp_path / "absent")


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownName, match="unknown data set 'msvtt'; there are: .*msrvtt"):
        datasets.load("msvtt", Path())


def test_a_folder_of_videos_only_where_it_means_something(tmp_path: Path) -> None:
    root = make_msrvtt(tmp_path, list)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "video3.mp4").touch()
    loaded = datasets.load("msrvtt", root, videos=elsewhere)
    assert [video.id for video in loaded.videos if video.path] == ["video3"]
    with pytest.raises(BadSetting, match="data set 'toy' has no folder of videos besides its root"):
        datasets.load("toy", root, videos=elsewhere)
