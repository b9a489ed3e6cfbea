"""What workers elsewhere must have in common with this machine, and their paths."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

import extractors
from extractors.weights import Found
from pipeline import abroad
from pipeline.abroad import Away, Common, Seen, Unfit, look, meet, sent, unequal
from pipeline.cluster import local
from pipeline.errors import BadSetting
from pipeline.jobs import Job
from pipeline.mapping import maps_of, moved
from pipeline.output import Output
from pipeline.plan import Item
from pipeline.records import Outcome, Remote
from pipeline.runner import run, work_through
from pipeline.stages.extract import Extract
from pipeline.stopping import Stop
from tests.unit.toystage import Number, Numbers

JOB = Job(extractors.preset("resnet152"), Found("file", Path("/home/me/weights/r.pth"), "0" * 64))


class Workers:
    """A client whose workers answer as they are told."""

    def __init__(self, **answers: "Seen | BaseException | Callable[[Common], Seen]") -> None:
        self.answers = answers

    def run(self, function: Any, common: Common, on_error: str) -> dict[str, Any]:
        assert function is look
        assert on_error == "return"
        return {name: answer(common) if callable(answer) else answer for name, answer in self.answers.items()}


def met(common: Common, folder: Path | None = None, **answers: Any) -> str:
    """Return what is said of workers that must not work."""
    with pytest.raises(BadSetting) as caught:
        meet(cast(Any, Workers(**answers)), common, folder)
    return str(caught.value)


def test_all_paths_of_an_item_are_mapped_and_the_longest_map_counts() -> None:
    maps = maps_of(["/data=/mnt/d", "/data/big=/scratch/b", "/home/me=/users/me"])
    item = Item("a", "/data/big/x/a.mp4", 1.0, (JOB,))
    there = moved((item, replace(item, file="/database/a.mp4")), maps)
    assert [one.path for one in there] == [Path("/scratch/b/x/a.mp4"), Path("/database/a.mp4")]
    assert there[0].jobs[0].weights.path == Path("/users/me/weights/r.pth")
    assert there[0].jobs[0].preset is JOB.preset
    stage = moved(Extract(dataset="files", root="/data", out=Path("/data/f.h5")), maps)
    assert (stage.out, stage.root) == (Path("/mnt/d/f.h5"), "/data")
    far = replace(item, file=Remote("s3://data/a.mp4"), jobs=())
    assert moved(far, maps) is far
    assert moved(item, ()) is item


@pytest.mark.parametrize("text", ["/data", "data=/x", "/data=x", "=/x", "/x="])
def test_maps_are_of_whole_paths(text: str) -> None:
    with pytest.raises(BadSetting, match=f"--map-path {text}: expected FROM=TO"):
        maps_of([text])


def test_what_decides_rows_is_told_from_what_does_not() -> None:
    ours = {"torch": "2.1", "numpy": "2.4", "dask": "1", "python": "3.11"}
    theirs = {**ours, "numpy": "2.3", "dask": "2"}
    assert unequal(ours, theirs) == ("numpy 2.3, here 2.4", "dask 2, here 1")
    assert unequal(ours, {"numpy": "2.4", "dask": "1", "python": "3.11"}) == ("torch none, here 2.1", "")
    assert {"torch", "numpy", "python", "dask", "distributed", "h5py", "commit", "code"} <= dict(
        abroad.versions()
    ).keys()


def test_a_worker_sees_what_is_there(tmp_path: Path) -> None:
    token, video = tmp_path / "token", tmp_path / "a.mp4"
    token.write_text("word")
    video.touch()
    good = Common((), token, "word", (tmp_path / "gone", video), (video,))
    seen = look(good)
    assert seen.lacking == ""
    assert seen.wrote is not None
    assert seen.wrote.parent == tmp_path
    assert seen.wrote.read_text() == "word"
    lacks = {
        "does not see /gone/w.pth": replace(good, weights=(video, Path("/gone/w.pth"))),
        "does not see /gone/a.mp4": replace(good, videos=(Path("/gone/a.mp4"), Path("/gone/b.mp4"))),
        f"sees another {tmp_path}": replace(good, text="other word"),
        "does not see what this machine writes to /gone": replace(good, token=Path("/gone/token")),
    }
    for words, common in lacks.items():
        assert look(common).lacking.startswith(words)
        assert look(common).wrote is None


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("word")

    def full(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", full)
    assert look(Common((), tmp_path / "token", "word")).lacking == f"cannot write to {tmp_path} (Read-only file system)"


def test_a_good_worker_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("word")
    meet(cast(Any, Workers(a=look)), Common(abroad.versions(), tmp_path / "token", "word"), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["token"]


def test_workers_that_must_not_work_are_told_of_in_one_line(tmp_path: Path) -> None:
    common = Common((("torch", "2.1"),))
    old = Seen("node7", {"torch": "2.0"})
    assert met(common, a=old, b=old, c=Seen("x", {"torch": "2.1"})).startswith(
        "worker a on node7 (and 1 more) has torch 2.0, here 2.1; rows would differ"
    )
    assert "cannot run this program (No module named 'pipeline')" in met(
        common, a=ModuleNotFoundError("No module named 'pipeline'")
    )
    lost = Seen("node7", {"torch": "2.1"}, wrote=Path("/elsewhere/out/probe"))
    said = met(common, tmp_path, a=lost)
    assert f"writes to /elsewhere/out, but this machine does not find it in {tmp_path}" in said
    assert "--map-path FROM=TO" in said
    assert "some workers have a GPU" in met(
        common, a=Seen("x", {"torch": "2.1"}, device="cpu"), b=Seen("y", {"torch": "2.1"}, device="cuda")
    )


def test_other_differences_are_only_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pipeline.abroad"):
        meet(cast(Any, Workers(a=Seen("node7", {"dask": "2"}))), Common((("dask", "1"),)))
    assert caplog.messages == ["WARNING: worker a on node7 has dask 2, here 1"]


def test_a_stage_looks_before_its_first_chunk_and_works_with_mapped_paths(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    (there / "token").write_text("word")
    numbers = Numbers((Number("a", 1),), here)
    away = Away(cast(Any, numbers), Common(abroad.versions(), there / "token", "word"), ((here, there),), here)
    assert away.work([Number("a", 1)]) == [Outcome("a", "ok")]
    assert away.work([Number("b", 1)]) == [Outcome("b", "ok")]
    assert sorted(file.name for file in there.iterdir()) == ["a", "b", "token"]
    with mock.patch("distributed.get_worker", return_value=SimpleNamespace(address="tcp://x")):
        with pytest.raises(
            Unfit, match="worker tcp://x on .* does not see /gone/a.mp4; workers need the files of this"
        ):
            replace(away, common=Common(abroad.versions(), videos=(Path("/gone/a.mp4"),))).work([Number("c", 1)])
        with pytest.raises(Unfit, match="has torch .*, here 0; rows would differ"):
            replace(away, common=Common((*abroad.versions(), ("torch", "0")))).work([Number("c", 1)])


def test_the_token_lies_there_as_long_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = (Item("a", "/data/a.mp4", 1.0, ()), Item("b", Remote("http://x/b"), 1.0, ()))
    monkeypatch.setattr("pipeline.stages.extract.plan_of", lambda _: type("P", (), {"items": items, "jobs": (JOB,)}))
    output = Output(tmp_path / "f.h5")
    output.folder.mkdir()
    stage = Extract(dataset="files", out=output.path)
    with sent(stage, output, ((tmp_path, Path("/mnt")), (Path("/data"), Path("/d")))) as away:
        (token,) = output.folder.iterdir()
        assert away.common.token == Path("/mnt/f.h5.shards") / token.name
        assert away.common.text == token.read_text()
        assert (away.common.videos, away.common.weights) == ((Path("/d/a.mp4"),), (Path("/home/me/weights/r.pth"),))
    assert list(output.folder.iterdir()) == []


@dataclass(frozen=True)
class Choosy:
    """A stage that some workers must not do."""

    place: Path
    unfit: tuple[str, ...]
    chunk_seconds: float = 1.0

    def items(self) -> list[Number]:
        return [Number(str(i), 1) for i in range(8)]

    def work(self, chunk: Sequence[Number]) -> list[Outcome]:
        from distributed import get_worker

        if str(get_worker().name) in self.unfit:
            raise Unfit(f"worker {get_worker().name} is blind", get_worker().address)
        time.sleep(0.2)  # so that the other worker gets something to do
        return [Outcome(item.id, "ok") for item in chunk]

    def save(self, outcomes: Sequence[Outcome]) -> None:
        (self.place / "saved").touch()


def test_a_later_worker_that_must_not_work_is_sent_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = Choosy(tmp_path, ("1",))
    with local(2, gpu=False) as pool:
        outcomes = list(work_through(stage, stage.items(), pool, Stop()))
        assert pool.slots() == 1
    assert [o.status for o in outcomes] == ["ok"] * 8
    assert caplog.messages.count("sent away: worker 1 is blind") == 1


def test_the_last_worker_is_not_sent_away(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="worker 0 is blind"):
        run(Choosy(tmp_path, ("0",)), local(1, gpu=False))
    assert not (tmp_path / "saved").exists()
