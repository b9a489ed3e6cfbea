"""MSR-VTT: 10,000 clips of 10-30 s with 20 captions each. Every clip is a whole file.

Source: Xu et al., CVPR 2016. Lists of 1k-A: Yu et al., ECCV 2018 (`MSRVTT_JSFUSION_test.csv`).

Layout. Annotations lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any:

* `MSRVTT_data.json`, or another `MSRVTT_data*.json`; or
* `train_val_videodatainfo.json` and `test_videodatainfo.json`, plain or in their zips `train_val_annotation.zip`
  and `test_videodatainfo.json.zip`; the zips are read in memory.

Whole files win over those with `subset` in their name, plain ones over zips. The lists `MSRVTT_JSFUSION_test.csv`,
`MSRVTT_train.9k.csv` and `MSRVTT_train.7k.csv` lie beside them or in ROOT. Videos are found by their name without
suffix, below ROOT/videos, ROOT/TrainValVideo and ROOT/TestVideo, else below ROOT.

Splits, as TACo (Yang et al., ICCV 2021) names them:

* `full`: train, val, test by the annotations' own `split`.
* `split1` (1k-A): train is `MSRVTT_train.9k.csv`, or all but the test; test is `MSRVTT_JSFUSION_test.csv`.
* `split2`: train is `MSRVTT_train.7k.csv`, or train and val of `full`; test as in `split1`.

Repair rules; all are counted in the notes:

* Captions lose blanks at their ends; runs of white space or control characters inside become one blank. Nothing
  else is changed: not case, not characters outside ASCII. A caption that stands twice on one video stays twice.
* A sentence of the test csv is a caption of its own, `ret0`, `ret1`, …: some are not among the video's twenty.
* Ids in lists that the annotations lack are left out.
* Of several files with one stem the first by suffix (.mp4, .mkv, .webm, .avi), then by path, is the video.

A video in train and test of a split is an error. Order: videos by number, captions by `sen_id`, then `ret0`, `ret1`, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import check_id, media_by_stem, natural, need_folder, read_json, read_table, tidy

HINT = (
    "MSRVTT_data.json, or train_val_videodatainfo.json + test_videodatainfo.json (or their zips), "
    "the MSRVTT_*.csv lists beside them, and the videos in videos/"
)
EXPECTED = {
    "videos": 10_000,
    "captions": 200_000,
    "full/train": 6_513,
    "full/val": 497,
    "full/test": 2_990,
    "split1/train": 9_000,
    "split1/test": 1_000,
    "split2/train": 7_010,
    "split2/test": 1_000,
}
"""Of the whole data set: videos, captions in the annotations, videos in each part."""

SUFFIXES = (".mp4", ".mkv", ".webm", ".avi")
TEST, TRAIN_9K, TRAIN_7K = "MSRVTT_JSFUSION_test.csv", "MSRVTT_train.9k.csv", "MSRVTT_train.7k.csv"

_PARTS = {"train": "train", "validate": "val", "test": "test"}
_DATA = ("MSRVTT_data*.json",)
_TRAIN_VAL = ("train_val_videodatainfo*.json", "train_val_annotation*.zip", "train_val_videodatainfo*.zip")
_TEST = ("test_videodatainfo*.json", "test_videodatainfo*.zip")

_Rows = dict[str, tuple[float, str]]
"""Video id to its seconds and its part of `full`, by number."""


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load MSR-VTT from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in train and test of one split.
    """
    files = _find(need_folder(root, HINT))
    folders = list(dict.fromkeys((files[0].parent, *_folders(root))))
    rows, captions, raw = _read(files)
    media, media_notes = _media(root, videos, rows)
    retrieval, test_notes = _retrieval(folders, rows, {(c.clip, text) for c, text in zip(captions, raw, strict=True)})
    parts, list_notes = _parts(folders, rows, captions, retrieval)
    return Manifest(
        dataset="msrvtt",
        videos=tuple(Video(name, media.get(name), seconds) for name, (seconds, _) in rows.items()),
        clips=tuple(Clip(name, name) for name in rows),
        captions=(*captions, *retrieval),
        splits=tuple(parts),
        notes=(
            f"annotations: {', '.join(file.name for file in files)}",
            *_incomplete(rows, captions, parts),
            *_repairs(captions, raw),
            *test_notes,
            *list_notes,
            *media_notes,
        ),
    )


def _folders(root: Path) -> list[Path]:
    return [root, root / "annotations", root / "annotation"]


def _find(root: Path) -> list[Path]:
    """Return the annotation files to read: of the first folder, whole ones before subsets, one file before two."""
    for folder, subset, generation in product(_folders(root), (False, True), ((_DATA,), (_TRAIN_VAL, _TEST))):
        files = [file for patterns in generation for file in _matches(folder, patterns, subset)[:1]]
        if files:
            return files
    raise BadDataset(
        f"no MSR-VTT annotations in {root}: expected MSRVTT_data.json, or train_val_videodatainfo.json + "
        "test_videodatainfo.json (or their zips); see `pipeline list --datasets`"
    )


def _matches(folder: Path, patterns: Sequence[str], subset: bool) -> list[Path]:
    found = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
    return [file for file in found if ("subset" in file.name) == subset and file.is_file()]


def _read(files: Sequence[Path]) -> tuple[_Rows, list[Caption], list[str]]:
    """Return all videos, all captions by `sen_id`, and the captions' texts as they stand in the files.

    Raises BadDataset for a record that stands twice, or lacks its video.
    """
    rows: _Rows = {}
    captions: dict[int, Caption] = {}
    raw: dict[int, str] = {}
    for file in files:
        data = read_json(file, _member(file))
        for name, row in _videos(file, _records(file, data, "videos")):
            if name in rows:
                raise BadDataset(f"{file}: video {name} stands twice in the annotations; keep one")
            rows[name] = row
        for number, caption, text in _sentences(file, _records(file, data, "sentences")):
            if number in captions:
                raise BadDataset(f"{file}: sen_id {number} stands twice in the annotations; keep one")
            captions[number], raw[number] = caption, text
    for number, caption in captions.items():
        if caption.clip not in rows:
            raise BadDataset(
                f"{' and '.join(map(str, files))}: sen_id {number} is about {caption.clip!r}, which is not among "
                "the videos; download them again"
            )
    order = sorted(captions)
    by_number = {name: rows[name] for name in sorted(rows, key=natural)}
    return by_number, [captions[number] for number in order], [raw[number] for number in order]


def _member(file: Path) -> str:
    if file.suffix != ".zip":
        return ""
    return "train_val_videodatainfo.json" if file.name.startswith("train") else "test_videodatainfo.json"


def _records(file: Path, data: Any, key: str) -> list[Any]:
    match data:
        case {"videos": list(), "sentences": list()}:
            return list(data[key])
    raise BadDataset(f"{file}: expected an object with the lists 'videos' and 'sentences'; download it again")


def _videos(file: Path, records: Sequence[Any]) -> Iterator[tuple[str, tuple[float, str]]]:
    for number, record in enumerate(records):
        match record:
            case {
                "video_id": str(name),
                "start time": int() | float() as start,
                "end time": int() | float() as end,
                "split": str(split),
            } if 0 <= start < end and split in _PARTS:
                yield check_id(name, f"{file}: videos[{number}]"), (end - start, _PARTS[split])
            case _:
                raise BadDataset(
                    f"{file}: videos[{number}] is {record!r:.200}; expected video_id (text), 0 <= 'start time' < "
                    f"'end time' (seconds), split ({', '.join(_PARTS)})"
                )


def _sentences(file: Path, records: Sequence[Any]) -> Iterator[tuple[int, Caption, str]]:
    for number, record in enumerate(records):
        fields = record if isinstance(record, dict) else {}
        sen_id, video, raw = fields.get("sen_id"), fields.get("video_id"), fields.get("caption")
        text = tidy(raw) if isinstance(raw, str) else ""
        if not (isinstance(sen_id, int) and isinstance(video, str) and isinstance(raw, str) and text):
            raise BadDataset(
                f"{file}: sentences[{number}] is {record!r:.200}; expected sen_id (integer), video_id (text), "
                "caption (text, not empty)"
            )
        yield sen_id, Caption(str(sen_id), video, text), raw


def _media(root: Path, videos: Path | None, rows: _Rows) -> tuple[dict[str, Path], list[str]]:
    """Return the media file of each video that has one, and notes."""
    usual = [root / name for name in ("videos", "TrainValVideo", "TestVideo") if (root / name).is_dir()]
    folders = [need_folder(videos, "the video files")] if videos is not None else usual or [root]
    found = {stem: paths for stem, paths in media_by_stem(folders, SUFFIXES).items() if stem in rows}
    notes = [f"{len(found):,} of {len(rows):,} videos have their file in {', '.join(map(str, folders))}"]
    several = [stem for stem in sorted(found, key=natural) if len(found[stem]) > 1]
    if several:
        taken = found[several[0]][0]
        notes.append(f"{len(several):,} videos have more than one file, e.g. {several[0]}: took {taken}")
    return {stem: paths[0] for stem, paths in found.items()}, notes


def _first(folders: Sequence[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _retrieval(folders: Sequence[Path], rows: _Rows, literal: set[tuple[str, str]]) -> tuple[list[Caption], list[str]]:
    """Return the sentences of the test csv as captions, by their key, and notes.

    `literal` are the (video id, caption) of the annotations as they stand there.
    """
    file = _first(folders, TEST)
    if file is None:
        return [], [f"{TEST} is not beside the annotations: no split1 and split2"]
    listed: dict[str, tuple[str, str]] = {}
    for number, record in read_table(file, ("key", "video_id", "sentence")):
        if record["key"] in listed or not tidy(record["sentence"]):
            raise BadDataset(f"{file}, row {number}: {record!r:.200}; expected a key of its own and a sentence")
        listed[record["key"]] = record["video_id"], record["sentence"]
    known = {key: listed[key] for key in sorted(listed, key=natural) if listed[key][0] in rows}
    new = sum(pair not in literal for pair in known.values())
    repeats = len(known) - len({text for _, text in known.values()})
    notes = [
        f"{len(known):,} sentences of {TEST} are captions of their own (ret…): {new:,} are not literally "
        f"among their video's captions, {repeats:,} repeat another's text"
    ]
    notes += _left_out(file, set(listed) - set(known), len(listed))
    return [Caption(key, video, tidy(text)) for key, (video, text) in known.items()], notes


def _left_out(file: Path, unknown: set[str], total: int) -> list[str]:
    return (
        [f"{len(unknown):,} of {total:,} rows of {file.name} are not in the annotations: left out"] if unknown else []
    )


def _parts(
    folders: Sequence[Path], rows: _Rows, captions: Sequence[Caption], retrieval: Sequence[Caption]
) -> tuple[list[Part], list[str]]:
    """Return the parts of `full`, and of `split1` and `split2` if there is a test list, and notes."""
    own = {part: {name for name, row in rows.items() if row[1] == part} for part in _PARTS.values()}
    parts = [_part("full", part, ids, rows, captions) for part, ids in own.items()]
    notes: list[str] = []
    test = {caption.clip for caption in retrieval}
    lists = (("split1", TRAIN_9K, set(rows) - test), ("split2", TRAIN_7K, own["train"] | own["val"]))
    for split, name, default in lists if test else ():
        train, left_out = _train(folders, name, default, rows)
        leaked = sorted(train & test, key=natural)
        if leaked:
            raise BadDataset(
                f"{split}: {len(leaked):,} videos of its train list ({name}) are also in {TEST}, first {leaked[0]}; "
                "use lists of one protocol"
            )
        parts += [_part(split, "train", train, rows, captions), _part(split, "test", test, rows, retrieval)]
        notes += left_out
    return [part for part in parts if part.clips], notes


def _train(folders: Sequence[Path], name: str, default: set[str], rows: _Rows) -> tuple[set[str], list[str]]:
    file = _first(folders, name)
    if file is None:
        return default, [f"{name} is not beside the annotations: derived, {len(default):,} videos"]
    listed = {str(record["video_id"]) for _, record in read_table(file, ("video_id",))}
    return listed & set(rows), _left_out(file, listed - set(rows), len(listed))


def _part(split: str, name: str, ids: set[str], rows: _Rows, captions: Sequence[Caption]) -> Part:
    clips = tuple(video for video in rows if video in ids)
    return Part(split, name, clips, tuple(caption.id for caption in captions if caption.clip in ids))


def _incomplete(rows: _Rows, captions: Sequence[Caption], parts: Sequence[Part]) -> list[str]:
    """Return a note on every count that is not the whole data set's."""
    counts = {"videos": len(rows), "captions": len(captions)}
    counts |= {f"{part.split}/{part.name}": len(part.clips) for part in parts}
    short = [
        f"{key} {counts.get(key, 0):,} of {whole:,}" for key, whole in EXPECTED.items() if counts.get(key) != whole
    ]
    return [f"not the whole data set: {', '.join(short)}"] if short else []


def _repairs(captions: Sequence[Caption], raw: Sequence[str]) -> list[str]:
    trimmed = sum(caption.text != text for caption, text in zip(captions, raw, strict=True))
    beyond = sum(not caption.text.isascii() for caption in captions)
    surplus = Counter(caption.clip for caption in captions)
    surplus.subtract(video for video, _ in {(c.clip, text) for c, text in zip(captions, raw, strict=True)})
    return [
        f"{trimmed:,} captions trimmed of blanks",
        f"{beyond:,} captions have characters outside ASCII: kept",
        f"{surplus.total():,} captions repeat another of their video, in {len(+surplus):,} videos: kept",
    ]
