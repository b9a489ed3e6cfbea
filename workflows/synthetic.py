"""Synthetic features for a real data set: videos, spans and texts as annotated, and rows in which these can be seen.

    python -m workflows.synthetic activitynet --root data/activitynet --out activitynet.h5 --videos 50

Localisation can be tried with it where there are no videos. A word is a unit direction in feature space that depends on
the seed and the word alone, so it is the same in every data set: what is trained on one file can be judged on another.
Words are lower-case letters and digits; function words (`FUNCTION`) have no direction, forms of a word have one each.

The concept of a text is the sum of the directions of its words, of length 1; it is 0 for a text without such words. A
row is the sum of the concepts of all that happens then, a nuisance of its video and noise of its own. What happens is:

* captions: in their windows, each row once however many there are, or if they have none in their clip's span;
* steps: in their spans; their text is the label, which may be a number.

A row saw [r / rate, (r + 1) / rate) seconds. What covers half of it happens in it, and what covers half of no row
happens in the one row that has its middle. What ends with the video, or later, lasts to the end of its last row.

A video is as long as the data set says. If it does not say, the latest end of a clip, window or step is rounded up and
a tenth is added; 30 s if there is none. The line that is printed counts these videos.

`--videos N` keeps the first N videos of each part of each split, with all that is annotated in them, so no part is
empty. As parts share videos, a part may keep more than N; its clips and captions in videos that are dropped, are, too.
`--split NAME` keeps what is in that split: ActivityNet's paragraphs say of a whole video what its sentences say of a
part each, so with both planted no part stands out.
`--missing SHARE` leaves that share of the videos without rows, as failed. Neither changes another video's rows.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline import datasets, derived
from pipeline.derived import NewStream
from pipeline.errors import BadSetting, PipelineError
from pipeline.parts import read_part
from pipeline.provenance import file_attrs
from pipeline.records import Manifest
from pipeline.shards import Extracted
from pipeline.tables import write_tables
from workflows.choosing import first_videos, of_split

STREAM = "synthetic:words"
LEFT_OUT = "left out on purpose"
FASTEST = 100.0
"""Rows in a second, at most: a long video's must fit into memory."""
UNKNOWN = 30.0
"""Seconds of a video of which nothing is known."""
LONGEST = 1000.0
"""The greatest length of noise and nuisance: float16 ends at 65,504."""
FUNCTION = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those some any each i me my you your he him his she her it its we us our they them "
        "their who which what is are was were be been being am do does did has have had having can could will would "
        "of in on at to for from with by as into onto and or but so if then than while when where there here just also "
        "s t",
    )
)
"""Words that mean nothing that could be seen; the last two are what an apostrophe leaves."""

Vector = NDArray[np.float64]
Span = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Planting:
    """All that rows depend on besides the annotations."""

    dim: int = 128
    noise: float = 1.0
    """Length of a row's noise, beside concepts of length 1."""
    nuisance: float = 1.0
    """Length of a video's nuisance."""
    seed: int = 0
    rate: float = 1.0
    """Rows in a second."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A text, and the seconds of its video in which it happens."""

    text: str
    spans: tuple[Span, ...]


def write_encoder(folder: Path, manifest: Manifest, planting: Planting) -> None:
    """Write a text encoder that knows the words of captions and steps, all but those that are not planted."""
    from workflows import knowing

    texts = [*(caption.text for caption in manifest.captions), *(step.label for step in manifest.steps)]
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())} - FUNCTION)
    knowing.save(folder, words, np.stack([_direction(word, planting.seed, planting.dim) for word in words]))


def concept(text: str, planting: Planting) -> Vector:
    """Return (dim,) the sum of the directions of a text's words, of length 1, or 0 for a text without any."""
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in FUNCTION]
    total = np.sum([_direction(word, planting.seed, planting.dim) for word in words] or np.zeros((1, planting.dim)), 0)
    return np.asarray(total / (np.linalg.norm(total) or 1.0))


@lru_cache(maxsize=1 << 15)
def _direction(word: str, seed: int, dim: int) -> Vector:
    return _unit(_generator(seed, "word", word).standard_normal(dim))


def _unit(vector: Vector) -> Vector:
    return np.asarray(vector / np.linalg.norm(vector))


def _generator(seed: int, *names: str) -> np.random.Generator:
    """Return random numbers of their own for whatever these names are of."""
    digest = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def happenings(manifest: Manifest) -> dict[str, list[Happening]]:
    """Return by video what happens in it."""
    clips = {clip.id: clip for clip in manifest.clips}
    found: defaultdict[str, list[Happening]] = defaultdict(list)
    for caption in manifest.captions:
        clip = clips[caption.clip]
        span = (clip.start, math.inf if clip.end is None else clip.end)
        found[clip.video].append(Happening(caption.text, caption.windows or (span,)))
    for step in manifest.steps:
        found[clips[step.clip].video].append(Happening(step.label, ((step.start, step.end),)))
    return dict(found)


def lengths(manifest: Manifest) -> dict[str, float]:
    """Return by video its seconds, as the module says."""
    latest: defaultdict[str, float] = defaultdict(float)
    videos = {clip.id: clip.video for clip in manifest.clips}
    ends = [(clip.id, clip.end) for clip in manifest.clips if clip.end is not None]
    ends += [(caption.clip, end) for caption in manifest.captions for _, end in caption.windows]
    for clip, end in [*ends, *((step.clip, step.end) for step in manifest.steps)]:
        latest[videos[clip]] = max(latest[videos[clip]], end)
    return {video.id: video.duration or math.ceil(latest[video.id]) * 1.1 or UNKNOWN for video in manifest.videos}


def shows(spans: Sequence[Span], seconds: float, rate: float, rows: int) -> NDArray[np.bool_]:
    """Return (rows,) which rows of a video of so many seconds show what happens in these spans."""
    found = np.zeros(rows, np.bool_)
    for start, end in (span for span in spans if span[0] < seconds):
        last = rows if end >= seconds else math.floor(end * rate + 0.5)
        first = math.ceil(start * rate - 0.5)
        if first >= last:  # half of no row
            first = math.floor((start + min(end, seconds)) / 2 * rate)
            last = first + 1
        found[max(first, 0) : max(last, 0)] = True
    return found


def rows_of(key: str, happens: Sequence[Happening], seconds: float, planting: Planting) -> NDArray[np.float16]:
    """Return the rows (n, dim) of a video; `key` tells its noise and nuisance from those of others."""
    dim, count = planting.dim, max(1, math.ceil(round(seconds * planting.rate, 6)))
    rng = _generator(planting.seed, "video", key)
    rows = planting.nuisance * _unit(rng.standard_normal(dim))
    rows = rows + planting.noise * dim**-0.5 * rng.standard_normal((count, dim), np.float32)
    for one in happens:
        rows[shows(one.spans, seconds, planting.rate, count)] += concept(one.text, planting)
    return np.asarray(rows, np.float16)


def left_out(manifest: Manifest, share: float, seed: int) -> frozenset[str]:
    """Return the ids of a share of the videos, drawn by chance."""
    order = _generator(seed, "left out", manifest.dataset).permutation(len(manifest.videos))
    return frozenset(manifest.videos[at].id for at in order[: round(share * len(order))])


def write(manifest: Manifest, out: Path, planting: Planting, without: frozenset[str] = frozenset()) -> None:
    """Write the data set's feature file, with no rows for the videos `without`. Raises what `derived.write` raises."""
    with tempfile.TemporaryDirectory() as place:
        tables = Path(place) / "tables.h5"
        write_tables(tables, file_attrs(manifest.dataset), manifest)
        derived.write(out, [read_part(tables)], [_stream(planting)], _extracted(manifest, planting, without))


def _extracted(manifest: Manifest, planting: Planting, without: frozenset[str]) -> Iterator[Extracted]:
    happens, length, stamp = happenings(manifest), lengths(manifest), {"source_size": 1, "source_mtime": 1}
    for video in manifest.videos:
        if video.id in without:
            yield Extracted(video.id, stamp, (STREAM,), {}, "failed", LEFT_OUT)
            continue
        seconds = length[video.id]
        rows = rows_of(f"{manifest.dataset}\0{video.id}", happens.get(video.id, ()), seconds, planting)
        known = {"duration": seconds, "decoded": seconds, "frames": len(rows), "fps": planting.rate, **stamp}
        yield Extracted(video.id, known, (STREAM,), {STREAM: rows}, "ok")


def _stream(planting: Planting) -> NewStream:
    """Return the stream. Its settings are the same for all data sets, as a checkpoint's must be those of the file."""
    words = " ".join(sorted(FUNCTION))
    digest = hashlib.sha256(words.encode() + concept("word", planting).tobytes()).hexdigest()
    chosen = {name: value for name, value in asdict(planting).items() if name != "rate"}
    settings = {
        "chain": {"fps": planting.rate},
        "frames": 1,
        "synthetic": chosen,
        "weights": {"file": "", "sha256": digest},
    }
    made_by = {"torch": "none", "device": "cpu", "numpy": np.__version__}
    return NewStream(STREAM, settings, made_by, planting.dim, np.dtype(np.float16))


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workflows.synthetic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="one that `pipeline list` has")
    parser.add_argument("--root", type=Path, required=True, help="the folder with its annotations")
    parser.add_argument("--out", type=Path, required=True, help="the feature file")
    parser.add_argument("--dim", type=int, default=128, help="numbers in a row (128)")
    parser.add_argument("--noise", type=float, default=1.0, help="length of each row's noise (1)")
    parser.add_argument("--nuisance", type=float, default=1.0, help="length of each video's nuisance (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1.0, help="rows in a second (1)")
    parser.add_argument("--split", help="one split alone, without what is only in others")
    parser.add_argument("--videos", type=int, help="of each part of each split, the first so many")
    parser.add_argument("--missing", type=float, default=0.0, help="share of the videos to leave without rows (0)")
    parser.add_argument("--encoder", type=Path, help="also write a text encoder that knows the words: a folder")
    return parser.parse_args(words)


def _check(found: argparse.Namespace) -> None:
    """Raise BadSetting for a number that cannot be."""
    legal = {
        "dim": (found.dim >= 1, "1 or more"),
        "noise": (0 <= found.noise <= LONGEST, f"a length, 0 to {LONGEST:g}"),
        "nuisance": (0 <= found.nuisance <= LONGEST, f"a length, 0 to {LONGEST:g}"),
        "rate": (0 < found.rate <= FASTEST, f"rows in a second, more than 0, at most {FASTEST:g}"),
        "videos": (found.videos is None or found.videos >= 1, "1 or more"),
        "missing": (0 <= found.missing <= 1, "a share, 0 to 1"),
    }
    for name, (good, expected) in legal.items():
        if not good:
            raise BadSetting(f"--{name} {getattr(found, name)}: expected {expected}")


def main(words: Sequence[str] | None = None) -> int:
    """Write the file and a line on what is in it; exit code 2 where that cannot be done."""
    found = _parsed(words)
    planting = Planting(**{name: getattr(found, name) for name in Planting.__dataclass_fields__})
    try:
        _check(found)
        derived.check_out(found.out)
        manifest = datasets.load(found.dataset, found.root)
        if found.split is not None:
            manifest = of_split(manifest, found.split)
        if found.videos is not None:
            manifest = first_videos(manifest, found.videos)
        without = left_out(manifest, found.missing, found.seed)
        write(manifest, found.out, planting, without)
        if found.encoder is not None:
            write_encoder(found.encoder, manifest, planting)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sizes = {name: len(getattr(manifest, name)) for name in ("videos", "clips", "captions", "steps")}
    unknown = sum(not video.duration for video in manifest.videos)
    told = ", ".join(f"{size:,} {name}" for name, size in sizes.items())
    print(f"{found.out}: {told}; {unknown:,} videos without a duration of their own, {len(without):,} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
