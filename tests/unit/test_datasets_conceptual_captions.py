"""Conceptual Captions: tables of a few rows made here, and the first 8,000 real rows of validation."""

from pathlib import Path

import pytest

from pipeline.counts import counts
from pipeline.datasets import conceptual_captions
from pipeline.errors import BadDataset
from pipeline.oddities import totals
from pipeline.records import Caption, Clip, Manifest, Oddity, Part, Video

TRAIN, VAL = "Train_GCC-training.tsv", "Validation_GCC-1.1.0-Validation.tsv"


def write(root: Path, name: str, *rows: tuple[str, str], pictures: tuple[str, ...] = ()) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes("".join(f"{text}\t{address}\n" for text, address in rows).encode())
    for picture in pictures:
        (root / picture).parent.mkdir(parents=True, exist_ok=True)
        (root / picture).touch()
    return root


def test_every_record(tmp_path: Path) -> None:
    write(tmp_path, TRAIN, ("a dog", "http://a"), (" fiancé  's ", "http://b"), ("a dog", "http://a"))
    of_train = ("train/00000/000000002.jpg", "train/00001/2.png", "train/0000.WEBP", "train/x1.jpg")
    pictures = (*of_train, "val/7.jpg", "1.jpg", "validation/01.jpeg")
    root = write(tmp_path, VAL, ("a dog", "http://a"), (" ", "http://c"), ("a cat", "d\r"), pictures=pictures)
    ids = ("train_0", "train_1", "train_2", "val_0", "val_1", "val_2")
    files = {"train_0": "train/0000.WEBP", "train_2": "train/00000/000000002.jpg", "val_1": "validation/01.jpeg"}
    assert conceptual_captions.load(root) == Manifest(
        dataset="conceptual_captions",
        videos=tuple(Video(name, root / files[name] if name in files else None) for name in ids),
        clips=tuple(Clip(name, name) for name in ids),
        captions=(
            Caption("train_0", "train_0", "a dog"),
            Caption("train_1", "train_1", "fiancé 's"),
            Caption("train_2", "train_2", "a dog"),
            Caption("val_0", "val_0", "a dog"),
            Caption("val_2", "val_2", "a cat"),
        ),
        splits=(
            Part("cc3m", "train", ids[:3], ids[:3]),
            Part("cc3m", "val", ids[3:], ("val_0", "val_2")),
        ),
        oddities=(
            Oddity("address that an earlier row has", "kept", ("train_2: as train_0", "val_0: as train_0")),
            Oddity("blanks at the ends", "trimmed", ("train_1",)),
            Oddity("caption text on several videos", "kept", ("a dog: 3 videos",)),
            Oddity("caption without text", "dropped", ("val_1",)),
            Oddity("characters outside ASCII", "kept", ("train_1",)),
            Oddity("newline, control character or run of blanks inside", "trimmed", ("train_1",)),
        ),
        notes=(
            f"tables: {TRAIN}, {VAL}",
            f"2 pictures of train have their file in {root / 'train'}; 1 have more than one, the first by suffix "
            "counts",
            f"1 pictures of val have their file in {root / 'val'}, {root / 'validation'}",
        ),
    )


def test_where_pictures_lie(tmp_path: Path) -> None:
    """In ROOT/images where that is there, and in the folder for media, which stands for ROOT."""
    root = write(tmp_path / "root", VAL, ("a dog", "a"), ("a cat", "b"), pictures=("images/val/0.jpg", "val/1.jpg"))
    other = write(tmp_path / "other", "list", pictures=("validation/000000001.png",))
    assert [video.path for video in conceptual_captions.load(root).videos] == [root / "images/val/0.jpg", None]
    manifest = conceptual_captions.load(root, videos=other)
    assert [video.path for video in manifest.videos] == [None, other / "validation/000000001.png"]
    assert conceptual_captions.load(root, videos=tmp_path).notes[1] == (
        f"0 pictures of val have their file in {tmp_path / 'val'}, which is not there"
    )


def test_a_row_is_a_line_that_ends_in_a_newline(tmp_path: Path) -> None:
    """Other ends of lines within a caption would move the numbers of all rows behind it."""
    (tmp_path / VAL).write_bytes("\ufeffa\rb\u2028c\x0cd\tu\r\ne\tv\n".encode())
    manifest = conceptual_captions.load(tmp_path)
    assert [(caption.id, caption.text) for caption in manifest.captions] == [("val_0", "a b c d"), ("val_1", "e")]


def test_which_tables_are_read(tmp_path: Path) -> None:
    root = write(tmp_path, "Validation.head2.tsv", ("a", "u"), ("b", "v"))
    write(root / "annotations", TRAIN, ("a", "u"))
    assert len(conceptual_captions.load(root).videos) == 2
    write(root, "my_val.tsv", ("a", "u"))
    assert [part.clips for part in conceptual_captions.load(root).splits] == [("val_0",)]
    write(root, "other_val.tsv", ("a", "u"))
    with pytest.raises(
        BadDataset, match=r"my_val.tsv, other_val.tsv are several tables of val; keep one of them there"
    ):
        conceptual_captions.load(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tu\nb\n", r"val.tsv, row 2: 'b'; expected a caption, one tab, an address"),
        ("a\tu\nb\tv\tw\n", r"val.tsv, row 2: 'b\\tv\\tw'; expected a caption, one tab"),
        ("a\t \n", r"val.tsv, row 1: 'a\\t '; expected a caption, one tab"),
        ("a\tu\n\n", r"val.tsv, row 2: ''; expected a caption, one tab"),
        ("a\tu\nb\thttp://x.y/z.jp", r"val.tsv, row 2: the line has no end, so it is cut off"),
        ("", r"val.tsv: no rows"),
        ("a\tu\nb\udcff\tv\n", r"cannot read .*val.tsv after row \d \(.*; download it again"),
    ],
)
def test_damaged(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "val.tsv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadDataset, match=message) as error:
        conceptual_captions.load(tmp_path)
    assert "\n" not in str(error.value)


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="no table of Conceptual Captions in .*; expected Train_GCC-training.tsv"):
        conceptual_captions.load(tmp_path)


def test_real(shared: Path) -> None:
    """36 texts stand on 137 pictures, so 101 rows repeat the caption of another."""
    manifest = conceptual_captions.load(shared / "data/conceptual_captions")
    part = {"videos": 8_000, "clips": 8_000, "captions": 8_000}
    assert counts(manifest) == {"": part, "cc3m/val": part | {"gallery": 8_000}}
    assert totals(manifest.oddities) == {
        "caption text on several videos: kept": 36,
        "characters outside ASCII: kept": 20,
    }
    assert 8_000 - len({caption.text for caption in manifest.captions}) == 101
    assert manifest.captions[1] == Caption("val_1", "val_1", "an angler fishes river on a snowy day .")
