"""Disks, clocks, decoders and other runs that behave badly."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from pipeline.datasets.toy import FILMS, draw
from pipeline.decode import Decoding
from pipeline.store import Features
from tests.unit.fakeffmpeg import install
from tests.whole.command import assert_same, inside
from tests.whole.faults.conftest import Ground
from tests.whole.faults.forked import contents, fork

pytestmark = pytest.mark.slow


def limited(size: int) -> Callable[[], None]:
    """Let no file grow beyond `size` bytes, as on a full disk, whoever writes it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [0, 1, 100, 1_000, *range(2_000, 46_000, 2_000)])
def test_no_file_can_grow_beyond(ground: Ground, out: Path, size: int) -> None:
    """Of HDF5's own writes too."""
    run = fork(ground.words(out), Path("/dev/null"), prepare=limited(size))
    code = run.wait()
    assert code in (1, 2), "neither done nor refused"
    ground.check("write beyond a limit", out, int(code == 2))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 320 kB; where mounting is not allowed the test is skipped."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("taken", range(0, 320, 32))
def test_full_disk(ground: Ground, disk: Path, taken: int) -> None:
    """A disk on which others have taken so many kB, until there is room again."""
    filler = disk / "filler"
    filler.write_bytes(bytes(taken << 10))
    place = disk / "out"
    place.mkdir()
    run = fork(ground.words(place / "features.h5"), disk.parent / "run.log")
    code = run.wait()
    assert code in (1, 2)
    if code == 2:
        # Before it, h5py itself may complain of what it could not close.
        last = run.said().splitlines()[-1]
        assert "error: cannot write" in last
        assert "No space left" in last
    filler.unlink()
    resumed = fork(ground.words(place / "features.h5"), disk.parent / "resumed.log")
    if resumed.wait() == 2:  # the whole disk is too small
        assert "No space left" in resumed.said()
        shutil.copytree(place, disk.parent / "larger")
        place = disk.parent / "larger"
    ground.check("full disk", place / "features.h5", int(code == 2))


def test_read_only_disk(ground: Ground, disk: Path) -> None:
    place = disk / "out"
    place.mkdir()
    for _ in range(2):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        run = fork(ground.words(place / "features.h5"), disk.parent / "run.log")
        assert run.wait() == 2
        assert "error: cannot write to" in run.said()
        assert "Traceback" not in run.said()
        subprocess.run(["mount", "-o", "remount,rw,size=1m", str(disk)], check=True)
        ground.check("read-only disk", place / "features.h5")


def test_hung_decoder(ground: Ground, out: Path, tmp_path: Path) -> None:
    """It is ended by the watchdog, here after a second, and the video fails with that reason until it is retried."""
    tools = tmp_path / "tools"
    tools.mkdir()
    install(tools, "time.sleep(3600)")

    def hang() -> None:
        os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
        known = Decoding.__init__.__kwdefaults__
        assert known is not None
        known["stall"] = 1.0

    run = fork(ground.words(out), tmp_path / "run.log", prepare=hang)
    assert run.wait() == 1
    with Features.open(out) as features:
        reasons = [reason for reason in features.stream("colors:resnet152").reason if "no progress for 1 s" in reason]
    assert len(reasons) == 5
    again = fork(ground.words(out, "--workers", "0", "--retry-failed"), tmp_path / "again.log")
    assert again.wait() == 1
    ground.check("hung decoder", out, len(reasons))


def test_a_video_that_changes_during_the_run(ground: Ground, out: Path, tmp_path: Path) -> None:
    """Rows of the old file do not stay: the next run notices and makes them anew."""
    place = tmp_path / "videos"
    shutil.copytree(ground.table.parent, place, ignore=shutil.ignore_patterns("whole"))
    table = place / "videos.csv"
    table.write_text(ground.table.read_text().replace(str(ground.table.parent), str(place)))
    words = [str(table) if word == str(ground.table) else word for word in ground.words(out)]
    changing = sorted(place.glob("*.mp4"))[3]
    for step in ("write.before", "rename.before", "fsync.after"):
        for count in range(1, 7):
            log = tmp_path / f"{step}{count}.log"
            run = fork(words, tmp_path / "run.log", f"shard-*.h5:{step}:{count}:sleep:{log}")
            while not run.ended() and (not log.exists() or len(log.read_text().splitlines()) < count):
                time.sleep(0.01)
            draw(FILMS[20 + count % 2], changing)
            if not run.ended():
                run.kill()
            ground.tally.done["video that changes during a run"] += 1
    assert fork(words, tmp_path / "last.log").wait() == 1
    fresh = out.with_name("fresh.h5")
    inside(*[str(fresh) if word == str(out) else word for word in words], code=1)
    assert_same(fresh, out)


def test_two_runs_at_once(ground: Ground, out: Path, tmp_path: Path) -> None:
    """While one stands at some point, another one refuses, and neither does harm."""
    points = ("shard-*.h5:rows.one", "tables.h5:write.before", "manifest.jsonl:append.written",
              "features.h5:verify.before", "features.h5:rename.after", "features.h5:away.before")  # fmt: skip
    for number, point in enumerate(points):
        place = tmp_path / str(number) / "features.h5"
        place.parent.mkdir()
        log = tmp_path / f"{number}.log"
        one = fork(ground.words(place), tmp_path / "one.log", f"{point}:1:sleep:{log}")
        while not log.exists() and not one.ended():
            time.sleep(0.01)
        two = fork(ground.words(place), tmp_path / "two.log")
        assert two.wait() == 2
        assert "another run is writing" in two.said()
        one.kill()
        ground.check("second run on the same output", place)


def test_many_runs_at_once(ground: Ground, out: Path, tmp_path: Path) -> None:
    """Each waits for no other; those that are refused come again."""
    for turn in range(3):
        runs = [fork(ground.words(out), tmp_path / f"{turn}{n}.log") for n in range(4)]
        codes = [run.wait() for run in runs]
        assert set(codes) <= {1, 2}, [run.said() for run in runs]
        assert 1 in codes
    ground.check("second run on the same output", out, 9)


@pytest.mark.parametrize("now", [0, 1_000_000_000, 4_000_000_000_000_000_000])
def test_clock_that_jumps(ground: Ground, out: Path, tmp_path: Path, now: int) -> None:
    """A run is killed, the clock is set, the next run is killed, and the third is by the right clock again."""

    def jump() -> None:
        mock.patch("time.time_ns", return_value=now).start()
        mock.patch("time.time", return_value=now / 1e9).start()

    for number, prepare in enumerate((lambda: None, jump, lambda: None, jump)):
        log = tmp_path / f"{number}.log"
        fork(ground.words(out), tmp_path / "run.log", f"shard-*.h5:fsync.after:1:kill:{log}", prepare).wait()
    ground.check("clock that jumps", out, 4)


def test_worker_out_of_memory(ground: Ground, out: Path, tmp_path: Path) -> None:
    """An allocation fails once in each of a run's shards: no video is blamed for it."""
    for count in (1, 2, 5):
        log = tmp_path / f"{count}.log"
        run = fork(ground.words(out), tmp_path / "run.log", f"shard-*.h5:rows.before:{count}:memory:{log}")
        assert run.wait() == 1, run.said()
        ground.compare("MemoryError in a worker", out)
        ground.tally.done["MemoryError in a worker"] += 1
        out.unlink()


def test_truncated_and_flipped_files(ground: Ground, out: Path, tmp_path: Path) -> None:
    """What verify says, what repair takes out, and what extract makes again."""
    from pipeline.parts import read_part

    data = ground.whole.read_bytes()
    stream = read_part(ground.whole).streams["colors:s3d_howto100m"]
    for place in range(0, stream["rows"] * stream["dim"] * 2, 240):
        changed = bytearray(data)
        changed[stream["at"] + place] ^= 16
        out.write_bytes(changed)
        assert "do not match their checksum" in inside("verify", out, code=1)[0]
        assert "1 videos taken out" in inside("repair", out)[0]
        assert len(contents(out)["streams/colors:resnet152/values"][1]) == len(
            contents(ground.whole)["streams/colors:resnet152/values"][1]
        )
        ground.check("flipped bit, repaired", out)
    changed = bytearray(data)
    changed[data.index(b"a red circle") + 2] ^= 1
    out.write_bytes(changed)
    assert "captions: does not match its checksum" in inside("verify", out, code=1)[0]
    ground.check("flipped bit in a caption", out)
    for cut in (100, 5_000, 20_000, len(data) - 1):
        out.write_bytes(data[:cut])
        run = fork(ground.words(out), tmp_path / "run.log")
        assert run.wait() == 2
        assert "is damaged" in run.said()
        out.unlink()
        ground.check("truncated file, moved away", out)
