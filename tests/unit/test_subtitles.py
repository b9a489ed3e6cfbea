"""Subtitles: files made here, and the real ones."""

from pathlib import Path

import pytest

from pipeline.asr import Cues
from pipeline.errors import BadDataset
from pipeline.subtitles import beside, read


def written(folder: Path, content: str | bytes, name: str) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def rows(cues: Cues) -> list[tuple[float, float, str]]:
    return list(zip(cues.start, cues.end, cues.text, strict=True))


SRT = r"""0
00:00:01,000 --> 00:00:02,500
{\an8}<i>When</i> we
<font color="#fff">think</font>

1
00:00:02,500 --> 00:00:02,500
nothing lasts

2
0:01:02,5-->0:01:04,25 X1:0 Y1:1

3
01:00:00 --> 01:00:01
5 < 6 > 4 &amp; {brace} <3

after an empty line
4
00:00:05,000 --> 00:00:04,000
1984
"""
SRT_ROWS = [
    (1.0, 2.5, "When we think"),
    (2.5, 2.5, "nothing lasts"),
    (62.5, 64.25, ""),
    (3600.0, 3601.0, "5 < 6 > 4 &amp; {brace} <3 after an empty line"),
    (5.0, 4.0, "1984"),
]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_srt(tmp_path: Path, ends: str, mark: str) -> None:
    path = written(tmp_path, mark + SRT.replace("\n", ends), "a film.en.SRT")
    cues = read(path)
    assert cues.video == "a film.en"
    assert rows(cues) == SRT_ROWS


def test_srt_without_numbers_or_empty_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "00:00:01,000 --> 00:00:02,000\na\n2\n00:00:02,000 --> 00:00:03,000\nb", "a.srt")
    assert rows(read(path)) == [(1.0, 2.0, "a"), (2.0, 3.0, "b")]


VTT = """WEBVTT - some title
Kind: captions

NOTE 00:00:01.000 --> 00:00:02.000
this is no cue

STYLE
::cue(c.colorCCCCCC) { color: rgb(204,204,204); }

REGION
id:fred

NOTE

00:01.000 --> 00:02.500 align:start position:0%
<v Roger Bingham>We <b>are</b> in</v>
New&nbsp;York &amp; &lt;here&gt;

an introduction
100:00:00.001 --> 100:00:00.002
\x20
NOTE me<100:00:00.001><c.colorE5E5E5.bg> well</c>
00:00:07.000 --> 00:00:07.000
100
00:00:08.000 --> 00:00:09.000

text that belongs to nothing

00:10.000\t-->\t00:11.000
12"""


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_vtt(tmp_path: Path, ends: str, mark: str) -> None:
    cues = read(written(tmp_path, mark + VTT.replace("\n", ends), "-a.vtt"))
    assert cues.video == "-a"
    assert rows(cues) == [
        (1.0, 2.5, "We are in New York & <here>"),
        (360000.001, 360000.002, "NOTE me well"),
        (7.0, 7.0, "100"),
        (8.0, 9.0, ""),
        (10.0, 11.0, "12"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", "", "a.srt: no cue; expected lines such as 00:00:01.500 --> 00:00:04.000"),
        ("a.srt", "<html>\n</html>", "a.srt: no cue"),
        ("a.vtt", "WEBVTT\n", "a.vtt: no cue"),
        ("a.vtt", "00:01.000 --> 00:02.000\na\n", "a.vtt, line 1: is '00:01.000 --> 00:02.000'; expected WEBVTT"),
        ("a.vtt", "WEBVTTX\n\n00:01.000 --> 00:02.000\na\n", "expected WEBVTT"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:0", "a.srt, line 2: the file ends with a cue's times"),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:02,000 --> 00:0",
            "line 6: the file ends with a cue's",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:02,000 -->",
            "line 6: the file ends with a cue's times",
        ),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n", "line 5: a number without times: it is cut off"),
        ("a.vtt", "WEBVTT\n\n1\n00:01.000 --> 00:02.000\na\n\n2", "line 7: a number without times"),
        ("a.srt", "1\nfoo --> bar\na\n", "line 2: 'foo --> bar'"),
        (
            "a.srt",
            b"1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n",
            "a.srt: byte 35 is not UTF-8; save the file as UTF-8",
        ),
        ("a\nb.srt", SRT, "cannot be a video id"),
    ],
)
def test_damaged(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(BadDataset, match=message) as caught:
        read(written(tmp_path, content, name))
    assert "\n" not in str(caught.value).replace(str(tmp_path / name), "")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(BadDataset, match="cannot read .*a.srt: No such file"):
        read(tmp_path / "a.srt")


REAL = {
    "pycaption_example.head150.srt": (150, "( clock ticking )"),
    "pycaption_example.head151.vtt": (150, "( clock ticking )"),
    "vtttest_no_hour.vtt": (7, "We are in New York City"),
    "vtttest_youtube-dl_no_index.vtt": (13, "Hi I’m John Green and this is Crash Course European History."),
    "webvttpy_cue_tags.vtt": (3, "When the moon hits your eye"),
    "webvttpy_netflix_chicas_del_cable.head70.vtt": (66, "[Alba] En 1928,"),
    "webvttpy_youtube_dl.vtt": (4, "yeah"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(shared: Path, name: str) -> None:
    """66 of the 70 blocks of the Netflix file are cues; the others are its header, two notes and a block of blanks."""
    cues = read(shared / "data/subtitles" / name)
    assert (len(cues.text), cues.text[0]) == REAL[name]
    assert all(0 <= start < end for start, end in zip(cues.start, cues.end, strict=True))
    assert all(text and not set("<>{}") & set(text) for text in cues.text)


def test_both_forms_of_one_film(shared: Path) -> None:
    srt, vtt = (read(shared / "data/subtitles" / f"pycaption_example.head15{n}") for n in ("0.srt", "1.vtt"))
    assert rows(srt) == rows(vtt)


def test_rolling_captions_stay_as_they_are(shared: Path) -> None:
    cues = read(shared / "data/subtitles/webvttpy_youtube_dl.vtt")
    assert rows(cues) == [
        (286.07, 286.47, "yeah"),
        (286.47, 304.08, "yeah what"),
        (304.08, 305.069, "this will happen is I'm telling"),
        (305.069, 305.4, "this will happen is I'm telling"),
    ]


def test_which_subtitles_are_a_videos() -> None:
    videos = ["a.mp4", "b/a.mkv", "c.en.mp4", "d.mp4", "e"]
    subtitles = [
        "a.fr.vtt",
        "a.EN.vtt",
        "a.en-GB.srt",
        "b/a.zh_Hans.srt",
        "b/a.de.srt",
        "c.en.vtt",
        "c.vtt",
        "d.ver2.vtt",
    ]
    assert beside(videos, [*subtitles, "e.srt"]) == {
        "a.mp4": "a.en-GB.srt",
        "b/a.mkv": "b/a.de.srt",
        "c.en.mp4": "c.en.vtt",
        "e": "e.srt",
    }
    assert beside(["a.mp4"], ["a.vtt", "a.srt", "a.en.srt"]) == {"a.mp4": "a.srt"}
