"""MSVD: 1,970 clips of some 10 s cut from YouTube videos, with 41 captions each. Every clip is a whole file.

Source: Chen and Dolan, ACL 2011. Parts: Venugopalan et al., NAACL 2015. Chinese captions: the MSVD-CN release.

Layout. Captions lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any of

* `captions_msvd.json`: `{"-4wsuPCjDBc_5_15": ["a squirrel is eating", …]}`;
* `raw-captions.pkl`: `{"-4wsuPCjDBc_5_15": [["a", "squirrel", …], …]}`. It is read with --allow-pickle
  only, and without running what a pickle could run: only dicts, lists, tuples, texts and numbers can be in it;
* `msvd_cn_captions_release_utf8.csv` (`id,video_id,sentence`, ids `vid1.mp4`): Chinese.

Of several the first counts: one language at a time. Whole files win over those with `subset` or `head` in their name.
Beside them lie `train_list.txt`, `val_list.txt`, `test_list.txt`, one id a line, and `youtube_mapping.txt`
(`-4wsuPCjDBc_5_15 vid1`), which only the Chinese captions need. Ids may be of either form everywhere; a video's id is
YouTube's, and seconds are what it says (`_5_15`). Videos are found by either id, below ROOT/videos, else below ROOT.

Captions are called `VIDEO#0`, `VIDEO#1`, … by their place in the file's list, Chinese ones by their `id` in the file.

Splits: `msvd` (1,200 train, 100 val, 670 test) by the three lists.

Repair rules; every record that one touches is listed:

* Captions lose blanks at their ends and in runs inside; one without text is dropped. All others are kept, also those
  that repeat another of their video, and those of one word.
* Ids in lists that have no captions are left out; videos that no list names are in no part.
* Clips of one YouTube video in two parts are kept: one in train and val.

A video in two lists is an error. Order: videos by id, captions by number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.restricted import permit, unpickle
from pipeline.shown import shown
from pipeline.sources import (
    VIDEO_SUFFIXES,
    annotation_folders,
    check_id,
    find_media,
    natural,
    need_folder,
    read_json,
    read_list,
    read_table,
)

HINT = "captions_msvd.json (or raw-captions.pkl, or MSVD-CN's csv), the three lists, youtube_mapping.txt, and videos/"

EXPECTED: dict[str, dict[str, int]] = {
    "": {"videos": 1_970, "clips": 1_970, "captions": 80_827},
    "msvd/train": {"videos": 1_200, "clips": 1_200, "captions": 48_774, "gallery": 1_200},
    "msvd/val": {"videos": 100, "clips": 100, "captions": 4_290, "gallery": 100},
    "msvd/test": {"videos": 670, "clips": 670, "captions": 27_763, "gallery": 670},
}
"""Of the whole data set, in English."""

ONE_WORD = "caption of one word"
SAME_SOURCE = "clip cut from the same YouTube video as another"
ACROSS = "YouTube video with clips in two parts"
UNKNOWN = "in a list but without captions"
UNLISTED = "no split list names it"

_PATTERNS = ("captions_msvd*.json", "raw-captions*.pkl", "msvd_cn*.csv")
_MAPPING = "youtube_mapping.txt"
_SPAN = re.compile(r"(.+)_([0-9]{1,9})_([0-9]{1,9})")

_Texts = dict[str, list[tuple[int, str]]]
"""Video id to the numbers and texts of its captions as they stand in the file."""


def load(root: Path, videos: Path | None = None, allow_pickle: bool = False) -> Manifest:
    """Load MSVD from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in two lists; BadSetting for captions in a
    pickle unless `allow_pickle`.
    """
    file, others = _find(need_folder(root, HINT))
    permit(file, allow_pickle)
    youtube = _mapping(file.parent)
    texts = _read(file, youtube)
    media, media_notes = _media(root, videos, texts, youtube)
    odd = Oddities()
    captions = [
        Caption(f"{video}#{number}", video, text)
        for video, rows in texts.items()
        for number, raw in rows
        if (text := odd.text(f"{video}#{number}", raw))
    ]
    clips = tuple(Clip(video, video) for video in texts)
    odd.captions(captions, clips)
    parts, list_notes = _parts(file.parent, captions, texts, youtube, odd)
    _sources(captions if file.suffix != ".csv" else (), texts, parts, odd)
    unread = [f"{other.name} is not read: one file of captions counts" for other in others]
    return Manifest(
        dataset="msvd",
        videos=tuple(Video(video, media.get(video), _seconds(video)) for video in texts),
        clips=clips,
        captions=tuple(captions),
        splits=parts,
        oddities=odd.found(),
        notes=(f"captions: {file.name}", *unread, *list_notes, *media_notes),
    )


def _find(root: Path) -> tuple[Path, list[Path]]:
    """Return the caption file of the first folder that has any, and those of the other kinds there."""
    for folder in annotation_folders(root):
        kinds = [[path for path in folder.glob(pattern) if path.is_file()] for pattern in _PATTERNS]
        files = [min(paths, key=lambda path: (_cut(path), path.name)) for paths in kinds if paths]
        if files:
            return files[0], files[1:]
    raise BadDataset(f"no MSVD captions in {root}: expected {HINT}")


def _cut(path: Path) -> bool:
    return "subset" in path.name or "head" in path.name


def _mapping(folder: Path) -> dict[str, str]:
    """Return the YouTube id of each `vidN`; nothing without the mapping."""
    file = folder / _MAPPING
    found: dict[str, str] = {}
    for line in read_list(file) if file.is_file() else ():
        match line.split():
            case [youtube, own] if re.fullmatch("vid[0-9]+", own) and own not in found:
                found[own] = check_id(youtube, str(file))
            case _:
                raise BadDataset(f"{file}: {line!r:.100}; expected an id of YouTube and a vidN of its own")
    if len(set(found.values())) < len(found):
        twice = Counter(found.values()).most_common(1)[0][0]
        raise BadDataset(f"{file}: {twice} stands twice; download it again")
    return found


def _read(file: Path, youtube: Mapping[str, str]) -> _Texts:
    """Return the captions of all videos, by id and number."""
    if file.suffix == ".csv":
        return _read_chinese(file, youtube)
    data = read_json(file) if file.suffix == ".json" else _read_pickle(file)
    if not isinstance(data, dict) or not data:
        raise BadDataset(f"{file}: expected an object, each video's id and its captions; download it again")
    texts: _Texts = {}
    for name, captions in data.items():
        raw = [_text(caption) for caption in captions] if isinstance(captions, (list, tuple)) else []
        video = check_id(youtube.get(name, name), str(file)) if isinstance(name, str) else ""
        if not video or not raw or None in raw or video in texts:
            raise BadDataset(f"{file}: {name!r:.100} is {shown(captions)}; expected an id of its own with its captions")
        texts[video] = [(number, text) for number, text in enumerate(raw) if text is not None]
    return {video: texts[video] for video in sorted(texts, key=natural)}


def _text(caption: Any) -> str | None:
    match caption:
        case str():
            return caption
        case list() | tuple() if all(isinstance(word, str) for word in caption):
            return " ".join(caption)
    return None


def _read_pickle(file: Path) -> Any:
    try:
        return unpickle(file)
    except OSError as error:
        raise BadDataset(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise BadDataset(f"{file}: not a pickle of captions ({error}); download it again") from error


def _read_chinese(file: Path, youtube: Mapping[str, str]) -> _Texts:
    texts: _Texts = {}
    seen: set[int] = set()
    if not youtube:
        raise BadDataset(f"{file}: its videos are called vidN; put {_MAPPING} beside it")
    for row, record in read_table(file, ("id", "video_id", "sentence")):
        own = record["video_id"].removesuffix(Path(record["video_id"]).suffix)
        number = int(record["id"]) if re.fullmatch("[0-9]{1,9}", record["id"]) else -1
        if number < 0 or number in seen or own not in youtube:
            raise BadDataset(f"{file}, row {row}: {shown(record)}; expected an id of its own, and a vidN of {_MAPPING}")
        seen.add(number)
        texts.setdefault(youtube[own], []).append((number, record["sentence"]))
    if not texts:
        raise BadDataset(f"{file}: no rows; download it again")
    return {video: sorted(texts[video]) for video in sorted(texts, key=natural)}


def _media(
    root: Path, videos: Path | None, texts: _Texts, youtube: Mapping[str, str]
) -> tuple[dict[str, Path], list[str]]:
    """Return the media file of each video that has one, and notes. Files are called by either id."""
    found, note = find_media(root, videos, texts)
    rest = {own: video for own, video in youtube.items() if video in texts and video not in found}
    more, more_note = find_media(root, videos, rest)
    notes = [f"by YouTube's ids: {note}", f"by vidN: {more_note}"] if more else [note]
    return found | {rest[own]: path for own, path in more.items()}, notes


def _parts(
    folder: Path, captions: Sequence[Caption], texts: _Texts, youtube: Mapping[str, str], odd: Oddities
) -> tuple[tuple[Part, ...], list[str]]:
    """Return the parts that have a list. Raises BadDataset for a video in two of them."""
    lists: dict[str, set[str]] = {}
    notes = []
    for name in ("train", "val", "test"):
        file = folder / f"{name}_list.txt"
        if not file.is_file():
            notes.append(f"{file.name} is not beside the captions: no msvd/{name}")
            continue
        listed = {youtube.get(own, own) for own in (line.removesuffix(_suffix(line)) for line in read_list(file))}
        for video in sorted(listed - set(texts), key=natural):
            odd.note(UNKNOWN, DROPPED, video, file.name)
        lists[name] = listed & set(texts)
    for one, two in combinations(lists, 2):
        if both := sorted(lists[one] & lists[two], key=natural):
            raise BadDataset(f"{folder}: {both[0]} is in {one}_list.txt and in {two}_list.txt; leave it in one")
    if lists:
        for video in (video for video in texts if not any(video in ids for ids in lists.values())):
            odd.note(UNLISTED, KEPT, video)
    return tuple(_part(name, ids, captions, texts) for name, ids in lists.items() if ids), notes


def _suffix(name: str) -> str:
    suffix = Path(name).suffix
    return suffix if suffix.lower() in VIDEO_SUFFIXES else ""


def _part(name: str, ids: set[str], captions: Sequence[Caption], texts: _Texts) -> Part:
    clips = tuple(video for video in texts if video in ids)
    return Part("msvd", name, clips, tuple(caption.id for caption in captions if caption.clip in ids))


def _sources(captions: Sequence[Caption], texts: _Texts, parts: Sequence[Part], odd: Oddities) -> None:
    """List captions of one word, and clips that were cut from one YouTube video, above all those in two parts."""
    for caption in captions:
        if " " not in caption.text:
            odd.note(ONE_WORD, KEPT, caption.id, caption.text)
    size = Counter(map(_source, texts))
    for video in texts:
        if size[_source(video)] > 1:
            odd.note(SAME_SOURCE, KEPT, video)
    for one, two in combinations(parts, 2):
        for source in sorted(set(map(_source, one.clips)) & set(map(_source, two.clips)), key=natural):
            odd.note(ACROSS, KEPT, source, f"{one.name} and {two.name}")


def _source(video: str) -> str:
    match = _SPAN.fullmatch(video)
    return match[1] if match else video


def _seconds(video: str) -> float:
    match = _SPAN.fullmatch(video)
    return float(max(0, int(match[3]) - int(match[2]))) if match else 0.0
