"""Whole videos through an encoder: tokens of several streams, windows and what they share, rows by second, by hand."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import BadFeatureFile, BadSetting
from pipeline.shards import Extracted, write_shard
from pipeline.store import Features
from tests.unit.features import ATTRS, head
from train import whole
from train.config import Data, Fit, Run
from train.loading import Trained
from train.settings import Locvtp, Ncl, Taco, Windows
from train.whole import by_second, check_room, sight, streams_in, videos_with_rows, windowed
from train.windows import windows

RATES = {"a:x": 1.0, "b:y": 1.5, "c:z": 0.5}


def write(path: Path, *videos: dict[str, list[float]]) -> Features:
    """Videos `v0`, `v1`, … with rows (value, -value) in the streams that each has."""
    found = []
    for number, one in enumerate(videos):
        rows = {name: np.array([[v, -v] for v in own], np.float16).reshape(-1, 2) for name, own in one.items()}
        found.append(Extracted(f"v{number}", {"source_size": 1, "source_mtime": 1}, tuple(one), rows, "ok"))
    names = {name for one in videos for name in one}
    write_shard(path, ATTRS, {name: head(dim=2, fps=RATES[name]) for name in sorted(names)}, found)
    return Features.open(path)


def numbered(*lengths: int) -> list[dict[str, list[float]]]:
    """Videos of stream a:x whose rows are 0, 1, 2 … and begin at 100 for the second video, 200 for the third."""
    return [{"a:x": [100.0 * video + row for row in range(count)]} for video, count in enumerate(lengths)]


class Encoder:
    """To a token's numbers it adds the average of its window and its place in it; it notes the windows of each call."""

    def __init__(self, contextual: bool) -> None:
        self.contextual, self.calls = contextual, list[list[int]]()

    def video(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls.append(mask.sum(1).tolist())
        if not self.contextual:
            return 2 * x
        average = torch.stack([one[there].mean(0) for one, there in zip(x, mask, strict=True)])
        return x + average[:, None] + torch.arange(x.shape[1], device=x.device)[:, None]


def by_hand(x: list[float], spans: list[tuple[int, int]]) -> list[float]:
    """The first number of each token, from the encoder above, averaged over the windows that hold it."""
    out = []
    for row, value in enumerate(x):
        own = [(a, b) for a, b in spans if a <= row < b]
        out.append(sum(value + sum(x[a:b]) / (b - a) + row - a for a, b in own) / len(own))
    return out


def trained(features: Features, model: Encoder, most: int = 4, method: Any = None, device: str = "cpu") -> Trained:
    settings = method or (Ncl(head="transformer") if model.contextual else Ncl())
    run = Run(Data(features=Path("f"), max_video_tokens=most), Fit(device=device), "ncl", settings, ("", "", ""))
    unused: Any = SimpleNamespace()
    return Trained(run, run, 0, unused, model, features)  # type: ignore[arg-type]


def through(
    features: Features, model: Encoder, seen: tuple[int, int], names: tuple[str, ...] = ("a:x",), device: str = "cpu"
) -> list[NDArray[np.float64]]:
    videos, _ = videos_with_rows(features, np.arange(len(features.videos["id"])), names)
    return list(windowed(trained(features, model, device=device), videos, seen, lambda _, tokens: tokens))


def test_examples_of_the_docstrings() -> None:
    assert doctest.testmod(whole) == (0, 1)


def test_streams_of_different_rates_stand_side_by_side_on_the_slowest_grid(tmp_path: Path) -> None:
    features = write(
        tmp_path / "f.h5", {"a:x": [0, 1, 2, 3], "b:y": [10, 11, 12, 13, 14, 15]}, {"a:x": [7], "b:y": [20, 21]}
    )
    videos, there = videos_with_rows(features, np.arange(2), ["a:x", "b:y"])
    assert (videos.rate, len(videos), there.tolist()) == (1.0, 2, [True, True])
    one, two = videos
    # Token j lies at j + 0.5 s: row int(1.5 * (j + 0.5)) of the faster stream, 0, 2, 3, 5.
    assert one.tolist() == [[0, -0, 10, -10], [1, -1, 12, -12], [2, -2, 13, -13], [3, -3, 15, -15]]
    assert two.tolist() == [[7, -7, 20, -20]]
    slow = write(tmp_path / "s.h5", {"b:y": [0, 1, 2, 3, 4, 5], "c:z": [30, 31]})
    videos, _ = videos_with_rows(slow, np.arange(1), ["b:y", "c:z"])
    assert videos.rate == 0.5
    assert [x.tolist() for x in videos] == [[[1, -1, 30, -30], [4, -4, 31, -31]]]


def test_videos_without_rows_in_one_of_the_streams_are_told(tmp_path: Path) -> None:
    features = write(tmp_path / "f.h5", {"a:x": [1]}, {"a:x": [2], "b:y": [3]}, {"a:x": [], "b:y": [4]})
    videos, there = videos_with_rows(features, np.array([1, 0, 2, 1]), ["a:x", "b:y"])
    assert (videos.places.tolist(), there.tolist()) == ([1, 1], [True, False, False, True])
    assert [x.tolist() for x in videos] == [[[2, -2, 3, -3]]] * 2
    none, there = videos_with_rows(features, np.array([0, 2]), ["a:x", "b:y"])
    assert (len(none), list(none), there.tolist()) == (0, [], [False, False])
    assert list(windowed(trained(features, Encoder(False)), none, (4, 4), lambda _, x: x)) == []


def test_what_windows_share_is_averaged(tmp_path: Path) -> None:
    model = Encoder(contextual=True)
    (found,) = through(write(tmp_path / "f.h5", *numbered(7)), model, (4, 2))
    assert model.calls == [[4, 4, 3]]
    # Row 2 is third of the first window, first of the second: (2 + 1.5 + 2 + 2 + 3.5 + 0) / 2.
    assert found[2, 0] == 5.5
    np.testing.assert_allclose(found[:, 0], by_hand([0, 1, 2, 3, 4, 5, 6], [(0, 4), (2, 6), (4, 7)]))


def test_an_encoder_that_sees_rows_one_by_one_sees_each_once(tmp_path: Path) -> None:
    model = Encoder(contextual=False)
    features = write(tmp_path / "f.h5", *numbered(9, 2))
    seen = sight(trained(features, model).run, 1.0, Windows())
    found = through(features, model, seen)
    assert model.calls == [[4, 4, 1, 2]]
    assert [x[:, 0].tolist() for x in found] == [[2.0 * row for row in range(9)], [200.0, 202.0]]


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_a_video_is_the_same_alone_and_among_others(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "AT_ONCE", at_once)
    lengths = (3, 11, 1, 6, 4, 25)
    model = Encoder(contextual=True)
    found = through(write(tmp_path / "f.h5", *numbered(*lengths)), model, (5, 2))
    assert [len(x) for x in found] == list(lengths)
    for number, (x, count) in enumerate(zip(found, lengths, strict=True)):
        rows = [100.0 * number + row for row in range(count)]
        np.testing.assert_allclose(x[:, 0], by_hand(rows, windows(count, 5, 2)))
    assert max(map(len, model.calls)) <= at_once  # of one long video, too
    assert sum(map(len, model.calls)) == sum(len(windows(count, 5, 2)) for count in lengths)


def test_the_head_is_told_which_video_it_sees(tmp_path: Path) -> None:
    features = write(tmp_path / "f.h5", *numbered(3, 6, 2))
    videos, _ = videos_with_rows(features, np.array([2, 0, 1]), ["a:x"])

    def first(place: int, tokens: Tensor) -> Tensor:
        return torch.stack([torch.full((len(tokens),), float(place)), tokens[:, 0] / 2], dim=1).half()

    found = list(windowed(trained(features, Encoder(False)), videos, (4, 4), first))
    assert [x.tolist() for x in found] == [
        [[0, 200], [0, 201]],
        [[1, 0], [1, 1], [1, 2]],
        [[2, 100], [2, 101], [2, 102], [2, 103], [2, 104], [2, 105]],
    ]
    assert all(x.dtype == np.float64 for x in found)


@pytest.mark.gpu
def test_the_same_on_a_gpu(tmp_path: Path) -> None:
    features = write(tmp_path / "f.h5", *numbered(7, 2))
    found = through(features, Encoder(True), (4, 2), device="cuda")
    for one, other in zip(found, through(features, Encoder(True), (4, 2)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("rate", "rows", "seconds"),
    [
        (1.0, [3, 5], [3, 5]),
        (1.5, [0, 1, 4], [0, 2.5]),  # middles at 0.33, 1 and 1.67 s
        (1.5, [0, 3, 6, 9, 12, 15], [0, 4.5, 9, 13.5]),
        (2.0, [0, 2, 4, 6], [1, 5]),
        (2.0, [0, 2, 4], [1, 4]),  # a half second is one
        (2.0, [0, 2, 4, 6, 8], [1, 5, 8]),
        (0.5, [2, 3], [2, 2, 3, 3]),
        (0.4, [1, 5], [1, 1, 5, 5, 5]),  # a row is 2.5 s: the second one begins in the third second's middle
        (4.0, [7], [7]),
    ],
)
def test_rows_by_second(rate: float, rows: list[float], seconds: list[float]) -> None:
    x = np.array([[value, -value] for value in rows], np.float64)
    assert by_second(x, rate)[:, 0].tolist() == seconds
    assert by_second(x, rate)[:, 1].tolist() == [-value for value in seconds]


@pytest.mark.parametrize(
    ("method", "rate", "given", "found"),
    [
        (Locvtp(), 1.0, Windows(window=500, stride=9), (48, 48)),  # rows one by one: no windows
        (Taco(video_layers=0), 1.0, Windows(), (48, 48)),
        (Taco(), 1.0, Windows(), (48, 24)),
        (Locvtp(clip_layers=1), 1.0, Windows(window=32), (32, 16)),
        (Taco(), 1.5, Windows(window=32, stride=8), (48, 12)),
        (Ncl(head="transformer"), 0.5, Windows(window=3, stride=1.2), (2, 1)),
        (Taco(), 1.0, Windows(window=1), (1, 1)),
    ],
)
def test_how_much_an_encoder_sees(method: Any, rate: float, given: Windows, found: tuple[int, int]) -> None:
    run = Run(Data(features=Path("f")), Fit(), "taco", method, ("", "", ""))
    assert sight(run, rate, given) == found


@pytest.mark.parametrize(
    ("rate", "given", "message"),
    [
        (1.5, Windows(window=33), "--window 33: 50 video tokens at 1.5 a second, and the encoder takes 1 to 48"),
        (1.0, Windows(window=0.4), "--window 0.4: 0 video tokens"),
        (1.0, Windows(stride=49), "--stride 49: 49 video tokens; expected 1 to 48"),
        (1.0, Windows(window=8, stride=0.2), "--stride 0.2: 0 video tokens; expected 1 to 8, those of a window"),
    ],
)
def test_windows_that_cannot_be(rate: float, given: Windows, message: str) -> None:
    run = Run(Data(features=Path("f")), Fit(), "taco", Taco(), ("", "", ""))
    with pytest.raises(BadSetting, match=message.replace("(", r"\(")):
        sight(run, rate, given)


def test_rows_that_are_not_numbers_are_an_error_that_names_the_video(tmp_path: Path) -> None:
    features = write(tmp_path / "f.h5", {"a:x": [1]}, {"a:x": [2, np.nan]})
    with pytest.raises(BadFeatureFile, match="1 rows of a:x are NaN or infinite, the first of video v1"):
        through(features, Encoder(False), (4, 4))


def test_streams_there_are_or_that_are_named(tmp_path: Path) -> None:
    features = write(tmp_path / "f.h5", {"a:x": [1], "b:y": [3]})
    assert streams_in(features, ()) == ("a:x", "b:y")
    assert streams_in(features, ("b:y",)) == ("b:y",)
    write_shard(tmp_path / "n.h5", ATTRS, {}, [])
    with pytest.raises(BadFeatureFile, match=r"n\.h5 has no streams; `pipeline join`"):
        streams_in(Features.open(tmp_path / "n.h5"), ())


def test_rows_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = write(tmp_path / "f.h5", {"b:y": [0] * 9}, {"b:y": [0] * 3})  # 8 s
    videos, _ = videos_with_rows(features, np.arange(2), ["b:y"])
    free: Callable[[torch.device], float] = lambda _: 8e9  # noqa: E731
    monkeypatch.setattr(whole, "room", free)
    check_room(videos, 1_000_000_000)
    with pytest.raises(BadSetting, match=r"8 seconds need 8\.8 GB, and half of what is free is 8\.0 GB"):
        check_room(videos, 1_100_000_000)
