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
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline.asr import extent, has_stop_words, part, stream
from pipeline.captions import Block, Blocks, Columns, divide
from pipeline.datasets.howto100m import captions_of
from pipeline.errors import BadDataset, BadSetting
from pipeline.loading import default_root
from pipeline.merging import END, Limits, gather, merge_all
from pipeline.output import FILES
from pipeline.parts import FORMAT, VIDEO_COLUMNS
from pipeline.provenance import file_attrs
from pipeline.publish import publish
from pipeline.tables import OWN

log = logging.getLogger(__name__)

DATASET = "howto100m"
SAMPLE = 50
"""Videos whose captions tell whether stop words were removed."""


@dataclass(frozen=True)
class Place:
    """The caption file, where merged ranges wait, and where they end up."""

    source: Path
    out: Path
    settings: Mapping[str, float]

    def kept(self) -> Blocks:
        """Return the place of the ranges that go with the source as it is now, and these settings."""
        stat = self.source.stat()
        stamp = {**self.settings, "source": str(self.source), "size": stat.st_size, "mtime": stat.st_mtime_ns}
        return Blocks(self.out.with_name(f"{self.out.name}.merge"), json.dumps(stamp, sort_keys=True))

    def ranges(self, size: int) -> list[Block]:
        """Return the source in ranges."""
        return divide(extent(self.source), size)


def find(root: str, out: Path, settings: Mapping[str, float]) -> Place:
    """Return the caption file that `root` names, or that lies in that folder. Raises BadDataset, BadSetting."""
    least = {"min_words": 1, "max_gap": 0, "max_seconds": 0}
    for name, value in settings.items():
        if value < least[name]:
            raise BadSetting(f"--{name.replace('_', '-')} {value:g}: expected {least[name]} or more")
    if out.suffix not in FILES:
        raise BadSetting(f"--out {out}: expected a name in {' or '.join(sorted(FILES))}")
    path = Path(root or default_root(DATASET)).absolute()
    return Place(path if path.is_file() else captions_of(path), out, settings)


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
        "repair": np.asarray(list(captions.repaired), dtype=object),
        "repairs": np.asarray(list(captions.repaired.values()), np.int64),
    }


def _ids(videos: Sequence[str], clips: Sequence[int]) -> NDArray[np.bytes_]:
    """Return the ids of all clips, `VIDEO@N`."""
    numbers = [b"@%d" % number for number in range(max(clips, default=0))]
    sized = zip(map(str.encode, videos), clips, strict=True)
    ids = [name + number for name, size in sized for number in numbers[:size]]
    return np.asarray(ids or [b""])[: len(ids)]


def save(place: Place, size: int) -> str:
    """Write the feature file from all ranges, in the order of the source; return a line on what it holds."""
    blocks = place.ranges(size)
    totals, width, repaired = _survey(place, blocks)
    with publish(place.out) as temporary, h5py.File(temporary, "w") as file:
        file.attrs.update({**file_attrs(DATASET), "format": FORMAT, "source": str(place.source)})
        file.attrs["merge"] = json.dumps(place.settings)
        _create(file, totals, width)
        _fill(file, place.kept().read(blocks))
    place.kept().remove()
    for what, number in repaired.items():
        log.info("%s: %s captions: %s", place.source.name, f"{number:,}", what)
    cues, clips = totals["cues"], totals["clips"]
    return f"{place.out}: {totals['videos']:,} videos, {cues:,} captions merged to {clips:,} clips"


def _survey(place: Place, blocks: Sequence[Block]) -> tuple[Counter[str], int, Counter[str]]:
    """Return totals, the bytes of the longest clip id, and repairs. Raises BadDataset for a video that stands twice."""
    totals: Counter[str] = Counter(videos=0, cues=0, clips=0, captions=0)
    repaired: Counter[str] = Counter()
    width = 1
    seen: list[NDArray[np.uint64]] = []
    for columns in place.kept().read(blocks, "video", "cues", "told", "id", "repair", "repairs"):
        names, told = [str(name).encode() for name in columns["video"]], columns["told"]
        totals.update(videos=len(names), cues=int(columns["cues"].sum()), clips=len(told), captions=int(told.sum()))
        width = max(width, columns["id"].dtype.itemsize)
        repaired.update(dict(zip(columns["repair"], columns["repairs"].tolist(), strict=True)))
        seen.append(np.asarray([int.from_bytes(sha256(n).digest()[:8]) for n in names], np.uint64))
    hashes = np.concatenate(seen) if seen else np.zeros(0, np.uint64)
    if len(np.unique(hashes)) < len(hashes):
        raise BadDataset(f"{place.source}: a video stands twice; keep one of its records: {_twice(place, blocks)}")
    return totals, width, repaired


def _twice(place: Place, blocks: Sequence[Block]) -> str:
    count = Counter(str(name) for columns in place.kept().read(blocks, "video") for name in columns["video"])
    return count.most_common(1)[0][0]


def _create(file: h5py.File, totals: Mapping[str, int], width: int) -> None:
    """Make all tables in their size. What nobody writes reads as nothing, and takes no place."""
    text = h5py.string_dtype()
    videos = file.create_group("videos")
    videos.create_dataset("id", (totals["videos"],), text)
    for name, empty in {**VIDEO_COLUMNS, "reason": ""}.items():
        kind = text if isinstance(empty, str) else np.float64 if isinstance(empty, float) else np.int64
        fill = None if isinstance(empty, str) else empty
        videos.create_dataset(name, (totals["videos"],), kind, fillvalue=fill)
    videos.create_dataset("status", (totals["videos"],), np.uint8)
    file.create_group("streams")
    for name in OWN:
        file.create_group(name)
    for table, size, columns in (
        ("clips", totals["clips"], {"video": np.int64, "start": np.float64, "end": np.float64}),
        ("captions", totals["captions"], {"clip": np.int64, "source_first": np.int32, "source_count": np.int32}),
    ):
        file[table].create_dataset("id", (size,), h5py.string_dtype(length=width))
        for name, dtype in columns.items():
            file[table].create_dataset(name, (size,), dtype)
    file["clips"].create_dataset("label", (totals["clips"],), text)
    file["captions"].create_dataset("text", (totals["captions"],), text)


def _fill(file: h5py.File, blocks: Iterator[Columns]) -> None:
    digest = sha256()
    at = {"videos": 0, "clips": 0, "captions": 0}
    for columns in blocks:
        rows = _rows(columns, at["videos"], at["clips"])
        for table, values in rows.items():
            size = len(next(iter(values.values())))
            for name, column in values.items():
                # Bytes of one length are UTF-8 only when they say so.
                fixed = isinstance(column, np.ndarray) and column.dtype.kind == "S"
                value = column.astype(file[table][name].dtype) if fixed else column
                file[table][name][at[table] : at[table] + size] = value
            at[table] += size
        digest.update(columns["text"].tobytes())
    file["captions"].attrs["sha256"] = digest.hexdigest()


def _rows(columns: Columns, videos: int, clips: int) -> dict[str, dict[str, Any]]:
    """Return what one range adds to the tables; `videos` and `clips` stand there already. No text, no caption."""
    video = np.repeat(np.arange(len(columns["video"])), columns["clips"])
    ids, told = columns["id"], np.flatnonzero(columns["told"])
    return {
        "videos": {"id": columns["video"]},
        "clips": {"id": ids, "video": video + videos, "start": columns["start"], "end": columns["end"]},
        "captions": {
            "id": ids[told],
            "clip": told + clips,
            "source_first": columns["first"][told],
            "source_count": columns["count"][told],
            "text": columns["text"].tobytes().split(END)[:-1],
        },
    }
