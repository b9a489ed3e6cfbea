"""Captions to words and weights by the commands, as a user runs them."""

import json
import os
import signal
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from pipeline.datasets.toy import FILMS, draw
from tests.whole.command import arrays, assert_same, error, inside, pipeline, start

SUBJECTS = ["a man", "two women", "the dog", "some children", "a chef"]
VERBS = ["sings", "is cutting tomatoes", "plays the guitar", "runs in a park", "talks about cars"]


def _table(folder: Path, captions: int, seed: int = 0) -> Path:
    """A `files` table of 50 videos (they are not there) with many captions, few of them different."""
    rng = np.random.default_rng(seed)
    rows = [
        f"v{n % 50},v{n % 50}.mp4,{SUBJECTS[a]} {VERBS[b]} {c},{'test' if n % 50 > 40 else 'train'}"
        for n, (a, b, c) in enumerate(rng.integers(0, [5, 5, 40], (captions, 3)))
    ]
    path = folder / "table.csv"
    path.write_text("\n".join(["video_id,path,caption,split", *rows]))
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30,000 captions: three blocks of them."""
    return _table(tmp_path_factory.mktemp("many"), 30_000)


@pytest.fixture(scope="module")
def tagged(many: Path) -> Path:
    """A captions-only file, tagged and weighed in a plain loop."""
    out = many.parent / "loop.h5"
    pipeline("run", "tag", "--dataset", "files", "--root", many, "--features", out, "--workers", 0)
    inside("run", "idf", "--features", out, "--workers", 0)
    return out


def test_the_same_file_from_any_number_of_workers(many: Path, tagged: Path, tmp_path: Path) -> None:
    out = tmp_path / "workers.h5"
    pipeline("run", "tag", "--dataset", "files", "--root", many, "--features", out, "--workers", 2)
    pipeline("run", "idf", "--features", out, "--workers", 2)
    assert_same(tagged, out)
    assert "no problems" in inside("verify", out)[0]
    with h5py.File(out) as file:
        offsets, text = file["words/offsets"][()], file["captions/text"].asstr()[()]
        start, end = file["words/start"][()], file["words/end"][()]
        word = file["words/texts"].asstr()[()][file["words/text"][()]]
        for caption in range(0, len(text), 997):
            span = range(offsets[caption], offsets[caption + 1])
            assert [text[caption][start[w] : end[w]] for w in span] == list(word[span.start : span.stop])


def test_killed_while_tagging_and_run_again(many: Path, tagged: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed.h5"
    words = ["run", "tag", "--dataset", "files", "--root", many, "--features", out, "--workers", "0"]
    with start(*words) as process:
        blocks = tmp_path / "killed.h5.words"
        deadline = time.monotonic() + 120
        while not list(blocks.glob("0*.h5")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    kept = {file.name: file.stat().st_mtime_ns for file in blocks.glob("0*.h5")}
    _, err = inside(*words)
    assert f"{3 - len(kept)} of {3 - len(kept)} blocks of captions done" in err
    inside("run", "idf", "--features", out, "--workers", 0)
    assert_same(tagged, out)
    assert not blocks.exists()


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy data set: its red stars are drawn, and the others are empty files, since captions need no pictures."""
    root = tmp_path_factory.mktemp("toy")
    for film in FILMS:
        if film.id.startswith("red-star-"):
            draw(film, root / f"{film.id}.mp4")
        else:
            (root / f"{film.id}.mp4").touch()
    inside("run", "tag", "--dataset", "toy", "--root", root, "--features", root.parent / "toy.h5")
    return root


def test_idf_without_arguments_tags_first_and_says_so(toy: Path, tmp_path: Path) -> None:
    line = error("run", "idf", cwd=tmp_path)
    assert "no feature file" in line
    assert "`pipeline run extract --dataset NAME`" in line
    inside(
        "run", "extract", "--dataset", "files", "--root", _videos(toy, tmp_path), "--extractor", "colors",
        "--workers", 0, cwd=tmp_path,
    )  # fmt: skip
    out, err = inside("run", "idf", "--json", "--plot", "idf.svg", cwd=tmp_path)
    assert "has no words yet: tagging its captions first" in err
    found = json.loads(out[out.index("{") :])
    assert (found["captions"], found["split"]) == (3, "files/train")
    assert {"types", "nouns", "verbs", "tokens", "highest", "lowest"} <= set(found)
    picture = (tmp_path / "idf.svg").read_text()
    assert "<svg" in picture
    assert "guitar" in picture
    before = (tmp_path / "idf.svg").read_bytes()
    inside("run", "idf", "--plot", "idf.svg", cwd=tmp_path)
    assert (tmp_path / "idf.svg").read_bytes() == before
    assert "no problems" in inside("verify", "features.h5", cwd=tmp_path)[0]


def _videos(toy: Path, folder: Path) -> Path:
    """A table of one drawn video with three captions."""
    texts = ("a man plays the guitar", "the man sings", "a dog sleeps")
    rows = [f"v,{toy}/red-star-grow.mp4,{text},train" for text in texts]
    path = folder / "own.csv"
    path.write_text("\n".join(["video_id,path,caption,split", *rows]))
    return path


def test_captions_that_changed_take_their_words_with_them(tmp_path: Path) -> None:
    out = tmp_path / "f.h5"
    inside("run", "tag", "--dataset", "files", "--root", _table(tmp_path, 100), "--features", out)
    inside("run", "idf", "--features", out)
    changed = _table(tmp_path, 100, seed=1)
    _, err = inside("run", "tag", "--dataset", "files", "--root", changed, "--features", out)
    assert "the captions have changed: words are left out" in err
    assert "no problems" in inside("verify", out)[0]
    assert not any(name.startswith("idf/") for name in arrays(out))


def test_weights_go_with_the_words_and_the_training_captions(tmp_path: Path) -> None:
    out = tmp_path / "f.h5"
    table = _table(tmp_path, 100)
    words = ["--features", out, "--workers", 0]
    inside("run", "tag", "--dataset", "files", "--root", table, *words)
    inside("run", "idf", *words)
    table.write_text(table.read_text().replace(",test", ",train"))  # the same texts, other parts
    _, err = inside("run", "tag", "--dataset", "files", "--root", table, *words)
    assert "the training captions have changed: idf are left out" in err
    assert "words/text" in arrays(out)
    inside("run", "idf", *words)
    with h5py.File(out, "r+") as file:
        assert file["idf"].attrs["documents"] == 100
        kept = file["splits/files/train/captions"][:-1]
        del file["splits/files/train/captions"]
        file["splits/files/train/captions"] = kept
    assert "the training captions have changed since it was made" in inside("verify", out, code=1)[0]
    inside("run", "idf", *words)
    _, err = inside("run", "tag", "--interest", "VERB,NOUN", *words)
    assert "left out" not in err
    _, err = inside("run", "tag", "--interest", "NOUN", *words)
    assert "the words have changed: idf are left out; run `pipeline run idf` again" in err


def test_a_join_keeps_words_and_never_writes_over_a_file(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("one.h5", "two.h5", "out.h5"))
    table = _table(tmp_path, 60)
    for file in (one, two):
        inside("run", "tag", "--dataset", "files", "--root", table, "--features", file, "--workers", 0)
    inside("run", "idf", "--features", two, "--workers", 0)
    with h5py.File(one, "r+") as file:
        del file["words"]
    inside("join", one, two, "--out", out)
    assert_same(two, out)
    assert "is there already; move it away" in error("join", one, two, "--out", out)


def test_captions_join_features(toy: Path, tmp_path: Path) -> None:
    table = _videos(toy, tmp_path)
    captions, features, joined = (tmp_path / name for name in ("captions.h5", "features.h5", "joined.h5"))
    inside("run", "tag", "--dataset", "files", "--root", table, "--features", captions)
    inside("run", "idf", "--features", captions)
    inside(
        "run", "extract", "--dataset", "files", "--root", toy / "red-star-*.mp4", "--extractor", "colors",
        "--workers", 0, "--out", features,
    )  # fmt: skip
    out, _ = inside("join", features, captions, "--out", joined)
    assert "4 videos" in out
    assert "no problems" in inside("verify", joined)[0]
    of_captions, of_features, found = arrays(captions), arrays(features), arrays(joined)
    for name, values in of_captions.items():
        if not name.startswith("videos/"):
            np.testing.assert_array_equal(values, found[name], err_msg=name)
    stream = next(name for name in of_features if name.endswith("values"))
    assert found[stream].shape == of_features[stream].shape
    with h5py.File(joined) as file:
        assert file["videos/id"].asstr()[0] == "v"  # the captions' own videos come first
    line = error("join", captions, toy.parent / "toy.h5", "--out", tmp_path / "x.h5")
    assert "cannot join files of different data sets: files, toy" in line
    assert not (tmp_path / "x.h5").exists()


def test_wrong_inputs(toy: Path, tagged: Path, tmp_path: Path) -> None:
    assert "unknown split 'x'; there are: all, files/test, files/train" in error(
        "run", "idf", "--features", tagged, "--split", "x"
    )
    assert "--spacy-model xx_none: not installed" in error(
        "run", "tag", "--features", tagged, "--spacy-model", "xx_none"
    )
    for name in ("../x", "numpy"):
        assert f"--spacy-model {name}: not installed" in error(
            "run", "tag", "--features", tagged, "--spacy-model", name
        )
    assert "--most 0: expected 1 or more" in error("run", "idf", "--features", tagged, "--most", 0)
    assert "--interest THING: expected parts of speech" in error(
        "run", "tag", "--features", tagged, "--interest", "NOUN,THING"
    )
    assert "--root is about --dataset" in error("run", "tag", "--root", "x", "--features", tagged)
    assert "--plot idf.doc: expected a name in .svg or .png" in error(
        "run", "idf", "--features", tagged, "--plot", "idf.doc"
    )
    assert "--min-count 0: expected 1 or more" in error("run", "idf", "--features", tagged, "--min-count", "0")
    line = error("run", "tag", "--dataset", "toy", "--root", toy, "--features", tagged)
    assert "holds data set files, not toy" in line
    (tmp_path / "empty.h5").write_bytes(b"")
    assert "is damaged or not a feature file" in error("run", "idf", "--features", tmp_path / "empty.h5")
