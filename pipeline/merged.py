"""`pipeline run merge`: a caption file of any size to a captions-only feature file, range by range.

Neither reading nor writing holds more than one range: the file may have more captions than memory has bytes.
"""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.asr import extent, has_stop_words, part, stream
from pipeline.captions import Block, Blocks, Columns, divide
from pipeline.datasets.howto100m import captions_of, held_out
from pipeline.errors import BadDataset, BadSetting
from pipeline.gathering import gather
from pipeline.loading import default_root
from pipeline.merging import Limits, merge_all
from pipeline.output import FILES, Output
from pipeline.parts import FORMAT, VIDEO_COLUMNS
from pipeline.provenance import file_attrs
from pipeline.publish import publish
from pipeline.rolling import END
from pipeline.tables import OWN

log = logging.getLogger(__name__)

DATASET = "howto100m"
FILE_BYTES = 16 << 10
"""Of one video's captions, about: what a file of a folder counts for."""
SAMPLE = 50
"""Videos whose captions tell whether stop words were removed."""


@dataclass(frozen=True)
class Place:
    """The caption file, where merged ranges wait, and where they end up."""

    source: Path
    out: Path
    settings: Mapping[str, float]

    stamp: str
    """Of the source as it was found: its files' names, sizes and times."""

    def kept(self) -> Blocks:
        """Return the place of the ranges that go with the source as it was found, and these settings."""
        stamp = {**self.settings, "source": str(self.source), "stamp": self.stamp}
        return Blocks(self.out.with_name(f"{self.out.name}.merge"), json.dumps(stamp, sort_keys=True))

    def ranges(self, size: int) -> list[Block]:
        """Return the source in ranges of about `size` bytes."""
        return divide(extent(self.source), range_size(self.source, size))


def range_size(source: Path, size: int) -> int:
    """Return how much of what `extent` counts makes a range of `size` bytes: files of a folder, or bytes."""
    return max(1, size // FILE_BYTES) if source.is_dir() else size


def _stamp(source: Path) -> str:
    found = sha256()
    for path in sorted(source.iterdir()) if source.is_dir() else [source]:
        stat = path.stat()
        found.update(f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return found.hexdigest()


def find(root: str, out: Path, settings: Mapping[str, float]) -> Place:
    """Return the caption file that `root` names, or that lies in that folder. Raises BadDataset, BadSetting."""
    least = {"min_words": 1, "max_gap": 0, "max_seconds": 0}
    for name, value in settings.items():
        if not value >= least[name]:  # nan neither
            raise BadSetting(f"--{name.replace('_', '-')} {value:g}: expected {least[name]} or more")
    if out.suffix not in FILES:
        raise BadSetting(f"--out {out}: expected a name in {' or '.join(sorted(FILES))}")
    path = Path(root or default_root(DATASET)).absolute()
    source = path if path.is_file() else captions_of(path)
    return Place(source, out, settings, _stamp(source))


def warn_without_stop_words(place: Place) -> None:
    """Say so when the captions lack the words that sentences are made of."""
    some = [text for _, cues in zip(range(SAMPLE), stream(place.source), strict=False) for text in cues.text]
    if not has_stop_words(some):
        log.warning(
            "WARNING: %s has no stop words (caption.json is so): texts are no sentences, and clips hold more captions "
            "than they should; use raw_caption.json", place.source,
        )  # fmt: skip


def merge_range(place: Place, block: Block) -> None:
    """Merge the captions of the videos that begin in a range of the source, and keep them as columns."""
    gc.disable()  # there are no cycles, and looking for them among millions of clips takes a quarter of the time
    try:
        place.kept().write(block, _merged(place, block))
    finally:
        gc.enable()


def _merged(place: Place, block: Block) -> Columns:
    words, gap, seconds = (place.settings[name] for name in ("min_words", "max_gap", "max_seconds"))
    captions = gather(part(place.source, block.start, block.stop))
    found = merge_all(captions, Limits(int(words), gap, seconds))
    return {
        "video": np.asarray(captions.videos, dtype=object),
        "cues": captions.sizes,
        "clips": found.clips,
        "id": _ids(captions.videos, found.clips.tolist()),
        "start": found.start,
        "end": found.end,
        "first": found.first.astype(np.int32),
        "count": found.count.astype(np.int32),
        "told": found.told,
        "text": np.frombuffer(found.text, np.uint8),
        "repair": np.asarray([what for what, _, _ in captions.repaired], dtype=object),
        "repaired": np.asarray([video for _, video, _ in captions.repaired], dtype=object),
        "repairs": np.asarray([number for _, _, number in captions.repaired], np.int64),
    }


def _ids(videos: Sequence[str], clips: Sequence[int]) -> NDArray[np.bytes_]:
    """Return the ids of all clips, `VIDEO@N`."""
    numbers = [b"@%d" % number for number in range(max(clips, default=0))]
    sized = zip(map(str.encode, videos), clips, strict=True)
    ids = list(chain.from_iterable(map(name.__add__, numbers[:size]) for name, size in sized))
    return np.asarray(ids or [b""])[: len(ids)]


def save(place: Place, size: int) -> str:
    """Write the feature file from all ranges, in the order of the source; return a line on what it holds."""
    blocks = place.ranges(size)
    held = held_out(place.source)
    totals, width = _survey(place, blocks, held)
    with publish(place.out) as temporary, h5py.File(temporary, "w") as file:
        file.attrs.update({**file_attrs(DATASET), "format": FORMAT, "source": str(place.source)})
        file.attrs["merge"] = json.dumps(place.settings)
        _create(file, totals, width)
        _fill(file, place.kept().read(blocks), held)
    _list_repairs(place, blocks)
    place.kept().remove()
    cues, clips = totals["cues"], totals["clips"]
    return f"{place.out}: {totals['videos']:,} videos, {cues:,} captions merged to {clips:,} clips"


def _survey(place: Place, blocks: Sequence[Block], held: frozenset[str]) -> tuple[Counter[str], int]:
    """Return totals and the bytes of the longest clip id. Raises BadDataset for a video that stands twice."""
    totals: Counter[str] = Counter(videos=0, cues=0, clips=0, captions=0)
    width = 1
    seen: list[NDArray[np.uint64]] = []
    for columns in place.kept().read(blocks, "video", "cues", "clips", "told", "id"):
        names, told = [str(name).encode() for name in columns["video"]], columns["told"]
        test = _tested(columns, held)
        totals.update(videos=len(names), cues=int(columns["cues"].sum()), clips=len(told), captions=int(told.sum()))
        totals.update({"test clips": int(test.sum()), "test captions": int((test & told).sum())})
        width = max(width, columns["id"].dtype.itemsize)
        seen.append(np.asarray([int.from_bytes(sha256(n).digest()[:8]) for n in names], np.uint64))
    hashes = np.concatenate(seen) if seen else np.zeros(0, np.uint64)
    if len(np.unique(hashes)) < len(hashes):
        raise BadDataset(f"{place.source}: a video stands twice; keep one of its records: {_twice(place, blocks)}")
    return totals, width


def _tested(columns: Columns, held: frozenset[str]) -> NDArray[np.bool_]:
    """Return (N,) whether a clip is of a video that is held out."""
    return np.repeat(np.asarray([str(name) in held for name in columns["video"]], np.bool_), columns["clips"])


def _twice(place: Place, blocks: Sequence[Block]) -> str:
    count = Counter(str(name) for columns in place.kept().read(blocks, "video") for name in columns["video"])
    return count.most_common(1)[0][0]


def _create(file: h5py.File, totals: Mapping[str, int], width: int) -> None:
    """Make all tables in their size. What nobody writes reads as nothing, and takes no place."""
    text, id_ = h5py.string_dtype(), h5py.string_dtype(length=width)
    file.create_group("streams")
    for name in ("videos", *OWN):
        file.create_group(name)
    videos: dict[str, Any] = {"id": text, "status": np.uint8}
    for name, empty in {**VIDEO_COLUMNS, "reason": ""}.items():
        videos[name] = text if isinstance(empty, str) else np.float64 if isinstance(empty, float) else np.int64
    seconds, source = {"start": np.float64, "end": np.float64}, {"source_first": np.int32, "source_count": np.int32}
    tables = {
        "videos": videos,
        "clips": {"id": id_, "video": np.int64, **seconds, "label": text, **source},
        "captions": {"id": id_, "clip": np.int64, "text": text},
    }
    for table, columns in tables.items():
        for name, dtype in columns.items():
            empty = VIDEO_COLUMNS.get(name) if table == "videos" else None
            fill = None if isinstance(empty, str) else empty
            file[table].create_dataset(name, (totals[table],), dtype, fillvalue=fill)
    for name in ("clips", "captions") if totals["test clips"] else ():
        test = totals[f"test {name}"]
        file.create_dataset(f"splits/holdout/test/{name}", (test,), np.int64)
        file.create_dataset(f"splits/holdout/train/{name}", (totals[name] - test,), np.int64)


def _fill(file: h5py.File, blocks: Iterator[Columns], held: frozenset[str]) -> None:
    digest = sha256()
    at: Counter[str] = Counter()
    for columns in blocks:
        rows = _rows(columns, at)
        if "splits/holdout" in file:
            rows |= _parts(columns, at, held)
        _write_texts(file["captions/text"], at["captions/id"], columns["text"])
        for name, column in rows.items():
            # Bytes of one length are UTF-8 only when they say so.
            fixed = isinstance(column, np.ndarray) and column.dtype.kind == "S"
            value = column.astype(file[name].dtype) if fixed else column
            file[name][at[name] : at[name] + len(value)] = value
        at.update({name: len(column) for name, column in rows.items()})
        digest.update(columns["text"].data)
    file["captions"].attrs["sha256"] = digest.hexdigest()


def _rows(columns: Columns, at: Mapping[str, int]) -> dict[str, Any]:
    """Return what one range adds to the tables, in which `at` rows stand already. No text, no caption."""
    video = np.repeat(np.arange(len(columns["video"])), columns["clips"])
    ids, told = columns["id"], np.flatnonzero(columns["told"])
    return {
        "videos/id": columns["video"],
        "clips/id": ids,
        "clips/video": video + at["videos/id"],
        "clips/start": columns["start"],
        "clips/end": columns["end"],
        "clips/source_first": columns["first"],
        "clips/source_count": columns["count"],
        "captions/id": ids[told],
        "captions/clip": told + at["clips/id"],
    }


def _write_texts(column: h5py.Dataset, at: int, texts: NDArray[np.uint8]) -> None:
    """Write texts, each with `END` after it, as strings of a column from row `at` on, without making any of them."""
    stops = np.flatnonzero(texts == ord(END))
    places = texts.ctypes.data + np.append(0, stops + 1)[:-1]
    text = h5py.h5t.C_S1.copy()
    text.set_size(h5py.h5t.VARIABLE)
    text.set_cset(h5py.h5t.CSET_UTF8)
    rows = column.id.get_space()
    rows.select_hyperslab((at,), (len(stops),))
    column.id.write(h5py.h5s.create_simple((len(stops),)), rows, places.astype(np.uintp), text)


def _parts(columns: Columns, at: Mapping[str, int], held: frozenset[str]) -> dict[str, Any]:
    """Return the clips and captions of one range that are held out, and those that are not."""
    test = _tested(columns, held)
    own = {"clips": test, "captions": test[columns["told"]]}
    return {
        f"splits/holdout/{part}/{name}": np.flatnonzero(chosen == (part == "test")) + at[f"{name}/id"]
        for part in ("test", "train")
        for name, chosen in own.items()
    }


def _list_repairs(place: Place, blocks: Sequence[Block]) -> None:
    """List every video with captions whose times were repaired, beside the output."""
    path = Output(place.out).beside("oddities.jsonl")
    path.unlink(missing_ok=True)
    totals: Counter[str] = Counter()
    with publish(path) as temporary, temporary.open("wb") as file:
        for columns in place.kept().read(blocks, "repair", "repaired", "repairs"):
            for what, video, number in zip(*(columns[c] for c in ("repair", "repaired", "repairs")), strict=True):
                oddity, _, rule = str(what).partition(": ")
                record = f"{video}: {number} captions"
                file.write(orjson.dumps({"oddity": oddity, "rule": rule, "record": record}) + b"\n")
                totals[str(what)] += int(number)
    for what, number in totals.items():
        log.info("%s: %s captions: %s", place.source.name, f"{number:,}", what)
    if not totals:
        path.unlink()
