"""A small feature file to train on: clips of colours, captions that name them."""

import re
from pathlib import Path

import h5py
import numpy as np

from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import Extracted, fold, write_shard
from pipeline.tables import write_tables
from tests.unit.features import ATTRS, head

COLOURS = ["red", "green", "blue", "white", "black", "grey"]
SHAPES = ["circle", "square", "star", "cross"]
DIM = 16


def make(path: Path, seed: int = 0, streams: tuple[str, ...] = ("a:x",), missing: tuple[str, ...] = ()) -> Path:
    """24 videos of 3 to 8 rows, two captions each; 18 in s/train, 6 in s/test. A row is its colour, shape and noise."""
    draw = np.random.default_rng(seed)
    direction = {word: np.random.default_rng(99 + n).standard_normal(DIM) for n, word in enumerate(COLOURS + SHAPES)}
    videos, clips, captions, held = [], [], [], []
    for number, (colour, shape) in enumerate((c, s) for c in COLOURS for s in SHAPES):
        name, count = f"v{number}", 3 + number % 6
        noise = 0.5 * draw.standard_normal((len(streams), count, DIM))
        rows = {s: (direction[colour] + direction[shape] + noise[i]).astype("float16") for i, s in enumerate(streams)}
        known = {"source_size": 1, "source_mtime": 1, "decoded": float(count)}
        videos.append(Video(name, None, float(count)))
        clips.append(Clip(name, name))
        captions += [
            Caption(f"{name}#{n}", name, text.format(colour, shape))
            for n, text in enumerate(("a {} {}", "the {} {} is here"))
        ]
        if name not in missing:
            held.append(Extracted(name, known, streams, rows, "ok", ""))
    names = [clip.id for clip in clips]
    test = [name for number, name in enumerate(names) if number % 4 == (number // 4) % 4]
    train = [name for name in names if name not in test]
    parts = tuple(
        Part("s", part, tuple(own), tuple(c.id for c in captions if c.clip in own))
        for part, own in (("train", train), ("test", test))
    )
    manifest = Manifest("test", tuple(videos), tuple(clips), tuple(captions), parts)
    write_tables(path.with_suffix(".tables.h5"), ATTRS, manifest)
    write_shard(
        path.with_suffix(".rows.h5"), ATTRS, {s: head(dim=DIM, fps=1.0 + i / 2) for i, s in enumerate(streams)}, held
    )
    fold([read_part(path.with_suffix(f".{kind}.h5")) for kind in ("tables", "rows")], path, ATTRS)
    add_words(path)
    return path


def add_words(path: Path, interest: tuple[str, ...] = (*COLOURS, *SHAPES)) -> None:
    """Write the tables `words` and `idf` as far as training reads them; colours and shapes weigh the same."""
    with h5py.File(path, "r+") as file:
        for name in ("words", "idf"):
            if name in file:
                del file[name]
        texts = list(file["captions/text"].asstr())
        found = [[(m.start(), m.end(), m[0] in interest) for m in re.finditer(r"\w+", text)] for text in texts]
        flat = np.array([word for words in found for word in words]).reshape(-1, 3)
        sizes = [len(words) for words in found]
        words = file.create_group("words")
        words["offsets"] = np.concatenate([[0], np.cumsum(sizes)])
        words["start"], words["end"] = flat[:, 0].astype(np.int32), flat[:, 1].astype(np.int32)
        words["interest"] = flat[:, 2].astype(bool)
        share = [flag / max(1, sum(w[2] for w in own)) for own in found for _, _, flag in own]
        file.create_group("idf")["weight"] = np.asarray(share, np.float32)
