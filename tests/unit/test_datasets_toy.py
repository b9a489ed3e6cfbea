"""The toy videos: what is drawn is what the captions say."""

import subprocess
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest

from pipeline import ffmpeg
from pipeline.datasets import toy
from pipeline.errors import BadDataset
from pipeline.records import Manifest

REST = [film for film in toy.FILMS if film.id != "red-star-right"]
FILM = next(film for film in toy.FILMS if film.id == "red-star-right")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """All files but one, not drawn."""
    for film in REST:
        (tmp_path / f"{film.id}.mp4").write_bytes(b"already there")
    return tmp_path


@pytest.fixture
def manifest(root: Path) -> Manifest:
    return toy.load(root)


def test_the_split_is_of_unseen_combinations(manifest: Manifest) -> None:
    train, test = ({tuple(clip.split("-")) for clip in part.clips} for part in manifest.splits)
    assert (len(train), len(test)) == (48, 24)
    assert not train & test
    assert {(colour, shape) for colour, shape, _ in test} == {(c, s) for c in toy.COLOURS for s in toy.SHAPES}
    for names, column in ((toy.COLOURS, 0), (toy.SHAPES, 1), (toy.MOTIONS, 2)):
        assert {film[column] for film in test} == {film[column] for film in train} == set(names)


def test_a_test_caption_singles_out_its_video_in_words_seen_in_training(manifest: Manifest) -> None:
    texts = {caption.id: caption.text for caption in manifest.captions}
    train, test = ([texts[caption] for caption in part.captions] for part in manifest.splits)
    assert (len(train), len(test)) == (144, 72)
    assert len(set(train + test)) == 216
    assert {word for text in test for word in text.split()} <= {word for text in train for word in text.split()}


def test_captions_say_what_the_video_shows() -> None:
    assert [caption.text for caption in toy.captions(FILM)] == [
        "a red star moves to the right",
        "the red pentagram travels rightwards",
        "a star in red slides from left to right",
    ]


def places(film: toy.Film) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return x, y of the middle and the area in pixels of what has the film's colour, for every fifth frame."""
    found = []
    for picture in islice(toy.pictures(film), 0, None, 5):
        wanted = np.array(toy.COLOURS[film.colour]) / 255
        seen = picture.astype(float) / np.maximum(picture.max(axis=2, keepdims=True), 1)
        y, x = np.nonzero(np.abs(seen - wanted / wanted.max()).max(axis=2) < 0.1)
        found.append((x.mean(), y.mean(), len(x)))
    return np.array(found)


@pytest.mark.parametrize("shape", toy.SHAPES)
@pytest.mark.parametrize("motion", toy.MOTIONS)
def test_motions_are_what_they_are_called(shape: str, motion: str) -> None:
    x, y, area = places(next(f for f in toy.FILMS if (f.colour, f.shape, f.motion) == ("red", shape, motion))).T
    if motion == "right":
        assert (np.diff(x) > 0).all()
        assert np.ptp(x) > 200
        assert np.ptp(y) < 2
    elif motion == "bounce":
        assert np.ptp(x) < 2
        assert np.ptp(y) > 100
        assert (np.diff(np.sign(np.diff(y))) != 0).sum() >= 3, "up and down more than once"
    else:
        assert np.ptp(x) < 3
        assert (np.diff(area) >= 0).mean() > 0.95
        assert area[-1] / area[0] == pytest.approx((2.6 / 0.35) ** 2, rel=0.3)


def test_shapes_differ_and_areas_are_alike() -> None:
    """Of radius 40: a circle has 5,027 pixels, a square of side 69.6 has 4,844."""
    down, right = np.mgrid[-80:81, -80:81].astype(float)
    masks = {shape: toy.distance(shape, right, down, 40.0) < 0 for shape in toy.SHAPES}
    areas = {shape: int(mask.sum()) for shape, mask in masks.items()}
    assert areas["circle"] == pytest.approx(5027, rel=0.01)
    assert areas["square"] == pytest.approx(4844, rel=0.03)
    assert all(3500 < area < 6000 for area in areas.values())
    widths = {shape: (int(mask[:80].sum()), int(mask[81:].sum())) for shape, mask in masks.items()}
    assert widths["circle"][0] == widths["circle"][1]
    assert widths["triangle"][0] < widths["triangle"][1], "the tip is up"
    assert masks["star"][80 - 55, 80]
    assert not masks["star"][80 + 55, 80], "one corner is up, none down"


def test_only_what_is_missing_is_drawn(root: Path) -> None:
    manifest = toy.load(root)
    assert manifest.notes == ("1 of 72 videos were drawn now",)
    assert all((root / f"{film.id}.mp4").read_bytes() == b"already there" for film in REST)
    assert len(list(root.iterdir())) == 72
    before = (root / "red-star-right.mp4").stat()
    assert toy.load(root).notes == ()
    assert (root / "red-star-right.mp4").stat() == before


def test_a_drawn_file_is_what_the_manifest_says(manifest: Manifest) -> None:
    video = next(video for video in manifest.videos if video.id == "red-star-right")
    assert video.path is not None
    with av.open(video.path) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 320, 240)
        assert stream.average_rate == 25
    assert 3 <= video.duration <= 7
    assert len(pictures) == video.duration * 25 == toy.frames(FILM)
    drawn = np.stack(list(islice(toy.pictures(FILM), 0, None, 10))).astype(float)
    assert np.abs(np.stack(pictures[::10]) - drawn).mean() < 5, "of 255: what was encoded is what was drawn"


def test_drawn_twice_alike(tmp_path: Path) -> None:
    toy.draw(FILM, tmp_path / "a.mp4")
    toy.draw(FILM, tmp_path / "b.mp4")
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_durations_are_all_over_three_to_seven_seconds() -> None:
    counts = [toy.frames(film) for film in toy.FILMS]
    assert len(set(counts)) == 72
    assert 75 <= min(counts) < 80
    assert 170 < max(counts) <= 175


def test_an_encoder_that_fails_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **kwargs: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 1, b"", b"first\nUnknown encoder 'libx264'\n")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(BadDataset, match="Unknown encoder 'libx264'; it needs libx264 and free space"):
        toy.load(root)
    assert len(list(root.iterdir())) == 71


def test_no_encoder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffmpeg, "program", lambda: "no-such-ffmpeg")
    with pytest.raises(BadDataset, match="cannot run no-such-ffmpeg to draw the toy videos: No such file"):
        toy.load(root)


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadDataset, match="cannot make the folder .*file for the toy videos: File exists"):
        toy.load(tmp_path / "file")
    with pytest.raises(BadDataset, match="cannot make the folder .*below for the toy videos: Not a directory"):
        toy.load(tmp_path / "file/below")


def test_a_place_that_cannot_be_written(root: Path) -> None:
    """A folder stands where the last file belongs."""
    (root / "red-star-right.mp4").mkdir()
    with pytest.raises(BadDataset, match="the toy videos cannot be drawn: cannot write .*red-star-right.mp4"):
        toy.load(root)
    assert len(list(root.iterdir())) == 72


@pytest.mark.slow
def test_all_are_drawn_in_little_space(tmp_path: Path) -> None:
    manifest = toy.load(tmp_path / "new/toy")
    assert all(video.path and video.path.stat().st_size > 2000 for video in manifest.videos)
    assert sum(video.path.stat().st_size for video in manifest.videos if video.path) < 6_000_000
