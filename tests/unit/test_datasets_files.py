"""The user's own videos: folders, patterns, tables."""

import os
from pathlib import Path

import orjson
import pyarrow
import pytest
from pyarrow import parquet

from pipeline.datasets import files
from pipeline.errors import BadDataset
from pipeline.records import Caption, Clip, Oddity, Part, Video


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def table(root: Path, text: str | bytes, name: str = "table.csv") -> Path:
    file = root / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_a_folder(tmp_path: Path) -> None:
    touch(tmp_path, "b10.mp4", "b9.MOV", "deep/er/c d.mp3", "x.gif", "README.txt", "b9.JSON", "clip.mp4.part")
    touch(tmp_path, ".hidden.mp4", ".cache/d.mp4", ".cache/e.mp4", "noend")
    (tmp_path / "broken.mp4").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe.mp4")
    manifest = files.load(tmp_path)
    ids = {"b9": "b9.MOV", "b10": "b10.mp4", "deep/er/c d": "deep/er/c d.mp3", "noend": "noend", "x": "x.gif"}
    assert manifest.videos == tuple(Video(name, tmp_path / file) for name, file in ids.items())
    assert manifest.clips == tuple(Clip(name, name, 0.0, None) for name in ids)
    assert (manifest.captions, manifest.splits) == ((), ())
    assert manifest.notes == ("7 entries left out: .json 1, .part 1, .txt 1, hidden 2, not a file 2",)


def test_files_that_would_share_an_id_keep_their_suffix(tmp_path: Path) -> None:
    """`a` could be two, and `a.mp4` too: the first file's name, and the last one's stem."""
    touch(tmp_path, "a.mp4", "a.mkv", "a.mp4.avi", "b.mp4", "c/a.mp4", "d", "d.mp4")
    manifest = files.load(tmp_path)
    assert {v.id: v.path for v in manifest.videos} == {
        name: tmp_path / file
        for name, file in {
            "a.mp4": "a.mp4",
            "a.mkv": "a.mkv",
            "a.mp4.avi": "a.mp4.avi",
            "b": "b.mp4",
            "c/a": "c/a.mp4",
            "d": "d",
            "d.mp4": "d.mp4",
        }.items()
    }
    assert manifest.notes == ("4 videos keep their suffix in their id, to tell them apart, e.g. a.mkv",)


def test_one_file(tmp_path: Path) -> None:
    touch(tmp_path, "te[s]t_ video ' _ .flv", "other.flv")
    file = tmp_path / "te[s]t_ video ' _ .flv"
    assert files.load(file).videos == (Video("te[s]t_ video ' _ ", file),)


def test_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "v10.mp4", "v9.mp4", "deep/v1.mp4", "deep/v1.txt", "deep/.v2.mp4", ".git/v3.mp4")
    (tmp_path / "deep/up").symlink_to(tmp_path)
    (tmp_path / "folder.mp4").mkdir()
    assert [v.id for v in files.load(tmp_path / "*.mp4").videos] == ["v9", "v10"]
    assert files.load(tmp_path / "*/v?.mp4").videos == (Video("deep/v1", tmp_path / "deep/v1.mp4"),)
    manifest = files.load(tmp_path / "deep" / "*")
    assert [v.id for v in manifest.videos] == ["v1"]
    assert manifest.notes == ("2 entries left out: .txt 1, hidden 1",)
    assert [v.id for v in files.load(tmp_path / "**" / "*.mp4").videos] == ["deep/v1", "v9", "v10"]


def test_a_relative_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "v.mp4")
    monkeypatch.chdir(tmp_path)
    assert files.load(Path("*.mp4")).videos == (Video("v", Path("v.mp4")),)


def test_nothing_to_take(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt")
    with pytest.raises(BadDataset, match=r"no video in .* \(2 entries left out: .txt 2\); expected a folder of videos"):
        files.load(tmp_path)
    with pytest.raises(BadDataset, match=r"no video in .*\*.mp4; expected"):
        files.load(tmp_path / "*.mp4")
    with pytest.raises(BadDataset, match="absent does not exist; expected a folder of videos"):
        files.load(tmp_path / "absent")


@pytest.mark.parametrize("name", [b"new\nline.mp4", b"\xff\xfe.mp4"])
def test_names_that_cannot_be_ids(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).touch()
    with pytest.raises(BadDataset, match="cannot be a video id: .*rename it") as caught:
        files.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_every_shared_video_is_taken(shared: Path) -> None:
    root = shared / "data/videos"
    manifest = files.load(root)
    assert {v.path for v in manifest.videos} == {path for path in root.rglob("*") if path.is_file()}
    assert len(manifest.videos) == 145
    assert sorted(v.id for v in manifest.videos if v.path and v.id == v.path.relative_to(root).as_posix()) == [
        "androidx/sample.avi",
        "androidx/sample.flv",
        "androidx/sample_h262_mpeg_audio.ps",
        "androidx/sample_h262_mpeg_audio.ts",
        "auto_editor/h264-mjpeg.mkv",
        "auto_editor/h264-mjpeg.mp4",
    ]
    assert {"moviepy/-video-with-dash-", "php_ffmpeg/portrait", "androidx/bear-id3"} < {v.id for v in manifest.videos}


ROWS = [
    {"video_id": "v10", "path": "media/v10.mp4", "start": "0", "end": "2.50", "caption": "b", "split": "train"},
    {"video_id": "v9", "path": "absent.mp4", "start": "", "end": "", "caption": "", "split": ""},
    {"video_id": "v10", "path": "media/v10.mp4", "start": "2.5", "end": "", "caption": "c", "split": "test"},
    {"video_id": "v10", "path": "media/v10.mp4", "start": "0.0", "end": "2.5", "caption": " a  x ", "split": "train"},
    {"video_id": "v10", "path": "media/v10.mp4", "start": "", "end": "", "caption": "whole", "split": "train"},
]


def written(root: Path, kind: str) -> Path:
    """Write ROWS in the way of `kind`."""
    if kind == "parquet":
        typed = [{k: (float(v) if v else None) if k in ("start", "end") else v for k, v in r.items()} for r in ROWS]
        parquet.write_table(pyarrow.Table.from_pylist(typed), root / "table.parquet")
        return root / "table.parquet"
    if kind == "jsonl":
        encoded = b"\n".join(orjson.dumps({k: v for k, v in row.items() if v}) for row in ROWS)
        return table(root, encoded, "table.jsonl")
    mark = "," if kind == "csv" else "\t"
    lines = [mark.join(files.COLUMNS), *(mark.join(row[column] for column in files.COLUMNS) for row in ROWS)]
    return table(root, "\ufeff" + "\r\n".join(lines) + "\r\n", f"table.{kind}")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table(tmp_path: Path, kind: str) -> None:
    touch(tmp_path, "media/v10.mp4")
    manifest = files.load(written(tmp_path, kind))
    assert manifest.videos == (Video("v9", None), Video("v10", tmp_path / "media/v10.mp4"))
    assert manifest.clips == (
        Clip("v9", "v9", 0.0, None),
        Clip("v10_0_2.5", "v10", 0.0, 2.5),
        Clip("v10", "v10", 0.0, None),
        Clip("v10_2.5_end", "v10", 2.5, None),
    )
    assert manifest.captions == (
        Caption("v10_0_2.5#0", "v10_0_2.5", "a x"),
        Caption("v10_0_2.5#1", "v10_0_2.5", "b"),
        Caption("v10#0", "v10", "whole"),
        Caption("v10_2.5_end#0", "v10_2.5_end", "c"),
    )
    assert manifest.splits == (
        Part("files", "test", ("v10_2.5_end",), ("v10_2.5_end#0",)),
        Part("files", "train", ("v10_0_2.5", "v10"), ("v10_0_2.5#0", "v10_0_2.5#1", "v10#0")),
    )
    assert manifest.notes == ("1 of 2 videos have no file at their path",)
    assert manifest.oddities == (
        Oddity("blanks at the ends", "trimmed", ("v10_0_2.5#0",)),
        Oddity("newline, control character or run of blanks inside", "trimmed", ("v10_0_2.5#0",)),
    )


def test_a_table_of_two_columns_and_one_that_is_not_used(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    manifest = files.load(table(tmp_path, f"path,video_id,mood\n{tmp_path}/a.mp4,7,good\n,8,bad\n{'x' * 5000},9,\n"))
    assert manifest.videos == (Video("7", tmp_path / "a.mp4"), Video("8", None), Video("9", None))
    assert manifest.notes == ("2 of 3 videos have no file at their path", "columns not used: mood")
    assert manifest.splits == ()


def test_whole_numbers_may_be_ids(tmp_path: Path) -> None:
    file = table(tmp_path, '{"video_id": 7, "path": null, "start": 1, "end": 2.5}', "table.jsonl")
    assert files.load(file).clips == (Clip("7_1_2.5", "7", 1.0, 2.5),)


def test_captions_of_a_table_that_are_odd(tmp_path: Path) -> None:
    rows = ["v,,0,1, ,", "v,,0,1,b,", "v,,0,1,b ,", "v,,2,3,b,", "w,,,,b,", "w,,,,,", "w,,,,café,"]
    manifest = files.load(table(tmp_path, "\n".join([",".join(files.COLUMNS), *rows])))
    assert manifest.captions == (
        Caption("v_0_1#0", "v_0_1", "b"),
        Caption("v_0_1#1", "v_0_1", "b"),
        Caption("v_2_3#0", "v_2_3", "b"),
        Caption("w#0", "w", "b"),
        Caption("w#1", "w", "café"),
    )
    assert manifest.oddities == (
        Oddity("blanks at the ends", "trimmed", ("v_0_1#1",)),
        Oddity("caption repeats another of its clip but for blanks", "kept", ("v_0_1#1",)),
        Oddity("caption text on several videos", "kept", ("b: 2 videos",)),
        Oddity("caption without text", "dropped", ("v_0_1#0",)),
        Oddity("characters outside ASCII", "kept", ("w#1",)),
    )


SUBTITLES = """1
00:00:01,000 --> 00:00:02,000
so we begin

2
00:00:02,000 --> 00:00:02,000
nothing lasts

3
00:00:02,000 --> 00:00:04,500

4
00:00:06,000 --> 00:00:05,000
back

5
00:00:05,000 --> 00:00:06,500
so we begin
<i>again</i>
"""
WEB = "WEBVTT\n\n00:01.000 --> 00:02.000\n"


def test_subtitles_beside_videos(tmp_path: Path) -> None:
    touch(tmp_path, "b.mp4", "a.mp4", "deep/c.mkv", "d.mp4", "d.webm", "other.srt", "deep/b.srt", ".b.srt")
    (tmp_path / "b.srt").write_text(SUBTITLES)
    for name in ("b.vtt", "b.en.srt", "deep/c.de.vtt", "deep/c.en-US.vtt", "deep/c.name.vtt", "d.mp4.vtt", "d.en.vtt"):
        (tmp_path / name).write_text(f"{WEB}{name}\n")
    manifest = files.load(tmp_path)
    assert manifest.clips == (
        Clip("a", "a"),
        Clip("b", "b"),
        Clip("b@0", "b", 1.0, 2.0),
        Clip("b@4", "b", 5.0, 6.5),
        Clip("d.mp4", "d.mp4"),
        Clip("d.mp4@0", "d.mp4", 1.0, 2.0),
        Clip("d.webm", "d.webm"),
        Clip("d.webm@0", "d.webm", 1.0, 2.0),
        Clip("deep/c", "deep/c"),
        Clip("deep/c@0", "deep/c", 1.0, 2.0),
    )
    assert manifest.captions == (
        Caption("b@0#0", "b@0", "so we begin"),
        Caption("b@4#0", "b@4", "so we begin again"),
        Caption("d.mp4@0#0", "d.mp4@0", "d.mp4.vtt"),
        Caption("d.webm@0#0", "d.webm@0", "d.en.vtt"),
        Caption("deep/c@0#0", "deep/c@0", "deep/c.en-US.vtt"),
    )
    assert manifest.oddities == (
        Oddity("caption without text", "dropped", ("b@2",)),
        Oddity("end before start", "dropped", ("b@3: 6 to 5",)),
        Oddity("zero length", "dropped", ("b@1: 2",)),
    )
    assert manifest.notes == (
        "7 entries left out: .srt 3, .vtt 3, hidden 1",
        "2 videos keep their suffix in their id, to tell them apart, e.g. d.mp4",
        "4 videos have subtitles",
    )
    assert [caption.id for caption in files.load(tmp_path / "*.mp4").captions] == ["b@0#0", "b@4#0", "d@0#0"]
    assert [caption.id for caption in files.load(tmp_path / "deep/c.mkv").captions] == ["c@0#0"]


def test_subtitles_that_cannot_be_taken(tmp_path: Path) -> None:
    touch(tmp_path, "b.mp4", "b@0.mp4")
    (tmp_path / "b.srt").write_text(SUBTITLES)
    with pytest.raises(BadDataset, match=r"b@0.mp4: 'b@0' is also the name of a subtitle's clip; rename the video"):
        files.load(tmp_path)
    (tmp_path / "b.srt").write_text(SUBTITLES[:20])
    with pytest.raises(BadDataset, match=r"b.srt, line 2: the file ends with a cue's times"):
        files.load(tmp_path)


def test_real_subtitles_beside_videos(shared: Path, tmp_path: Path) -> None:
    """Rolling captions stay, though the last two of YouTube's say the same."""
    for path in (shared / "data/subtitles").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
        (tmp_path / path.with_suffix(".mp4").name).touch()
    manifest = files.load(tmp_path)
    assert (len(manifest.videos), len(manifest.captions)) == (7, 150 + 150 + 7 + 13 + 66 + 3 + 4)
    assert len(manifest.clips) == 7 + 393
    assert {o.kind for o in manifest.oddities} == {"characters outside ASCII", "caption text on several videos"}


HEADER = "video_id,path,start,end,caption,split\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "table.csv: no rows; expected one row a caption or clip, with video_id, path"),
        ("video,path\na,b\n", "table.csv: no column 'video_id'; there are: video, path"),
        (HEADER + "a,a.mp4,0,1,x,t\na,b.mp4,2,3,x,t\n", "row 3: the path of video a is 'b.mp4', but 'a.mp4' in row 2"),
        (HEADER + "a,a.mp4,0,1,x,t\na,a.mp4,2,2,x,t\n", "row 3: start 2.0 is not before end 2.0"),
        (HEADER + "a,a.mp4,3,2,x,t\n", "row 2: start 3.0 is not before end 2.0"),
        (HEADER + "a,a.mp4,,0,x,t\n", "row 2: start 0.0 is not before end 0.0"),
        (HEADER + "a,a.mp4,-1,2,x,t\n", "row 2: start is '-1'; expected seconds, a number of 0 or more"),
        (HEADER + "a,a.mp4,1,nan,x,t\n", "row 2: end is 'nan'; expected seconds"),
        (HEADER + "a,a.mp4,1,inf,x,t\n", "row 2: end is 'inf'; expected seconds"),
        (HEADER + "a,a.mp4,00:01,,x,t\n", "row 2: start is '00:01'; expected seconds"),
        (HEADER + "a,a.mp4,0,1,x,t\na,a.mp4,0,1,y,u\n", "row 3: clip a_0_1 has split 'u', but 't' in row 2"),
        (HEADER + "a_0_1,b.mp4,,,,\na,a.mp4,0,1,,\n", "'a_0_1' is another clip's id too"),
        (HEADER + ",a.mp4,,,,\n", "row 2: '' cannot be a video id"),
        (HEADER + "../a,a.mp4,,,,\n", r"row 2: '\.\./a' cannot be a video id"),
        (HEADER + "a,a\x00.mp4,,,,\n", r"row 2: control characters in path 'a\\x00.mp4'"),
        (HEADER + 'a,a.mp4,,,,"t\nu"\n', r"row 3: control characters in .*split 't\\nu'"),
        (HEADER + "a,a.mp4,,,caf\udce9,\n", "row 2: byte 51 is not UTF-8; save the file as UTF-8"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    file = table(tmp_path, text.encode(errors="surrogateescape"))
    with pytest.raises(BadDataset, match=message) as caught:
        files.load(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"video_id": 1.5, "path": "a"}, "video_id is 1.5; expected text"),
        ({"video_id": True, "path": "a"}, "video_id is True; expected text"),
        ({"video_id": "a", "path": ["b"]}, r"path is \['b'\]; expected text"),
        ({"video_id": "a", "path": "b", "start": True}, "start is True; expected seconds"),
        ({"video_id": "a", "path": "b", "end": {}}, "end is {}; expected seconds"),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, record: dict[str, object], message: str) -> None:
    file = table(tmp_path, b"\n" + orjson.dumps(record), "table.jsonl")
    with pytest.raises(BadDataset, match=f"table.jsonl, row 2: {message}"):
        files.load(file)


def test_parquet_with_nan(tmp_path: Path) -> None:
    parquet.write_table(
        pyarrow.table({"video_id": ["a"], "path": ["b"], "start": [float("nan")]}), tmp_path / "t.parquet"
    )
    with pytest.raises(BadDataset, match=r"t.parquet, row 1: start is nan; expected seconds"):
        files.load(tmp_path / "t.parquet")
