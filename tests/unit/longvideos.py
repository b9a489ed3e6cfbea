"""A small feature file to ground in: long videos of colours, queries that name one and ask when it is seen."""

from pathlib import Path

import numpy as np

from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import Extracted, fold, write_shard
from pipeline.tables import write_tables
from tests.unit.corpora import COLOURS
from tests.unit.features import ATTRS, head

DIM, ROWS = 16, 24


def make(path: Path, videos: int = 150, seed: int = 0, missing: tuple[str, ...] = ()) -> Path:
    """`videos` of 20 to 28 rows, two queries each, both for one colour's span; a fifth of them in g/test.

    The last clip of the first video ends behind it, and that of the second one begins behind it.
    """
    draw = np.random.default_rng(seed)
    direction = {word: np.random.default_rng(50 + n).standard_normal(DIM) for n, word in enumerate(COLOURS)}
    records, clips, captions, held = [], [], [], []
    for number in range(videos):
        name, count = f"v{number:03}", ROWS - 4 + number % 9
        rows = 0.3 * draw.standard_normal((count, DIM))
        cut = int(draw.integers(6, count - 6))
        for part, (start, end) in enumerate(((0, cut), (cut, count))):
            first = start + int(draw.integers(0, max(1, (end - start) // 2)))
            last = int(draw.integers(first + 2, end + 1)) if first + 2 <= end else end
            colour = COLOURS[int(draw.integers(len(COLOURS)))]
            rows[first:last] += direction[colour]
            span = {(0, 1): (first, count + 5), (1, 1): (count + 1, count + 9)}.get((number, part), (first, last))
            clips.append(Clip(f"{name}:{part}", name, float(span[0]), float(span[1])))
            captions.append(Caption(f"{name}#{part}", f"{name}:{part}", f"when is it {colour}"))
        records.append(Video(name, None, float(count)))
        known = {"source_size": 1, "source_mtime": 1, "decoded": float(count)}
        if name not in missing:
            held.append(Extracted(name, known, ("a:x",), {"a:x": rows.astype("float16")}, "ok", ""))
    train = {record.id for record in records[: videos * 4 // 5]}
    parts = tuple(
        Part(
            "g",
            name,
            tuple(clip.id for clip in clips if (clip.video in train) == inside),
            tuple(one.id for one in captions if (one.clip.split(":")[0] in train) == inside),
        )
        for name, inside in (("train", True), ("test", False))
    )
    manifest = Manifest("test", tuple(records), tuple(clips), tuple(captions), parts)
    write_tables(path.with_suffix(".tables.h5"), ATTRS, manifest)
    write_shard(path.with_suffix(".rows.h5"), ATTRS, {"a:x": head(dim=DIM, fps=1.0)}, held)
    fold([read_part(path.with_suffix(f".{kind}.h5")) for kind in ("tables", "rows")], path, ATTRS)
    return path
