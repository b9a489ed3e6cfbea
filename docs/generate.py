"""Writes the documents that code can print: `python docs/generate.py [--check]`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

import extractors
from pipeline import datasets
from pipeline.cli import app as pipeline_app
from pipeline.printing import geometry
from train.cli import app as train_app

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py (`make docs`); do not edit. -->\n\n"
COMMANDS = [
    *(
        (pipeline_app, words)
        for words in (
            [], ["run", "extract"], ["run", "tag"], ["run", "idf"], ["run", "merge"],
            ["join"], ["list"], ["show"], ["verify"], ["repair"],
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


def main() -> int:
    """Write the documents, or say which are out of date."""
    wanted = {"commands.md": commands(), "presets.md": presets()}
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
    notes = ["\n## Where the choices come from\n"]
    for name in extractors.names():
        for p in extractors.get(name).PRESETS.values():
            c = p.chain
            where = f"{geometry(c)}, {c.scaler}"
            pixels = f"/{p.scale:g} − {p.mean}, / {p.std}"
            dims = ", ".join(f"{o.layer} {o.dim}" for o in p.outputs)
            cells = (f"`{p.name}`", f"{p.rows_per_second:g}", dims, f"{p.frames} at {c.fps:g} fps", where, pixels)
            lines.append(f"| {' | '.join([*cells, f'`{p.weights.file}`'])} |")
            notes.append(f"* `{p.name}`: {p.source}")
    lines.append("| `timm:MODEL` | 1 | the model's | 1 at 1 fps | the model's own | the model's own | timm's |")
    return "\n".join([*lines, *notes, ""])


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
