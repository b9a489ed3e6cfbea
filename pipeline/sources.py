"""Reading what users have: folders of media files, JSON plain or zipped, tables, ids. No data set knows more.

Whatever cannot be read is a BadDataset that names the file and the record.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from pipeline.errors import BadDataset
from pipeline.shown import shown

VIDEO_SUFFIXES = (
    ".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".3g2", ".ts", ".mts",
    ".ogv",
)  # fmt: skip
"""Of media files, in the order in which they are preferred."""
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and the lone surrogates that stand for bytes of a file name that are not UTF-8."""
LONGEST_ID = 1_000
"""Characters."""
LARGEST_MEMBER = 256 << 20
"""Bytes that a member of a zip may have when it is unpacked: a thousandth of that can claim to be more."""


def natural(text: str) -> tuple[tuple[str | int, ...], str]:
    """Return a sort key that puts `video9` before `video10`; equal numbers (`01`, `1`) are told apart by the text."""
    pieces = re.split(r"([0-9]{1,18})", text)
    return tuple(int(piece) if i % 2 else piece for i, piece in enumerate(pieces)), text


def tidy(text: str) -> str:
    """Return `text` without blanks at its ends; a run of white space or control characters becomes one blank."""
    return " ".join(CONTROL.sub(" ", text).split())


def check_id(name: str, where: str) -> str:
    """Return `name` if it can be an id. Raises BadDataset, beginning with `where`, if it is empty or would escape."""
    if not 0 < len(name) <= LONGEST_ID or CONTROL.search(name) or name.startswith("/") or ".." in name.split("/"):
        raise BadDataset(
            f"{where}: {shown(name)} cannot be a video id: expected UTF-8 text without control characters, "
            f"not empty, up to {LONGEST_ID:,} characters, no '/' in front and no '..'; rename it"
        )
    return name


def need_folder(folder: Path, hint: str) -> Path:
    """Return `folder`. Raises BadDataset with `hint`, what must lie in it, if it is not there."""
    if not folder.exists():
        raise BadDataset(f"{folder} does not exist; expected {hint}")
    if not folder.is_dir():
        raise BadDataset(f"{folder} is not a folder; expected {hint}")
    return folder


def annotation_folders(root: Path) -> tuple[Path, ...]:
    """Return where a data set's annotations may lie; the first folder that has any counts."""
    return root, root / "annotations", root / "annotation"


def files_of_parts(root: Path, patterns: Mapping[str, Sequence[str]], lacking: str) -> dict[str, Path]:
    """Return the file of each part that has one, by the part's patterns, of the first folder that has any.

    A whole file's name is the shortest. Raises BadDataset, which says `lacking`, where there are none.
    """
    for folder in annotation_folders(root):
        found = {part: {file for glob in globs for file in folder.glob(glob)} for part, globs in patterns.items()}
        files = {part: min(some, key=lambda file: (len(file.name), file.name)) for part, some in found.items() if some}
        if files:
            return files
    raise BadDataset(lacking)


def walk(folder: Path) -> Iterator[Path]:
    """Yield every entry in `folder` and below it but the folders, in natural order.

    Links to files and folders are followed, but not one that leads back to a folder it lies in. Hidden folders
    are not entered but yielded, so that they can be counted. Raises BadDataset for a folder that cannot be read.
    """
    yield from _walk(folder, frozenset())


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    try:
        here = folder.resolve()
        entries = [(path, path.is_dir()) for path in folder.iterdir()] if here not in above else []
    except OSError as error:
        raise BadDataset(f"cannot read folder {folder}: {error.strerror}; make it readable or move it") from error
    for path, is_folder in sorted(entries, key=lambda entry: natural(entry[0].name)):
        if is_folder and not path.name.startswith("."):
            yield from _walk(path, above | {here})
        else:
            yield path


def media_by_stem(folders: Iterable[Path], suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Return the media files below `folders` by their name without suffix.

    Suffixes count in lower and upper case. Files that share a stem are in the order of `suffixes`, then of their paths.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        for path in walk(folder):
            if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file():
                found[path.stem].append(path)
    for paths in found.values():
        paths.sort(key=lambda path: (suffixes.index(path.suffix.lower()), natural(str(path))))
    return dict(found)


def find_media(
    root: Path, videos: Path | None, ids: Container[str], suffixes: Sequence[str] = VIDEO_SUFFIXES
) -> tuple[dict[str, Path], str]:
    """Return the media file of each of `ids` that has one, and a note on how many have.

    Files are found by their name without suffix below the folder `videos`, else ROOT/videos, else ROOT.
    """
    if videos is not None:
        folder = need_folder(videos, "the video files")
    else:
        folder = root / "videos" if (root / "videos").is_dir() else root
    found = {stem: paths for stem, paths in media_by_stem([folder], suffixes).items() if stem in ids}
    several = sum(len(paths) > 1 for paths in found.values())
    more = f"; {several:,} have more than one, the first by suffix counts" if several else ""
    return {stem: paths[0] for stem, paths in found.items()}, f"{len(found):,} videos have their file in {folder}{more}"


def read_json(path: Path, member: str = "") -> Any:
    """Return the JSON value in the file `path`, or in the file called `member`, in any folder, of the zip `path`.

    Zip members are read in memory. Raises BadDataset for what is missing, cut off or damaged.
    """
    raw = _read_member(path, member) if member else _read(path)
    try:
        return orjson.loads(raw.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise BadDataset(f"{path}: {member or 'it'} is not whole JSON ({error}); download it again") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadDataset(f"cannot read {path}: {error.strerror}") from error


def _read_member(path: Path, member: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            matches = sorted(name for name in archive.namelist() if PurePosixPath(name).name == member)
            if not matches:
                raise BadDataset(f"{path}: no {member} in this zip, only: {', '.join(archive.namelist())[:200]}")
            if (size := archive.getinfo(matches[0]).file_size) > LARGEST_MEMBER:
                raise BadDataset(f"{path}: {member} is {size:,} bytes; expected {LARGEST_MEMBER:,} at most, unpack it")
            return archive.read(matches[0])
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadDataset(f"{path}: this zip is cut off or damaged ({error!s:.200}); download it again") from error


def read_table(path: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row number, record) of a CSV, TSV, JSON Lines or Parquet file that has at least the `required` columns.

    A `.txt` file is a list of paths or addresses: it has the columns `video_id`, the name without suffix, and `path`.
    Rows of text files are numbered by their lines (the header is row 1), those of Parquet from 1. UTF-8 with or
    without a byte order mark, LF or CRLF. Raises BadDataset with file and row.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path, required)
    if suffix == ".jsonl":
        return _json_lines(path, required)
    if suffix == ".txt":
        return _names(path)
    return _separated(path, required, "\t" if suffix == ".tsv" else ",")


def whole_ones(files: Iterable[Path]) -> list[Path]:
    """Return the files without `subset` or `head` in their name; where there are no others, those with it."""
    found = list(files)
    return [file for file in found if not ("subset" in file.name or "head" in file.name)] or found


def the_one(files: Iterable[Path], what: str) -> Path | None:
    """Return the only whole file there is of its kind, None where there is none. Raises BadDataset for several."""
    found = whole_ones(files)
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise BadDataset(f"{found[0].parent}: {names} are several tables of {what}; keep one of them there")
    return found[0] if found else None


def read_lines(path: Path, ended: bool = False) -> list[str]:
    """Return the lines of a UTF-8 file as they stand there.

    `ended`: the last one must have an end too; without one the file is cut off. Raises BadDataset.
    """
    *lines, last = read_text(path).split("\n")
    if last and ended:
        raise BadDataset(f"{path}, row {len(lines) + 1}: the line has no end, so it is cut off; download it again")
    return [*lines, last] if last else lines


def read_list(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file that are not empty, without blanks at their ends. Raises BadDataset."""
    return list(filter(None, map(str.strip, read_lines(path))))


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text, with or without a byte order mark. Raises BadDataset with file and row."""
    try:
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise BadDataset(f"{path}, row {row}: byte {error.start} is not UTF-8; save the file as UTF-8") from error


def _need_columns(where: str, present: Sequence[str], required: Sequence[str]) -> None:
    missing = [column for column in required if column not in present]
    there = tidy(", ".join(map(str, present[:20])))[:200] or "none"
    if missing:
        raise BadDataset(f"{where}: no column '{missing[0]}'; there are: {there}; expected: {', '.join(required)}")
    if len(set(present)) < len(present):
        raise BadDataset(f"{where}: a column name stands twice among: {there}; rename one")


def _names(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, line in enumerate(map(str.strip, read_lines(path)), start=1):
        try:
            name = unquote(urlsplit(line).path) if "://" in line else line
        except ValueError as error:
            raise BadDataset(f"{path}, row {row}: {shown(line, 100)} is no address: {error}") from error
        if line:
            yield row, {"video_id": PurePosixPath(name).stem, "path": line}


def _separated(path: Path, required: Sequence[str], delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        _need_columns(str(path), header, required)
        for fields in reader:
            if fields and len(fields) != len(header):
                raise BadDataset(
                    f"{path}, row {reader.line_num}: {len(fields)} fields, but {len(header)} columns; "
                    "the file is cut off, or a field needs quotes"
                )
            if fields:
                yield reader.line_num, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise BadDataset(f"{path}, row {reader.line_num}: {error}; the file is cut off, or a quote is open") from error


def _json_lines(path: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadDataset(f"{path}, row {row}: not JSON ({error}); is the file cut off?") from error
        if not isinstance(record, dict):
            raise BadDataset(f'{path}, row {row}: expected an object such as {{"video_id": "a"}}')
        _need_columns(f"{path}, row {row}", list(record), required)
        yield row, record


def _parquet(path: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            _need_columns(str(path), file.schema_arrow.names, required)
            records = file.read().to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise BadDataset(
            f"{path}: not a whole Parquet file ({str(error).splitlines()[0]:.200}); write it again"
        ) from error
    yield from enumerate(records, start=1)
