"""Annotations to be damaged: every data set in small, and the files that people have, cut to a few records."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from tests.contract import makers
from tests.unit.written import write

FEW = 4
"""Records that are left of a list, and lines of a table."""
SMALL = 20_000
"""Bytes up to which a file stays whole."""
_CUE = "WEBVTT\n\n00:01.000 --> 00:02.500\nfirst\n\n2\n00:00:03.000 --> 00:00:04.000 align:start\n<v A>second</v>\n"


@dataclass(frozen=True)
class Root:
    """A data set that loads. `place` is what `--root` names, below the folder with the `files`, by relative path."""

    dataset: str
    kind: str
    place: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> Path:
        """Write its files below `folder`; return the root."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / self.place


def small(folder: Path) -> list[Root]:
    """Return the data sets that the contract tests make, and forms of files that those do not have."""
    found = []
    for name in makers.names():
        if makers.get(name).ANNOTATIONS:
            (folder / name).mkdir()
            place = makers.get(name).make(folder / name, list)
            found.append(_taken(folder / name, name, place, "made"))
    for number, (dataset, make) in enumerate(_FORMS):
        place = make(folder / str(number))
        found.append(_taken(folder / str(number), dataset, place, "made"))
    return found


def native(data: Path, folder: Path) -> list[Root]:
    """Return the annotations in the shared folder `data` as they were published, cut to a few records each."""
    found = []
    for dataset, names in _NATIVE.items():
        for name in names:
            source = data / dataset / name if (data / dataset / name).exists() else data / name
            root = folder / f"{dataset}-{Path(name).stem}"
            for path in [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file()):
                _cut(path, root / (path.name if source.is_file() else path.relative_to(source)))
            _fewer(root)
            found.append(_taken(root, dataset, root, "published"))
    return found


_NATIVE: dict[str, tuple[str, ...]] = {
    "activitynet": ("",),
    "charades_sta": ("",),
    "coin": ("COIN.testing_subset.json", "procedurevrl_coin_step_test.csv"),
    "conceptual_captions": ("",),
    "crosstask": ("",),
    "didemo": ("",),
    "epic_kitchens100": ("epic_kitchens",),
    "howto100m": ("", "asr"),
    "msrvtt": ("MSRVTT_data.subset.json", "train_val_annotation.zip", "test_videodatainfo.json"),
    "msvd": ("",),
    "qvhighlights": ("",),
    "tacos": ("",),
    "webvid": ("",),
    "youcook2": ("",),
    "youcook2_ja": ("youcook2",),
}
"""Files or folders of each data set, in the folder of its name or else under this name."""


def _taken(folder: Path, dataset: str, place: Path, kind: str) -> Root:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return Root(dataset, kind, place.relative_to(folder).as_posix(), files)


def _fewer(root: Path) -> None:
    """Leave few of the files that a folder has one of for each video."""
    for path in sorted(root.glob("crosstask_release/annotations/*"))[FEW:]:
        path.unlink()


def _cut(source: Path, target: Path) -> None:
    """Copy a file, of a large one the first records."""
    target.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as whole, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in (name for name in whole.namelist() if name.endswith("videodatainfo.json")):
                archive.writestr(name, json.dumps(shorter(json.loads(whole.read(name)))))
    elif source.suffix == ".json":
        target.write_text(json.dumps(shorter(json.loads(data)), ensure_ascii=False), encoding="utf-8")
    elif len(data) > SMALL:
        target.write_bytes(b"".join(data.splitlines(keepends=True)[: FEW + 2]))
    else:
        target.write_bytes(data)


def shorter(value: Any, depth: int = 0) -> Any:
    """Return JSON with the first records of its lists and objects; MSR-VTT's captions are those of the videos left."""
    if isinstance(value, dict) and {"videos", "sentences"} <= set(value):
        ids = [video["video_id"] for video in value["videos"][:FEW]]
        told = [sentence for sentence in value["sentences"] if sentence["video_id"] in ids]
        return {**value, "videos": value["videos"][:FEW], "sentences": told[: 2 * FEW]}
    if isinstance(value, dict):
        kept = list(value.items()) if depth and len(value) < 10 else list(value.items())[:FEW]
        return {key: shorter(item, depth + 1) for key, item in kept}
    if isinstance(value, list):
        return [shorter(item, depth + 1) for item in value[: FEW + 2]]
    return value


def _table(suffix: str) -> Callable[[Path], Path]:
    rows = [
        {"video_id": f"v{n}", "path": f"v{n}.mp4", "start": n, "end": n + 2.5, "caption": f"no {n}"} for n in range(3)
    ]

    def make(folder: Path) -> Path:
        path = write(folder, v0__mp4=b"").joinpath(f"table{suffix}")
        if suffix == ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        elif suffix == ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        elif suffix == ".tsv":
            path.write_text(
                "".join("\t".join(map(str, row)) + "\n" for row in [rows[0].keys(), *(r.values() for r in rows)])
            )
        else:
            path.write_text("a/v0.mp4\nhttps://example.org/v1.mp4?x=1\n")
        return path

    return make


def _subtitles(folder: Path) -> Path:
    write(
        folder, v0__mp4=b"", v0__en__vtt=_CUE, v1__mp4=b"", v1__srt=_CUE.removeprefix("WEBVTT\n\n").replace("<v A>", "")
    )
    return folder


def _cues(arrays: bool) -> dict[str, dict[str, Any]]:
    columns = {"start": [0.5, 2.0], "end": [1.5, 3.25], "text": ["so this is", "what we do"]}
    made = {name: np.asarray(column) for name, column in columns.items()} if arrays else columns
    return {"-videoid001": made, "-videoid002": columns}


def _captions(**files: Any) -> Callable[[Path], Path]:
    return lambda folder: write(folder, **files)


def _msvd(folder: Path) -> Path:
    words = {f"a_{n}_{n + 9}": [["a", "man", "is"], ["who", "sings"]] for n in range(3)}
    return write(folder, **{"raw-captions.pkl": pickle.dumps(words, 2)}, train_list__txt="a_0_9\n")


_TIMED = '[["so this is", 0.5, 1.5], ["what we do", 2.0, 3.25]]'
_FORMS: list[tuple[str, Callable[[Path], Path]]] = [
    *(("files", _table(suffix)) for suffix in (".tsv", ".jsonl", ".parquet", ".txt")),
    ("files", _subtitles),
    ("msvd", _msvd),
    ("howto100m", _captions(raw_caption__pickle=pickle.dumps(_cues(arrays=True)))),
    ("merge", _captions(raw_caption__pickle=pickle.dumps(_cues(arrays=True), 5))),
    ("merge", _captions(raw_caption__pkl=pickle.dumps(_cues(arrays=False), 0))),
    ("merge", _captions(raw_caption__json=json.dumps(_cues(arrays=False)))),
    ("merge", lambda folder: write(folder / "captions", a__csv="start,end,text\n0.5,1.5,so\n", b__json=_TIMED).parent),
]
"""Forms of files besides: their data set, or `merge` for the command that reads captions of speech."""
