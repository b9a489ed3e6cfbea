"""Damaged videos, each by the code of `pipeline run extract`: nothing but ok, partial and failed, with a reason."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from pipeline import child, ffmpeg
from pipeline.decode import Decoding
from pipeline.parts import read_part
from pipeline.stages.extract import Extract, output_of
from pipeline.store import STATUS, Features
from tests.whole.command import inside
from tests.whole.fuzz import damage, media
from tests.whole.fuzz.conftest import ONE_RUN, Tally
from tests.whole.fuzz.watched import watched

pytestmark = pytest.mark.slow

VIDEOS = 800
STALL, TAKEN = 10.0, 900.0
"""Seconds of the watchdog here, in a run 120, and of video that are taken, in a run 12 hours."""
LIMIT = 60.0
"""Seconds after which an input hangs, the watchdog's included."""
MEGABYTES = 400
"""By which a process may grow over one input: a batch of the longest frames is 350."""
LONGEST = 400
"""Characters of a reason."""
STREAMS = ("colors:resnet152", "colors:i3d_x101")
SPLICED, RENAMED = "two files spliced", "another suffix"
KINDS = (*damage.KINDS, SPLICED, RENAMED)


@dataclass(frozen=True)
class Ground:
    """A run over damaged, real and awkward videos, and what kind each of them is, by id."""

    stage: Extract
    kinds: dict[str, str]

    def items(self) -> list[Any]:
        """Return what is to be done."""
        return list(self.stage.items())


@pytest.fixture(scope="module")
def ground(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    place = tmp_path_factory.mktemp("damaged")
    for name in ("made", "videos"):
        (place / name).mkdir()
    seeds = [*media.make(place / "made"), *media.real(shared / "data/videos")]
    assert len(seeds) >= 50, "few videos could be made or found"
    paths: dict[str, Path] = {"first": place / "made/fast.mp4"}
    kinds = {"first": "real videos"}
    for number in range(VIDEOS):
        kinds[f"v{number}"] = KINDS[number % len(KINDS)]
        paths[f"v{number}"] = _damaged(place / "videos", number, seeds)
    for what, files in (("real", _real(shared)), ("awkward", _awkward(shared, place / "awkward"))):
        paths |= {f"{what}{number}": path for number, path in enumerate(files)}
        kinds |= {f"{what}{number}": f"{what} videos" for number in range(len(files))}
    rows = [f'{video},"{str(path).replace(chr(34), chr(34) * 2)}"' for video, path in paths.items()]
    (place / "videos.csv").write_text("\n".join(["video_id,path", *rows]) + "\n")
    table, out = str(place / "videos.csv"), place / "features.h5"
    return Ground(Extract(dataset="files", root=table, extractor=STREAMS, out=out, device="cpu"), kinds)


def _damaged(folder: Path, number: int, seeds: list[media.Seed]) -> Path:
    draw, kind = Random(f"video {number}"), KINDS[number % len(KINDS)]
    seed = seeds[draw.randrange(len(seeds))]
    data, suffix = seed.data, seed.suffix
    if kind == RENAMED:
        suffix = draw.choice(seeds).suffix
    elif kind == SPLICED:
        data = damage.splice(data, draw.choice(seeds).data, draw)
    else:
        data = damage.KINDS[kind](data, draw)
    path = folder / f"v{number:04}{suffix}"
    path.write_bytes(data)
    return path


def _real(shared: Path) -> list[Path]:
    return [path for path in sorted((shared / "data/videos").rglob("*")) if path.is_file()]


def _awkward(shared: Path, folder: Path) -> list[Path]:
    environment = {"FFMPEG": ffmpeg.program(), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", shared / "tools/make_awkward_videos.sh", folder], env=environment, check=True)
    return [folder / line.split("\t")[0] for line in (folder / "manifest.tsv").read_text().splitlines()]


def _work(stage: Extract, item: Any) -> tuple[str, str]:
    """Extract one video into a shard, and look at what is there."""
    (outcome,) = stage.work([item])
    assert outcome.item == item.id
    assert bool(outcome.reason) == (outcome.status != "ok")
    assert len(outcome.reason.splitlines()) <= 1
    assert len(outcome.reason) <= LONGEST
    shard = max(output_of(stage).folder.glob("shard-*.h5"), key=lambda file: file.stat().st_mtime_ns)
    with Features([read_part(shard)]) as features:
        for name in STREAMS:
            _check_rows(features, name, item.id, outcome.status)
        numbers = [features.videos[column][0] for column in ("duration", "decoded", "first_frame", "fps")]
        assert np.isfinite(numbers).all()
        assert min(numbers) >= 0
    return outcome.status, outcome.reason


def _check_rows(features: Features, name: str, video: str, status: str) -> None:
    stream, rows = features.stream(name), features.rows(name, video)
    assert STATUS[stream.status[0]] == status
    assert rows.shape == (stream.count[0], stream.dim)
    assert (len(rows) > 0) == (status != "failed")
    assert np.isfinite(rows).all()
    assert ((rows >= 0) & (rows <= 1)).all(), "no colours"


def test_each_ends_with_an_outcome(ground: Ground, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Decoding.__init__.__kwdefaults__
    assert known is not None
    monkeypatch.setitem(known, "stall", STALL)
    monkeypatch.setattr(child, "LONGEST", TAKEN)
    items = ground.items()
    assert _work(ground.stage, items[0])[0] == "ok"  # loads all that forks share
    damaged = [item for item in items if ground.kinds[item.id] in KINDS]
    assert len(damaged) == VIDEOS
    wrong = []
    for item, result in zip(damaged, watched(damaged, partial(_work, ground.stage), LIMIT), strict=True):
        tally.add("videos", ground.kinds[item.id], result.outcome)
        if result.outcome not in STATUS or result.seconds > LIMIT or result.megabytes > MEGABYTES:
            wrong.append(f"{item.path} ({ground.kinds[item.id]}): {result}")
    assert not wrong, "\n".join(wrong)


def test_all_real_and_awkward_videos_beside_them_in_one_run(ground: Ground, tally: Tally) -> None:
    """The run goes on from what the test before has written, folds it all, and `verify` agrees with every row."""
    words = ["run", "extract", "--dataset", "files", "--root", ground.stage.root, "--extractor", ",".join(STREAMS)]
    _, err = inside(*words, "--out", ground.stage.out, "--workers", "0", "--device", "cpu", code=1)
    assert "unexpected" not in err
    assert inside("verify", ground.stage.out)[0].endswith("no problems\n")
    shown = json.loads(inside("show", ground.stage.out, "--json")[0])["videos"]
    with Features.open(ground.stage.out) as features:
        status = features.stream(STREAMS[0]).status
        found = {str(video): STATUS[status[at]] for video, at in features.index.items()}
    assert found.keys() == ground.kinds.keys()
    assert Counter(found.values()) == {name: shown[name] for name in ("ok", "partial", "failed")}
    for video, outcome in found.items():
        kind = ground.kinds[video]
        tally.add(ONE_RUN, "damaged videos" if kind in KINDS else kind, outcome)
