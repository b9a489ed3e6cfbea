"""HowTo100M: 1.2 million narrated instructional videos of 23,611 tasks; captions are what was said, as recognised.

Source: Miech et al., ICCV 2019. Held-out list: Han et al., CVPR 2022 (`htm_holdout_vid.txt`); list with lengths: Zhong
et al., CVPR 2023 (ProcedureVRL).

Layout. Files lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any:

* `HowTo100M_v1.csv`, with `video_id` and `task_id` among its columns: the videos, and each one's label.
* `htm_holdout_vid.txt`, an id a line; `procedurevrl_howto100m_full_test*.csv`, without header, `FILE LABEL SECONDS`.
* captions, the first of these (forms: `pipeline.asr`): `raw_caption*.json`, `raw_caption*.pickle`, `raw_caption*.pkl`,
  `sentencified_htm_*.json`, the folders `captions` and `howto100m_captions` of one file a video, `caption*.json`,
  `caption*.pickle`, `caption*.pkl`; or ROOT itself, if it holds one file a video and nothing of the above. Those in a
  pickle are read with --allow-pickle only.

Whole files win over those with `subset` or `head` in their name. Without the csv, the videos are all that the others
name; a label is then the list's number. Videos are found by their name without suffix, below ROOT/videos, else below
ROOT.

Every video is a clip of its id. A caption is a clip too, `VIDEO@0`, `VIDEO@1`, … by time, and so is its caption's id:
but only where the captions take 256 MB or less. The whole of them, 136 million, are read by `pipeline run merge`, which
makes clips of ten words and more.

Splits. `holdout`: test, the videos of `htm_holdout_vid.txt`, which those who train on the others evaluate on; train,
the others.

Repair rules; every record that one touches is listed:

* `caption.json` and its like have lost their stop words: they are read, with a warning; `raw_caption.json` has them.
* A caption whose start or end is no time (NaN, below zero), or that ends at or before its start, is dropped; one that
  ends after a length that is known ends with it. Blanks are trimmed, a caption without text is dropped.
* A video that stands twice in the csv or a list counts once, the first by label.
* With the csv, ids and captions of videos that it lacks are dropped.

Lines without end, and videos that stand twice in the captions, are errors. Order: by id, then by start, end and text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath

from pipeline.asr import Cues, has_stop_words, stream
from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.restricted import permit
from pipeline.sources import check_id, find_media, natural, need_folder, read_table, tidy

HINT = (
    "HowTo100M_v1.csv or lists of ids such as htm_holdout_vid.txt, captions such as raw_caption.json, "
    "and the videos in videos/"
)
EXPECTED: dict[str, dict[str, int]] = {"holdout/test": {"videos": 1_000}}
LARGEST = 256 << 20
"""Bytes of captions that become clips of their own."""

VIDEOS, HOLDOUT, LENGTHS = "HowTo100M_v1.csv", "htm_holdout_vid.txt", "procedurevrl_howto100m_full_test*.csv"
CAPTIONS = (
    "raw_caption*.json", "raw_caption*.pickle", "raw_caption*.pkl", "sentencified_htm_*.json", "captions",
    "howto100m_captions", "caption*.json", "caption*.pickle", "caption*.pkl",
)  # fmt: skip

TWICE = "video listed twice"
NOT_IN_CSV = "in a list but not in HowTo100M_v1.csv"
CAPTIONS_NOT_IN_CSV = "captions of a video that HowTo100M_v1.csv lacks"
NO_TIME = "start or end that is no time"

_PLACES = ("", "annotations", "annotation")


@dataclass(frozen=True, slots=True)
class _Row:
    """What is known of a video."""

    label: str = ""
    seconds: float = 0.0


def load(root: Path, videos: Path | None = None, allow_pickle: bool = False) -> Manifest:
    """Load HowTo100M from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, BadSetting for captions in a pickle unless `allow_pickle`.
    """
    folder = _folder(need_folder(root, HINT))
    source = _source(folder)
    if source:
        permit(source, allow_pickle)
    odd = Oddities()
    cues, notes = _cues(source)
    rows, holdout, lists = _rows(folder, cues, odd)
    if not rows:
        raise BadDataset(f"no list of videos in {folder}; expected {VIDEOS} or an id list beside {source}")
    ids = sorted(rows, key=natural)
    clips, captions = _clips(ids, rows, cues, odd)
    odd.captions(captions, clips)
    media, found = find_media(root, videos, rows)
    return Manifest(
        dataset="howto100m",
        videos=tuple(Video(name, media.get(name), rows[name].seconds) for name in ids),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(_splits(clips, captions, holdout)),
        oddities=odd.found(),
        notes=(*lists, *notes, found),
    )


def captions_of(root: Path) -> Path:
    """Return the file or folder of captions that lies in `root`. Raises BadDataset if there is none."""
    source = _source(_folder(need_folder(root, HINT)))
    if source is None:
        raise BadDataset(f"no captions in {root}: expected one of {', '.join(CAPTIONS)}")
    return source


def held_out(source: Path) -> frozenset[str]:
    """Return the videos that the list beside a file or folder of captions holds out; none where there is no list."""
    found = _first(source.parent, HOLDOUT) or (_first(source, HOLDOUT) if source.is_dir() else None)
    return frozenset(name for name, _ in _holdout(found)) if found else frozenset()


def _folder(root: Path) -> Path:
    """Return where the files lie."""
    for folder in (root / place for place in _PLACES):
        if any(_first(folder, pattern) for pattern in (VIDEOS, HOLDOUT, LENGTHS, *CAPTIONS)):
            return folder
    if any(path.suffix in (".csv", ".json") for path in root.iterdir()):
        return root
    raise BadDataset(f"no HowTo100M annotations in {root}: expected {HINT}")


def _first(folder: Path, pattern: str) -> Path | None:
    """Return what goes by that name, whole ones first. Raises BadDataset where that is not clear."""
    found = sorted(path for path in folder.glob(pattern) if path.exists() and path.is_dir() != bool(path.suffix))
    whole = [path for path in found if "head" not in path.name and "subset" not in path.name]
    if len(whole or found) > 1:
        names = ", ".join(path.name for path in whole or found)
        raise BadDataset(f"{folder}: {names} are several of one kind; keep one of them there")
    return next(iter(whole or found), None)


def _source(folder: Path) -> Path | None:
    for pattern in CAPTIONS:
        if path := _first(folder, pattern):
            return path
    named = any(_first(folder, pattern) for pattern in (VIDEOS, HOLDOUT, LENGTHS))
    return None if named else folder


def _cues(source: Path | None) -> tuple[dict[str, Cues], list[str]]:
    """Return the captions of each video if they are few, and notes on them."""
    if source is None:
        return {}, ["captions: none beside the lists"]
    warning = f"WARNING: {source.name} has no stop words: what was said is not whole; prefer raw_caption.json"
    paths = source.iterdir() if source.is_dir() else [source]
    if any(size > LARGEST for size in accumulate(path.stat().st_size for path in paths if path.exists())):
        note = f"captions: {source.name} is larger than {LARGEST >> 20} MB: pipeline run merge makes clips of it"
        return {}, [note, *([warning] if source.name.startswith("caption") and source.is_file() else [])]
    found: dict[str, Cues] = {}
    for cues in stream(source):
        if found.setdefault(cues.video, cues) is not cues:
            raise BadDataset(f"{source}: video {cues.video} stands twice; keep one of its records")
    count = sum(len(cues.text) for cues in found.values())
    spoken = has_stop_words(text for cues in found.values() for text in cues.text)
    return found, [
        f"captions: {source.name}, {count:,} of {len(found):,} videos", *([] if spoken else [warning]),
    ]  # fmt: skip


def _rows(folder: Path, cues: dict[str, Cues], odd: Oddities) -> tuple[dict[str, _Row], set[str], list[str]]:
    """Return what is known of every video, the ids that are held out, and notes. Captions of no video are removed."""
    table, holdout, lengths = (_first(folder, name) for name in (VIDEOS, HOLDOUT, LENGTHS))
    known = _once(_table(table), table, odd) if table else {}
    held = _once(_holdout(holdout), holdout, odd) if holdout else {}
    listed = _once(_lengths(lengths), lengths, odd) if lengths else {}
    notes = [f"lists: {', '.join(path.name for path in (table, holdout, lengths) if path) or 'none'}"]
    if table is None:
        return {**dict.fromkeys(cues, _Row()), **held, **listed}, set(held), notes
    for name in sorted({*held, *listed} - set(known), key=natural):
        odd.note(NOT_IN_CSV, DROPPED, name)
    for name in sorted(set(cues) - set(known), key=natural):
        odd.note(CAPTIONS_NOT_IN_CSV, DROPPED, name, f"{len(cues.pop(name).text):,} captions")
    rows = {name: _Row(row.label, listed.get(name, row).seconds) for name, row in known.items()}
    return rows, set(held) & set(rows), notes


def _once(rows: Iterable[tuple[str, _Row]], file: Path, odd: Oddities) -> dict[str, _Row]:
    """Return the rows of a list by video, each once."""
    found: dict[str, _Row] = {}
    for name, row in sorted(rows, key=lambda row: (natural(row[0]), natural(row[1].label), row[1].seconds)):
        if found.setdefault(name, row) is not row:
            odd.note(TWICE, DROPPED, name, file.name)
    return found


def _table(file: Path) -> Iterator[tuple[str, _Row]]:
    _check_end(file)
    for row, record in read_table(file, ("video_id", "task_id")):
        yield check_id(record["video_id"], f"{file}, row {row}"), _Row(tidy(record["task_id"]))


def _holdout(file: Path) -> Iterator[tuple[str, _Row]]:
    for row, line in _lines(file):
        yield check_id(line, f"{file}, row {row}"), _Row()


def _lengths(file: Path) -> Iterator[tuple[str, _Row]]:
    for row, line in _lines(file):
        match line.split():
            case [name, label, seconds] if label.isdecimal() and 0 < _number(seconds) < math.inf:
                yield check_id(PurePosixPath(name).stem, f"{file}, row {row}"), _Row(label, float(seconds))
            case _:
                raise BadDataset(f"{file}, row {row}: {line!r:.80}; expected FILE LABEL SECONDS, download it again")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a list that are not empty, with their numbers."""
    _check_end(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadDataset(f"{file}: byte {error.start} is not UTF-8; download it again") from error
    yield from ((row, line.strip()) for row, line in enumerate(text.split("\n"), start=1) if line.strip())


def _check_end(file: Path) -> None:
    """Raise BadDataset if the last line has no end: an id that is cut off looks like a whole one."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(size - 1, 0))
        if opened.read(1) != b"\n":
            raise BadDataset(f"{file}: the last line has no end, so it is cut off; download it again")


def _clips(
    ids: Iterable[str], rows: Mapping[str, _Row], cues: Mapping[str, Cues], odd: Oddities
) -> tuple[list[Clip], list[Caption]]:
    """Return a clip for each video and one for each of its captions, and those."""
    clips: list[Clip] = []
    captions: list[Caption] = []
    for video in ids:
        clips.append(Clip(video, video, label=rows[video].label))
        for number, cue in enumerate(_by_time(cues[video]) if video in cues else ()):
            name = f"{video}@{number}"
            span = _span(name, cue, rows[video].seconds, odd)
            if span and (text := odd.text(name, cue[2])):
                clips.append(Clip(name, video, *span, rows[video].label))
                captions.append(Caption(name, name, text))
    return clips, captions


def _by_time(cues: Cues) -> list[tuple[float, float, str]]:
    """Return captions by start, end and text; what is no time, which has no order, last."""
    rows = zip(cues.start, cues.end, cues.text, strict=True)
    return sorted(
        rows, key=lambda cue: (*((math.isnan(time), 0.0 if math.isnan(time) else time) for time in cue[:2]), cue[2])
    )


def _span(name: str, cue: tuple[float, float, str], seconds: float, odd: Oddities) -> tuple[float, float] | None:
    start, end, _ = cue
    if not 0 <= start < math.inf or not 0 <= end < math.inf:
        odd.note(NO_TIME, DROPPED, name, f"{start:g} to {end:g}")
        return None
    return odd.span(name, start, end, seconds or None)


def _splits(clips: Iterable[Clip], captions: Iterable[Caption], holdout: set[str]) -> Iterator[Part]:
    for part in ("train", "test") if holdout else ():
        ids = {clip.id: None for clip in clips if (clip.video in holdout) == (part == "test")}
        if ids:
            yield Part("holdout", part, tuple(ids), tuple(caption.id for caption in captions if caption.clip in ids))
