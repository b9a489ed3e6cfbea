"""Merging captions: hand-worked videos, and what holds for every video."""

import math
from collections import Counter
from dataclasses import fields
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import gathering
from pipeline.asr import Cues
from pipeline.gathering import LATEST, NEGATIVE, NO_LENGTH, NO_START, UNSORTED, gather, in_order
from pipeline.merging import MOMENT, Limits, Merged, merge, merge_all


def cues(*rows: tuple[float, float, str]) -> Cues:
    return Cues("v", [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def test_nothing() -> None:
    assert merge(cues()) == []


def test_neighbours_are_taken_until_there_are_enough_words() -> None:
    """3 + 3 words are enough for five, then 4 + 1; what is left joins the clip before it."""
    video = cues((0, 2, "a b c"), (2, 4, "d e f"), (4, 6, "g h i j"), (5.5, 7, "k"), (8, 9, "l m"))
    assert merge(video, min_words=5) == [Merged(0, 4, "a b c d e f", 0, 2), Merged(4, 9, "g h i j k l m", 2, 3)]


def test_no_clip_goes_across_a_pause() -> None:
    video = cues((0, 2, "a b"), (7, 9, "c d"), (14.5, 15, "e"))
    assert merge(video, 10, max_gap=5) == [Merged(0, 9, "a b c d", 0, 2), Merged(14.5, 15, "e", 2, 1)]
    assert [clip.count for clip in merge(video, 10, max_gap=4.9)] == [1, 1, 1]
    assert [clip.count for clip in merge(video, 10, max_gap=5.5)] == [3]


def test_no_clip_is_too_long_unless_it_is_one_caption() -> None:
    video = cues((0, 6, "a"), (6, 10, "b"), (10, 11, "c"), (11, 50, "d"), (50, 51, "e"), (51, 52, "f"))
    assert [(clip.start, clip.end, clip.count) for clip in merge(video, 10, max_seconds=10)] == [
        (0, 10, 2),
        (10, 11, 1),
        (11, 50, 1),
        (50, 52, 2),
    ]


def test_a_short_one_joins_the_one_before_only_where_it_fits() -> None:
    video = cues((0, 6, "a b c"), (6, 9, "d"), (20, 21, "e"))
    assert [clip.count for clip in merge(video, 3, max_seconds=9)] == [2, 1]
    assert [clip.count for clip in merge(video, 3, max_seconds=8.9)] == [1, 1, 1]


def test_one_that_lies_within_a_long_one_fits_in_it() -> None:
    assert merge(cues((0, 50, "a"), (1, 2, "b"), (3, 51, "c")), 10, max_seconds=9) == [
        Merged(0, 50, "a b", 0, 2),
        Merged(3, 51, "c", 2, 1),
    ]


def test_the_gap_is_measured_from_the_latest_end() -> None:
    """The second lies within the first, which is still shown when the third begins."""
    video = cues((0, 20, "a"), (1, 2, "b"), (21, 22, "c"))
    assert merge(video, 3) == [Merged(0, 22, "a b c", 0, 3)]


@pytest.mark.parametrize(
    ("before", "here", "rest"),
    [
        ("so we add the flour", "add the flour and mix", "and mix"),
        ("so we add the flour", "the flour and mix", "the flour and mix"),  # two words, and not all of either
        ("the flour", "the flour and mix", "and mix"),  # all of the one before
        ("so add the flour", "the flour", ""),  # all of this one
        ("yes", "yes and", "and"),
        ("yes", "yesterday and", "yesterday and"),
        ("so add the flour", "the flo", "the flo"),
        ("our add the flour", "ur add the flour", "ur add the flour"),
        ("a b c a b c", "a b c a b c d", "d"),  # the longest
        ("a b c a b c", "a b c d", "d"),
        ("x x x x", "x x x x x", "x"),
        ("a b c", "A b c d", "A b c d"),
        ("a b c d", "b c d", ""),
        ("a b c d", "a b c d", ""),
        ("a b c d", "", ""),
        ("", "a b", "a b"),
        ("a  b\nc", "b c  d", "b c d"),
        ("a b\nc", " a\tb c d ", "d"),
    ],
)
def test_rolling_captions_lose_what_they_repeat(before: str, here: str, rest: str) -> None:
    tidy = " ".join(before.split())
    assert merge(cues((0, 2, before), (2.5, 4, here))) == [Merged(0, 4, f"{tidy} {rest}".strip(), 0, 2)]


def test_what_does_not_touch_repeats_nothing() -> None:
    assert merge(cues((0, 2, "a b c"), (2.6, 4, "a b c")))[0].text == "a b c a b c"


def test_a_run_is_looked_for_in_the_text_as_it_was() -> None:
    """The second is `b c d e` in full; what remains of it, `e`, is not what the third begins with."""
    video = cues((0, 1, "a b c d"), (1, 2, "b c d e"), (2, 3, "c d e f"))
    assert merge(video)[0].text == "a b c d e f"


def test_a_wholly_repeated_one_stays_a_member_of_a_clip_that_is_full() -> None:
    video = cues((0, 1, "a b c"), (1, 2, "b c"), (2, 3, "d e f"), (30, 31, "a"), (31, 32, "a"))
    assert merge(video, 3) == [
        Merged(0, 2, "a b c", 0, 2),
        Merged(2, 3, "d e f", 2, 1),
        Merged(30, 32, "a", 3, 2),
    ]


def test_one_without_words_away_from_all_is_a_clip_without_text() -> None:
    assert merge(cues((0, 1, "a"), (30, 31, " "))) == [Merged(0, 1, "a", 0, 1), Merged(30, 31, "", 1, 1)]


def test_order_is_by_start_then_end_then_place() -> None:
    video = cues((5, 6, "d"), (0, 2, "b"), (0, 1, "a"), (0, 2, "c"))
    assert merge(video)[0] == Merged(0, 6, "a b c d", 0, 4)
    assert sorted_columns(video)[2] == ["a", "b", "c", "d"]
    assert gather([video]).repaired == [(UNSORTED, "v", 1)]


NAN = math.nan


@pytest.mark.parametrize(
    ("rows", "clips", "found"),
    [
        ([(3, 2, "a"), (4, 5, "b")], [(3, 5)], {NO_LENGTH: 1}),
        ([(3, NAN, "a"), (4, 5, "b")], [(3, 5)], {NO_LENGTH: 1}),
        ([(3, 3, "a")], [(3, 3 + MOMENT)], {NO_LENGTH: 1}),
        ([(NAN, NAN, "a")], [(0, MOMENT)], {NO_LENGTH: 1, NO_START: 1}),
        ([(1, 2, "a"), (NAN, NAN, "b")], [(1, 2)], {NO_LENGTH: 1, NO_START: 1, UNSORTED: 1}),
        ([(NAN, 7, "a")], [(7, 7 + MOMENT)], {NO_LENGTH: 1, NO_START: 1}),
        ([(-2, 1, "a")], [(0, 1)], {NEGATIVE: 1}),
        ([(-2, -1, "a")], [(0, MOMENT)], {NEGATIVE: 1, NO_LENGTH: 1}),
        ([(1, math.inf, "a")], [(1, 1 + MOMENT)], {NO_LENGTH: 1}),
        ([(math.inf, 4, "a"), (2, 3, "b")], [(2, 4)], {NO_START: 1, NO_LENGTH: 1, UNSORTED: 1}),
        ([(LATEST * 2, LATEST * 3, "a")], [(0, MOMENT)], {NO_START: 1, NO_LENGTH: 1}),
        ([(1, 2, "a")], [(1, 2)], {}),
    ],
)
def test_times_that_cannot_be(
    rows: list[tuple[float, float, str]], clips: list[tuple[float, float]], found: dict[str, int]
) -> None:
    video = cues(*rows)
    assert [(clip.start, clip.end) for clip in merge(video)] == clips
    assert sum(clip.count for clip in merge(video)) == len(rows)
    assert {what: number for what, _, number in gather([video]).repaired} == found


def test_control_characters_and_blanks_are_no_words() -> None:
    video = cues((0, 1, "\x00a\u00a0 b "), (2, 3, "\ud800"), (4, 5, "c\x7fd"))
    assert merge(video)[0].text == "a b c d"


# Few words, so that captions repeat each other; times on a grid, so that they touch, tie and nest.
times = st.integers(0, 60).map(lambda n: n / 4)
odd_times = times | st.sampled_from([NAN, math.inf, -math.inf, -3.0, LATEST * 2, 1e300])
words = st.lists(st.sampled_from(["a", "b", "the", "flour", "é"]), max_size=6).map(" ".join)
texts = words | st.text(max_size=8)
videos = st.lists(st.tuples(odd_times, odd_times, texts), max_size=25).map(lambda rows: cues(*rows))
plain_videos = st.lists(st.tuples(times, st.integers(1, 40), words), max_size=25).map(
    lambda rows: cues(*sorted((start, start + quarter / 4, text) for start, quarter, text in rows))
)
limits = st.tuples(st.integers(1, 12), st.sampled_from([0.0, 0.25, 2.0, 5.0]), st.sampled_from([0.5, 4.0, 30.0]))
Limit = tuple[int, float, float]


@given(videos, limits)
def test_every_caption_is_in_one_clip_in_order(video: Cues, limit: Limit) -> None:
    clips = merge(video, *limit)
    assert [n for clip in clips for n in range(clip.first, clip.first + clip.count)] == list(range(len(video.text)))
    assert all(clip.count > 0 and 0 <= clip.start < clip.end for clip in clips)
    assert [clip.start for clip in clips] == sorted(clip.start for clip in clips)
    start, end, _ = sorted_columns(video)
    for clip in clips:
        members = slice(clip.first, clip.first + clip.count)
        assert clip.start == start[clip.first]
        assert clip.end == (max(end[members]) if max(end[members]) > clip.start else clip.start + MOMENT)
    assert merge(video, *limit) == clips


def sorted_columns(video: Cues) -> tuple[list[float], list[float], list[str]]:
    start, end, text = in_order(video, Counter())
    return start, end, list(text)


def plainly(video: Cues, min_words: int, max_gap: float, max_seconds: float) -> list[tuple[int, int]]:
    """First and count of each clip, by the rule's own words, one caption after the other."""
    start, end, _ = sorted_columns(video)
    own = [len(text.split()) for text in expected(video)]

    def reach(clip: list[int]) -> float:
        return max(end[n] for n in clip)

    def fits(clip: list[int], more: list[int]) -> bool:
        longer = reach(more) > reach(clip) and reach(more) - start[clip[0]] > max_seconds
        return start[more[0]] - reach(clip) <= max_gap and not longer

    def short(clip: list[int]) -> bool:
        return sum(own[n] for n in clip) < min_words

    opened: list[list[int]] = []
    for number in range(len(start)):
        if opened and (short(opened[-1]) or not own[number]) and fits(opened[-1], [number]):
            opened[-1].append(number)
        else:
            opened.append([number])
    closed: list[list[int]] = []
    for clip in opened:
        if closed and short(clip) and fits(closed[-1], clip):
            closed[-1] += clip
        else:
            closed.append(clip)
    return [(clip[0], len(clip)) for clip in closed]


def expected(video: Cues) -> list[str]:
    """The words of each caption that are its own, found the plain way."""
    start, end, raw = sorted_columns(video)
    found = [raw[0].split()] if raw else []
    for number in range(1, len(raw)):
        before, here = raw[number - 1].split(), raw[number].split()
        touches = start[number] <= end[number - 1] + 0.5
        sizes = [
            size
            for size in range(1, min(len(before), len(here)) + 1)
            if before[-size:] == here[:size] and (size >= 3 or size in (len(before), len(here)))
        ]
        found.append(here[max(sizes, default=0) if touches else 0 :])
    return [" ".join(own) for own in found]


@given(videos | plain_videos, limits)
def test_the_rule_taken_at_its_word(video: Cues, limit: Limit) -> None:
    assert [(clip.first, clip.count) for clip in merge(video, *limit)] == plainly(video, *limit)


@given(st.lists(videos | plain_videos, max_size=6), limits)
def test_many_videos_at_once_are_merged_as_one_by_one(many: list[Cues], limit: Limit) -> None:
    found = merge_all(gather(many), Limits(*limit))
    alone = [merge(video, *limit) for video in many]
    assert found.clips.tolist() == [len(clips) for clips in alone]
    columns = (found.start, found.end, found.first, found.count)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (clip.start, clip.end, clip.first, clip.count) for clips in alone for clip in clips
    ]
    texts = [clip.text for clips in alone for clip in clips]
    assert found.told.tolist() == [bool(text) for text in texts]
    assert found.text.decode() == "".join(f"{text}\0" for text in texts if text)


@given(st.lists(videos | plain_videos, max_size=6), st.integers(0, 40))
def test_batches_are_gathered_as_one(many: list[Cues], together: int) -> None:
    with mock.patch.object(gathering, "_TOGETHER", together):
        found = gather(many)
    whole = gather(many)
    for field in fields(whole):
        one, all_ = getattr(found, field.name), getattr(whole, field.name)
        assert np.array_equal(one, all_) if isinstance(all_, np.ndarray) else one == all_


@given(videos, limits)
def test_words_are_kept_but_for_those_repeated(video: Cues, limit: Limit) -> None:
    own = expected(video)
    for clip in merge(video, *limit):
        assert clip.text == " ".join(" ".join(own[clip.first : clip.first + clip.count]).split())


@given(videos, limits)
def test_bounds(video: Cues, limit: Limit) -> None:
    min_words, max_gap, max_seconds = limit
    start, end, _ = sorted_columns(video)
    clips = merge(video, *limit)
    for clip in clips:
        members = range(clip.first, clip.first + clip.count)
        assert clip.end - clip.start <= max(max_seconds, MOMENT) or clip.end == end[clip.first]
        for number in members[1:]:
            assert start[number] - max(end[clip.first : number]) <= max_gap
    for clip, after in pairwise(clips):
        reach = max(end[clip.first : after.first])
        near = after.start - reach <= max_gap
        alone = end[after.first] > reach and end[after.first] - clip.start > max_seconds
        assert len(clip.text.split()) >= min_words or not near or alone  # short only where the next did not fit
    for before, clip in pairwise(clips):
        reach = max(end[before.first : clip.first])
        latest = max(end[clip.first : clip.first + clip.count])
        if len(clip.text.split()) < min_words:  # nor the one before
            assert clip.start - reach > max_gap or (latest > reach and latest - before.start > max_seconds)


@given(plain_videos, limits)
def test_what_is_merged_stays_as_it_is(video: Cues, limit: Limit) -> None:
    """Where starts differ and no text repeats another."""
    size = len(video.text)
    own = Cues(
        "v",
        [start + number / 1024 for number, start in enumerate(video.start)],
        [end + number / 1024 for number, end in enumerate(video.end)],
        [
            " ".join(f"{word}{number}-{n}" for n, word in enumerate(video.text[number].split()))
            for number in range(size)
        ],
    )
    once = merge(own, *limit)
    again = merge(cues(*((clip.start, clip.end, clip.text) for clip in once)), *limit)
    assert [(clip.start, clip.end, clip.text) for clip in again] == [(c.start, c.end, c.text) for c in once]
    assert all(clip.count == 1 for clip in again)
