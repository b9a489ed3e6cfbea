"""What every data set keeps, whichever files are in `pipeline/datasets`."""

import random
from itertools import combinations
from pathlib import Path

import pytest

from pipeline import datasets
from pipeline.errors import BadDataset, BadSetting, UnknownName
from pipeline.records import Manifest
from tests.contract import makers

each = pytest.mark.parametrize("name", datasets.names())


@pytest.fixture
def loaded(name: str, tmp_path: Path) -> Manifest:
    return datasets.load(name, makers.get(name).make(tmp_path, list))


def test_every_data_set_is_in_this_test() -> None:
    assert datasets.names() == makers.names()


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
    assert loaded.captions or loaded.steps
    for records in (loaded.videos, loaded.clips, loaded.captions):
        assert records or records is loaded.captions
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
def test_parts_hold_what_there_is(name: str, loaded: Manifest) -> None:
    clip_of = {caption.id: caption.clip for caption in loaded.captions}
    clips = {clip.id for clip in loaded.clips}
    assert loaded.splits or name in {"howto100m"}  # whose users draw their own
    for part in loaded.splits:
        assert part.clips
        assert len(set(part.clips)) == len(part.clips)
        assert len(set(part.captions)) == len(part.captions)
        assert set(part.clips) <= clips
        assert {clip_of[caption] for caption in part.captions} <= set(part.clips)


@each
def test_the_parts_of_a_split_share_no_video_unless_the_data_set_says_so(name: str, loaded: Manifest) -> None:
    video = {clip.id: clip.video for clip in loaded.clips}
    shared = getattr(datasets.get(name), "SHARED", {})
    for one, two in combinations(loaded.splits, 2):
        if one.split == two.split and {one.name, two.name} not in shared.get(one.split, []):
            assert not {video[c] for c in one.clips} & {video[c] for c in two.clips}, (one.split, one.name, two.name)


@each
def test_steps_lie_in_their_clips_and_name_a_label(name: str, loaded: Manifest) -> None:
    clips = {clip.id: clip for clip in loaded.clips}
    tasks = {task.id: task for task in loaded.tasks}
    assert len({step.id for step in loaded.steps}) == len(loaded.steps)
    assert len(tasks) == len(loaded.tasks)
    for step in loaded.steps:
        clip = clips[step.clip]
        assert clip.start <= step.start < step.end
        assert clip.end is None or step.end <= clip.end
        assert step.label
        if clip.label in tasks:
            assert tasks[clip.label].steps[step.number] == step.label


@each
def test_windows_are_spans(name: str, loaded: Manifest) -> None:
    assert all(0 <= start < end for caption in loaded.captions for start, end in caption.windows)


@each
def test_every_oddity_names_its_records(name: str, loaded: Manifest) -> None:
    assert all(oddity.records and oddity.kind and oddity.rule for oddity in loaded.oddities)


@each
def test_expected_counts_are_of_parts_there_are(name: str, loaded: Manifest) -> None:
    expected = getattr(datasets.get(name), "EXPECTED", {})
    assert {what for numbers in expected.values() for what in numbers} <= {
        "videos", "clips", "captions", "steps", "gallery"
    }  # fmt: skip
    assert set(expected) <= {"", *(f"{part.split}/{part.name}" for part in loaded.splits)}


@each
def test_the_order_of_records_does_not_matter(name: str, loaded: Manifest, tmp_path: Path) -> None:
    random_order = random.Random(7)
    root = makers.get(name).make(tmp_path, lambda records: random_order.sample(records, len(records)))
    assert datasets.load(name, root) == loaded


@each
def test_media_files_are_found(name: str, loaded: Manifest) -> None:
    assert all(video.path.is_file() for video in loaded.videos if video.path)


@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name in makers.names() for file in makers.get(name).ANNOTATIONS]
)
def test_a_truncated_file_is_named(name: str, file: str, tmp_path: Path) -> None:
    root = makers.get(name).make(tmp_path, list)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: whole.rindex(b",") - 1])
    with pytest.raises(BadDataset, match=file):
        datasets.load(name, root)


@pytest.mark.parametrize("name", [name for name in makers.names() if makers.get(name).ANNOTATIONS])
def test_a_root_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="absent does not exist; expected "):
        datasets.load(name, tmp_path / "absent")


def test_an_unknown_name() -> None:
    with pytest.raises(UnknownName, match="unknown data set 'msvtt'; there are: .*msrvtt"):
        datasets.load("msvtt", Path())


def test_a_folder_of_videos_only_where_it_means_something(tmp_path: Path) -> None:
    root = makers.get("msrvtt").make(tmp_path, list)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "video3.mp4").touch()
    loaded = datasets.load("msrvtt", root, videos=elsewhere)
    assert [video.id for video in loaded.videos if video.path] == ["video3"]
    with pytest.raises(BadSetting, match="data set 'toy' has no folder of videos besides its root"):
        datasets.load("toy", root, videos=elsewhere)
