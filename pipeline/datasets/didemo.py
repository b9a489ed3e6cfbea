"""DiDeMo: 10,464 Flickr videos with about four descriptions each, each with moments that annotators chose.

Source: Anne Hendricks et al., ICCV 2017. Lists: Liu et al., "Collaborative experts", BMVC 2019.

Layout. `train_data.json`, `val_data.json` and `test_data.json`, each a list of `{"annotation_id": 49152, "video":
"35034348999@N01_6060447507_dc1a90b8ef.mov", "num_segments": 6, "times": [[1, 1], [0, 0]], "description"}`, lie in
ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any; whole files win over those with more in
their name (`val_data.head100.json`). `train_list.txt`, `val_list.txt` and `test_list.txt`, a file name a line, may lie
beside them or in `ce_lists` there. Videos are found by their name without suffix, below ROOT/videos, else below ROOT;
where the annotated name ends in a dot, a file of just this name counts too.

A video's id is its annotated file name without what follows the last dot: the same video stands under two names, in
two forms of file, 29 times in val and 33 times in test. A video is one clip, its first 30 seconds, since longer ones
were cut there to be annotated. `times` are first and last chunk of five seconds as each annotator chose them, of
`num_segments`; a caption has them as windows, [5 first, 5 (last + 1)) seconds, in their order.

Splits, by the files:

* `didemo`: train, val and test; every description, a caption called by its `annotation_id`.
* `paragraph`: the same videos, one caption each, `VIDEO@paragraph`: its descriptions in the order of `annotation_id`, a
  blank between them.
* `ce`: the videos that the lists name, with the paragraphs of the descriptions given under a listed file name, as
  retrieval is published (1,065 and 1,004 of val and test). Where that is not all, the caption is `VIDEO@ce`.

Repair rules; every record that one touches is listed:

* A description loses blanks at its ends and in runs inside; one without text is dropped, its video stays.
* Windows that end behind the last chunk are cut there, those that begin behind it or end before they start are dropped.
* Kept as they are: annotators who disagree, also where no moment is the most frequent, and are not four; names that end
  in a dot. A video that has 5 chunks under one name and 6 under the other lasts 6.
* File names that no list has stay, but in `ce`; those that a list has and the annotations lack are left out.

A video in two parts is an error. Order: videos by id, descriptions by `annotation_id`, then paragraphs by video.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.errors import BadDataset
from pipeline.oddities import DROPPED, KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shown import shown
from pipeline.sources import (
    VIDEO_SUFFIXES,
    check_id,
    files_of_parts,
    find_media,
    natural,
    need_folder,
    read_json,
    read_text,
)

HINT = "train_data.json, val_data.json and test_data.json of DiDeMo, and the videos in videos/"

_VIDEOS = {"val": 1_065, "test": 1_004}
_LISTED = {"train": 8_392, **_VIDEOS}
EXPECTED: dict[str, dict[str, int]] = {
    "didemo/train": {"captions": 33_005},
    "didemo/val": {"videos": 1_065, "clips": 1_065, "captions": 4_180, "gallery": 1_065},
    "didemo/test": {"videos": 1_004, "clips": 1_004, "captions": 4_021, "gallery": 1_004},
    **{f"paragraph/{p}": {"videos": n, "clips": n, "captions": n, "gallery": n} for p, n in _VIDEOS.items()},
    **{f"ce/{p}": {"videos": n, "clips": n, "captions": n, "gallery": n} for p, n in _LISTED.items()},
}
"""Of the whole data set. Its authors have 8,395 videos to train; the list has 8,392 of them."""
DEFAULT_SPLIT = "paragraph"

DISAGREE = "annotators disagree"
NO_MAJORITY = "no single most frequent moment"
NOT_FOUR = "other than four annotators"
DOT = "file name that ends in a dot"
TWO_NAMES = "video annotated under two file names"
CHUNKS = "another number of chunks under another file name"
UNLISTED = "no split list names it"
UNKNOWN = "in a list but not in the annotations"

PARTS = ("train", "val", "test")
CHUNK = 5.0
"""Seconds."""
MOST = 6
"""Chunks."""
_SUFFIXES = (*VIDEO_SUFFIXES, ".m2ts", ".", "")  # the last two are those of a name that ends in a dot


@dataclass(frozen=True, slots=True)
class _Row:
    """A description as it stands in the file; `text` is repaired."""

    number: int
    part: str
    name: str
    chunks: int
    times: tuple[tuple[int, int], ...]
    raw: str
    text: str = ""

    @property
    def video(self) -> str:
        return _stem(self.name)


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load DiDeMo from `root`, with its media files below the folder `videos` if that is given.

    Raises BadDataset for missing or damaged annotations, and for a video in two parts.
    """
    patterns = {part: (f"{part}_data*.json",) for part in PARTS}
    files = files_of_parts(need_folder(root, HINT), patterns, f"no DiDeMo in {root}: expected {HINT}")
    folder = next(iter(files.values())).parent
    odd = Oddities()
    rows = [replace(row, text=odd.text(str(row.number), row.raw)) for row in _rows(files)]
    of = _by_video(rows)
    listed, list_notes = _lists(folder, files, rows, odd)
    clips = [Clip(video, video, 0.0, CHUNK * MOST) for video in of]
    captions = [Caption(str(row.number), row.video, row.text, _windows(row, odd)) for row in rows if row.text]
    # Only the descriptions: that a video's paragraph is its only description is not odd.
    odd.captions(captions, clips, {str(row.number): row.raw for row in rows})
    media, media_note = _media(root, videos, rows)
    paragraphs, parts = _paragraphs(of, listed)
    splits = [_single(part, of) for part in files] + parts
    odd.leaks(splits, {clip.id: clip.video for clip in clips})
    missing = [f"{part}_data.json is not there" for part in PARTS if part not in files]
    return Manifest(
        dataset="didemo",
        videos=tuple(_video(video, own, media.get(video), listed, odd) for video, own in of.items()),
        clips=tuple(clips),
        captions=(*captions, *paragraphs),
        splits=tuple(part for part in splits if part.clips),
        oddities=odd.found(),
        notes=(f"annotations: {', '.join(f.name for f in files.values())}", *missing, *list_notes, media_note),
    )


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _rows(files: Mapping[str, Path]) -> list[_Row]:
    """Return all descriptions by number. Raises BadDataset where two contradict each other."""
    rows: dict[int, _Row] = {}
    parts: dict[str, str] = {}
    for part, file in files.items():
        for row in _read(part, file):
            if row.number in rows:
                raise BadDataset(f"{file}: annotation_id {row.number} stands twice in the annotations; keep one")
            rows[row.number] = row
            if parts.setdefault(row.video, part) != part:
                raise BadDataset(f"{file}: {row.video} is in {parts[row.video]} too; use the files of one release")
    return [rows[number] for number in sorted(rows)]


def _read(part: str, file: Path) -> Iterator[_Row]:
    records = read_json(file)
    if not isinstance(records, list) or not records:
        raise BadDataset(f"{file}: expected a list of descriptions; download it again")
    for number, record in enumerate(records):
        row = _row(part, record)
        if row is None:
            raise BadDataset(
                f"{file}: [{number}] is {shown(record)}; expected annotation_id (integer), video, description (texts), "
                f"num_segments (1 to {MOST}) and times (list of [first, last] from 0)"
            )
        for name in (row.video, row.name):
            check_id(name, f"{file}: [{number}]")
        yield row


def _row(part: str, record: Any) -> _Row | None:
    match record:
        case {
            "annotation_id": int(number),
            "video": str(name),
            "num_segments": int(chunks),
            "times": [*times],
            "description": str(raw),
        } if number >= 0 and 1 <= chunks <= MOST and times:
            spans = [span for time in times if (span := _span(time))]
            return _Row(number, part, name, chunks, tuple(spans), raw) if len(spans) == len(times) else None
    return None


def _span(time: Any) -> tuple[int, int] | None:
    match time:
        case [int(first), int(last)] if first >= 0 and last >= 0:
            return first, last
    return None


def _by_video(rows: Sequence[_Row]) -> dict[str, list[_Row]]:
    """Return each video's descriptions by number; the videos in natural order."""
    found: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.video].append(row)
    return {video: found[video] for video in sorted(found, key=natural)}


def _windows(row: _Row, odd: Oddities) -> tuple[tuple[float, float], ...]:
    """Return the moments in seconds, and list what is odd about them."""
    name = str(row.number)
    votes = [count for _, count in Counter(row.times).most_common()]
    if len(votes) > 1:
        odd.note(DISAGREE, KEPT, name)
    if len(votes) > 1 and votes[0] == votes[1]:
        odd.note(NO_MAJORITY, KEPT, name)
    if len(row.times) != 4:
        odd.note(NOT_FOUR, KEPT, name, f"{len(row.times)}")
    spans = (odd.span(name, CHUNK * first, CHUNK * (last + 1), CHUNK * row.chunks) for first, last in row.times)
    return tuple(span for span in spans if span)


def _video(video: str, rows: Sequence[_Row], path: Path | None, listed: Mapping[str, set[str]], odd: Oddities) -> Video:
    """Return a video under its first listed name, else its first one, and list what is odd about its names."""
    names = sorted({row.name for row in rows}, key=natural)
    for row in rows:
        if row.name.endswith("."):
            odd.note(DOT, KEPT, str(row.number), row.name)
    if len(names) > 1:
        odd.note(TWO_NAMES, KEPT, video, " ".join(names))
    chunks = sorted({row.chunks for row in rows})
    if len(chunks) > 1:
        odd.note(CHUNKS, KEPT, video, " and ".join(map(str, chunks)))
    name = next((name for name in names if name in listed.get(rows[0].part, ())), names[0])
    return Video(video, path, CHUNK * chunks[-1], name if name != video else "")


def _media(root: Path, videos: Path | None, rows: Sequence[_Row]) -> tuple[dict[str, Path], str]:
    """Return the media file of each video that has one, and a note."""
    dotted = {row.name for row in rows if row.name.endswith(".")}
    found, note = find_media(root, videos, dotted | {row.video for row in rows}, _SUFFIXES)
    # Files named in both ways, `a.mp4` and `a.`, are of one video, which counts once.
    plain = {name: path for name, path in found.items() if name not in dotted}
    media = {_stem(name): path for name, path in found.items() if name in dotted} | plain
    return media, f"{len(media):,}{note.removeprefix(f'{len(found):,}')}"


def _lists(
    folder: Path, files: Mapping[str, Path], rows: Sequence[_Row], odd: Oddities
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the file names that the list of each part has, as far as they are annotated, and notes."""
    listed: dict[str, set[str]] = {}
    notes = []
    for part in files:
        paths = [place / f"{part}_list.txt" for place in (folder / "ce_lists", folder)]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            notes.append(f"{part}_list.txt is not there: no ce/{part}")
            continue
        names, annotated = set(read_text(path).split()), {row.name for row in rows if row.part == part}
        for name in sorted(names ^ annotated, key=natural):
            kind, rule = (UNLISTED, KEPT) if name in annotated else (UNKNOWN, DROPPED)
            odd.note(kind, rule, name, path.name)
        listed[part] = names & annotated
        notes.append(f"{path.name}: {len(listed[part]):,} of {len(annotated):,} file names")
    return listed, notes


def _single(part: str, of: Mapping[str, Sequence[_Row]]) -> Part:
    own = {video: rows for video, rows in of.items() if rows[0].part == part}
    numbers = sorted(row.number for rows in own.values() for row in rows if row.text)
    return Part("didemo", part, tuple(own), tuple(map(str, numbers)))


def _paragraphs(of: Mapping[str, Sequence[_Row]], listed: Mapping[str, set[str]]) -> tuple[list[Caption], list[Part]]:
    """Return the paragraphs, first those of all descriptions, and the parts of `paragraph` and `ce`."""
    captions: dict[str, Caption] = {}
    ids: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for split in ("paragraph", "ce"):
        for video, rows in of.items():
            part = rows[0].part
            own = [row for row in rows if split == "paragraph" or row.name in listed.get(part, ())]
            told = [row.text for row in own if row.text]
            name = f"{video}@{split if len(own) < len(rows) else 'paragraph'}"
            if told:
                captions[name] = Caption(name, video, " ".join(told))
            if own:
                ids[split, part].append((video, name if told else ""))
    parts = [
        Part(split, part, tuple(video for video, _ in ids[split, part]), tuple(c for _, c in ids[split, part] if c))
        for split in ("paragraph", "ce")
        for part in PARTS
    ]
    return list(captions.values()), parts
