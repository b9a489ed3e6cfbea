"""Small feature files with annotated steps, like CrossTask's and COIN's, and one with captions of the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Step, Task, Video
from pipeline.shards import Extracted, fold, write_shard
from pipeline.tables import write_tables
from tests.unit.features import ATTRS, head
from train.cli import main
from workflows import synthetic
from workflows.synthetic import Planting

STREAM = synthetic.STREAM
PLANTING = Planting(dim=32, noise=0.5, nuisance=0.3)
VERBS, NOUNS = ("boil", "chop", "pour", "fry"), ("water", "onion", "tea", "meat")
TASKS = (
    Task("1", "Make Tea", ("boil water", "chop tea", "pour tea")),
    Task("2", "Make Soup", ("chop onion", "fry meat")),
    Task("3", "Wash Up", ("pour water",), primary=False),
)
KINDS = ("boil water", "pour tea", "chop onion", "fry meat")
"""Of the file like COIN's: numbers 1 to 4, but for 3, which nobody does; the last one is number 5."""
NUMBERS = (1, 2, 4, 5)


def captions(path: Path, each: int = 3) -> Path:
    """`each` videos for every verb and noun, which are seen all the time; s/train."""
    texts = [f"{verb} {noun}" for verb in VERBS for noun in NOUNS] * each
    ids = [f"c{number:02}" for number in range(len(texts))]
    manifest = Manifest(
        "captions",
        tuple(Video(name, None, 6.0) for name in ids),
        tuple(Clip(name, name) for name in ids),
        tuple(Caption(name, name, text) for name, text in zip(ids, texts, strict=True)),
        tuple(Part("s", part, tuple(ids), tuple(ids)) for part in ("train", "test")),
    )
    synthetic.write(manifest, path, PLANTING)
    return path


def crosstask(path: Path, videos: int = 6) -> Path:
    """`videos` of 14 s of each primary task, steps in order; and odd ones.

    `short` lasts 2 s, less than its 3 steps; `gone` has no rows; `late` has its last step behind its 12 s; `bare` has
    no step; `related` is of the task that is not primary; `val` is in ct/val, the others in ct/train.
    """
    draw = np.random.default_rng(0)
    records, clips, steps = list[Video](), list[Clip](), list[Step]()

    def add(name: str, task: Task, seconds: float, spans: Sequence[tuple[int, float, float]]) -> None:
        records.append(Video(name, None, seconds))
        clip = f"{task.id}_{name}"
        clips.append(Clip(clip, name, label=task.id))
        for at, (number, start, end) in enumerate(spans):
            steps.append(Step(f"{clip}#{at}", clip, task.steps[number], start, end, number))

    for task in TASKS[:2]:
        for number in range(videos):
            starts = np.sort(draw.choice(6, len(task.steps), replace=False)) * 2
            spans = [(step, float(start), float(start) + 2) for step, start in enumerate(starts)]
            add(f"v{task.id}{number}", task, 14.0, spans)
    add("short", TASKS[0], 2.0, [(0, 0.0, 1.0), (2, 1.0, 2.0)])
    add("gone", TASKS[0], 9.0, [(0, 0.0, 1.0), (1, 3.0, 4.0), (2, 5.0, 6.0)])
    add("late", TASKS[1], 12.0, [(0, 1.0, 3.0), (1, 20.0, 22.0)])
    add("bare", TASKS[0], 9.0, [])
    add("related", TASKS[2], 9.0, [(0, 1.0, 2.0)])
    add("val", TASKS[1], 9.0, [(0, 1.0, 2.0), (1, 3.0, 4.0)])
    names = [clip.id for clip in clips]
    parts = (Part("ct", "train", tuple(names[:-1]), ()), Part("ct", "val", tuple(names[-1:]), ()))
    manifest = Manifest("ct", tuple(records), tuple(clips), splits=parts, steps=tuple(steps), tasks=TASKS)
    synthetic.write(manifest, path, PLANTING, frozenset({"gone"}))
    return path


def coin(path: Path, rate: float = 1.0) -> Path:
    """12 videos of 12 s to train on and 6 to test on, steps of 3 s; the last one to test on has no rows.

    The last step of the first one to test on is behind its end.
    """
    draw = np.random.default_rng(1)
    ids = [f"n{number:02}" for number in range(18)]
    steps = list[Step]()
    for name in ids:
        starts = np.sort(draw.choice(4, 2, replace=False)) * 3
        spans = [(float(start), float(start) + 3) for start in starts] + [(30.0, 33.0)] * (name == "n12")
        for at, (start, end) in enumerate(spans):
            kind = int(draw.integers(len(KINDS)))
            steps.append(Step(f"{name}#{at}", name, KINDS[kind], start, end, NUMBERS[kind]))
    manifest = Manifest(
        "coin-like",
        tuple(Video(name, None, 12.0) for name in ids),
        tuple(Clip(name, name, label="even" if number % 2 == 0 else "odd") for number, name in enumerate(ids)),
        splits=(Part("coin", "train", tuple(ids[:12]), ()), Part("coin", "test", tuple(ids[12:]), ())),
        steps=tuple(steps),
    )
    synthetic.write(manifest, path, Planting(**{**vars(PLANTING), "rate": rate}), frozenset({"n17"}))
    return path


def trained(file: Path, out: Path) -> Path:
    """A run of LocVTP on `captions`, which sees rows one by one and finds the texts of steps in them."""
    words = ["--features", file, "--method", "locvtp", "--text-encoder", "tiny", "--steps", 60, "--batch", 16]
    words += ["--lr", 2e-3, "--warmup", 5, "--evaluate-every", 0, "--max-video-tokens", 8, "--out", out]
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert ended.value.code == 0
    return out


def stored(path: Path, manifest: Manifest, rows: Mapping[str, NDArray[Any]], rate: float = 1.0) -> Path:
    """The data set's file with these rows of stream a:x; videos that have none are missing."""
    dim = next(iter(rows.values())).shape[1]
    held = [
        Extracted(name, {"source_size": 1}, ("a:x",), {"a:x": x.astype(np.float16)}, "ok") for name, x in rows.items()
    ]
    write_tables(path.with_suffix(".t.h5"), ATTRS, manifest)
    write_shard(path.with_suffix(".r.h5"), ATTRS, {"a:x": head(dim=dim, fps=rate)}, held)
    fold([read_part(path.with_suffix(f".{kind}.h5")) for kind in "tr"], path, ATTRS)
    return path
