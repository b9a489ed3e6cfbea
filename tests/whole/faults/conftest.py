"""Drawn videos, what an undisturbed run makes of them, and the count of all that was done to runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.datasets.toy import FILMS, draw
from pipeline.store import Features
from tests.whole.command import inside
from tests.whole.faults.forked import contents, fork, lost_rows

STREAMS = "colors:resnet152,colors:s3d_howto100m"


@dataclass
class Tally:
    """Kills and injections by kind, and what they cost in the end."""

    done: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    damaged: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        rows = [(kind, self.done[kind], self.lost[kind], self.damaged[kind]) for kind in sorted(self.done)]
        rows.append(("total", self.done.total(), self.lost.total(), self.damaged.total()))
        head = f"{'kind':44}{'times':>8}{'lost rows':>12}{'damaged files':>16}"
        return [head, *(f"{kind:44}{n:8}{lost:12}{damaged:16}" for kind, n, lost, damaged in rows)]


TALLY = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    return TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table after the tests."""
    if TALLY.done:
        terminalreporter.section("kills and injections")
        for line in TALLY.lines():
            terminalreporter.write_line(line)


@dataclass
class Ground:
    """Six drawn videos, one of them spoilt and one empty, with captions; and the file of an undisturbed run."""

    table: Path
    whole: Path
    tally: Tally

    def words(self, out: Path, *more: str) -> list[str]:
        words = ["run", "extract", "--dataset", "files", "--root", str(self.table), "--extractor", STREAMS]
        return [*words, "--out", str(out), "--chunk-seconds", "0.5", *(more or ("--workers", "0"))]

    def check(self, kind: str, out: Path, times: int = 1) -> None:
        """Resume what was disturbed `times` times, assert that the file is the undisturbed one, and count."""
        self.tally.done[kind] += times
        resumed = fork(self.words(out), out.parent / "resumed.log")
        code = resumed.wait()
        assert code == 1, f"exit code {code}\n{resumed.said()}"  # the empty video has failed
        self.compare(kind, out)

    def compare(self, kind: str, out: Path) -> None:
        lost, damaged = lost_rows(out, self.whole), contents(out) != contents(self.whole)
        self.tally.lost[kind] += lost
        self.tally.damaged[kind] += damaged
        assert (lost, damaged) == (0, False)
        names = {file.name for file in out.parent.iterdir() if not file.name.endswith(".log")}
        assert names == {"features.h5", "features.failures.jsonl", "features.oddities.jsonl"}, "something is left over"


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory, tally: Tally) -> Ground:
    place = tmp_path_factory.mktemp("ground")
    rows = ["video_id,path,caption,split"]
    for number, film in enumerate(FILMS[:6]):
        file = place / f"{film.id}.mp4"
        draw(film, file)
        rows.append(f"v{number},{file},a {film.colour} {film.shape},train")
    damage(place)
    table = place / "videos.csv"
    table.write_text("\n".join(rows) + "\n")
    ground = Ground(table, place / "whole" / "features.h5", tally)
    inside(*ground.words(ground.whole), code=1)
    with Features.open(ground.whole) as features:
        assert sorted(features.stream("colors:resnet152").status.tolist()) == [1, 1, 1, 1, 2, 3], "ok, partial, failed"
    return ground


def damage(place: Path) -> None:
    """Empty one of the videos, and spoil a part of another."""
    first, second = sorted(place.glob("*.mp4"))[:2]
    first.write_bytes(b"")
    data = second.read_bytes()
    third = len(data) // 3
    second.write_bytes(data[:third] + bytes(third) + data[2 * third :])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "features.h5"
