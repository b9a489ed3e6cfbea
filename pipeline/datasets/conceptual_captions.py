"""Conceptual Captions (CC3M): pictures of the web, each with one caption made from its alt text.

Source: Sharma et al., "Conceptual Captions", ACL 2018. Pictures count as videos of one frame.

Layout. Tables lie in ROOT, ROOT/annotations or ROOT/annotation, the first of these that has any: one `*.tsv` whose name
says train (`Train_GCC-training.tsv`) and one whose name says validation (`Validation_GCC-1.1.0-Validation.tsv`), a row
`caption<TAB>address`, no header; whole ones win over those with `head` or `subset` in their name.

A picture's id is its part and the number of its row from 0, `train_0`, `val_7`, for addresses may repeat and many are
gone. Pictures of train are found in folders `train`, those of val in `val` or `validation`, of ROOT/images, else of
ROOT; a folder given for the media stands for ROOT. A file is that of row 123 if its name without suffix is 123, with or
without zeros in front. img2dataset names files so as long as it gets a table's rows in their order and puts 10,000 into
a shard, as it does unasked: the running number of row 123 is 000000123. Suffixes: .jpg, .jpeg, .png, .webp.

A clip is a whole picture; clip and caption have its id.

Splits. `cc3m`: train and val by table.

Repair rules; every record that one touches is listed:

* Captions lose blanks at their ends, runs of blanks inside become one; one without text is dropped, its picture stays.
  Blanks before punctuation, as the release has them, stay.
* Captions that stand on several pictures are kept, and so are rows that share an address with an earlier one.

A table whose last line has no end is an error: it is cut off. Order: by row, train first. A row's number is its name,
so use the tables as they were downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadDataset
from pipeline.oddities import KEPT, Oddities
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.sources import annotation_folders, media_by_stem, need_folder, the_one

HINT = (
    "Train_GCC-training.tsv and Validation_GCC-1.1.0-Validation.tsv, or one of them, and the pictures in train/ and "
    "val/, named by their row from 0"
)
EXPECTED: dict[str, dict[str, int]] = {
    "cc3m/train": {"videos": 3_318_333, "clips": 3_318_333, "captions": 3_318_333, "gallery": 3_318_333},
    "cc3m/val": {"videos": 15_840, "clips": 15_840, "captions": 15_840, "gallery": 15_840},
}
"""The rows that its authors give. Copies of the table of validation lack a few of them (15,833 rows are seen too)."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
"""Of pictures, in the order in which they are preferred."""

SAME_ADDRESS = "address that an earlier row has"

_PARTS = {"train": ("train",), "val": ("val", "validation")}
"""Parts, and the folders that may hold their pictures."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a table."""

    id: str
    part: str
    raw: str
    address: str


def load(root: Path, videos: Path | None = None) -> Manifest:
    """Load Conceptual Captions from `root`, with its pictures in folders of `videos` if that is given.

    Raises BadDataset for missing or damaged tables, and for two tables of one part.
    """
    tables = _find(need_folder(root, HINT))
    rows = [row for part, file in tables.items() for row in _rows(file, part)]
    odd = Oddities()
    _list_addresses(rows, odd)
    clips = tuple(Clip(row.id, row.id) for row in rows)
    captions = tuple(Caption(row.id, row.id, text) for row in rows if (text := odd.text(row.id, row.raw)))
    odd.captions(captions, clips)
    media, found = _media(need_folder(videos, "the pictures") if videos else root, rows)
    return Manifest(
        dataset="conceptual_captions",
        videos=tuple(Video(row.id, media.get(row.id)) for row in rows),
        clips=clips,
        captions=captions,
        splits=tuple(_splits(rows, captions)),
        oddities=odd.found(),
        notes=(f"tables: {', '.join(file.name for file in tables.values())}", *found),
    )


def _find(root: Path) -> dict[str, Path]:
    """Return the table of each part."""
    for folder in annotation_folders(root):
        tables: dict[str, Path] = {}
        for part in _PARTS:
            found = [file for file in sorted(folder.glob("*.tsv")) if part in file.name.lower() and file.is_file()]
            if file := the_one(found, part):
                tables[part] = file
        if tables:
            return tables
    raise BadDataset(f"no table of Conceptual Captions in {root}; expected {HINT}")


def _rows(file: Path, part: str) -> Iterator[_Row]:
    row = 0
    for row, line in enumerate(_lines(file), start=1):
        match line.split("\t"):
            case [raw, address] if address.strip():
                yield _Row(f"{part}_{row - 1}", part, raw, address.strip())
            case _:
                raise BadDataset(
                    f"{file}, row {row}: {line!r:.100}; expected a caption, one tab, an address; download it again"
                )
    if not row:
        raise BadDataset(f"{file}: no rows; download it again")


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines. Raises BadDataset if the last has no end: an address that is cut off looks like a whole one."""
    row = 0
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as table:
            for row, line in enumerate(table, start=1):
                if not line.endswith("\n"):
                    raise BadDataset(f"{file}, row {row}: the line has no end, so it is cut off; download it again")
                yield line.removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"cannot read {file} after row {row} ({error}); download it again") from error


def _list_addresses(rows: Iterable[_Row], odd: Oddities) -> None:
    first: dict[str, str] = {}
    for row in rows:
        earlier = first.setdefault(row.address, row.id)
        if earlier != row.id:
            odd.note(SAME_ADDRESS, KEPT, row.id, f"as {earlier}")


def _media(root: Path, rows: Sequence[_Row]) -> tuple[dict[str, Path], list[str]]:
    """Return the picture of each row that has one, by id, and a note on each part."""
    base = root / "images" if (root / "images").is_dir() else root
    ids = {row.id for row in rows}
    media: dict[str, Path] = {}
    notes: list[str] = []
    for part in dict.fromkeys(row.part for row in rows):
        folders = [base / name for name in _PARTS[part] if (base / name).is_dir()]
        found = _by_number(media_by_stem(folders, SUFFIXES))
        pictures = {f"{part}_{number}": paths for number, paths in found.items() if f"{part}_{number}" in ids}
        several = sum(len(paths) > 1 for paths in pictures.values())
        more = f"; {several:,} have more than one, the first by suffix counts" if several else ""
        where = ", ".join(map(str, folders)) or f"{base / part}, which is not there"
        notes.append(f"{len(pictures):,} pictures of {part} have their file in {where}{more}")
        media |= {name: paths[0] for name, paths in pictures.items()}
    return media, notes


def _by_number(stems: Mapping[str, Sequence[Path]]) -> dict[int, list[Path]]:
    """Return pictures by the number that is their name; those with another name are none of ours."""
    found: dict[int, list[Path]] = {}
    for stem in sorted(stem for stem in stems if stem.isascii() and stem.isdecimal()):
        found.setdefault(int(stem), []).extend(stems[stem])
    for paths in found.values():
        paths.sort(key=lambda path: SUFFIXES.index(path.suffix.lower()))
    return found


def _splits(rows: Sequence[_Row], captions: Sequence[Caption]) -> Iterator[Part]:
    part_of = {row.id: row.part for row in rows}
    for part in dict.fromkeys(part_of.values()):
        clips = tuple(row.id for row in rows if row.part == part)
        yield Part("cc3m", part, clips, tuple(c.id for c in captions if part_of[c.id] == part))
