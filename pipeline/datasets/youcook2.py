"""YouCook2: 2,000 cooking videos from YouTube, 1,790 of them with segments that have a sentence each.

Source: Zhou et al., AAAI 2018. The validation clips of MIL-NCE: Miech et al., CVPR 2020 (`validation_youcook.csv`).

Layout. Annotations lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any of

* `youcookii_annotations_trainval.json`, the official ones: `{"database": {ID: {"duration", "subset", "recipe_type",
  "annotations": [{"segment": [90, 102], "id": 0, "sentence"}]}}}`, or without it
* `yc2_train_anet_format.json` and `yc2_val_anet_format.json`: `{ID: {"duration", "timestamps", "sentences"}}`;
* `validation_youcook.csv` with `end,start,task,text,video_id`, with them or alone.

Whole files win over those with `subset` or `head` in their name. Beside them may lie `train_list.txt`, `val_list.txt`
(`405/Ysh60eirChU`: recipe, id) and `yc2_duration_frame.csv` (id, seconds, frames; no header). Japanese translations
(`youcookii_translations_ja_….json`) are another data set, `youcook2_ja`, as captions are of one language here.
Videos are found by their name without suffix, below ROOT/videos, else below ROOT. A clip is a segment, `ID_N` with
its own `id` or place N; its caption is called so too. Its label is its recipe.

Splits: `youcook2`, train and val by `subset`, or by which file it is; `milnce`, val, the 3,350 clips of the csv. A row
is the segment of the same video, start and end, of several that of the same text. Any other row is a clip of its own,
`ID@milnce#N`, numbered by start, end and text.

Repair rules; every record that one touches is listed:

* Segments that end before they start, have no length or begin behind the end of the video are dropped; those that end
  behind it are cut there. Segments that overlap another are kept.
* Captions lose blanks at their ends and in runs inside. Segments without text, and videos without any, are dropped.
* Where the csv, the lists or `yc2_duration_frame.csv` say something else than the annotations, these count. Videos that
  a list names and the annotations lack are left out.

A video in train and val is an error. Order: videos by id, segments by number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import (
    check_id,
    files_of_parts,
    find_media,
    natural,
    need_folder,
    read_json,
    read_table,
    read_text,
    tidy,
)

HINT = "youcookii_annotations_trainval.json (or yc2_val_anet_format.json, or validation_youcook.csv), and videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 1_790, "clips": 13_829, "captions": 13_829},
    "youcook2/train": {"videos": 1_333, "clips": 10_337, "captions": 10_337, "gallery": 10_337},
    "youcook2/val": {"videos": 457, "clips": 3_492, "captions": 3_492, "gallery": 3_492},
    "milnce/val": {"videos": 436, "clips": 3_350, "captions": 3_350, "gallery": 3_350},
}
DEFAULT_SPLIT = "youcook2"

OVERLAP = "segment overlaps another"
NO_SEGMENT = "video without a segment"
NOT_ANNOTATED = "row of MIL-NCE's csv that is no annotated segment"
OTHER_TEXT = "another text in MIL-NCE's csv"
NOT_LISTED = "not in the list of its part"
OTHER_SECONDS = "another duration in yc2_duration_frame.csv"
UNKNOWN = "in a list but not in the annotations"

_PATTERNS = {
    "official": "youcookii_annotations_trainval*.json",
    "training": "yc2_train_anet_format*.json",
    "validation": "yc2_val_anet_format*.json",
    "milnce": "validation_youcook*.csv",
}
_RECORD = "duration, subset, recipe_type, annotations (id, segment, sentence); or duration, timestamps, sentences"
_SUBSETS = {"training": "train", "validation": "val"}

_Segment = tuple[str, float, float, str]  # its clip's id, start, end and text, as they stand in the file
_Films = dict[str, "_Film"]  # by video id


@dataclass(frozen=True, slots=True)
class _Film:
    """A video and its segments by number. `part` is empty where only MIL-NCE's csv has it."""

    part: str
    recipe: str
    seconds: float
    segments: tuple[_Segment, ...] = ()


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load YouCook2 from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in train and val.
    """
    patterns = {kind: (glob,) for kind, glob in _PATTERNS.items()}
    files = files_of_parts(need_folder(root, HINT), patterns, f"{root}: no YouCook2 segments; expected {HINT}")
    folder = next(iter(files.values())).parent
    odd = Oddities()
    films, milnce, joined = _join(_films(files), files.get("milnce"), odd)
    films = _checked(folder, {video: films[video] for video in sorted(films, key=natural)}, odd)
    clips, captions = _clips(films, odd)
    odd.captions(captions, clips)
    parts = _parts(films, clips, milnce)
    odd.leaks(parts, {clip.id: clip.video for clip in clips})
    seconds = {clip.video: films[clip.video].seconds for clip in clips}
    media, media_note = find_media(root, videos, seconds)
    return Manifest(
        dataset="youcook2",
        videos=tuple(Video(video, media.get(video), length) for video, length in seconds.items()),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=parts,
        oddities=odd.found(),
        notes=(*_what_was_read(files), *joined, media_note),
    )


def _what_was_read(files: Mapping[str, Path]) -> list[str]:
    unread = _SUBSETS.keys() if "official" in files else set()
    names = [", ".join(file.name for kind, file in files.items() if (kind in unread) == no) for no in (False, True)]
    notes = [f"annotations: {names[0]}", f"not read, as one file counts: {names[1]}"]
    return notes if names[1] else notes[:1]


def _films(files: Mapping[str, Path]) -> _Films:
    """Return all videos of the official file, or of those in ActivityNet's form."""
    films: _Films = {}
    for kind in ["official"] if "official" in files else [kind for kind in _SUBSETS if kind in files]:
        file = files[kind]
        data = read_json(file)
        database = data.get("database") if kind == "official" and isinstance(data, dict) else data
        if not isinstance(database, dict) or not database:
            raise BadDataset(f"{file}: expected an object of videos; download it again")
        for video, record in database.items():
            film = _film(check_id(video, str(file)), record if kind == "official" else _as_official(record, kind))
            if film is None or len({segment[0] for segment in film.segments}) < len(film.segments):
                raise BadDataset(f"{file}: {video} is {shown(record)}; expected {_RECORD}")
            if video in films:
                raise BadDataset(f"{file}: {video} is in train too; use the files of one release")
            films[video] = film
    return films


def _as_official(record: Any, subset: str) -> Any:
    match record:
        case {"duration": seconds, "timestamps": list(spans), "sentences": list(texts)} if len(spans) == len(texts):
            told = zip(spans, texts, strict=True)
            segments = [{"id": n, "segment": span, "sentence": text} for n, (span, text) in enumerate(told)]
            return {"duration": seconds, "subset": subset, "recipe_type": "", "annotations": segments}
    return None


def _film(video: str, record: Any) -> _Film | None:
    match record:
        case {
            "duration": int() | float() as seconds,
            "subset": "training" | "validation" as subset,
            "recipe_type": str() | int() as recipe,
            "annotations": list(annotations),
        } if 0 < seconds < math.inf:
            segments = [segment for found in annotations if (segment := _segment(video, found))]
            ordered = tuple(sorted(segments, key=lambda segment: natural(segment[0])))
            if len(segments) == len(annotations):
                return _Film(_SUBSETS[subset], tidy(str(recipe)), float(seconds), ordered)
    return None


def _segment(video: str, record: Any) -> _Segment | None:
    match record:
        case {
            "id": int(number),
            "segment": [int() | float() as start, int() | float() as end],
            "sentence": str(raw),
        } if 0 <= start < math.inf and 0 <= end < math.inf:
            return f"{video}_{number}", float(start), float(end), raw
    return None


def _join(films: _Films, file: Path | None, odd: Oddities) -> tuple[_Films, set[str], list[str]]:
    """Return the videos with the segments that only MIL-NCE's csv has, the clips of that csv, and a note."""
    if file is None:
        return films, set(), []
    free: defaultdict[tuple[str, float, float], list[_Segment]] = defaultdict(list)
    for video, segment in ((video, segment) for video, film in films.items() for segment in film.segments):
        free[video, segment[1], segment[2]].append(segment)
    joined = dict(films)
    clips: set[str] = set()
    own: defaultdict[str, int] = defaultdict(int)
    rows = sorted(_rows(file), key=lambda row: (natural(row[0]), row[1:]))
    for video, start, end, raw, task in rows:
        there = sorted(free[video, start, end], key=lambda segment: tidy(segment[3]) != tidy(raw))
        if there:
            clip, *_, text = there[0]
            free[video, start, end].remove(there[0])
            if tidy(text) != tidy(raw):
                odd.note(OTHER_TEXT, DROPPED, clip, tidy(raw))
        else:
            clip = f"{video}@milnce#{own[video]}"
            own[video] += 1
            film = joined.get(video, _Film("", task, 0.0))
            joined[video] = replace(film, segments=(*film.segments, (clip, start, end, raw)))
            odd.note(NOT_ANNOTATED, KEPT, clip, f"{start:g} to {end:g}")
        clips.add(clip)
    return (
        joined,
        clips,
        [f"{len(rows):,} rows of {file.name}: {len(rows) - sum(own.values()):,} are annotated segments"],
    )


def _rows(file: Path) -> Iterator[tuple[str, float, float, str, str]]:
    """Yield video, start, end, text and recipe of each row."""
    for number, record in read_table(file, ("end", "start", "task", "text", "video_id")):
        start, end = _number(record["start"]), _number(record["end"])
        if start is None or end is None:
            raise BadDataset(f"{file}, row {number}: {shown(record)}; expected start and end in seconds from 0")
        yield check_id(record["video_id"], f"{file}, row {number}"), start, end, record["text"], tidy(record["task"])


def _number(text: str) -> float | None:
    try:
        return float(text) if 0 <= float(text) < math.inf else None
    except ValueError:
        return None


def _lines(file: Path) -> list[str]:
    """Return the lines; none if the file is not there."""
    return read_text(file).split() if file.is_file() else []


def _durations(file: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in _lines(file):
        match line.split(","):
            case [video, seconds, frames] if (length := _number(seconds)) and _number(frames) and video not in found:
                found[video] = length
            case _:
                raise BadDataset(f"{file}: {line!r:.100}; expected an id of its own, seconds and frames")
    return found


def _checked(folder: Path, films: _Films, odd: Oddities) -> _Films:
    """List what lists say otherwise, and return the videos with the recipes and seconds that only lists tell."""
    lines = [(part, line.rpartition("/")) for part in ("train", "val") for line in _lines(folder / f"{part}_list.txt")]
    listed = {video: (part, recipe) for part, (recipe, _, video) in lines}
    lengths = _durations(folder / "yc2_duration_frame.csv")
    for video in sorted(listed.keys() - films.keys(), key=natural):
        odd.note(UNKNOWN, DROPPED, video, f"{listed[video][0]}_list.txt")
    for video, film in films.items():
        part, recipe = listed.get(video, ("", ""))
        if listed and (not part or part != (film.part or part)):
            odd.note(NOT_LISTED, KEPT, video, f"{film.part or 'in no part'}, listed in {part or 'none'}")
        length = lengths.get(video, film.seconds)
        if film.seconds and abs(length - film.seconds) > 0.001:
            odd.note(OTHER_SECONDS, KEPT, video, f"{film.seconds:g}, there {length:g}")
        films[video] = replace(film, recipe=film.recipe or recipe, seconds=film.seconds or length)
    return films


def _clips(films: _Films, odd: Oddities) -> tuple[list[Clip], list[Caption]]:
    """Return a clip and its caption for each segment that is one."""
    clips: list[Clip] = []
    captions: list[Caption] = []
    for video, film in films.items():
        before = len(clips)
        for name, start, end, raw in film.segments:
            text = odd.text(name, raw)
            if text and (span := odd.span(name, start, end, film.seconds or None)):
                clips.append(Clip(name, video, *span, label=film.recipe))
                captions.append(Caption(name, name, text))
        if len(clips) == before:
            odd.note(NO_SEGMENT, DROPPED, video)
        for one, two in combinations(clips[before:], 2):
            if max(one.start, two.start) < min(one.end or math.inf, two.end or math.inf):
                same = ", the same span" if (one.start, one.end) == (two.start, two.end) else ""
                odd.note(OVERLAP, KEPT, two.id, one.id + same)
    return clips, captions


def _parts(films: _Films, clips: Sequence[Clip], milnce: set[str]) -> tuple[Part, ...]:
    annotated = [(clip.id, films[clip.video].part) for clip in clips if "@milnce#" not in clip.id]
    ids = {("youcook2", name): tuple(clip for clip, part in annotated if part == name) for name in ("train", "val")}
    ids["milnce", "val"] = tuple(clip.id for clip in clips if clip.id in milnce)
    return tuple(Part(split, name, names, names) for (split, name), names in ids.items() if names)
