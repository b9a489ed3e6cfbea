"""`run extract --dry-run`: what it says comes true."""

import re
import subprocess
from pathlib import Path

import pytest

from pipeline import dryrun
from pipeline.cli import main
from pipeline.ffmpeg import program
from pipeline.store import Features
from tests.unit.commands import inside


def save(path: Path, seconds: float) -> None:
    source = ["-f", "lavfi", "-i", f"testsrc2=duration={seconds}:size=64x48:rate=25"]
    subprocess.run([program(), *source, "-c:v", "mpeg4", path], check=True, capture_output=True)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    save(tmp_path / "short.mp4", 1.2)
    save(tmp_path / "long.mp4", 3)
    (tmp_path / "torn.mp4").write_bytes(bytes(100))
    table = tmp_path / "v.csv"
    table.write_text("video_id,path\na,short.mp4\nb,long.mp4\nc,torn.mp4\nd,gone.mp4\n")
    return table


def words(table: Path) -> list[str]:
    out = str(table.with_name("f.h5"))
    return ["run", "extract", "--dataset", "files", "--root", str(table), "--extractor", "colors", "--out", out]


def test_rows_are_those_that_a_run_makes(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dryrun, "BUDGET", 1.0)
    there = set(table.parent.iterdir())
    said = inside(capsys)(*words(table), "--dry-run", "--workers", 1, of=main)
    assert set(table.parent.iterdir()) == there
    assert "f.h5: 3 to extract, 0 done before, 1 without a file" in said
    assert "1 of 3 tried cannot be read" in said
    assert re.search(r"time: about .* on 1 workers", said)
    rows = re.search(r"stream (\S+): (\d+) rows x (\d+)", said)
    assert rows is not None
    with pytest.raises(SystemExit, match="1"):  # of the torn one
        main([*words(table), "--workers", "0"])
    capsys.readouterr()
    with Features.open(table.with_name("f.h5")) as features:
        stream = features.stream(rows[1])
        assert (int(rows[2]), int(rows[3])) == (stream.count.sum(), stream.dim)
    assert "f.h5: 0 to extract, 3 done before, 1 without a file" in inside(capsys)(*words(table), "--dry-run", of=main)


def test_videos_that_were_not_tried_are_guessed_by_those_that_were(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = table.with_name("long.mp4").stat().st_size
    table.write_text("video_id,path\nb,long.mp4\n" + "".join(f"x{n},{n}.mp4\n" for n in range(9)))
    for n in range(9):
        table.with_name(f"{n}.mp4").write_bytes(bytes(2 * long))
    monkeypatch.setattr(dryrun, "PROBED", 1)
    monkeypatch.setattr(dryrun, "_pace", lambda *_: 0.0)
    said = inside(capsys)(*words(table), "--dry-run", of=main)
    assert f"video: {19 * 3 / 3600:.2f} hours" in said  # 3 s, and nine times 6 s as they have twice the bytes
