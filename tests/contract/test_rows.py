"""Which frames each row of every preset sees, and how many rows a video of some seconds has."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import extractors
from extractors.spec import Chain, row_count
from pipeline.cutting import Cutter
from pipeline.decode import Decoding
from pipeline.probe import probe
from tests.whole.frames import program

PRESETS = {p.name: p for name in extractors.names() for p in extractors.get(name).PRESETS.values()}
RATES = sorted({preset.chain.fps for preset in PRESETS.values()})
SECONDS = (0.04, 0.48, 0.52, 1.0, 1.48, 1.52, 2.0, 4.2, 10.48, 10.52, 33.36, 100.0)
"""Whole frames at 25 a second."""


def sampled(seconds, fps):
    """Return the frames that `fps` gives: the nearest whole number, and the first frame where that is none."""
    return max(1, int(np.floor(seconds * fps + 0.5)))


def cut(preset, count):
    """Return the numbers of the frames that each row sees, of `count` frames."""
    cutter, rows = Cutter(preset), []
    for number in range(count):
        rows += cutter.add(np.full((1, 1, 3), number, np.int32))
    rows += cutter.end()
    assert [row for _, row, _ in rows] == list(range(len(rows)))
    return [frames[:, 0, 0, 0].tolist() for _, _, frames in rows]


def expected(preset, count):
    """Return the same by the rules as they are written down."""
    starts = range(0, count, preset.stride or preset.frames)
    if preset.tail is None:  # one row for each start; those at the end lack frames, which are padded with black
        return [list(range(start, min(start + preset.frames, count))) for start in starts]
    if count <= preset.frames:
        return [list(range(count))]
    return [list(range(s, s + preset.frames)) for s in (min(start, count - preset.frames) for start in starts)]


@pytest.mark.parametrize("name", PRESETS)
def test_rows_follow_the_sampling_rule(name):
    preset = PRESETS[name]
    counts = {sampled(seconds, preset.chain.fps) for seconds in SECONDS}
    for count in sorted(counts | {preset.frames, preset.frames + 1, 2 * preset.frames, 3 * preset.frames - 1}):
        rows = cut(preset, count)
        assert rows == expected(preset, count)
        assert preset.rows(count) == len(rows)
        assert sorted({frame for row in rows for frame in row}) == list(range(count))  # none is lost
        assert {len(row) for row in rows[:-1]} <= {preset.frames} or preset.stride is not None


@pytest.mark.parametrize("name", PRESETS)
def test_a_second_has_as_many_rows_as_the_preset_says(name):
    preset = PRESETS[name]
    starts = [row[0] for row in cut(preset, sampled(100.0, preset.chain.fps))]
    steps = {b - a for a, b in pairwise(starts)}
    if preset.tail is None:
        assert steps <= {preset.step}
    assert preset.rows_per_second * preset.step == pytest.approx(preset.chain.fps)


def test_coot_s_last_two_rows_are_one():
    preset = extractors.preset("s3d_howto100m:coot")
    starts = {count: [row[0] for row in cut(preset, count)] for count in (16, 32, 33, 40, 48, 49)}
    assert starts == {16: [0], 32: [0], 33: [0, 1, 1], 40: [0, 8, 8], 48: [0, 16, 16], 49: [0, 16, 17, 17]}


def test_counting_needs_no_preset():
    assert [row_count(n, 16) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert [row_count(n, 16, 8) for n in (0, 1, 16, 17)] == [0, 1, 2, 3]
    assert [row_count(n, 32, 16, "last") for n in (0, 1, 32, 33)] == [0, 1, 1, 3]


def test_a_cutter_holds_no_more_than_a_row():
    preset = replace(extractors.preset("c3d"), stride=1)
    cutter = Cutter(preset)
    for _ in range(100):
        list(cutter.add(np.zeros((1, 1, 3), np.uint8)))
    assert len(cutter._last) == preset.frames


@pytest.mark.parametrize("seconds", SECONDS)
def test_frames_of_real_videos_follow_the_sampling_rule(seconds: float, tmp_path: Path) -> None:
    """At the rate of every preset, from one decode."""
    size, rate = "16x16", "25"
    program("-f", "lavfi", "-i", f"testsrc=size={size}:rate={rate}:duration={seconds}", "-y", tmp_path / "v.mp4")
    counts = dict.fromkeys(RATES, 0)
    for chain, _ in Decoding(tmp_path / "v.mp4", probe(tmp_path / "v.mp4"), [Chain(fps, 16) for fps in RATES]):
        counts[RATES[chain]] += 1
    assert counts == {fps: sampled(seconds, fps) for fps in RATES}
