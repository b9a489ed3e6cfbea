"""Media, annotations and weights of strangers: nothing of theirs is run, leads elsewhere, or takes more than it may."""

from __future__ import annotations

import ast
import hashlib
import os
import pickle
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest
import torch

import extractors
from extractors import checkpoints, weights
from extractors.spec import ExtractorError, Weights
from pipeline import datasets, ffmpeg
from pipeline.asr import stream
from pipeline.decode import Decoding
from pipeline.errors import BadDataset, BadVideo
from pipeline.ffmpeg import Branch, Job
from pipeline.probe import probe
from pipeline.sources import check_id, read_json
from tests.contract import makers
from tests.unit.fakeffmpeg import TINY
from tests.unit.fakeweb import Web, serve
from tests.whole.command import error, inside
from tests.whole.frames import program

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for name in ("extractors", "pipeline", "train", "workflows") for path in (ROOT / name).rglob("*.py")]
NAMES = {"eval", "exec", "compile", "__import__"}
"""Functions of Python that run what they are given."""
CALLS = {
    "os.system", "os.popen", "pickle.load", "pickle.loads", "pickle.Unpickler", "pickle._Unpickler", "marshal.load",
    "marshal.loads", "shelve.open", "yaml.load", "yaml.unsafe_load", "joblib.load", "dill.load", "subprocess.getoutput",
    "subprocess.getstatusoutput", "tempfile.mktemp", "cloudpickle.load", "cloudpickle.loads",
}  # fmt: skip
ENDS = (".extractall", ".extract", ".read_pickle")


def dangers(source: str) -> list[str]:
    """Return what a module calls that could run, or unpack, what a stranger has written."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            found += [name for base in node.bases if (name := ast.unparse(base)) in CALLS]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        wrong = [
            name in NAMES or name in CALLS or name.endswith(ENDS),
            given.get("shell", "False") != "False",
            name == "torch.load" and given.get("weights_only") != "True",
            given.get("allow_pickle", "False") == "True" and name.endswith(("np.load", "numpy.load")),
        ]
        found += [ast.unparse(node)] if any(wrong) else []
    return found


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run('ls ' + x, shell=True)", "os.system(x)", "os.popen(x)", "eval(x)", "exec(x)", "pickle.load(f)",
        "pickle.loads(x)", "pickle.Unpickler(f).load()", "class A(pickle._Unpickler): pass", "torch.load(f)",
        "torch.load(f, weights_only=False)", "torch.load(f, weights_only=flag)", "yaml.load(f)", "archive.extractall()",
        "np.load(f, allow_pickle=True)", "pandas.read_pickle(f)", "subprocess.Popen(x, shell=flag)",
    ],
)  # fmt: skip
def test_the_search_finds(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize(
    "source", ["net.eval()", "re.compile(x)", "subprocess.run([x])", "torch.load(f, weights_only=True)", "np.load(f)"]
)
def test_the_search_does_not_find(source: str) -> None:
    assert not dangers(source)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_of_a_stranger_s_is_run(path: Path) -> None:
    allowed = ["pickle._Unpickler"] if path.name == "restricted.py" else []
    assert dangers(path.read_text()) == allowed


class Evil:
    """What a checkpoint or a pickle can do to whoever reads it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


MSVD, HOWTO100M = ["run", "extract", "--dataset", "msvd"], ["run", "extract", "--dataset", "howto100m"]


@pytest.mark.parametrize(
    ("words", "name"),
    [(MSVD, "raw-captions.pkl"), (HOWTO100M, "raw_caption.pkl"), (["run", "merge"], "raw_caption.pickle")],
)
def test_pickles_need_a_permission(words: list[str], name: str, tmp_path: Path) -> None:
    words = [*words, "--root", str(tmp_path), "--out", str(tmp_path / "out.h5"), "--workers", "0"]
    (tmp_path / name).write_bytes(pickle.dumps({"a": Evil(tmp_path / "made")}))
    assert f"{name} is a pickle, which could hold a program" in error(*words)
    assert f"{os.mkdir.__module__}.mkdir" in error(*words, "--allow-pickle")
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_captions_of_a_pickle_with_permission(tmp_path: Path) -> None:
    value = {"a": {"start": [0.0], "end": [1.0], "text": ["so"]}}
    (tmp_path / "raw_caption.pickle").write_bytes(pickle.dumps(value))
    inside("run", "merge", "--root", tmp_path, "--out", tmp_path / "out.h5", "--workers", "0", "--allow-pickle")
    assert (tmp_path / "out.h5").exists()


def test_a_checkpoint_runs_nothing(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.zeros(1)}, "more": Evil(tmp_path / "made")}, tmp_path / "net.pth")
    with pytest.raises(ExtractorError, match="net.pth .*is no checkpoint|net.pth holds more than tensors"):
        checkpoints.read(tmp_path / "net.pth")
    assert not (tmp_path / "made").exists()


def downloaded(url: str, sha256: str) -> weights.Found:
    preset = extractors.preset("pytorchvideo:x3d_s")
    return weights.find(replace(preset, weights=Weights("net.pth", url, sha256)))


def test_downloads_are_what_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not is refused, and does not stand in the cache under the name of the right one."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    (tmp_path / "net.pth").write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    with serve(tmp_path) as web:
        with pytest.raises(ExtractorError, match=f"net.pth has the sha256 {digest}, not {'0' * 64}"):
            downloaded(f"{web.address}/net.pth", "0" * 64)
        assert list(weights.cache().iterdir()) == []
        assert downloaded(f"{web.address}/net.pth", digest).source == "download"
        assert [file.name for file in weights.cache().iterdir()] == ["net.pth"]
        (weights.cache() / "net.pth").write_bytes(b"changed")
        with pytest.raises(ExtractorError, match="delete it"):
            downloaded(f"{web.address}/net.pth", digest)


def test_downloads_that_nobody_can_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a digest they need https, and what came is said."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    (tmp_path / "net.pth").write_bytes(b"weights")
    with serve(tmp_path) as web:
        with pytest.raises(ExtractorError, match="net.pth has no published sha256 and no https"):
            downloaded(f"{web.address}/net.pth", "")
        assert not web.asked
    assert not (weights.cache() / "net.pth").exists()
    assert downloaded((tmp_path / "net.pth").as_uri(), "").source == "download"
    assert hashlib.sha256(b"weights").hexdigest() in caplog.text


@pytest.mark.parametrize("name", ["../x", "/x", "a/../b", "..", "a/..", "a\0", "a\n", "", "\ud800", "x" * 1_001])
def test_ids_that_would_escape(name: str) -> None:
    with pytest.raises(BadDataset, match="^here: .* cannot be a video id") as caught:
        check_id(name, "here")
    assert len(str(caught.value)) < 500


def test_ids_that_would_not() -> None:
    for name in ("a", "-a", "a/b.c", "..a", "a..b", "x" * 1_000):
        assert check_id(name, "here") == name


@pytest.mark.parametrize("name", [n for n in makers.names() if n not in ("toy", "conceptual_captions")])
def test_no_data_set_takes_an_id_that_would_escape(name: str, tmp_path: Path) -> None:
    """The ids of Conceptual Captions are numbers of rows, those of the toy are made."""
    root = makers.get(name).make(tmp_path, list)
    video = datasets.load(name, root).videos[0]
    written = (video.original or video.id).encode()
    for file in (tmp_path / file for file in makers.get(name).ANNOTATIONS):
        file.write_bytes(file.read_bytes().replace(written, b"../" + written))
    with pytest.raises(BadDataset, match="cannot be a video id"):
        datasets.load(name, root)


def test_names_in_zips_lead_nowhere(tmp_path: Path) -> None:
    """Nothing is unpacked: a member is read in memory, whatever it is called, and a link is its own text."""
    (tmp_path / "secret.json").write_text('{"videos": [], "sentences": []}')
    with zipfile.ZipFile(tmp_path / "escape.zip", "w") as archive:
        archive.writestr("../../x.json", '{"a": 1}')
    assert read_json(tmp_path / "escape.zip", "x.json") == {"a": 1}
    link = zipfile.ZipInfo("x.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, str(tmp_path / "secret.json"))
    with pytest.raises(BadDataset, match="x.json is not whole JSON"):
        read_json(tmp_path / "link.zip", "x.json")
    assert {path.name for path in tmp_path.iterdir()} == {"secret.json", "escape.zip", "link.zip"}


def test_captions_of_a_name_that_would_escape(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text('{"../a": {"start": [0], "end": [1], "text": ["x"]}}')
    with pytest.raises(BadDataset, match="'../a' cannot be a video id"):
        list(stream(tmp_path / "captions.json"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a video and pictures that nobody may see."""
    folder = tmp_path_factory.mktemp("place")
    source = ("-f", "lavfi", "-i", "color=red:size=64x48:rate=10:duration=1")
    program(*source, "-c:v", "libx264", "-y", folder / "secret.mp4")
    program("-i", folder / "secret.mp4", "-c", "copy", "-y", folder / "secret.ts")
    program(*source, "-frames:v", "2", "-start_number", "0", "-y", folder / "p%03d.jpg")
    return folder


@pytest.fixture(scope="module")
def web(place: Path) -> Iterator[Web]:
    with serve(place) as found:
        yield found


HLS = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"
SDP = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"
DASH = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT1S" '
    'profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"><Period><AdaptationSet mimeType="video/mp4">'
    '<Representation id="1" bandwidth="1000"><BaseURL>{}</BaseURL></Representation></AdaptationSet></Period></MPD>'
)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="48"><image href="{}" width="64" height="48"/></svg>'
PLAYLISTS = [
    *(("a.m3u8", HLS.format(to)) for to in ("secret.ts", "{place}/secret.ts", "file:{place}/secret.ts")),
    *(("a.m3u8", HLS.format(to)) for to in ("{web}/secret.ts", "http:secret.ts", "crypto:{place}/secret.ts")),
    ("a.mp4", HLS.format("secret.ts")),
    ("a.ffconcat", "ffconcat version 1.0\nfile secret.mp4\n"),
    ("b.mp4", "ffconcat version 1.0\nfile secret.mp4\n"),
    ("b.mp4", "ffconcat version 1.0\nfile {place}/secret.mp4\n"),
    ("b.mp4", "ffconcat version 1.0\nfile {web}/secret.mp4\n"),
    ("c.sdp", SDP),
    ("c.mp4", SDP),
    *(("d.mpd", DASH.format(to)) for to in ("secret.mp4", "{web}/secret.mp4")),
    *(("e.svg", SVG.format(to)) for to in ("{web}/p000.jpg", "file://{place}/p000.jpg")),
    ("f.asx", '<asx version="3.0"><entry><ref href="{web}/secret.mp4"/></entry></asx>'),
    ("g.asf", "[Reference]\nRef1={web}/secret.mp4\n"),
    ("h.ram", "{web}/secret.mp4\n"),
    ("p%03d.jpg", "no picture"),
    ("p*.jpg", "no picture"),
    ("i.txt", "words that are no video\n"),
]


@pytest.mark.parametrize(("name", "text"), PLAYLISTS)
def test_files_that_would_lead_elsewhere(place: Path, web: Web, name: str, text: str) -> None:
    """Neither who looks at a file nor who decodes it follows, each by itself."""
    known = probe(place / "secret.mp4")
    file = place / name
    file.write_text(text.replace("{place}", str(place)).replace("{web}", web.address))
    try:
        with pytest.raises(BadVideo, match="^(not a video|no video stream)"):
            probe(file)
        with pytest.raises(BadVideo, match="could be decoded"):
            list(Decoding(file, known, [TINY]))
    finally:
        file.unlink()
    assert not web.asked


@pytest.mark.parametrize(("name", "text"), [("a.m3u8", PLAYLISTS[1][1]), ("b.mp4", PLAYLISTS[8][1]), ("p%03d.jpg", "")])
def test_without_the_list_of_formats_they_would(place: Path, name: str, text: str) -> None:
    """The files of the test above are such as lead elsewhere."""
    file = place / name
    file.write_text(text.replace("{place}", str(place)))
    with av.open(f"file:{file}", options={"protocol_whitelist": "file"}) as container:
        assert next(container.decode(video=0)).width == 64
    file.unlink()


@pytest.mark.parametrize(
    "name", ["-i.mp4", "http:x.mp4", "concat:a|b.mp4", "%03d.mp4", "a;touch harmed;.mp4", "'[0:0].mp4"]
)
def test_names_are_names(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes((place / "secret.mp4").read_bytes())
    path = Path(name)
    assert len(list(Decoding(path, probe(path), [TINY]))) == 10
    words = ffmpeg.command(ffmpeg.program(), Job(path, probe(path), 1, 9.0), [Branch(TINY, 64, 48)], [3, 4])
    assert [word for word in words if name in word] == [f"file:{name}"]
    assert [file.name for file in tmp_path.iterdir()] == [name]
