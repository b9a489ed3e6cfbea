"""YouCook2 in Japanese: translations of the sentences of YouCook2's training videos, one for each segment.

Source: the YouCook2-JP release (MIT licence); videos and segments: Zhou et al., AAAI 2018.

Layout. In ROOT, ROOT/annotations or ROOT/annotation, the first of these that has both:

* `youcookii_translations_ja_….json`: `{"database": {ID: {"subset", "annotations": [{"id": 0, "sentence"}]}}}`, one file
  or several (train, val);
* `youcookii_annotations_trainval.json`, the official one, of which segments and durations are taken: the translations
  have none. `pipeline/datasets/youcook2.py` says what it looks like.

Videos are found as YouCook2's are. Tag with a Japanese model: `pipeline run tag --spacy-model ja_core_news_sm`.

Clips have the ids, spans and labels that they have in `youcook2`, so features extracted for one serve the other. Split:
`youcook2_ja`, train and val by `subset`.

Repair rules; every record that one touches is listed:

* Segments are repaired as YouCook2's are: those without length or behind the end of the video are dropped with their
  sentence, those that end behind it are cut there.
* Captions lose blanks at their ends and in runs inside. Sentences without text are dropped; invisible characters stay.
* A sentence whose segment the official file lacks is dropped.

Order: videos by id, segments by number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import annotation_folders, check_id, find_media, natural, need_folder, read_json, tidy

HINT = "youcookii_translations_ja_train.json, youcookii_annotations_trainval.json, and videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "youcook2_ja/train": {"videos": 1_333, "clips": 10_337, "captions": 10_337, "gallery": 10_337},
}
DEFAULT_SPLIT = "youcook2_ja"

NO_SEGMENT = "sentence without a segment in the official annotations"

_OFFICIAL = "youcookii_annotations_trainval*.json"
_TRANSLATED = "youcookii_translations_ja*.json"
_PARTS = {"training": "train", "validation": "val"}

_Sentence = tuple[str, int, str]  # subset, number and text


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load the Japanese YouCook2 from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video that is translated twice.
    """
    official, translated = _find(need_folder(root, HINT))
    sentences: dict[str, list[_Sentence]] = {}
    for file in translated:
        for video, record in _database(file).items():
            if video in sentences:
                raise BadDataset(f"{file}: {video} is in another file too; use the files of one release")
            sentences[video] = list(_sentences(f"{file}: {check_id(video, str(file))}", record))
    films = _database(official)
    odd = Oddities()
    clips: list[Clip] = []
    captions: list[Caption] = []
    part: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for video in sorted(sentences, key=natural):
        length, recipe, spans = _segments(f"{official}: {video}", films.get(video))
        for subset, number, raw in sorted(sentences[video]):
            clip = f"{video}_{number}"
            if number not in spans:
                odd.note(NO_SEGMENT, DROPPED, clip)
                continue
            text = odd.text(clip, raw)
            if text and (span := odd.span(clip, *spans[number], length)):
                clips.append(Clip(clip, video, *span, label=recipe))
                captions.append(Caption(clip, clip, text))
                part[clip], seconds[video] = _PARTS[subset], length
    odd.captions(captions, clips)
    ids = {name: tuple(clip for clip in part if part[clip] == name) for name in _PARTS.values()}
    media, note = find_media(root, videos, seconds)
    return Manifest(
        dataset="youcook2_ja",
        videos=tuple(Video(video, media.get(video), length) for video, length in seconds.items()),
        clips=tuple(clips),
        captions=tuple(captions),
        splits=tuple(Part("youcook2_ja", name, names, names) for name, names in ids.items() if names),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(file.name for file in (official, *translated))}", note),
    )


def _find(root: Path) -> tuple[Path, list[Path]]:
    """Return the official file and those with translations. A whole file's name is the shortest."""
    for folder in annotation_folders(root):
        official = sorted(folder.glob(_OFFICIAL), key=lambda path: (len(path.name), path.name))
        translated = sorted(folder.glob(_TRANSLATED))
        if official and translated:
            return official[0], translated
    raise BadDataset(f"{root}: no translations beside the official annotations; expected {HINT}")


def _database(file: Path) -> dict[str, Any]:
    match read_json(file):
        case {"database": dict(database)} if database:
            return database
    raise BadDataset(f'{file}: expected {{"database": {{VIDEO: …}}}}; download it again')


def _sentences(where: str, record: Any) -> Iterator[_Sentence]:
    """Yield the sentences of one video; each number stands once."""
    seen: set[int] = set()
    match record:
        case {"subset": "training" | "validation" as subset, "annotations": list(annotations)}:
            for found in annotations:
                match found:
                    case {"id": int(number), "sentence": str(text)} if number not in seen:
                        seen.add(number)
                        yield subset, number, text
                    case _:
                        raise BadDataset(f"{where} has {shown(found)}; expected an id of its own, and a sentence")
        case _:
            raise BadDataset(f"{where} is {shown(record)}; expected subset and annotations (id, sentence)")


def _segments(where: str, record: Any) -> tuple[float, str, dict[int, tuple[float, float]]]:
    """Return a video's seconds, its recipe, and the spans of its segments by number; none for no record."""
    spans: dict[int, tuple[float, float]] = {}
    if record is None:
        return 0.0, "", spans
    match record:
        case {
            "duration": int() | float() as seconds,
            "recipe_type": str() | int() as recipe,
            "annotations": list(annotations),
        } if 0 < seconds < math.inf:
            for found in annotations:
                match found:
                    case {"id": int(number), "segment": [int() | float() as start, int() | float() as end]} if (
                        0 <= start < math.inf and 0 <= end < math.inf
                    ):
                        spans[number] = float(start), float(end)
                    case _:
                        raise BadDataset(f"{where} has {shown(found)}; expected id, segment and sentence")
            return float(seconds), tidy(str(recipe)), spans
    raise BadDataset(f"{where} is {shown(record)}; expected duration, recipe_type and annotations")
