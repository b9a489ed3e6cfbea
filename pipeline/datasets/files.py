"""Your own videos: a folder, a pattern, one file, or a table that names them.

Source: yours. ROOT is one of

* a folder: every file in it and below it is a video, whatever its suffix, except hidden ones and those whose suffix
  says that they are text, tables, pictures, arrays, archives or unfinished downloads (`LEFT_OUT`);
* a pattern with `*`, `?` or `[` that is not itself a path; `**` stands for any folders. What is left out is the same;
* one media file;
* a list, `.txt`, of paths or addresses, one a line, whose ids are their names without folders and suffix;
* a table, `.csv`, `.tsv`, `.jsonl` or `.parquet`, with the columns `video_id` and `path`, and, if you like, `start`,
  `end` (seconds), `caption` and `split`; one row a caption or a clip. UTF-8, with or without a byte order mark.

In folders and patterns a video's id is its path below ROOT (below the first folder with a wildcard), with `/` and
without suffix; files that would share an id all keep their suffix. Each video is one clip of the same id, its whole
length.

Subtitles that lie beside a video and have its name, `VIDEO.srt`, `VIDEO.vtt` or with a language `VIDEO.en.vtt`, are
its captions, but not in tables: each cue is a clip, `VIDEO@0`, `VIDEO@1`, … in the order of the file, with the caption
`VIDEO@0#0`. What is read and what is left out of them, `pipeline.subtitles` says.

In tables relative paths start at the table's folder; what is at http(s)://, s3:// and gs:// is fetched when decoded.
Rows with one (video_id, start, end) are captions of one clip; it is called `VIDEO` if it is the whole file, else
`VIDEO_START_END`. An empty start is 0, an empty end is the video's.
Captions are called `CLIP#0`, `CLIP#1`, …. The split is called `files`; the values in the column `split` are its parts.

Repair rules; what is left out is counted in the notes, every caption that a rule touches is listed:

* Hidden files and folders, files with a suffix of `LEFT_OUT`, and what is no file (broken links, pipes) are left out.
* Links are followed, but not one that leads back to a folder it lies in; `**` in a pattern enters no linked folder.
* Of several subtitles of one video one counts: without a language, else in English, else the first by name.
* Subtitles that end at or before their start are dropped. Subtitles of a display that rolls stay as they are.
* A table's video whose file is not there is kept, without a path.
* Captions lose blanks at their ends; runs of white space or control characters inside become one blank; one without
  text is dropped, but not its clip in a table.
* Columns that are not named above are ignored.

All else is an error: ids with control characters, rows of one video with different paths, rows of one clip in different
parts, times that are no numbers, negative, or out of order.

Order: natural (`video9` before `video10`), by id, then by start, end and text; a table's order of rows does not matter.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline import subtitles
from pipeline.errors import BadDataset
from pipeline.oddities import Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.remote import place
from pipeline.shown import shown
from pipeline.sources import CONTROL, TABLES, check_id, natural, read_table, tidy, walk

HINT = "a folder of videos, a pattern like 'x/*.mp4', a .txt list, or a table: video_id,path[,start,end,caption,split]"

LEFT_OUT = re.compile(
    r"\.(txt|md|rst|pdf|html?|xml|ya?ml|toml|ini|cfg|log|nfo|url|py|sh|ipynb"
    r"|csv|tsv|jsonl?|parquet|arrow|feather|xlsx|db|sqlite"
    r"|srt|vtt|ass|ssa|sub|sbv|lrc"
    r"|jpe?g|png|bmp|webp|tiff?|svg|heic"
    r"|np[yz]|pth?|pkl|pickle|h5|hdf5|mat|bin|safetensors"
    r"|zip|tar|gz|tgz|bz2|xz|zst|7z|rar|md5|sha1|sha256"
    r"|part|partial|ytdl|aria2|crdownload|tmp|lock)",
    re.IGNORECASE,
)
"""Suffixes of files that are no videos."""

COLUMNS = ("video_id", "path", "start", "end", "caption", "split")
"""What a table may hold; the first two it must."""

_WILD = frozenset("*?[")


def load(root: Path) -> Manifest:
    """Load the videos that `root` names: folder, pattern, file or table.

    Raises BadDataset if there are none, and for a row of a table that cannot be used.
    """
    if root.is_dir():
        return _from_files(root, root, walk(root))
    if root.is_file() and root.suffix.lower() in TABLES:
        return _from_table(root)
    if root.is_file():
        return _from_files(root, root.parent, [root])
    if _WILD & set(str(root)):
        base = next(folder for folder in root.parents if not _WILD & set(str(folder)))
        matches = sorted(base.glob(str(root.relative_to(base))), key=lambda path: natural(str(path)))
        return _from_files(root, base, (path for path in matches if not path.is_dir()))
    raise BadDataset(f"{root} does not exist; expected {HINT}")


def _from_files(root: Path, base: Path, entries: Iterable[Path]) -> Manifest:
    kinds = {path.relative_to(base).as_posix(): (_kind(path, base), path) for path in entries}
    files = {name: path for name, (kind, path) in kinds.items() if not kind}
    spoken = {
        path.relative_to(base).as_posix(): path
        for folder in sorted({file.parent for file in files.values()})
        for path in folder.iterdir()
        if _kind(path, base) in subtitles.SUFFIXES and path.is_file()
    }
    beside = subtitles.beside(files, spoken)
    left_out = Counter(kind for name, (kind, _) in kinds.items() if kind and name not in beside.values())
    reasons = ", ".join(f"{kind} {count:,}" for kind, count in sorted(left_out.items()))
    notes = [f"{left_out.total():,} entries left out: {reasons}"] if left_out else []
    if not files:
        raise BadDataset(f"no video in {root}{f' ({notes[0]})' if notes else ''}; expected {HINT}")
    ids = {name: check_id(own, str(root)) for name, own in _ids(files).items()}
    kept = [name for name, own in ids.items() if name == own and PurePosixPath(name).suffix]
    notes += [f"{len(kept):,} videos keep their suffix in their id, to tell them apart, e.g. {kept[0]}"] if kept else []
    notes += [f"{len(beside):,} videos have subtitles"] if beside else []
    videos = tuple(Video(ids[name], files[name]) for name in sorted(files, key=lambda name: natural(ids[name])))
    odd = Oddities()
    clips, captions = _spoken(videos, {ids[name]: spoken[own] for name, own in beside.items()}, odd)
    odd.captions(captions, clips)
    return Manifest("files", videos, tuple(clips), tuple(captions), oddities=odd.found(), notes=tuple(notes))


def _spoken(videos: Iterable[Video], spoken: Mapping[str, Path], odd: Oddities) -> tuple[list[Clip], list[Caption]]:
    """Return a clip for each video and one for each of its subtitles, and those."""
    clips: dict[str, Clip] = {}
    captions: list[Caption] = []
    for video in videos:
        added = [Clip(video.id, video.id)]
        cues = subtitles.read(spoken[video.id]) if video.id in spoken else None
        for number, cue in enumerate(zip(cues.start, cues.end, cues.text, strict=True) if cues else ()):
            name = f"{video.id}@{number}"
            span = odd.span(name, cue[0], cue[1])
            if span and (text := odd.text(name, cue[2])):
                added.append(Clip(name, video.id, *span))
                captions.append(Caption(f"{name}#0", name, text))
        for clip in added:
            if clips.setdefault(clip.id, clip) is not clip:
                raise BadDataset(f"{video.path}: '{clip.id}' is also the name of a subtitle's clip; rename the video")
    return list(clips.values()), captions


def _kind(path: Path, base: Path) -> str:
    """Return why `path` is left out, or nothing."""
    if any(part.startswith(".") for part in path.relative_to(base).parts):
        return "hidden"
    if LEFT_OUT.fullmatch(path.suffix):
        return path.suffix.lower()
    return "" if path.is_file() else "not a file"


def _ids(names: Iterable[str]) -> dict[str, str]:
    """Return the id of each relative file name: without its suffix, unless that could mean another one too."""
    stems = {name: str(PurePosixPath(name).with_suffix("")) for name in names}
    claims = Counter(claim for name, stem in stems.items() for claim in {name, stem})
    return {name: stem if claims[stem] == 1 else name for name, stem in stems.items()}


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a table, checked. `number` is its place in the file, `raw` the caption as it stands there."""

    number: int
    video: str
    path: str
    start: float
    end: float | None
    raw: str
    split: str

    @property
    def clip(self) -> str:
        if self.start == 0 and self.end is None:
            return self.video
        return f"{self.video}_{_plain(self.start)}_{'end' if self.end is None else _plain(self.end)}"


def _plain(seconds: float) -> str:
    return repr(seconds).removesuffix(".0")


def _from_table(table: Path) -> Manifest:
    records = list(read_table(table, COLUMNS[:2]))
    if not records:
        raise BadDataset(f"{table}: no rows; expected one row a caption or clip, with {', '.join(COLUMNS)}")
    rows = sorted((_row(table, number, record) for number, record in records), key=_order)
    odd = Oddities()
    videos, clips, captions = _videos(table, rows), _clips(table, rows), _captions(rows, odd)
    odd.captions([caption for caption, _ in captions], clips, {caption.id: row.raw for caption, row in captions})
    missing = sum(video.path is None for video in videos)
    unused = sorted({column for _, record in records for column in record} - set(COLUMNS))
    notes = [f"{missing:,} of {len(videos):,} videos have no file at their path"] if missing else []
    notes += [f"columns not used: {', '.join(unused)}"] if unused else []
    return Manifest(
        dataset="files",
        videos=videos,
        clips=clips,
        captions=tuple(caption for caption, _ in captions),
        splits=_parts(table, rows, captions),
        oddities=odd.found(),
        notes=tuple(notes),
    )


def _row(table: Path, number: int, record: Mapping[str, Any]) -> _Row:
    where = f"{table}, row {number}"
    video, path, raw, split = (
        _text(f"{where}: {column}", record.get(column)) for column in ("video_id", "path", "caption", "split")
    )
    if CONTROL.search(path + split):
        raise BadDataset(f"{where}: control characters in path {path!r:.100} or split {split!r:.100}; remove them")
    start = _seconds(f"{where}: start", record.get("start")) or 0.0
    end = _seconds(f"{where}: end", record.get("end"))
    if end is not None and start >= end:
        raise BadDataset(f"{where}: start {start} is not before end {end}; expected seconds, start before end")
    return _Row(number, check_id(video, where), path, start, end, raw, split)


def _text(where: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadDataset(f"{where} is {shown(value, 100)}; expected text")
    return str(value)


def _seconds(where: str, value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadDataset(f"{where} is {shown(value, 100)}; expected seconds, a number of 0 or more, or nothing")
    return seconds


def _order(row: _Row) -> Any:
    end = math.inf if row.end is None else row.end
    return natural(row.video), row.start, end, tidy(row.raw), row.raw, row.split, row.number


def _videos(table: Path, rows: Sequence[_Row]) -> tuple[Video, ...]:
    first: dict[str, _Row] = {}
    for row in rows:
        other = first.setdefault(row.video, row)
        if other.path != row.path:
            raise BadDataset(
                f"{table}, row {row.number}: the path of video {row.video} is {row.path!r:.100}, but "
                f"{other.path!r:.100} in row {other.number}; give the same in all its rows"
            )
    return tuple(
        Video(row.video, place(table.parent, row.path, f"{table}, row {row.number}")) for row in first.values()
    )


def _clips(table: Path, rows: Sequence[_Row]) -> tuple[Clip, ...]:
    clips: dict[str, Clip] = {}
    for row in rows:
        clip = Clip(row.clip, row.video, row.start, row.end)
        if clips.setdefault(clip.id, clip) != clip:
            raise BadDataset(
                f"{table}, row {row.number}: '{clip.id}' is another clip's id too; rename video {row.video}"
            )
    return tuple(clips.values())


def _captions(rows: Sequence[_Row], odd: Oddities) -> list[tuple[Caption, _Row]]:
    """Return each caption with its row."""
    captions: list[tuple[Caption, _Row]] = []
    count: Counter[str] = Counter()
    for row in rows:
        name = f"{row.clip}#{count[row.clip]}"
        if row.raw and (text := odd.text(name, row.raw)):
            captions.append((Caption(name, row.clip, text), row))
            count[row.clip] += 1
    return captions


def _parts(table: Path, rows: Sequence[_Row], captions: Sequence[tuple[Caption, _Row]]) -> tuple[Part, ...]:
    first: dict[str, _Row] = {}
    for row in rows:
        other = first.setdefault(row.clip, row)
        if other.split != row.split:
            raise BadDataset(
                f"{table}, row {row.number}: clip {row.clip} has split {row.split!r:.100}, but "
                f"{other.split!r:.100} in row {other.number}; a clip is in one part"
            )
    clips_of: dict[str, list[str]] = {row.split: [] for row in first.values()}
    captions_of: dict[str, list[str]] = {row.split: [] for row in first.values()}
    for clip, row in first.items():
        clips_of[row.split].append(clip)
    for caption, row in captions:
        captions_of[row.split].append(caption.id)
    values = sorted(set(clips_of) - {""}, key=natural)
    return tuple(Part("files", value, tuple(clips_of[value]), tuple(captions_of[value])) for value in values)
