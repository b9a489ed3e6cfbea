r"""Subtitles as captions: SubRip (`.srt`) and WebVTT (`.vtt`).

    cues = read(Path("film.en.vtt"))    # Cues of the video `film.en`: starts, ends, texts

Taken as they come: UTF-8 with or without a byte order mark, any line ends, times with or without hours, `,` or `.`
before the fraction, no numbers, numbers from 0 or any names for cues, settings behind the times, a cue that follows
another without an empty line, as some converters write them. The lines of a cue become one.

Left out, as they are no speech: what stands before the first cue, NOTE, STYLE and REGION blocks, numbers and names of
cues, tags (`<i>`, `<c.color>`, `<v Name>`, `<00:17.500>`, `<font …>`) and ASS's braces (`{\an8}`). In WebVTT `&amp;`
and its like are the characters that they name.

A cue without text, or of no length, stays, for the caller to list. A line with `-->` that is no time, a file without a
cue, or one that ends with a cue's number or times, is an error.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from pipeline.asr import Cues
from pipeline.errors import BadDataset
from pipeline.sources import check_id, natural, tidy

SUFFIXES = (".srt", ".vtt")

_TIME = r"(?:(\d{1,6}):)?(\d{1,2}):(\d{2})(?:[.,](\d{1,9}))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?", re.ASCII)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
_NO_CUES = re.compile(r"(NOTE|STYLE|REGION)(\s|$)")

_LANGUAGE = re.compile(r"\.([A-Za-z]{2,3})([-_][A-Za-z0-9]+)*")

_Line = tuple[int, str]
"""Its number, from 1, and what stands there."""


def read(path: Path) -> Cues:
    """Return the cues of a file, in its order. Raises BadDataset, with the line, for what cannot be read."""
    lines = _lines(path)
    vtt = path.suffix.lower() == ".vtt"
    if vtt and not re.match(r"WEBVTT(\s|$)", lines[0][1]):
        raise BadDataset(f"{path}, line 1: is {lines[0][1]!r:.60}; expected WEBVTT")
    _check_end(path, lines)
    cues = list(_cues(path, list(_cue_lines(lines)) if vtt else lines, numbered=not vtt))
    if not cues:
        raise BadDataset(f"{path}: no cue; expected lines such as 00:00:01.500 --> 00:00:04.000")
    texts = [_spoken(body, vtt) for _, _, body in cues]
    return Cues(check_id(path.stem, str(path)), [cue[0] for cue in cues], [cue[1] for cue in cues], texts)


def _lines(path: Path) -> list[_Line]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadDataset(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadDataset(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    return list(enumerate(re.split(r"\r\n|\r|\n", text), start=1))


def _check_end(path: Path, lines: list[_Line]) -> None:
    """Raise BadDataset for a file that is seen to be cut off: it ends with a cue's number, or within its times."""
    number, last = lines[-1]
    if "-->" in last:
        raise BadDataset(f"{path}, line {number}: the file ends with a cue's times: it is cut off, download it again")
    filled = [(number, line) for number, line in lines if line.strip()]
    alone = filled and (len(filled) == 1 or filled[-2][0] < filled[-1][0] - 1)
    if alone and re.fullmatch(r"\s*\d+\s*", filled[-1][1], re.ASCII):
        raise BadDataset(f"{path}, line {filled[-1][0]}: a number without times: it is cut off, download it again")


def _cue_lines(lines: list[_Line]) -> Iterator[_Line]:
    """Yield the lines of WebVTT's cues: blocks, which end with an empty line, that hold no cue are left out.

    A line of blanks is not empty: YouTube's captions have them within cues.
    """
    first, left_out = True, False
    for number, line in lines:
        left_out = bool(_NO_CUES.match(line)) if first else left_out
        first = not line
        if not left_out:
            yield number, line


def _cues(path: Path, lines: list[_Line], numbered: bool) -> Iterator[tuple[float, float, list[str]]]:
    """Yield start, end and lines of text; in SubRip (`numbered`) they may have empty ones between them."""
    span: tuple[float, float] | None = None
    body: list[str] = []
    for number, line in lines:
        if "-->" not in line:
            body.append(line)
            continue
        match = _TIMES.fullmatch(line)
        if not match:
            raise BadDataset(f"{path}, line {number}: {line!r:.80}; expected 00:00:01.500 --> 00:00:04.000")
        if span:
            yield *span, _without_number(body) if numbered else _up_to_empty(body)
        span, body = (_seconds(*match.groups()[:4]), _seconds(*match.groups()[4:])), []
    if span:
        yield *span, body if numbered else _up_to_empty(body)


def _without_number(body: list[str]) -> list[str]:
    """Leave out the next cue's number."""
    return body[:-1] if body and re.fullmatch(r"\s*\d+\s*", body[-1], re.ASCII) else body


def _up_to_empty(body: list[str]) -> list[str]:
    return body[: body.index("")] if "" in body else body


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    return 3600 * int(hours or 0) + 60 * int(minutes) + float(f"{seconds}.{fraction or 0}")


def _spoken(body: list[str], vtt: bool) -> str:
    text = _TAG.sub("", "\n".join(body))
    return tidy(html.unescape(text) if vtt else text)


def beside(videos: Iterable[str], subtitles: Iterable[str]) -> dict[str, str]:
    """Return, for each of the files `videos` that has some, the one of `subtitles` that counts; relative file names.

    Those of `VIDEO.mp4` are `VIDEO.srt`, `VIDEO.mp4.srt`, `VIDEO.en.srt`, `VIDEO.en-US.srt` and so on in any language.
    The first counts: one without a language before English ones before others, then `.srt` before `.vtt`, then by name.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for name in subtitles:
        stem = PurePosixPath(name).with_suffix("")
        language = _LANGUAGE.fullmatch(stem.suffix)
        found.setdefault(str(stem), []).append((0, name))
        if language:
            rank = 1 if language[1].lower() == "en" else 2
            found.setdefault(str(stem.with_suffix("")), []).append((rank, name))
    chosen: dict[str, str] = {}
    for video in videos:
        those = [*found.get(video, ()), *found.get(str(PurePosixPath(video).with_suffix("")), ())]
        if those:
            chosen[video] = min(those, key=lambda one: (one[0], one[1][-4:].lower(), natural(one[1])))[1]
    return chosen
