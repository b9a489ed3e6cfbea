"""HowTo100M: 1.2 million narrated instructional videos, 136 million captions of speech recognition.

Source: Miech et al., ICCV 2019. Lists: TemporalAlignNet (`htm_holdout_vid.txt`), ProcedureVRL.

Layout, in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any of it:

* captions, the first that is there: `raw_caption.json`, `sentencified_htm*.json`, `caption.json`, `caption.pickle`, a
  folder `captions` of one csv or json a video (see `pipeline.asr`);
* `HowTo100M_v1.csv`: `video_id,category_1,category_2,rank,task_id`; the task is the clips' label;
* lists of ids: `htm_holdout_vid.txt`, an id a line; `procedurevrl_howto100m*.csv`, `FILE NUMBER SECONDS`.

Videos are those of all of these together, found by their name without suffix below ROOT/videos, else below ROOT.
Each is one clip, its whole length. Captions have a clip each, `VIDEO@0`, `VIDEO@1`, … in the order of time, but only if
their file has at most 256 MB: more do not fit into memory, and are for `pipeline run merge`, which streams.

Splits: `holdout`, test: the videos of `htm_holdout_vid.txt`. Users of HowTo100M draw their own.

Repair rules; each record is listed:

* Captions are in the order of time; one that ends before it starts, or has no length, or no times, is dropped.
* Blanks are trimmed, captions without text dropped, repeats kept, as in all data sets.
* `caption.json` and `caption.pickle` have no stop words: said when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from pipeline.asr import Cues, has_stop_words, stream
from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import check_id, find_media, natural, need_folder, read_table

HINT = "raw_caption.json (or caption.json, caption.pickle, captions/), HowTo100M_v1.csv, and the videos in videos/"
EXPECTED = {"holdout/test": {"videos": 1_000, "clips": 1_000}}

SOURCES = ("raw_caption.json", "sentencified_htm*.json", "caption.json", "caption.pickle", "captions")
LISTS = ("htm_holdout_vid.txt", "procedurevrl_howto100m*.csv")
TABLE = "HowTo100M_v1.csv"
LARGEST = 256 << 20
"""Bytes of a caption file that is loaded."""
NO_TIMES = "start or end that is no time"


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load HowTo100M from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations.
    """
    folder = _folder(need_folder(root, HINT))
    odd = Oddities()
    labels = _table(folder / TABLE)
    lists = {file: _ids(file) for pattern in LISTS for file in sorted(folder.glob(pattern))}
    cues, notes = _captions(folder)
    names = {*labels, *(video for ids in lists.values() for video in ids), *(c.video for c in cues)}
    order = sorted(names, key=natural)
    media, note = find_media(root, videos, names)
    whole = [Clip(video, video, label=labels.get(video, "")) for video in order]
    spoken = [pair for c in sorted(cues, key=lambda c: natural(c.video)) for pair in _spoken(c, odd)]
    captions = tuple(caption for _, caption in spoken)
    clips = (*whole, *(clip for clip, _ in spoken))
    odd.captions(captions, clips)
    return Manifest(
        dataset="howto100m",
        videos=tuple(Video(video, media.get(video), _seconds(lists, video)) for video in order),
        clips=clips,
        captions=captions,
        splits=tuple(
            Part("holdout", "test", tuple(sorted(ids, key=natural)), ())
            for file, ids in lists.items()
            if file.name == LISTS[0]
        ),
        oddities=odd.found(),
        notes=(*(f"{len(ids):,} videos in {file.name}" for file, ids in lists.items()), *notes, note),
    )


def captions_of(root: Path) -> Path:
    """Return the caption source that lies in `root`. Raises BadDataset where there is none."""
    folder = _folder(need_folder(root, HINT))
    found = _source(folder)
    if found is None:
        raise BadDataset(f"no captions in {folder}; expected one of {', '.join(SOURCES)}")
    return found


def _seconds(lists: dict[Path, dict[str, float]], video: str) -> float:
    """Return a video's seconds, 0 where no list tells them."""
    return max((ids.get(video, 0.0) for ids in lists.values()), default=0.0)


def _folder(root: Path) -> Path:
    for folder in (root, root / "annotations", root / "annotation"):
        if any(next(folder.glob(pattern), None) for pattern in (*SOURCES, *LISTS, TABLE)):
            return folder
    raise BadDataset(f"no HowTo100M annotations in {root}; expected {HINT}")


def _source(folder: Path) -> Path | None:
    return next((path for pattern in SOURCES for path in sorted(folder.glob(pattern))), None)


def _captions(folder: Path) -> tuple[list[Cues], list[str]]:
    source = _source(folder)
    if source is None:
        return [], ["no captions beside the lists"]
    size = source.stat().st_size if source.is_file() else sum(file.stat().st_size for file in source.iterdir())
    if size > LARGEST:
        return [], [f"{source.name} has {size / 1e9:.1f} GB: its captions are for `pipeline run merge`"]
    cues = list(stream(source))
    seen = {c.video for c in cues}
    if len(seen) < len(cues):
        raise BadDataset(f"{source}: a video stands twice; keep one of its records")
    notes = [f"captions: {source.name}, {len(cues):,} videos"]
    if not has_stop_words(text for c in cues for text in c.text):
        notes.append(f"WARNING: {source.name} has no stop words; use raw_caption.json")
    return cues, notes


def _spoken(cues: Cues, odd: Oddities) -> Iterator[tuple[Clip, Caption]]:
    """Yield a clip and its caption for each cue that has times and words, by time."""
    rows = sorted(zip(cues.start, cues.end, range(len(cues.text)), cues.text, strict=True), key=_by_time)
    for number, (start, end, _, raw) in enumerate(rows):
        name = f"{cues.video}@{number}"
        if not (0 <= start < math.inf and 0 <= end < math.inf):
            odd.note(NO_TIMES, DROPPED, name, f"{start:g} to {end:g}")
        elif (span := odd.span(name, start, end)) and (text := odd.text(name, raw)):
            yield Clip(name, cues.video, *span), Caption(name, name, text)


def _by_time(row: tuple[float, float, int, str]) -> tuple[float, float, int]:
    start, end, place, _ = row
    return (-1.0 if math.isnan(start) else start, -1.0 if math.isnan(end) else end, place)


def _table(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    rows = [(number, row) for number, row in read_table(file, ("video_id", "task_id"))]
    return {check_id(row["video_id"], f"{file}, row {number}"): row["task_id"] for number, row in rows}


def _ids(file: Path) -> dict[str, float]:
    """Return the ids of a list with their seconds, 0 where it tells none."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"cannot read {file} ({error}); download it again") from error
    found: dict[str, float] = {}
    for row, line in enumerate(text.split("\n"), start=1):
        match line.split():
            case [video]:
                found[check_id(video, f"{file}, row {row}")] = 0.0
            case [name, number, seconds] if number.isdecimal() and seconds.replace(".", "", 1).isdecimal():
                video = check_id(name.rpartition(".")[0] or name, f"{file}, row {row}")
                found[video] = max(found.get(video, 0.0), float(seconds))
            case []:
                continue
            case _:
                raise BadDataset(f"{file}, row {row}: {line!r:.80}; expected an id, or file, number and seconds")
    return found
