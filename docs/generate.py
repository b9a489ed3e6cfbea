"""Writes the documents that code can print: `python docs/generate.py [--check]`."""

from __future__ import annotations

import inspect
import io
import sys
from pathlib import Path

from rich.console import Console

import extractors
from extractors import catalogue
from pipeline import datasets, diagnosing
from pipeline import formats as foreign
from pipeline.cli import app as pipeline_app
from pipeline.printing import geometry, pixels, sampling
from train.cli import app as train_app

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py (`make docs`); do not edit. -->\n\n"
COMMANDS = [
    *(
        (pipeline_app, words)
        for words in (
            [], ["run", "extract"], ["run", "tag"], ["run", "idf"], ["run", "merge"],
            ["join"], ["list"], ["show"], ["verify"], ["repair"],
            ["import"], ["export"], ["compare"],
            ["weights"], ["weights", "fetch"], ["weights", "add"], ["weights", "check"],
            ["frames"],
        )
    ),
    *(
        (train_app, [name] * bool(name))
        for name in ("", "ground", "resume", "evaluate", "export-features", "segment", "probe", "list", "compare")
    ),
]  # fmt: skip
ANNOTATIONS = HERE.parents[1] / "shared/data"
"""Real annotations beside the checkout: what `datasets.md` counts. Where they are not, that page is left alone."""
FOLDERS = {"epic_kitchens100": "epic_kitchens", "youcook2_ja": "youcook2"}
"""Of data sets whose folder there has another name."""


ABOUT_FORMATS = (
    """`--rate`, `--row-seconds` and `--l2` or `--no-l2` must be stated: hardly any format says them, and rows that are
    taken for others are the commonest mistake there is. `--l2` is checked against the length of every row. What was
    stated is kept in the stream's settings, where the preset of an extracted one is.""",
    """Rows are kept bit for bit in float16 or float32. float64 becomes float32, with a warning. Rows that are not
    finite, not two-dimensional, or of another dim or type than those before end the import, with the name of the
    video.""",
    """With `--dataset` the tables (clips, captions, splits) are written as `pipeline run extract` does, and names are
    matched with ids: as they stand, by their last folder, without what follows a dot (`VIDEO.mp4.npy`), without
    `_2d` or `_3d`, with or without `v_` in front. Names that match nothing are in `OUT.unmatched.jsonl`; videos
    without features have failed and are in `OUT.failures.jsonl`. Without a data set ids are the names.""",
    """`--model` says what made the rows. Streams of one model, rate, window, type and normalisation are one stream,
    whatever they were imported from; without it, only those from one source are.""",
    """`pipeline join` puts imported streams beside extracted ones of the same data set. Their rows came without the
    media files, so they are not dropped when such a file changes, and `verify` cannot compare their number with a
    duration that nobody has decoded.""",
    """`pipeline export` writes raw rows, or with `--l2` normalised ones, under their ids. What no format has a place
    for (rate, window, model, normalised or not, the whole preset, the order of the videos, which have no rows and
    why) is in `about.json` in the folder, or `OUT.about.json` beside the file; `pipeline import` reads it, and then
    nothing has to be stated.""",
)
"""Of importing and exporting, a point each."""
ABOUT_MISTAKES = """
Certain, as nothing else leaves such a trace: equal rows, float16's rounding, L2 on one side, a factor, other dims,
another number of rows, another rate. Rows of other moments lie between the other side's rows, and their differences
are not alike within a video: of half a second's shift in real videos the direction was found in 221 of 240 cases,
and of 1,560 cases of changed pictures one was taken for a shift (a possible one). One vector in all rows: a mean
that was not subtracted. Rows that have nothing in common: another network.

All else is pictures that were made otherwise, and the numbers cannot say how: what is listed is what was measured
to move rows as much, the nearest first, and it is never called more than possible. In 1,230 cases the true cause
was listed in 87 per cent, among two on average, and the first in 63. Measured (`python -m benchmarks.mistakes`): 5
per cent, median and 95 per cent of the error relative to the spread of a video's rows, of how unevenly rows are
moved (standard deviation over mean), and of how far the logarithm of their length changes. The videos were 8 to 12
real ones, the networks one with published weights (EfficientNet-Lite0) and three without, and the reference rows of
the HowTo100M extractor.
"""


def main() -> int:
    """Write the documents, or say which are out of date."""
    wanted = {"commands.md": commands(), "presets.md": presets(), "formats.md": formats()}
    if ANNOTATIONS.is_dir():
        wanted["datasets.md"] = data_sets()
    stale = [name for name, text in wanted.items() if not _same(HERE / name, text)]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/{name} is out of date: run `make docs`")
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(wanted[name], encoding="utf-8")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def commands() -> str:
    """Return the help of every command."""
    parts = [f"{NOTE}# Commands\n"]
    for app, words in COMMANDS:
        out = io.StringIO()
        app.help_print(words, console=Console(file=out, width=110, color_system=None))
        text = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
        parts.append(f"## `{' '.join([app.name[0], *words])}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def presets() -> str:
    """Return the table of presets, with the sources of their choices."""
    lines = [
        f"{NOTE}# Presets\n",
        "| preset | rows a second | dims | frames | geometry | pixels | weights |",
        "|" + "---|" * 7,
    ]
    notes = ["\n## Where the choices come from, and what differs from there\n"]
    for name in extractors.names():
        for p in extractors.get(name).PRESETS.values():
            dims = ", ".join(f"{o.layer} {o.dim}" for o in p.outputs)
            frames = sampling(p.frames, p.chain.fps, p.step)
            where = f"{geometry(p.chain)}, {p.chain.scaler}"
            cells = (f"`{p.name}`", f"{p.rows_per_second:g}", dims, frames, where, pixels(p))
            lines.append(f"| {' | '.join([*cells, f'`{p.weights.file}`' if p.weights.file else ''])} |")
            differs = [f"*Differs:* {p.differs}"] if p.differs else []
            warned = [f"**Warning:** {p.warning}."] if p.warning else []
            notes.append(" ".join([f"* `{p.name}`: {p.source}", *warned, *differs]))
    lines.append("| `timm:MODEL` | 1 | the model's | 1 at 1 fps | the model's own | the model's own | timm's |")
    return "\n".join([*lines, *notes, *_checkpoints(), ""])


def _checkpoints() -> list[str]:
    """Return the table of checkpoints, as `pipeline weights` lists them."""
    lines = [
        "\n## Checkpoints\n",
        "`pipeline weights` lists them with whether they are here; `pipeline weights fetch NAME` downloads one, and "
        "`pipeline weights add FILE NAME` takes one of your own. A file whose publisher gives its sha256 is known by "
        "it, another by its structure alone: its keys and shapes, all of them.\n",
        "| file | licence | MiB | sha256 | addresses |",
        "|" + "---|" * 5,
    ]
    for row in map(catalogue.facts, catalogue.known()):
        addresses = [f"{one['address']}{' (dead)' if one['dead'] else ''}" for one in row["official"]]
        addresses += [f"{address} (other people's)" for address in row["mirrors"]]
        digest = f"`{row['sha256'][:12]}`" if row["sha256"] else "not published"
        size = f"{row['mib']:.1f}" if row["mib"] else "unknown"
        cells = (f"`{row['file']}`", row["license"], size, digest, "; ".join(addresses) or row["note"])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def formats() -> str:
    """Return what each format of other systems is, and how far the usual mistakes move rows."""
    lines = [
        f"{NOTE}# Features of other systems\n",
        "```sh",
        "pipeline import npy features/ --out s3d.h5 --stream s3d --model s3d:univl --rate 1 --row-seconds 1 --no-l2 \\",
        "    --dataset msrvtt --root data/msrvtt",
        "pipeline export hdf5_grouped features.h5 --stream s3d_howto100m:univl --out anet.h5 --l2",
        "pipeline compare features.h5 theirs/ --stream resnet152:howto100m",
        "```\n",
        *(f"* {inspect.cleandoc(text)}" for text in ABOUT_FORMATS),
        "\n| format | what SOURCE is | exported |",
        "|---|---|---|",
    ]
    for name in foreign.names():
        lines.append(f"| `{name}` | {foreign.get(name).SOURCE} | {'yes' if name in foreign.written() else ''} |")
    for name in foreign.names():
        lines.append(f"\n## `{name}`\n\n{inspect.getdoc(foreign.get(name))}")
    lines += [
        "\n## What `pipeline compare` knows of mistakes\n",
        inspect.cleandoc(ABOUT_MISTAKES),
        "\n| pictures made with | error | uneven | length |",
        "|---|---|---|---|",
    ]
    for p in diagnosing.PICTURES:
        spans = (" – ".join(f"{x:g}" for x in values) for values in (p.error, p.uneven))
        lines.append(f"| {p.name} | {' | '.join(spans)} | up to {p.length:g} |")
    return "\n".join([*lines, ""])


def data_sets() -> str:
    """Return what each data set is, how large it is, and what is odd in its annotations."""
    lines = [
        f"{NOTE}# Data sets\n",
        "What a data set is read from, which splits it has and by which rule each oddity is mended is in the docstring "
        "of its file, `pipeline/datasets/NAME.py`. `pipeline run extract` and `pipeline run tag` list every record "
        "that a rule touched in `OUT.oddities.jsonl`.\n",
        "## Sizes of the whole data sets, as `pipeline show` and `pipeline verify` expect them\n",
        "| data set | part | videos | clips | captions | gallery | steps |",
        "|" + "---|" * 7,
    ]
    for name in datasets.names():
        for part, sizes in datasets.expected(name).items():
            numbers = (
                f"{sizes[k]:,}" if k in sizes else "" for k in ("videos", "clips", "captions", "gallery", "steps")
            )
            lines.append(f"| `{name}` | {part or 'all'} | {' | '.join(numbers)} |")
    lines += [
        "\n## Oddities found in real annotation files\n",
        "Counted over the files that the tests use: whole files as released, but a subset of COIN, CrossTask, "
        "EPIC-KITCHENS-100, Conceptual Captions and WebVid.\n",
        "| data set | oddity | rule | records | the first |",
        "|" + "---|" * 5,
    ]
    for name in datasets.names():
        root = ANNOTATIONS / FOLDERS.get(name, name)
        for o in datasets.load(name, root).oddities if root.is_dir() else ():
            first = o.records[0][:60].replace("|", "\\|")
            lines.append(f"| `{name}` | {o.kind} | {o.rule} | {len(o.records):,} | {first} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
