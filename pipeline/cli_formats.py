"""The commands of `pipeline` for what other systems have: import, export, compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pipeline.errors import BadSetting

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
FormatName = Annotated[str, Parameter(name="FORMAT")]
Normalised = Annotated[bool | None, Parameter(name="--l2", negative="--no-l2")]


def import_(  # noqa: PLR0913 - flags
    format_: FormatName,
    source: Path,
    /,
    *,
    out: Path = Path("features.h5"),
    stream: str = "",
    rate: float | None = None,
    row_seconds: float | None = None,
    l2: Normalised = None,
    model: str = "",
    dataset: str = "",
    root: str = "",
    key: str = "",
    files: str = "",
    allow_pickle: bool = False,
) -> int:
    """Import features that another system made into a new feature file. Exit code 1 if some videos have none.

    `--rate`, `--row-seconds` and `--l2` or `--no-l2` must be given where the format does not say them.

    Parameters
    ----------
    format_
        npy, npz, hdf5, hdf5_grouped, univl_pickle, mmpt, mmt, bigfile, crosstask: docs/formats.md says what each is.
    source
        The file or folder.
    out
        Feature file to write.
    stream
        Name of the stream; default: the format's.
    rate
        Rows in a second of video.
    row_seconds
        Seconds of video that a row saw.
    l2
        Whether rows are L2-normalised.
    model
        What made them, in your words: streams of one model are comparable, whatever they were imported from.
    dataset
        Data set whose videos these are: its tables are written too, and names such as VIDEO.mp4 are matched with it.
    root
        Folder of that data set; default $DATA_ROOT/DATASET, data/DATASET.
    key
        Which of several: the array of each .npz or HDF5 group, the expert (mmt), the split (mmpt).
    files
        Only files of this pattern in SOURCE, such as '*_2d.npz'.
    allow_pickle
        Read pickles (univl_pickle, mmpt). What is in one besides dicts, lists, texts, numbers and arrays is refused.

    """
    from pipeline import importing, loading, printing
    from pipeline.foreign import Asked

    if root and not dataset:
        raise BadSetting("--root is about --dataset, which is not given")
    stated = importing.Stated(rate=rate, row_seconds=row_seconds, l2=l2, model=model)
    asked = Asked(key=key, files=files, allow_pickle=allow_pickle)
    request = importing.Request(format=format_, source=source, out=out, stream=stream, stated=stated, asked=asked)
    manifest = loading.load(dataset, root, None, False, allow_pickle) if dataset else None
    lines, failed = importing.import_features(request, manifest)
    printing.print_lines(lines)
    return 1 if failed else 0


def export(format_: FormatName, features: Path, /, *, stream: str, out: Path, l2: bool = False, key: str = "") -> int:
    """Export a stream of a feature file as another system reads it; about.json beside it says what no format can.

    Parameters
    ----------
    format_
        npy, npz, hdf5, hdf5_grouped, univl_pickle: docs/formats.md says what each is.
    features
        A feature file or a folder of shards.
    stream
        Name of the stream.
    out
        File or folder to write.
    l2
        L2-normalise rows; the feature file keeps them raw.
    key
        Name of the array where it has one; default: features (npz), c3d_features (hdf5_grouped).

    """
    from pipeline import exporting, printing

    return printing.print_lines(exporting.export(format_, features, stream, out, l2, key))


def compare(
    a: Path,
    b: Path,
    /,
    *,
    stream: tuple[str, ...] = (),
    allow_pickle: bool = False,
    most: int = 10,
    json_: Json = False,
) -> int:
    """Compare rows with someone's published ones: how far each video's are apart, and which mistake it looks like.

    Parameters
    ----------
    a
        A feature file or a folder of shards; or what `pipeline import` reads.
    b
        The same. Errors are relative to A.
    stream
        Stream of both sides, or A,B. Of a source that is no feature file: what `pipeline import` calls --key.
    allow_pickle
        Read pickles. What is in one besides dicts, lists, texts, numbers and arrays is refused.
    most
        How many of the worst videos are listed.

    """
    from pipeline import comparing, printing

    if most < 0:
        raise BadSetting(f"--most {most}: expected 0 or more")
    names = tuple(name for text in stream for name in text.split(","))
    found = comparing.compare(a, b, names, allow_pickle)
    return printing.print_json(found) if json_ else printing.print_all(comparing.lines(found, most))


COMMANDS: dict[str, Callable[..., int]] = {"import": import_, "export": export, "compare": compare}
