"""HowTo100M's lists and captions."""

from pathlib import Path

import orjson
import pytest

from pipeline.asr import stream
from pipeline.datasets import howto100m
from pipeline.errors import BadDataset
from pipeline.oddities import totals


def _write(root: Path, name: str = "raw_caption.json", **videos: tuple[list[object], list[object], list[str]]) -> Path:
    data = {video: {"start": start, "end": end, "text": text} for video, (start, end, text) in videos.items()}
    (root / name).write_bytes(orjson.dumps(data))
    return root


def test_captions_in_the_order_of_time_and_odd_ones_listed(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        v=([4, 0, 2, 8, None, 9], [5, 2, 3, 7, 9, 10], ["so c", " a is", "b is the", "inverted", "no start", "  "]),
    )
    loaded = howto100m.load(root)
    assert [(c.id, c.text) for c in loaded.captions] == [("v@1", "a is"), ("v@2", "b is the"), ("v@3", "so c")]
    assert [(c.id, c.start, c.end) for c in loaded.clips] == [
        ("v", 0.0, None), ("v@1", 0.0, 2.0), ("v@2", 2.0, 3.0), ("v@3", 4.0, 5.0),
    ]  # fmt: skip
    assert totals(loaded.oddities) == {
        "start or end that is no time: dropped": 1,
        "end before start: dropped": 1,
        "caption without text: dropped": 1,
        "blanks at the ends: trimmed": 1,
    }


def test_a_large_file_is_left_to_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _write(tmp_path, v=([0], [1], ["so it is"]))
    (root / "htm_holdout_vid.txt").write_text("v\n-w")
    monkeypatch.setattr(howto100m, "LARGEST", 10)
    loaded = howto100m.load(root)
    assert loaded.captions == ()
    assert [v.id for v in loaded.videos] == ["-w", "v"]
    assert any("its captions are for `pipeline run merge`" in note for note in loaded.notes)
    assert howto100m.captions_of(root).name == "raw_caption.json"


def test_raw_captions_win_and_missing_stop_words_are_told(tmp_path: Path) -> None:
    root = _write(tmp_path, "caption.json", v=([0], [1], ["cut onion pan heat"]))
    assert any(note.startswith("WARNING: caption.json has no stop words") for note in howto100m.load(root).notes)
    _write(root, v=([0], [1], ["so we cut the onion"]))
    loaded = howto100m.load(root)
    assert loaded.captions[0].text == "so we cut the onion"
    assert not any("WARNING" in note for note in loaded.notes)


def test_wrong_inputs(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no HowTo100M annotations in .*; expected raw_caption.json"):
        howto100m.load(tmp_path)
    (tmp_path / "htm_holdout_vid.txt").write_text("a\nb c\n")
    with pytest.raises(BadDataset, match="htm_holdout_vid.txt, row 2: 'b c'; expected an id"):
        howto100m.load(tmp_path)
    with pytest.raises(BadDataset, match="no captions in .*; expected one of raw_caption.json"):
        howto100m.captions_of(tmp_path)


def test_real_lists(shared: Path) -> None:
    loaded = howto100m.load(shared / "data/howto100m")
    holdout = next(part for part in loaded.splits if part.split == "holdout")
    assert len(holdout.clips) == 1_000
    assert all(clip.startswith("-") for clip in holdout.clips)
    lines = (shared / "data/howto100m/procedurevrl_howto100m_full_test.head4000.csv").read_text().splitlines()
    listed = {line.split()[0].rpartition(".")[0]: float(line.split()[2]) for line in lines}
    assert len(lines) == 4_000
    seconds = {video.id: video.duration for video in loaded.videos}
    assert {video: seconds[video] for video in listed} == listed
    assert len(loaded.videos) == len(set(listed) | set(holdout.clips))


def test_real_whisper_timings(shared: Path) -> None:
    """Three of the four videos are music only: words are made up, sentences are none, and sentences win."""
    found = {cues.video: cues for cues in stream(shared / "data/asr")}
    assert {video: len(cues.text) for video, cues in found.items()} == {
        "3b1b_2015_binary-counting": 0,
        "3b1b_2016_hilbert-curve": 0,
        "3b1b_2019_fourier-series-montage": 0,
        "3b1b_2024_shorts_subset-sum": len(
            orjson.loads((shared / "data/asr/3b1b_2024_shorts_subset-sum_sentence_timings.json").read_bytes())
        ),
    }
    assert len(found["3b1b_2024_shorts_subset-sum"].text) > 5
