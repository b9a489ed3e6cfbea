"""MSR-VTT: 10,000 clips of 10-30 s with 20 captions each. Every clip is a whole file.

Source: Xu et al., CVPR 2016. Lists of 1k-A: Yu et al., ECCV 2018 (`MSRVTT_JSFUSION_test.csv`); of `miech`: Miech et
al., 2018, as Liu et al., BMVC 2019, publish them.

Layout. Annotations lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any:

* `MSRVTT_data.json`, or another `MSRVTT_data*.json`; or
* `train_val_videodatainfo.json` and `test_videodatainfo.json`, plain or in their zips `train_val_annotation.zip`
  and `test_videodatainfo.json.zip`; the zips are read in memory.

Whole files win over those with `subset` or `head` in their name, plain ones over zips. `MSRVTT_JSFUSION_test.csv`,
`MSRVTT_train.9k.csv`, `MSRVTT_train.7k.csv` and `category.txt` (`music<TAB>0`) lie beside them or in ROOT,
`train_list_miech.txt` and `test_list_miech.txt` there too or in `ce_lists` there. Videos are found by their name
without suffix, below ROOT/videos, ROOT/TrainValVideo and ROOT/TestVideo, else below ROOT.

A clip's label is its category's name, or without `category.txt` its number. Splits (TACo, Yang et al., ICCV 2021):

* `full`: train, val, test by the annotations' own `split`.
* `split1` (1k-A): train is `MSRVTT_train.9k.csv`, or all but the test; test is `MSRVTT_JSFUSION_test.csv`.
* `split2`: train is `MSRVTT_train.7k.csv`, or train and val of `full`; test as in `split1`.
* `miech` (1k-B): train and test by their two lists, with all captions.

Repair rules; every record that one touches is listed:

* Captions lose blanks at their ends; runs of white space or control characters inside become one blank. Nothing else
  is changed, not case, not other characters. One without text is dropped, one that stands twice on a video stays.
* A sentence of the test csv is a caption of its own, `ret0`, `ret1`, …: some are not among the video's twenty.
* Ids in lists that the annotations lack are left out.
* Of several files with one stem the first by folder, then by suffix (.mp4, .mkv, .webm, …), then by path, is the video.
* Videos of one split's test in another's train are listed, for example 453 of 1k-A's test in `miech/train`.

A video in train and test of one split is an error. Order: videos by number, captions by `sen_id`, then `ret0`, …
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import check_id, find_media, natural, need_folder, read_json, read_list, read_table, tidy

HINT = (
    "MSRVTT_data.json, or train_val_videodatainfo.json + test_videodatainfo.json (or their zips), "
    "the MSRVTT_*.csv lists beside them, and the videos in videos/"
)
_SIZES = {
    "full/train": (6_513, 20), "full/val": (497, 20), "full/test": (2_990, 20), "split1/train": (9_000, 20),
    "split1/test": (1_000, 1), "split2/train": (7_010, 20), "split2/test": (1_000, 1), "miech/train": (6_656, 20),
    "miech/test": (1_000, 20),
}  # fmt: skip
EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 10_000, "clips": 10_000, "captions": 201_000},
    **{part: {"videos": n, "clips": n, "captions": each * n, "gallery": n} for part, (n, each) in _SIZES.items()},
}
"""Of the whole data set; its captions are 200,000 and the 1,000 of the test csv."""
DEFAULT_SPLIT = "split1"

TEST, TRAIN_9K, TRAIN_7K = "MSRVTT_JSFUSION_test.csv", "MSRVTT_train.9k.csv", "MSRVTT_train.7k.csv"
MIECH_TRAIN, MIECH_TEST, CATEGORIES = "train_list_miech.txt", "test_list_miech.txt", "category.txt"

NOT_LITERAL = "sentence of the 1k-A test that is not literally a caption of its video"
OTHERS = "sentence of the 1k-A test that is also a caption of another video"
TWICE = "sentence of the 1k-A test that repeats another's"
UNKNOWN = "in a list but not in the annotations"

_PLACES = ("", "annotations", "annotation")
_PARTS = {"train": "train", "validate": "val", "test": "test"}
_DATA = ("MSRVTT_data*.json",)
_TRAIN_VAL = ("train_val_videodatainfo*.json", "train_val_annotation*.zip", "train_val_videodatainfo*.zip")
_TEST = ("test_videodatainfo*.json", "test_videodatainfo*.zip")

_Rows = dict[str, tuple[float, str, str]]  # seconds, part of `full`, category's number, by video id
_Sentences = dict[int, tuple[str, str]]  # video and caption as it stands in the file, by `sen_id`


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load MSR-VTT from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in train and test of one split.
    """
    files = _find(need_folder(root, HINT))
    folders = list(dict.fromkeys((files[0].parent, *[root / place for place in _PLACES])))
    rows, sentences = _read(files)
    media, media_notes = _media(root, videos, rows)
    odd = Oddities()
    texts = ((str(number), video, odd.text(str(number), raw)) for number, (video, raw) in sentences.items())
    captions = [Caption(name, video, text) for name, video, text in texts if text]
    clips = _clips(folders, rows)
    odd.captions(captions, clips, {str(number): raw for number, (_, raw) in sentences.items()})
    retrieval, test_notes = _retrieval(folders, rows, sentences, odd)
    parts, list_notes = _parts(folders, rows, captions, retrieval, odd)
    odd.leaks(parts, {clip.id: clip.video for clip in clips})
    return Manifest(
        dataset="msrvtt",
        videos=tuple(Video(name, media.get(name), seconds) for name, (seconds, _, _) in rows.items()),
        clips=clips,
        captions=(*captions, *retrieval),
        splits=tuple(parts),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(file.name for file in files)}", *test_notes, *list_notes, *media_notes),
    )


def _find(root: Path) -> list[Path]:
    """Return the annotation files to read: of the first folder, whole ones before subsets, one file before two."""
    for place, cut, generation in product(_PLACES, (False, True), ((_DATA,), (_TRAIN_VAL, _TEST))):
        files = [file for patterns in generation for file in _matches(root / place, patterns, cut)[:1]]
        if files:
            return files
    raise BadDataset(f"no MSR-VTT annotations in {root}: expected {HINT}")


def _matches(folder: Path, patterns: Sequence[str], cut: bool) -> list[Path]:
    found = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
    return [file for file in found if ("subset" in file.name or "head" in file.name) == cut and file.is_file()]


def _read(files: Sequence[Path]) -> tuple[_Rows, _Sentences]:
    """Return all videos and all captions. Raises BadDataset for a record that stands twice, or lacks its video."""
    rows: _Rows = {}
    sentences: _Sentences = {}
    for file in files:
        records, captions = _records(file)
        for name, row in _videos(file, records):
            if name in rows:
                raise BadDataset(f"{file}: video {name} stands twice in the annotations; keep one")
            rows[name] = row
        for number, video, raw in _sentences(file, captions):
            if number in sentences:
                raise BadDataset(f"{file}: sen_id {number} stands twice in the annotations; keep one")
            sentences[number] = video, raw
    for number, (video, _) in sentences.items():
        if video not in rows:
            names = " and ".join(map(str, files))
            raise BadDataset(
                f"{names}: sen_id {number} is about {video!r:.100}, not among the videos; download them again"
            )
    return {name: rows[name] for name in sorted(rows, key=natural)}, dict(sorted(sentences.items()))


def _records(file: Path) -> tuple[list[Any], list[Any]]:
    part = "train_val" if file.name.startswith("train") else "test"
    match read_json(file, f"{part}_videodatainfo.json" if file.suffix == ".zip" else ""):
        case {"videos": list(records), "sentences": list(captions)}:
            return records, captions
    raise BadDataset(f"{file}: expected an object with the lists 'videos' and 'sentences'; download it again")


def _videos(file: Path, records: Sequence[Any]) -> Iterator[tuple[str, tuple[float, str, str]]]:
    for number, record in enumerate(records):
        match record:
            case {
                "video_id": str(name),
                "category": int(category),
                "start time": int() | float() as start,
                "end time": int() | float() as end,
                "split": str(split),
            } if 0 <= start < end and split in _PARTS:
                yield check_id(name, f"{file}: videos[{number}]"), (end - start, _PARTS[split], str(category))
            case _:
                raise BadDataset(
                    f"{file}: videos[{number}] is {shown(record)}; expected video_id (text), category (integer), "
                    f"0 <= 'start time' < 'end time' (seconds), split ({', '.join(_PARTS)})"
                )


def _sentences(file: Path, records: Sequence[Any]) -> Iterator[tuple[int, str, str]]:
    for number, record in enumerate(records):
        match record:
            case {"sen_id": int(sen_id), "video_id": str(video), "caption": str(raw)}:
                yield sen_id, video, raw
            case _:
                expected = "sen_id (integer), video_id (text), caption (text)"
                raise BadDataset(f"{file}: sentences[{number}] is {shown(record)}; expected {expected}")


def _clips(folders: Sequence[Path], rows: _Rows) -> tuple[Clip, ...]:
    """Return each video as a clip, labelled with its category's name if `category.txt` tells it, else the number."""
    file = _first(folders, CATEGORIES)
    names: dict[str, str] = {}
    for line in read_list(file) if file else ():
        name, _, number = line.rpartition("\t")
        if not name or not number.isdecimal() or number in names:
            raise BadDataset(f"{file}: {line!r:.100}; expected a name, a tab and a number of its own")
        names[number] = tidy(name)
    for video, (_, _, category) in rows.items():
        if names and category not in names:
            raise BadDataset(f"{file}: no category {category}, which {video} has; download it again, or delete it")
    return tuple(Clip(video, video, label=names.get(number, number)) for video, (_, _, number) in rows.items())


def _media(root: Path, videos: Path | None, rows: _Rows) -> tuple[dict[str, Path], list[str]]:
    """Return the media file of each video that has one, and a note on each folder."""
    usual = [root / name for name in ("videos", "TrainValVideo", "TestVideo") if (root / name).is_dir()]
    folders: list[Path | None] = [videos] if videos else [*usual] or [None]
    each = [find_media(root, folder, rows) for folder in folders]
    return {name: path for found, _ in reversed(each) for name, path in found.items()}, [note for _, note in each]


def _first(folders: Iterable[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _retrieval(
    folders: Sequence[Path], rows: _Rows, sentences: _Sentences, odd: Oddities
) -> tuple[list[Caption], list[str]]:
    """Return the sentences of the test csv as captions, by their key, and a note."""
    file = _first(folders, TEST)
    if file is None:
        return [], [f"{TEST} is not beside the annotations: no split1 and split2"]
    listed: dict[str, tuple[str, str]] = {}
    for number, record in read_table(file, ("key", "video_id", "sentence")):
        key = check_id(record["key"], f"{file}, row {number}")
        taken = key in listed or (key.isdecimal() and int(key) in sentences)
        if taken or not tidy(record["sentence"]):
            raise BadDataset(f"{file}, row {number}: {shown(record)}; expected a key of its own and a sentence")
        listed[key] = record["video_id"], record["sentence"]
    there = _known((video for video, _ in listed.values()), file, rows, odd)
    known = {key: listed[key] for key in sorted(listed, key=natural) if listed[key][0] in there}
    _compare(known, sentences, odd)
    captions = [Caption(key, video, odd.text(key, raw)) for key, (video, raw) in known.items()]
    return captions, [f"{len(captions):,} sentences of {TEST} are captions of their own (ret…)"]


def _compare(known: dict[str, tuple[str, str]], sentences: _Sentences, odd: Oddities) -> None:
    """List what is odd about the sentences of the test csv, letter by letter as they stand in the files."""
    where: defaultdict[str, set[str]] = defaultdict(set)
    own = {(video, tidy(raw)) for video, raw in sentences.values()}
    seen: set[str] = set()
    for video, raw in sentences.values():
        where[raw].add(video)
    for key, (video, raw) in known.items():
        if video not in where[raw]:
            odd.note(NOT_LITERAL, KEPT, key, "only its blanks differ" if (video, tidy(raw)) in own else "")
        if where[raw] - {video}:
            odd.note(OTHERS, KEPT, key, raw)
        if raw in seen:
            odd.note(TWICE, KEPT, key, raw)
        seen.add(raw)


def _known(listed: Iterable[str], file: Path, rows: _Rows, odd: Oddities) -> set[str]:
    """Return the videos that a list names, without those that are not annotated."""
    videos = set(listed)
    for video in sorted(videos - set(rows), key=natural):
        odd.note(UNKNOWN, DROPPED, video, file.name)
    return videos & set(rows)


def _parts(
    folders: Sequence[Path], rows: _Rows, captions: Sequence[Caption], retrieval: Sequence[Caption], odd: Oddities
) -> tuple[list[Part], list[str]]:
    """Return the parts of `full`, of the splits that have a test list, and a note on each list that is not there."""
    own = {part: {name for name, row in rows.items() if row[1] == part} for part in _PARTS.values()}
    parts = [_part("full", part, ids, rows, captions) for part, ids in own.items()]
    test = {caption.clip for caption in retrieval}
    miech, notes = _list(folders, MIECH_TEST, set(), rows, odd)
    for split, name, default, tested, queries in (
        ("split1", TRAIN_9K, set(rows) - test, test, retrieval),
        ("split2", TRAIN_7K, own["train"] | own["val"], test, retrieval),
        ("miech", MIECH_TRAIN, set(), miech, captions),
    ):
        train, missing = _list(folders, name, default, rows, odd) if tested else (set(), [])
        if both := sorted(train & tested, key=natural):
            raise BadDataset(
                f"{split}: {len(both):,} videos of its train list ({name}) are also in its test list, first {both[0]}; "
                "use lists of one protocol"
            )
        parts += [_part(split, "train", train, rows, captions), _part(split, "test", tested, rows, queries)]
        notes += missing
    return [part for part in parts if part.clips], notes


def _list(
    folders: Sequence[Path], name: str, default: set[str], rows: _Rows, odd: Oddities
) -> tuple[set[str], list[str]]:
    """Return the videos that a list names, or without the list the default, and a note."""
    file = _first([folder / place for folder in folders for place in ("", "ce_lists")], name)
    if file is None:
        return default, [f"{name} is not beside the annotations: derived, {len(default):,} videos"]
    if file.suffix == ".csv":
        return _known((str(record["video_id"]) for _, record in read_table(file, ("video_id",))), file, rows, odd), []
    return _known(read_list(file), file, rows, odd), []


def _part(split: str, name: str, ids: set[str], rows: _Rows, captions: Sequence[Caption]) -> Part:
    clips = tuple(video for video in rows if video in ids)
    return Part(split, name, clips, tuple(caption.id for caption in captions if caption.clip in ids))
