"""Reading folders, JSON, zips and tables."""

import zipfile
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pipeline.errors import BadDataset
from pipeline.sources import check_id, media_by_stem, natural, need_folder, read_json, read_table, tidy, walk


def test_natural_order() -> None:
    names = ["video10", "video9", "video", "a2b10", "a2b9", "video09", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "a2b9", "a2b10", "video", "video09", "video9", "video10"]


def test_natural_order_of_very_long_numbers() -> None:
    assert sorted(["1" * 5000, "2"], key=natural) == ["2", "1" * 5000]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("  a  b ", "a b"),
        ("a\tb\r\nc", "a b c"),
        ("a\x00b", "a b"),
        ("It's É …", "It's É …"),
        ("\u3000a\u00a0b", "a b"),
    ],
)
def test_tidy(raw: str, expected: str) -> None:
    assert tidy(raw) == expected


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "/etc/passwd", "..", "a/../b", "a\x7f", "a\x85", "\udcff"])
def test_ids_that_cannot_be(name: str) -> None:
    with pytest.raises(BadDataset, match="here: .* cannot be a video id"):
        check_id(name, "here")


@pytest.mark.parametrize("name", ["-wsuPCjDBc_5_15", "a/b c", "te[s]t_ video ' _ ", "..a", "a..b", "ü 食"])
def test_ids_that_can_be(name: str) -> None:
    assert check_id(name, "here") == name


def test_need_folder_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadDataset, match="absent does not exist; expected videos"):
        need_folder(tmp_path / "absent", "videos")
    with pytest.raises(BadDataset, match="file is not a folder; expected videos"):
        need_folder(tmp_path / "file", "videos")
    assert need_folder(tmp_path, "videos") == tmp_path


def test_walk_follows_links_but_no_circles(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "in").mkdir(parents=True)
    (root / ".git").mkdir()
    elsewhere.mkdir()
    for file in (root / "b10.mp4", root / "b9.mp4", root / "in/c.mp4", root / ".git/d", elsewhere / "e.mp4"):
        file.touch()
    (root / "linked").symlink_to(elsewhere)
    (root / "in/up").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (elsewhere / "back").symlink_to(root / "linked")
    (root / "file.mp4").symlink_to(elsewhere / "e.mp4")
    found = [path.relative_to(root).as_posix() for path in walk(root)]
    assert found == [".git", "b9.mp4", "b10.mp4", "file.mp4", "in/c.mp4", "linked/e.mp4", "self"]


def test_media_by_stem_prefers_suffixes_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("v1.AVI", "deep/v1.MP4", "v1.txt", "v2.webm", ".v3.mp4", "deep/v2.webm"):
        (tmp_path / name).touch()
    (tmp_path / "v4.mp4").mkdir()
    found = media_by_stem([tmp_path], (".mp4", ".webm", ".avi"))
    assert found == {
        "v1": [tmp_path / "deep/v1.MP4", tmp_path / "v1.AVI"],
        "v2": [tmp_path / "deep/v2.webm", tmp_path / "v2.webm"],
    }


def test_json_plain_and_in_a_zip(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._a.json", "not this one")
        archive.writestr("folder/a.json", '{"a": 2}')
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert read_json(tmp_path / "a.zip", "a.json") == {"a": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.zip"]


def test_every_damage_to_a_zip_is_told(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.zip", tmp_path / "cut.zip"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", "[" + ", ".join(map(str, range(500))) + "]")
    data = whole.read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        cut.write_bytes(data[:length])
        with pytest.raises(BadDataset, match="cut.zip: this zip is cut off or damaged"):
            read_json(cut, "a.json")
    cut.write_bytes(data[:100] + bytes([data[100] ^ 0xFF]) + data[101:])
    with pytest.raises(BadDataset, match="cut.zip: this zip is cut off or damaged"):
        read_json(cut, "a.json")
    with pytest.raises(BadDataset, match=r"whole.zip: no b.json in this zip, only: a.json"):
        read_json(whole, "b.json")


@pytest.mark.parametrize("raw", [b"", b'{"a": [1, 2', b'{"a": NaN}', b'{"a": "\xff"}', b"\xff\xfe{\x00}\x00"])
def test_json_that_is_damaged(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(BadDataset, match=r"a.json: it is not whole JSON .*; download it again"):
        read_json(tmp_path / "a.json")


def test_json_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match=r"cannot read .*a.json: No such file"):
        read_json(tmp_path / "a.json")


def test_tables_of_four_kinds_are_read_alike(tmp_path: Path) -> None:
    """The numbers are those of the lines: a header counts, a blank line too; Parquet has neither."""
    (tmp_path / "t.csv").write_bytes('\ufeffa,b\r\n1,"x, ""y"""\r\n\r\n2,é\r\n'.encode())
    (tmp_path / "t.TSV").write_bytes('a\tb\n1\t"x, ""y"""\n\n2\té'.encode())
    (tmp_path / "t.jsonl").write_bytes('\ufeff\n{"a": "1", "b": "x, \\"y\\""}\r\n\n{"a": "2", "b": "é"}\n'.encode())
    parquet.write_table(pyarrow.table({"a": ["1", "2"], "b": ['x, "y"', "é"]}), tmp_path / "t.parquet")
    records = [{"a": "1", "b": 'x, "y"'}, {"a": "2", "b": "é"}]
    for name, rows in (("t.csv", [2, 4]), ("t.TSV", [2, 4]), ("t.jsonl", [2, 4]), ("t.parquet", [1, 2])):
        assert list(read_table(tmp_path / name, ("a", "b"))) == list(zip(rows, records, strict=True)), name


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("t.csv", b"", "t.csv: no column 'a'; there are: none; expected: a, b"),
        ("t.csv", b"a,c\n1,2\n", "t.csv: no column 'b'; there are: a, c; expected: a, b"),
        ("t.csv", b"a,b,b\n1,2,3\n", "t.csv: a column name stands twice among: a, b, b"),
        ("t.csv", b"a,b\n1,2\n3\n", "t.csv, row 3: 1 fields, but 2 columns"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", "t.csv, row 3: 3 fields, but 2 columns"),
        ("t.csv", b'a,b\n1,2\n3,"4\n', "t.csv, row 3: .*the file is cut off, or a quote is open"),
        ("t.csv", b"a,b\n1,2\n3,\xff\n", "t.csv, row 3: byte 10 is not UTF-8"),
        ("t.jsonl", b'{"a": 1, "b": 2}\n{"a": 1', "t.jsonl, row 2: not JSON"),
        ("t.jsonl", b'{"a": 1, "b": 2}\n[1]', "t.jsonl, row 2: expected an object"),
        ("t.jsonl", b'{"a": 1, "b": 2}\n{"a": 1}', "t.jsonl, row 2: no column 'b'; there are: a"),
        ("t.parquet", b"PAR1", "t.parquet: not a whole Parquet file"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, name: str, raw: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(BadDataset, match=message) as caught:
        list(read_table(tmp_path / name, ("a", "b")))
    assert "\n" not in str(caught.value)


def test_parquet_without_a_column_or_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"a": ["1"]}), file)
    with pytest.raises(BadDataset, match="t.parquet: no column 'b'; there are: a; expected: a, b"):
        list(read_table(file, ("a", "b")))
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(BadDataset, match="t.parquet: not a whole Parquet file"):
        list(read_table(file, ("a",)))
