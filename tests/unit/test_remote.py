"""Videos by address, from a server of this machine."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import remote
from pipeline.datasets import files
from pipeline.errors import BadDataset, BadSetting, BadVideo
from pipeline.records import Remote, Video
from pipeline.remote import UNKNOWN, State
from pipeline.store import Features
from tests.unit import fakeweb
from tests.unit.fakeweb import Web
from tests.unit.features import shard, video

pytest.importorskip("aiohttp")
BYTES = bytes(range(256)) * 40_000  # more than one block
TIME = 1_700_000_000


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "a.mp4").write_bytes(BYTES)
    os.utime(folder / "a.mp4", (TIME, TIME))
    with fakeweb.serve(folder) as web:
        yield web


def fetched(web: Web, name: str = "a.mp4") -> tuple[bytes, State | None]:
    with remote.local(Remote(f"{web.address}/{name}")) as (path, state):
        return path.read_bytes(), state


def reason(web: Web, name: str = "a.mp4") -> str:
    with pytest.raises(BadVideo) as caught:
        fetched(web, name)
    return str(caught.value)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("head", [True, False])
def test_the_whole_file_comes_from_any_server(web: Web, ranges: bool, head: bool) -> None:
    web.ranges, web.head = ranges, head
    content, state = fetched(web)
    assert content == BYTES
    assert state == State(len(BYTES), TIME * 10**9)


def test_the_file_has_no_name_and_is_gone_afterwards(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with remote.local(Remote(f"{web.address}/a.mp4")) as (path, _):
        assert path.stat().st_size == len(BYTES)
        assert path.stat().st_dev == (tmp_path / "temporary").stat().st_dev
        assert path.stat().st_nlink == 0
        assert list((tmp_path / "temporary").iterdir()) == []
    assert not path.exists()


def test_a_file_of_this_machine_is_given_as_it_is(tmp_path: Path) -> None:
    with remote.local(tmp_path / "x") as found:
        assert found == (tmp_path / "x", None)


@pytest.mark.parametrize("fail", [503, 429, 1])
def test_what_fails_twice_is_tried_a_third_time(web: Web, fail: int) -> None:
    web.fail, web.times = fail, 2
    assert fetched(web)[0] == BYTES
    assert web.times == 0


@pytest.mark.parametrize(
    ("fail", "said"), [(500, "the server says 500 Internal Server Error"), (403, "the server says 403 Forbidden")]
)
def test_a_server_that_refuses_is_quoted(web: Web, fail: int, said: str) -> None:
    web.fail, web.times = fail, 9
    assert reason(web, "a.mp4?key=secret") == f"cannot be fetched: {said}"
    assert 9 - web.times == (3 if fail == 500 else 1)


def test_what_is_not_there_is_not_asked_for_again(web: Web) -> None:
    assert reason(web, "b.mp4?key=secret") == "cannot be fetched: not found"
    assert web.asked.total() <= 2


def test_a_file_that_is_always_cut_off(web: Web) -> None:
    web.fail, web.times = 1, 9
    assert reason(web) == "cannot be fetched: the connection ended early"


def test_a_file_that_ends_early_without_a_word(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    told = State(len(BYTES) + 1, TIME)
    monkeypatch.setattr(remote, "_told", lambda _: told)
    assert reason(web) == f"cannot be fetched: {len(BYTES)} of {len(BYTES) + 1} bytes came"


def test_a_server_that_falls_silent(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE", 0.2)
    remote._filesystem.cache_clear()
    web.silent = 9.0
    try:
        assert reason(web) == "cannot be fetched: no answer for 0.2 s"
    finally:
        remote._filesystem.cache_clear()


def test_a_server_that_drips(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SLOWEST", 10**12)
    monkeypatch.setattr(remote, "SILENCE", 0.0)
    assert reason(web) == "cannot be fetched: slower than 1000000000 kB a second"


def test_nobody_answers(web: Web) -> None:
    web.address = "http://127.0.0.1:1"
    assert reason(web) == "cannot be fetched: Connection refused"


def test_bounds_of_the_disk(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(remote, "LARGEST", 2**23)
        assert "over 0 GiB" in reason(web)
        web.told = ()  # nobody knows before
        assert "over 0 GiB" in reason(web)
    web.told = ("Content-Length",)
    monkeypatch.setattr("pipeline.remote.shutil.disk_usage", lambda _: SimpleNamespace(free=10_000))
    assert "set TMPDIR" in reason(web)
    assert "set TMPDIR" in remote._why(OSError(errno.ENOSPC, ""))


def test_what_tells_a_changed_file(web: Web) -> None:
    source = [Remote(f"{web.address}/a.mp4")]
    web.told = ("Content-Length", "ETag")
    (one,) = remote.states(source)
    os.utime(web.folder / "a.mp4", (TIME, TIME + 1))
    (two,) = remote.states(source)
    assert one is not None
    assert two is not None
    assert one.size == two.size == len(BYTES)
    assert one.mtime != two.mtime
    web.told = ("Content-Length",)
    assert remote.states(source) == [State(len(BYTES), 1)]
    web.told = ()
    assert remote.states(source) == [State(0, 1)]
    assert remote.states([Remote(f"{web.address}/b.mp4"), Remote("http://127.0.0.1:1/a")]) == [None, UNKNOWN]


def test_only_videos_that_were_extracted_are_looked_at(web: Web, tmp_path: Path) -> None:
    path = shard(tmp_path / "shard-1.h5", *(video(name, source_size=7, source_mtime=9) for name in ("a", "b", "c")))
    places = {"a": f"{web.address}/a.mp4", "b": f"{web.address}/b.mp4", "c": "http://127.0.0.1:1/c", "d": web.address}
    videos = [Video(name, Remote(url)) for name, url in places.items()]
    with Features.open(path) as features:
        assert remote.look(videos, features) == {
            "a": State(len(BYTES), TIME * 10**9), "b": None, "c": State(7, 9),
        }  # fmt: skip
    assert web.asked["HEAD"] == 2


def test_addresses_in_tables_and_lists(tmp_path: Path) -> None:
    (tmp_path / "here.mp4").write_bytes(b"x")
    table, listed = tmp_path / "videos.csv", tmp_path / "videos.txt"
    table.write_text("video_id,path\na,https://somewhere/x.mp4?k=1\nb,here.mp4\nc,gone.mp4\nd,s3://bucket/y.mkv\n")
    assert [v.path for v in files.load(table).videos] == [
        Remote("https://somewhere/x.mp4?k=1"), tmp_path / "here.mp4", None, Remote("s3://bucket/y.mkv"),
    ]  # fmt: skip
    listed.write_text("http://somewhere/sub/a%20b.mp4?k=1\n\n  here.mp4  \n")
    assert [(v.id, v.path) for v in files.load(listed).videos] == [
        ("a b", Remote("http://somewhere/sub/a%20b.mp4?k=1")), ("here", tmp_path / "here.mp4"),
    ]  # fmt: skip
    table.write_text("video_id,path\na,ftp://somewhere/x.mp4\n")
    with pytest.raises(BadDataset, match=r"videos.csv, row 2: ftp:// cannot be read; expected http://, "):
        files.load(table)


@pytest.mark.parametrize(("url", "extra"), [("http://x/a", "http"), ("https://x/a", "http"), ("gs://x/a", "gs")])
def test_a_missing_library_names_its_extra(url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("no such library")

    remote._filesystem.cache_clear()
    monkeypatch.setattr("fsspec.filesystem", missing)
    try:
        with pytest.raises(BadSetting, match=rf"pip install 'video-text-features\[{extra}\]'"):
            remote.states([Remote(url)])
    finally:
        remote._filesystem.cache_clear()


def test_s3(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    import fsspec

    (web.folder / "bucket").mkdir()
    (web.folder / "bucket/a.mp4").write_bytes(BYTES)
    web.ranges = True
    monkeypatch.setitem(fsspec.config.conf, "s3", {"anon": True, "endpoint_url": web.address})
    remote._filesystem.cache_clear()
    with remote.local(Remote("s3://bucket/a.mp4")) as (path, state):
        assert path.read_bytes() == BYTES
    assert remote.states([Remote("s3://bucket/a.mp4"), Remote("s3://bucket/b.mp4")]) == [state, None]
    with pytest.raises(BadVideo, match="cannot be fetched: not found"), remote.local(Remote("s3://bucket/b.mp4")):
        pass
