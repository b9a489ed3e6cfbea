"""Captions of speech recognition: every form of file, and that ranges of a json yield each video once."""

import codecs
import io
import json
import math
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline import asr, bigjson
from pipeline.asr import Cues, extent, has_stop_words, part, stream
from pipeline.errors import BadDataset

NASTY = [
    '"', "\\", '\\"', '\\\\"',
    "}, ", '},"', '}, "a": {"start": [', "{", "}", "}}", ":{", ":", ",", "], ", '": {"', "[1, 2]",
    "\n", "\t", "\u2028", "é", "😀", "\x00", "start", '{"start": [1], "end": [2], "text": ["x"]}', "\\u0022", "a\\",
]  # fmt: skip
nasty = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), max_size=4).map("".join)


def is_id(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("/") and ".." not in text.split("/")


ids = (st.text("ab-_", min_size=1, max_size=6) | nasty).filter(is_id)
columns = st.lists(st.tuples(st.integers(0, 999), st.floats(0, 999), nasty), max_size=4).map(
    lambda rows: {
        "start": [row[0] for row in rows],
        "end": [row[1] for row in rows],
        "text": [row[2] for row in rows],
    }
)
orders = st.permutations(["start", "end", "text", "lang"])
records = st.tuples(columns, orders, nasty).map(
    lambda drawn: {key: (drawn[0] | {"lang": drawn[2]})[key] for key in drawn[1]}
)
files = st.dictionaries(ids, records, min_size=1, max_size=6)
styles = st.sampled_from(
    [
        {},
        {"indent": 1},
        {"indent": "\t", "separators": (" ,\r\n", "\n : ")},
        {"separators": (",", ":")},
        {"ensure_ascii": False},
        {"ensure_ascii": False, "separators": (" , ", " : ")},
    ]
)
scratch = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)


def plain(found: Any) -> list[tuple[str, list[float], list[float], list[str]]]:
    return [(cues.video, cues.start, cues.end, cues.text) for cues in found]


def written(folder: Path, content: str | bytes, name: str = "raw_caption.json") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@scratch
@given(files, styles, st.lists(st.floats(0, 1), max_size=6), st.sampled_from(["", "\ufeff", " \n"]))
def test_ranges_yield_every_video_once(
    tmp_path: Path, content: dict[str, Any], style: dict[str, Any], cuts: list[float], before: str
) -> None:
    path = written(tmp_path, f"{before}{json.dumps(content, **style)} \n")
    whole = [(video, value["start"], value["end"], value["text"]) for video, value in content.items()]
    assert plain(stream(path)) == whole
    size = extent(path)
    assert size == path.stat().st_size
    bounds = [0, *sorted(round(cut * size) for cut in cuts), size]
    ranges = [plain(part(path, start, stop)) for start, stop in pairwise(bounds)]
    assert [cues for found in ranges for cues in found] == whole


@scratch
@given(files, styles)
def test_a_video_belongs_to_the_byte_of_its_key(tmp_path: Path, content: dict[str, Any], style: dict[str, Any]) -> None:
    """Every range of one byte: exactly those where a key begins hold a video, and the next range begins behind it."""
    raw = json.dumps(content, **style).encode()
    path = written(tmp_path, raw)
    found = {at: [key for key, _ in bigjson.members(path, at, at + 1)] for at in range(min(len(raw), 400))}
    for at, keys in found.items():
        assert len(keys) <= 1
        if keys:
            assert raw[at:].startswith(json.dumps(keys[0], ensure_ascii=style.get("ensure_ascii", True)).encode())
    if len(raw) <= 400:
        assert [key for keys in found.values() for key in keys] == list(content)


@scratch
@given(files, st.integers(1, 400))
def test_what_is_cut_off_is_never_read_as_whole(tmp_path: Path, content: dict[str, Any], missing: int) -> None:
    raw = json.dumps(content).encode()
    path = written(tmp_path, raw[:-missing] or b"{")
    with pytest.raises(BadDataset) as caught:
        list(stream(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    middle = path.stat().st_size // 2
    with pytest.raises(BadDataset):
        [*part(path, 0, middle), *part(path, middle, extent(path))]


def record(*rows: tuple[float, float, str]) -> dict[str, list[Any]]:
    return {"start": [row[0] for row in rows], "end": [row[1] for row in rows], "text": [row[2] for row in rows]}


ONE = json.dumps(record((0, 1.5, "a")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "raw_caption.json is empty"),
        ("[1", "raw_caption.json: it is not whole JSON"),
        ("{}", r'raw_caption.json: expected {"segments": \[…\]}'),
        (f'{{"a": {ONE}', "byte 1, 'a': not whole JSON"),
        (f'{{"a": {ONE}, "b": {ONE[:-9]}', "byte 51, 'b': the file does not end with '}'; it is cut off"),
        (f'{{"a": {ONE}}}}}', "'a': not whole JSON .Extra data"),
        (f'{{"a": {ONE}}} x', "'a': the file does not end with '}'"),
        (f'{{"a": {ONE}, "b": {{}}, "c": {ONE}}}', "byte 1, 'a': not whole JSON"),
        (f'{{"a": {ONE}, "b": null}}', "byte 1, 'a': not whole JSON"),
        (f'{{"a": {ONE} "b": {ONE}}}', "byte 1, 'a': not whole JSON"),
        (f'{{"a": {ONE}, "b": {{"start": [}}, "c": {ONE}}}', "byte 51, 'b': not whole JSON"),
        ('{"a": {"x": {"y": 1}, "z": {"start": [], "end": [], "text": []}}}', "byte 1, 'a': not whole JSON"),
        (
            '{"a": {"start": [0], "end": [1]}}',
            "raw_caption.json, a: is .*; expected an object with start, end and text",
        ),
        ('{"a": {"start": [0], "end": [1], "text": "x"}}', "a: start, end and text are not all lists"),
        ('{"a": {"start": [0], "end": [1, 2], "text": ["x"]}}', "a: 1 starts, 2 ends, 1 texts"),
        ('{"a": {"start": ["0"], "end": [1], "text": ["x"]}}', "a: '0' for a time; expected seconds"),
        ('{"a": {"start": [true], "end": [1], "text": ["x"]}}', "a: True for a time; expected seconds"),
        ('{"a": {"start": [0], "end": [1], "text": [7]}}', "a: 7 for a text; expected text"),
        (f'{{"a": {{"start": [1{"0" * 400}, NaN], "end": [1, 2], "text": ["x", "y"]}}}}', "a: int too large"),
        ('{"a": {"segments": [{"start": 1, "text": "x"}]}}', "a: no. 0 is .*; expected text, start and end"),
        (f'{{"../a": {ONE}}}', "'../a' cannot be a video id"),
        (f'{{"a\\ud800": {ONE}}}'.replace("a\\", "\\n\\"), "cannot be a video id"),
        (b'{"a": {"text": ["\xff"]}}', "'a': not whole JSON .*can't decode byte 0xff"),
        (f'{{"a": {{"x": {"[" * 100_000}}}}}', "'a': not whole JSON"),
    ],
)
def test_damaged(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(BadDataset, match=message) as caught:
        list(stream(written(tmp_path, content)))
    assert "\n" not in str(caught.value)


def test_a_member_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigjson, "LARGEST", 1 << 20)
    with pytest.raises(BadDataset, match="'a': no next one in 1 MB; the file is damaged"):
        list(stream(written(tmp_path, f'{{"a": {{"x": "{"y" * (1 << 20)}"}}}}')))


def test_what_json_dump_writes_and_json_has_not(tmp_path: Path) -> None:
    """NaN, and halves of characters: both come out of Python."""
    path = written(
        tmp_path, '{"a": {"start": [NaN, null], "end": [Infinity, 2], "text": ["\\ud83d", null], "x": ["\\ud800"]}}'
    )
    (cues,) = stream(path)
    assert math.isnan(cues.start[0])
    assert math.isnan(cues.start[1])
    assert (cues.end, cues.text) == ([math.inf, 2.0], ["\ufffd", ""])


def test_a_video_that_stands_twice_is_yielded_twice(tmp_path: Path) -> None:
    assert [c.video for c in stream(written(tmp_path, f'{{"a": {ONE}, "a": {ONE}}}'))] == ["a", "a"]


def test_missing(tmp_path: Path) -> None:
    for name in ("raw_caption.json", "caption.pickle", "a.csv"):
        with pytest.raises(BadDataset, match=f"cannot read .*{name}"):
            list(stream(tmp_path / name))
    with pytest.raises(BadDataset, match="expected captions as .json, .csv or .pickle"):
        list(stream(tmp_path / "captions.txt"))


def test_memory_is_that_of_one_video(tmp_path: Path) -> None:
    """Forty megabytes are read, in less than two."""
    one = json.dumps(record(*((n, n + 1, "some words of a video" * 3) for n in range(500))))
    path = written(tmp_path, "{" + ", ".join(f'"v{n}": {one}' for n in range(1100)) + "}")
    assert path.stat().st_size > 40 << 20
    tracemalloc.start()
    assert sum(len(cues.text) for cues in stream(path)) == 550_000
    assert tracemalloc.get_traced_memory()[1] < 2 << 20
    tracemalloc.stop()


def test_pages_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigjson, "_FORGET", 100_000)
    path = written(tmp_path, "{" + ", ".join(f'"v{n}": {ONE}' for n in range(20_000)) + "}")
    assert [cues.video for cues in stream(path)] == [f"v{n}" for n in range(20_000)]


SEGMENTS = {
    "segments": [
        {"start": 0.5, "end": 2, "text": " a", "words": [{"word": "a"}]},
        {"start": 2, "end": 3.5, "text": "b"},
    ]
}
AS_SEGMENTS = ([0.5, 2.0], [2.0, 3.5], [" a", "b"])


def test_segments_of_many_videos_and_of_one(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"v": SEGMENTS, "w": SEGMENTS}))
    assert plain(stream(path)) == [("v", *AS_SEGMENTS), ("w", *AS_SEGMENTS)]
    one = written(tmp_path, json.dumps({"language": "en", **SEGMENTS}), "-abc.json")
    assert (extent(one), plain(part(one, 0, 1)), plain(part(one, 1, 9))) == (1, [("-abc", *AS_SEGMENTS)], [])


def test_a_folder(tmp_path: Path) -> None:
    written(tmp_path, 'start,end,text\r\n0.5,2.0," a"\r\n2,3.5,b\r\n', "v9.csv")
    written(tmp_path, json.dumps(SEGMENTS), "v10.json")
    written(tmp_path, '[[" a", 0.5, 2], ["b", 2, 3.5]]', "v11_word_timings.json")
    written(tmp_path, "[]", "v11_sentence_timings.json")
    written(tmp_path, '[[" a", 0.5, 2], ["b", 2, 3.5]]', "v12_word_timings.json")
    written(tmp_path, ",start,end,text\n0,1,,\n", "v13.csv")
    written(tmp_path, "", ".hidden.csv")
    assert extent(tmp_path) == 5
    found = plain(stream(tmp_path))
    assert found[:2] == [("v9", *AS_SEGMENTS), ("v10", *AS_SEGMENTS)]
    assert found[2:4] == [("v11", [], [], []), ("v12", *AS_SEGMENTS)]
    assert (found[4][0], found[4][1], math.isnan(found[4][2][0]), found[4][3]) == ("v13", [1.0], True, [""])
    assert [c.video for n in range(5) for c in part(tmp_path, n, n + 1)] == ["v9", "v10", "v11", "v12", "v13"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": ""}, "no captions; expected a file VIDEO.csv or VIDEO.json for each video"),
        ({"a.csv": "start,end,text\n", "a.json": "[]"}, "a.csv and a.json are of one video; keep one"),
        ({"a.csv": "start,end\n"}, "a.csv: no column 'text'"),
        ({"a.csv": "start,end,text\n1,2,b\n3,4,so we ad"}, "a.csv, row 3: the line has no end, so it is cut off"),
        ({"a.csv": "start,end,text\n1,x,b\n"}, "a.csv: could not convert string to float: 'x'; expected start and end"),
        ({"a.json": '{"text": "x"}'}, r'a.json: expected {"segments": \[…\]}, \[\["text", start, end\], …\]'),
        ({"a.json": '[["x", 1]]'}, r"a.json, a: no. 0 is \['x', 1\]; expected text, start and end"),
        ({"a.json": "[["}, "a.json: it is not whole JSON"),
    ],
)
def test_a_folder_that_is_damaged(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        written(tmp_path, content, name)
    with pytest.raises(BadDataset, match=message):
        list(stream(tmp_path))


def test_a_pickle(tmp_path: Path) -> None:
    content = {
        "a": record((0, 1.5, "x"), (2, 3, "y")),
        "b": {"start": np.array([0, 2]), "end": np.array([1.5, 3]), "text": np.array(["x", "y"], object)},
        "c": {"start": [np.float32(0), np.int64(2)], "end": [np.float64(1.5), 3], "text": np.array(["x", "y"])},
        "d": {"start": [0, 2], "end": [1.5, 3.0], "text": np.array(["x", "y"], object), "extra": 1},
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path = written(tmp_path, pickle.dumps(content, protocol), "caption.pickle")
        assert plain(stream(path)) == [(v, [0.0, 2.0], [1.5, 3.0], ["x", "y"]) for v in content]
        assert (extent(path), plain(part(path, 1, 2))) == (1, [])


class _Runs:
    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


@pytest.mark.parametrize(
    ("call", "args", "what"),
    [
        (subprocess.check_call, (["touch", "PROOF"],), "check_call"),
        (eval, ("open('PROOF', 'w')",), "eval"),
        (getattr, (Path, "touch"), "getattr"),
        (codecs.encode, ("x", "rot13"), "bytes as 'rot13'"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 4])
def test_a_pickle_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any], args: Any, what: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = pickle.dumps({"a": _Runs(call, *args)}, protocol)
    with pytest.raises(BadDataset, match=f"caption.pickle: not a whole pickle .*{what}"):
        list(stream(written(tmp_path, raw, "caption.pickle")))
    assert [path.name for path in tmp_path.iterdir()] == ["caption.pickle"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(["a"]), "expected a dict of videos"),
        (pickle.dumps({1: 2}), "expected a dict of videos"),
        (pickle.dumps({"a": 2}), "a: is 2; expected an object with start, end and text"),
        (pickle.dumps({"a": record((0, 1, "x"))})[:-4], "not a whole pickle"),
        (b"", "not a whole pickle"),
        (b"hello", "not a whole pickle"),
    ],
)
def test_a_pickle_that_is_damaged(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BadDataset, match=f"caption.pickle.*{message}"):
        list(stream(written(tmp_path, content, "caption.pickle")))


def test_real_word_and_sentence_timings(shared: Path) -> None:
    """Eight files of four videos; of three, which are music, the sentences say that there is no speech."""
    found = {cues.video: cues for cues in stream(shared / "data/asr")}
    assert {video: len(cues.text) for video, cues in found.items()} == {
        "3b1b_2015_binary-counting": 0,
        "3b1b_2016_hilbert-curve": 0,
        "3b1b_2019_fourier-series-montage": 0,
        "3b1b_2024_shorts_subset-sum": 9,
    }
    last = found["3b1b_2024_shorts_subset-sum"]
    assert (last.start[1], last.end[0]) == (5.98, 5.64)
    (cues,) = stream(shared / "data/asr/3b1b_2016_hilbert-curve_word_timings.json")
    assert cues.text == [" Nation", " of", " the", " Redeemed", " you"]
    assert cues.end[:4] == [29.98] * 4


def test_stop_words() -> None:
    assert has_stop_words(["so we add the flour", "and mix it"])
    assert not has_stop_words(["add flour", "mix", "", "whisk eggs sugar together"])
    assert has_stop_words([])
    assert not has_stop_words(["mix flour"] * 10 + ["so it is the"] * 100, sample=10)


def test_stop_words_of_real_captions(shared: Path) -> None:
    """Any hundred real captions have them, and none has them once a list of stop words is taken out."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
    from spacy.lang.en.stop_words import STOP_WORDS

    data = json.loads((shared / "data/msrvtt/train_val_videodatainfo.subset.json").read_bytes())
    texts = [sentence["caption"] for sentence in data["sentences"]]
    database = json.loads((shared / "data/youcook2/youcookii_annotations_trainval.json").read_bytes())["database"]
    texts += [entry["sentence"] for video in database.values() for entry in video["annotations"]]
    assert len(texts) == 16_000 + 13_829
    for begin in range(0, len(texts), 100):
        some = texts[begin : begin + 100]
        assert has_stop_words(some)
        for stop in (ENGLISH_STOP_WORDS, STOP_WORDS):
            assert not has_stop_words([" ".join(w for w in text.lower().split() if w not in stop) for text in some])


def test_made_captions(tmp_path: Path) -> None:
    """What the benchmark writes is the same for one seed, and is what json.load reads."""
    script = Path(__file__).parents[2] / "benchmarks/make_raw_caption.py"
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        subprocess.run(
            [sys.executable, script, tmp_path / f"{name}.json", "--videos", "40", "--seed", str(seed)], check=True
        )
    one, same, other = ((tmp_path / f"{name}.json").read_bytes() for name in "abc")
    assert one == same != other
    whole = json.load(io.BytesIO(one))
    assert plain(stream(tmp_path / "a.json")) == [(v, r["start"], r["end"], r["text"]) for v, r in whole.items()]
    assert len(whole) == 40
    assert 2_000 < sum(len(record["text"]) for record in whole.values()) < 7_000
    assert asr.has_stop_words(text for record in whole.values() for text in record["text"])


def test_a_value(tmp_path: Path) -> None:
    assert list(stream(written(tmp_path, f'{{"a": {ONE}}}'))) == [Cues("a", [0.0], [1.5], ["a"])]
