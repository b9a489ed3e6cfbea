"""Planted worlds: feature files whose truth is known, to see whether a loss does what its paper says it does.

    python -m workflows.planted A --size tiny --seed 0 --out world.h5

A noun or verb is a direction in feature space, a function word is none. A row shows an event, one noun and one verb,
under noise of its own and a nuisance of its video; a caption tells events in their order, each as `func noun func verb
func`. Four worlds, one for each claim:

A  tokens: 3 events, of which the caption tells 1 or 2 (`--desc`), so that a video is more than its caption
B  cascade: videos in fives that differ in one word, so that few negatives are hard
C  order: tasks of 4 events, shown twice in two orders; which half a row is in, only its neighbours make worth knowing
D  hubs: one video in ten (`--hubs`) shows 12 events, the others 2; two are told

World C also has a split `moments` of queries for grounding: for each row, `first noun verb` or `again noun verb`.

The table `planted` holds the truth: `row_event` (N,) and `word_event` (W,), the event of a row and of a word in its
video, -1 for function words; `group` (V,), which five; `hub` (V,); `cue` (N,), what is planted in world C besides.
They are of the captions of split `planted` only. `--interest function` and `all` mark other words as tokens of
interest, for control.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline import derived
from pipeline.captions import Captions
from pipeline.derived import NewStream
from pipeline.errors import PipelineError
from pipeline.layout import write_columns
from pipeline.parts import read_part
from pipeline.provenance import file_attrs
from pipeline.publish import publish
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import Extracted
from pipeline.stages.idf import Idf
from pipeline.tables import write_tables
from pipeline.wordtable import save
from workflows.worlds import (
    CHOICES,
    DIM,
    SIZES,
    WORLDS,
    Moment,
    Scene,
    Words,
    World,
    captions_of,
    directions,
    moments_of,
    rows_of,
    scenes,
    text_of,
)

STREAM = "planted:rows"
TAGS = {"content": ("NOUN", "VERB"), "function": ("DET",), "all": ("DET", "NOUN", "VERB")}
"""Parts of speech of the tokens of interest; function words are all tagged DET, but for `first` and `again`."""


def write(world: World, out: Path) -> None:
    """Write the world's feature file: a stream, clips, captions, words, idf, split `planted`, table `planted`."""
    made = scenes(world)
    rows, captions, moments = rows_of(world, made), captions_of(world, made), moments_of(world, made)
    manifest = _manifest(world, captions, moments)
    attrs = file_attrs(manifest.dataset)
    with tempfile.TemporaryDirectory() as place:
        tables, whole = Path(place) / "tables.h5", Path(place) / "world.h5"
        write_tables(tables, attrs, manifest)
        videos = (_extracted(video.id, some) for video, some in zip(manifest.videos, rows, strict=True))
        known = _truth(made, captions)
        truths = {"planted": lambda group: write_columns(group, known)}
        derived.write(whole, [read_part(tables)], [_stream(world)], videos, truths)
        _write_words(whole, [*captions, *(one.words for one in moments)], TAGS[world.interest])
        with publish(out) as temporary:
            shutil.copyfile(whole, temporary)


def _manifest(world: World, captions: Sequence[Words], moments: Sequence[Moment]) -> Manifest:
    ids = [f"{world.name.lower()}{number:05}" for number in range(len(captions))]
    train = SIZES[world.size][world.name][0]
    sides = {"train": tuple(ids[:train]), "test": tuple(ids[train:])}
    asked = [(f"{ids[one.video]}#{one.row}", one) for one in moments]
    of_side = {
        side: tuple(name for name, one in asked if (one.video < train) == (side == "train")) for side in sides if asked
    }
    return Manifest(
        dataset=f"planted-{world.name}",
        videos=tuple(Video(name, None) for name in ids),
        clips=(
            *(Clip(name, name) for name in ids),
            *(Clip(name, ids[one.video], float(one.row), float(one.row + 1)) for name, one in asked),
        ),
        captions=(
            *(Caption(name, name, text_of(found)) for name, found in zip(ids, captions, strict=True)),
            *(Caption(name, name, text_of(one.words)) for name, one in asked),
        ),
        splits=(
            *(Part("planted", side, some, some) for side, some in sides.items()),
            *(Part("moments", side, some, some) for side, some in of_side.items()),
        ),
    )


def _stream(world: World) -> NewStream:
    digest = hashlib.sha256(directions(world)["noun"].tobytes()).hexdigest()
    settings = {
        "chain": {"fps": 1.0},
        "frames": 1,
        "world": asdict(replace(world, interest="content")),
        "weights": {"file": "", "sha256": digest},
    }
    made_by = {"torch": "none", "numpy": np.__version__}
    return NewStream(STREAM, settings, made_by, DIM, np.dtype(np.float16))


def _extracted(video: str, rows: NDArray[np.float16]) -> Extracted:
    known = {"duration": float(len(rows)), "decoded": float(len(rows)), "frames": len(rows), "fps": 1.0}
    return Extracted(video, {**known, "source_size": 1, "source_mtime": 1}, (STREAM,), {STREAM: rows}, "ok")


def _truth(made: Sequence[Scene], captions: Sequence[Words]) -> dict[str, NDArray[Any]]:
    cues = [cue for scene in made for cue in (scene.cue or (0.0,) * len(scene.shown))]
    return {
        "row_event": np.asarray([event for scene in made for event in scene.shown], np.int64),
        "word_event": np.asarray([event for caption in captions for _, _, event in caption], np.int64),
        "group": np.asarray([scene.group for scene in made], np.int64),
        "hub": np.asarray([scene.hub for scene in made], np.bool_),
        "cue": np.asarray(cues, np.float64),
    }


def _write_words(path: Path, captions: Sequence[Words], interest: Sequence[str]) -> None:
    """Write what `pipeline run tag` and `idf` would, but for the tagger: here it is known what is a noun."""
    place = Captions(path, "words", {"model": "planted", "version": "1"})
    for block in place.blocks(len(captions)):
        place.kept().write(block, _columns(captions))
    save(place, len(captions), interest, made=True)
    idf = Idf(features=path, split="planted/train")
    idf.save(idf.work(idf.items()))


def _columns(captions: Sequence[Words]) -> dict[str, NDArray[Any]]:
    words = [word for caption in captions for word in caption]
    sizes = np.asarray([len(caption) for caption in captions], np.int64)
    length = np.asarray([len(text) for text, _, _ in words], np.int32)
    ends = np.cumsum(length + 1) - 1
    begins = np.repeat(np.cumsum([0, *(len(text_of(caption)) + 1 for caption in captions)])[:-1], sizes)
    columns: dict[str, NDArray[Any]] = {
        "offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "start": (ends - length - begins).astype(np.int32),
        "end": (ends - begins).astype(np.int32),
    }
    texts, tags = [text for text, _, _ in words], [pos for _, pos, _ in words]
    for name, table, values in (("text", "texts", texts), ("lemma", "lemmas", texts), ("pos", "tags", tags)):
        columns[table], at = np.unique(np.asarray(values, dtype=object), return_inverse=True)
        columns[name] = at.astype(np.uint8 if name == "pos" else np.int32)
    return columns


def truth(path: Path) -> dict[str, NDArray[Any]]:
    """Return the table `planted` of a world's file."""
    with h5py.File(path, "r") as file:
        return {name: np.asarray(file["planted"][name][()]) for name in file["planted"]}


def _parsed(words: Sequence[str] | None) -> tuple[World, Path]:
    parser = argparse.ArgumentParser(
        prog="python -m workflows.planted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the feature file")
    parser.add_argument("--interest", choices=TAGS, default="content", help="which words are tokens of interest")
    parser.add_argument("--desc", type=int, choices=(1, 2), help="world A: events that a caption tells (1)")
    parser.add_argument("--hubs", type=float, help="world D: share of videos that show 12 events (0.1)")
    parser.add_argument("--cue", choices=("parity", "smooth", "none"), help="world C: what tells the halves (parity)")
    found = parser.parse_args(words)
    chosen = {name: getattr(found, name) for name in CHOICES.values() if getattr(found, name) is not None}
    for name in chosen:
        if name != CHOICES.get(found.world):
            parser.error(f"--{name} is of no use in world {found.world}; leave it out")
    if not 0 <= chosen.get("hubs", 0.1) <= 1:
        parser.error(f"--hubs {found.hubs}: expected a share, 0 to 1")
    return World(name=found.world, size=found.size, seed=found.seed, interest=found.interest, **chosen), found.out


def main(words: Sequence[str] | None = None) -> int:
    """Write a world; exit code 2 where that cannot be done."""
    world, out = _parsed(words)
    try:
        write(world, out)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    train, test = SIZES[world.size][world.name]
    print(f"{out}: world {world.name}, {train} videos to train on, {test} to test on; split planted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
