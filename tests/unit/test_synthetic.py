"""Synthetic features: what is annotated can be seen in the rows of its span, and nowhere else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.records import Caption, Clip, Manifest, Part, Step, Video
from pipeline.report import verify
from pipeline.store import STATUS, Features
from tests.unit.written import write
from train import data
from workflows.choosing import first_videos
from workflows.synthetic import LEFT_OUT, STREAM, Planting, concept, main, shows
from workflows.synthetic import write as write_features

CLEAN = ("--noise", "0", "--nuisance", "0")


def told(duration: float, *moments: tuple[float, float, str]) -> dict[str, Any]:
    """Return a record of ActivityNet Captions."""
    return {
        "duration": duration,
        "timestamps": [[start, end] for start, end, _ in moments],
        "sentences": [text for _, _, text in moments],
    }


def activitynet(folder: Path, **files: dict[str, Any]) -> Path:
    return write(folder, **{f"{name}__json": value for name, value in files.items()})


def coin(folder: Path, *steps: tuple[float, float, str], duration: float = 10.0) -> Path:
    annotation = [{"id": "1", "segment": [start, end], "label": label} for start, end, label in steps]
    record = {"duration": duration, "class": "MakeTea", "subset": "training", "annotation": annotation}
    return write(folder, COIN__json={"database": {"v": record}})


def run(dataset: str, root: Path, *words: str, out: str = "out.h5") -> Path:
    path = root / out
    assert main([dataset, "--root", str(root), "--out", str(path), *words]) == 0
    return path


def rows(path: Path, video: str) -> np.ndarray[Any, Any]:
    with Features.open(path) as features:
        return features.rows(STREAM, video).astype(float)


def meaning(text: str, seed: int = 0, dim: int = 128) -> np.ndarray[Any, Any]:
    return concept(text, Planting(seed=seed, dim=dim))


def is_sum(row: np.ndarray[Any, Any], *texts: str) -> bool:
    """Return whether a row without noise and nuisance is the sum of these texts' concepts."""
    total = np.sum([meaning(text) for text in texts] or np.zeros((1, 128)), axis=0)
    return bool(np.allclose(row, total, atol=2e-3))


@pytest.mark.parametrize(
    ("spans", "shown"),
    [
        ([(2, 5)], [2, 3, 4]),
        ([(1.5, 3.5)], [1, 2, 3]),  # half of a row is enough
        ([(1.6, 3.4)], [2]),  # four tenths of one are not
        ([(0.1, 0.3)], [0]),
        ([(4.7, 5.2)], [4]),  # half of no row: its middle is 4.95
        ([(4.8, 5.3)], [5]),
        ([(6.0, 8.1)], [6, 7]),  # the video has but 0.2 s of row 8
        ([(6.0, 8.2)], [6, 7, 8]),  # what ends with the video lasts to the end of its last row
        ([(7.6, 8.2)], [8]),
        ([(7.6, 8.15)], [7]),  # half of no row: its middle is 7.875
        ([(0.0, np.inf)], list(range(9))),
        ([(8.3, 9.0)], []),
        ([], []),
    ],
)
def test_which_rows_show_a_span(spans, shown):
    assert np.flatnonzero(shows(spans, 8.2, 1.0, 9)).tolist() == shown


def test_rows_of_another_rate():
    assert np.flatnonzero(shows([(1.0, 2.0)], 5.0, 2.0, 10)).tolist() == [2, 3]
    assert np.flatnonzero(shows([(1.0, 6.0)], 20.0, 0.25, 5)).tolist() == [0, 1]  # 4 s a row: 3 s of the first, 2 s


def test_a_caption_is_in_the_rows_of_its_span_and_not_elsewhere(tmp_path):
    one, two = "A man jumps.", "The dog barks at him"
    root = activitynet(tmp_path, train={"v_a": told(10.4, (2, 5, one), (4.6, 8.4, two))})
    found = rows(run("activitynet", root, *CLEAN), "v_a")
    assert found.shape == (11, 128)
    for number, row in enumerate(found):
        texts = [text for text, span in ((one, range(2, 5)), (two, range(5, 8))) if number in span]
        assert is_sum(row, f"{one} {two}", *texts), number  # the paragraph is about the whole video


def test_one_split_alone_is_planted_and_written(tmp_path):
    one, two = "A man jumps.", "The dog barks at him"
    root = activitynet(tmp_path, train={"v_a": told(10.0, (2, 5, one), (5, 8, two))})
    out = run("activitynet", root, *CLEAN, "--split", "grounding")
    for number, row in enumerate(rows(out, "v_a")):
        assert is_sum(row, *(text for text, span in ((one, range(2, 5)), (two, range(5, 8))) if number in span)), number
    with Features.open(out) as features:
        assert {name.split("/")[0] for name in features.parts_of_splits()} == {"grounding"}
    assert verify(out) == []


def test_an_encoder_that_knows_the_words_points_where_they_are_planted(tmp_path):
    root = activitynet(tmp_path, train={"v_a": told(10.0, (2, 5, "A man jumps"), (5, 8, "dog barks, dog!"))})
    run("activitynet", root, "--encoder", str(tmp_path / "encoder"))
    tokens, encoder = (kind.from_pretrained(tmp_path / "encoder") for kind in (AutoTokenizer, AutoModel))
    encoder.eval()
    for text, other in (("the man JUMPS", "dog barks"), ("dog barks", "the man JUMPS")):
        with torch.no_grad():
            found = encoder(**tokens(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        found /= np.linalg.norm(found)
        assert found @ meaning(text) > 0.9
        assert abs(found @ meaning(other)) < 0.4


def test_a_concept_is_of_length_1_and_made_of_words_that_mean_something():
    assert np.linalg.norm(meaning("man jumps")) == pytest.approx(1)
    assert meaning("The MAN jumps!").tolist() == meaning("man, jumps").tolist()
    assert not meaning("it is the").any()
    assert meaning("man jumps") @ meaning("man") == pytest.approx(meaning("man jumps") @ meaning("jumps"))
    assert abs(meaning("man") @ meaning("men")) < 0.4


def test_a_caption_with_windows_is_in_these_alone_each_row_once(tmp_path):
    times = [[0, 0], [0, 0], [3, 4], [4, 4]]
    record = {"annotation_id": 7, "video": "a.mov", "num_segments": 6, "times": times, "description": "A cat sleeps."}
    found = rows(run("didemo", write(tmp_path, val_data__json=[record]), *CLEAN), "a")
    assert len(found) == 30
    text = "cat sleeps"
    for number, row in enumerate(found):
        inside = number < 5 or 15 <= number < 25
        assert is_sum(row, text, *[text] * inside), number  # the paragraph lasts all 30 s


def test_steps_are_in_their_spans_by_label_or_number(tmp_path):
    found = rows(run("coin", coin(tmp_path, (1, 3, "pour tea"), (3, 4.5, "stir")), *CLEAN), "v")
    expected = [[], ["pour tea"], ["pour tea"], ["stir"], ["stir"], *[[]] * 5]
    assert all(is_sum(row, *texts) for row, texts in zip(found, expected, strict=True))
    table = write(tmp_path / "table", my_coin_test__csv="w.mkv 4 6 1 3\n")
    found = rows(run("coin", table, *CLEAN), "w")
    expected = [[], ["5"], ["5"], [], [], []]  # the loader adds 1
    assert all(is_sum(row, *texts) for row, texts in zip(found, expected, strict=True))


def test_a_word_is_the_same_direction_in_every_data_set_and_another_one_for_another_seed(tmp_path):
    root = activitynet(tmp_path / "a", train={"v_a": told(4, (0, 2, "Dogs"))})
    steps = coin(tmp_path / "b", (5, 7, "the dogs"))
    for seed in ("0", "1"):
        one = rows(run("activitynet", root, *CLEAN, "--seed", seed, out=f"{seed}.h5"), "v_a")
        two = rows(run("coin", steps, *CLEAN, "--seed", seed, out=f"{seed}.h5"), "v")
        assert one[3] == pytest.approx(two[6], abs=2e-3)
        assert one[0] == pytest.approx(2 * two[6], abs=2e-3)
        assert two[6] == pytest.approx(meaning("dogs", int(seed)), abs=2e-3)
    assert abs(meaning("dogs", 0) @ meaning("dogs", 1)) < 0.4
    # In every process, and in every version: files that were made before must stay comparable.
    assert meaning("dogs", dim=3) == pytest.approx([0.797712, -0.447471, 0.404259], abs=1e-6)


def test_settings_are_those_of_other_data_sets_and_not_those_of_other_numbers(tmp_path):
    steps = coin(tmp_path / "b", (5, 7, "stir"))
    root = activitynet(tmp_path / "a", train={"v_a": told(4, (0, 2, "Dogs"))})
    files = {"one": run("coin", steps), "two": run("activitynet", root, "--missing", "0")}
    changes = {"dim": "8", "noise": "2", "nuisance": "2", "seed": "2", "rate": "2"}
    files |= {name: run("coin", steps, f"--{name}", value, out=f"{name}.h5") for name, value in changes.items()}
    settings = {}
    for name, path in files.items():
        with Features.open(path) as features:
            settings[name] = features.stream(STREAM).settings
            assert features.stream(STREAM).rows_per_second == (2 if name == "rate" else 1)
    assert settings["one"] == settings["two"]
    assert all(settings[name] != settings["one"] for name in changes)


def test_nuisance_is_one_direction_for_a_video_and_noise_another_for_each_row(tmp_path):
    root = activitynet(tmp_path, train={name: told(400, (0, 1, "of the")) for name in ("v_a", "v_b")})
    path = run("activitynet", root, "--noise", "0", "--nuisance", "2", out="n.h5")
    own = [rows(path, video) for video in ("v_a", "v_b")]
    for found in own:
        assert (found == found[0]).all()
        assert np.linalg.norm(found[0]) == pytest.approx(2, abs=0.01)
    assert abs(own[0][0] @ own[1][0]) < 4 * 0.4
    noise = rows(run("activitynet", root, "--noise", "3", "--nuisance", "0"), "v_a")
    assert np.linalg.norm(noise, axis=1).mean() == pytest.approx(3, rel=0.03)
    assert np.linalg.norm(noise.mean(0)) < 3 * 400**-0.5 * 1.2
    assert (noise != rows(tmp_path / "out.h5", "v_b")).mean() > 0.9


def test_a_captions_concept_is_nearest_to_the_rows_of_its_span(tmp_path):
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join(words[3 * k :][:3]) for k in range(20)]
    videos = {f"v_{v}": told(60, *((6 * k, 6 * k + 6, texts[k + v]) for k in range(10))) for v in range(5)}
    path = run("activitynet", activitynet(tmp_path, train=videos))
    for video, record in videos.items():
        found = rows(path, video)
        for (start, _), text in zip(record["timestamps"], record["sentences"], strict=True):
            likeness = (found @ meaning(text)).reshape(10, 6).mean(1)
            assert likeness.argmax() == start // 6, (video, text)


def test_durations_that_the_data_set_does_not_tell(tmp_path, capsys):
    root = write(tmp_path, charades_sta_train__txt="AAAAA 2.0 12.3##a person sits.\nBBBBB 0.0 5.0##a door opens.\n")
    path = run("charades_sta", root)
    with Features.open(path) as features:
        assert features.videos["decoded"].tolist() == pytest.approx([14.3, 5.5])  # 13 and 5, and a tenth
        assert features.stream(STREAM).count.tolist() == [15, 6]
    counted = "2 videos, 2 clips, 2 captions, 0 steps; 2 videos without a duration of their own, 0 left out"
    assert capsys.readouterr().out == f"{path}: {counted}\n"
    bare = Manifest("none", (Video("a", None), Video("b", None, 7.5)))
    write_features(bare, tmp_path / "bare.h5", Planting(rate=2))
    with Features.open(tmp_path / "bare.h5") as features:
        assert features.videos["duration"].tolist() == [30, 7.5]
        assert features.stream(STREAM).count.tolist() == [60, 15]
    assert verify(tmp_path / "bare.h5") == verify(path) == []


def test_the_first_videos_of_each_part_with_all_that_is_told_of_them(tmp_path, capsys):
    """Parts val_1 and val_2 share videos, but not the first one."""
    one = {"train": {f"v_t{n}": told(9, (0, 3, "cut"), (3, 5, f"mix {n}")) for n in range(5)}}
    one["val_1"] = {f"v_v{n}": told(8, (0, 2, "stir")) for n in range(4)}
    one["val_2"] = {f"v_v{n}": told(8, (4, 6, "eat")) for n in (2, 3)}
    root = activitynet(tmp_path, **one)
    few, whole = run("activitynet", root, "--videos", "1", out="few.h5"), run("activitynet", root)
    assert "few.h5: 3 videos, 8 clips, 9 captions" in capsys.readouterr().out
    assert verify(few) == []
    parts = {"train": "v_t0", "val_1": "v_v0 v_v2", "val_2": "v_v2"}
    with Features.open(few) as features:
        assert len(features.parts_of_splits()) == 6
        for part, videos in parts.items():
            corpus = data.load(features, f"paragraph/{part}", words=False)
            assert " ".join(corpus.clips) == videos
            asked = data.load(features, f"grounding/{part}", words=False, whole=True)
            assert (" ".join(asked.clips), asked.lacking) == (videos, ())
        assert corpus.texts == ("eat",)
        assert asked.asked is not None
        assert asked.asked.spans.tolist() == [[[0.5, 0.75]]]
    for video in ("v_t0", "v_v2"):  # the number of videos changes nothing in their rows
        assert (rows(few, video) == rows(whole, video)).all()


def test_the_first_videos_where_there_is_no_split_and_where_a_part_has_but_captions():
    videos = tuple(Video(name, None, 5.0) for name in "abc")
    clips = tuple(Clip(name, name) for name in "abc")
    captions = tuple(Caption(f"{name}#0", name, name) for name in "abc")
    steps = tuple(Step(f"{name}#0", name, "cut", 1.0, 2.0) for name in "abc")
    plain = Manifest("none", videos, clips, captions, steps=steps)
    assert [video.id for video in first_videos(plain, 2).videos] == ["a", "b"]
    assert first_videos(plain, 3) == plain
    found = first_videos(replace(plain, splits=(Part("s", "p", (), ("c#0", "b#0")),)), 1)
    assert (found.videos, found.clips, found.captions, found.steps) == (videos[2:], clips[2:], captions[2:], steps[2:])
    assert found.splits == (Part("s", "p", (), ("c#0",)),)


def test_videos_that_are_left_out_have_no_rows_and_are_counted(tmp_path, capsys):
    root = activitynet(tmp_path, train={f"v_{n}": told(4, (0, 2, "cut")) for n in range(8)})
    path, whole = run("activitynet", root, "--missing", "0.25", out="m.h5"), run("activitynet", root)
    assert "0 videos without a duration of their own, 2 left out" in capsys.readouterr().out
    with Features.open(path) as features:
        stream = features.stream(STREAM)
        lacking = stream.count == 0
        assert lacking.sum() == 2
        assert {STATUS[code] for code in stream.status[lacking]} == {"failed"}
        assert set(stream.reason[lacking]) == {LEFT_OUT}
        corpus = data.load(features, "grounding/train", words=False, whole=True)
        assert corpus.lacking == tuple(features.videos["id"][lacking])
        assert (len(corpus.clips), corpus.lacking_captions) == (6, 2)
        for video in features.videos["id"][~lacking]:
            assert (rows(path, video) == rows(whole, video)).all()
    assert verify(path) == []


def test_the_same_command_makes_the_same_bytes_of_rows(tmp_path):
    root = activitynet(tmp_path, train={f"v_{n}": told(4, (0, 2, "cut")) for n in range(10)})
    made = []
    for name, words in {"a": (), "b": (), "c": ("--seed", "1")}.items():
        with Features.open(run("activitynet", root, "--missing", "0.5", *words, out=f"{name}.h5")) as features:
            made.append({video: found.tobytes() for video, found in features.all_rows(STREAM)})
    assert made[0] == made[1]
    assert len(made[0]) == len(made[2]) == 5
    assert not set(made[0].values()) & set(made[2].values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch"], "unknown data set 'nosuch'; there are: activitynet, "),
        (["coin", "--root", "nowhere"], "nowhere does not exist; expected COIN.json"),
        (["coin", "--out", "there.h5"], "there.h5 is there already"),
        (["coin", "--out", "a.txt"], "--out a.txt: expected a name in .h5"),
        (["coin", "--dim", "0"], "--dim 0: expected 1 or more"),
        (["coin", "--noise", "-0.5"], "--noise -0.5: expected a length, 0 to 1000"),
        (["coin", "--nuisance", "nan"], "--nuisance nan: expected a length"),
        (["coin", "--missing", "1.5"], "--missing 1.5: expected a share, 0 to 1"),
        (["coin", "--rate", "0"], "--rate 0.0: expected rows in a second, more than 0, at most 100"),
        (["coin", "--videos", "0"], "--videos 0: expected 1 or more"),
        (["coin", "--split", "dev"], "--split dev: coin has "),
    ],
)
def test_a_wrong_input_is_a_line_and_code_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(coin(tmp_path, (1, 2, "stir")))
    Path("there.h5").touch()
    defaults = [flag for pair in (("--root", "."), ("--out", "a.h5")) if pair[0] not in words for flag in pair]
    assert main([*words, *defaults]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert (printed.err.count("\n"), printed.out) == (1, "")
    assert (Path("a.h5").exists(), Path("there.h5").stat().st_size) == (False, 0)


def test_a_real_data_set(shared, tmp_path):
    out = tmp_path / "tacos.h5"
    assert main(["tacos", "--root", str(shared / "data/tacos"), "--out", str(out), "--videos", "2"]) == 0
    with Features.open(out) as features:
        assert features.parts_of_splits() == ["tacos/test", "tacos/train", "tacos/val"]
        counts = features.stream(STREAM).count
        assert (counts == np.ceil(features.videos["duration"])).all()
        assert len(data.load(features, "tacos/val", words=False, whole=True).clips) == 2
    assert verify(out) == []
