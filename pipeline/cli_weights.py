"""The command `pipeline weights`: which checkpoints there are, and getting them here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from extractors.spec import ExtractorError
from pipeline.errors import MissingWeights

weights = App(name="weights", help="List the networks' checkpoints, and get them here.")
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


@weights.default
def _list(*, json_: Json = False) -> int:
    """List every checkpoint: licence, size, sha256, addresses, and whether it is on this machine."""
    from extractors import catalogue
    from pipeline import printing

    return printing.print_checkpoints([catalogue.facts(checkpoint) for checkpoint in catalogue.known()], json_)


@weights.command(name="fetch")
def _fetch(names: Annotated[list[str], Parameter(required=True)], /) -> int:
    """Download checkpoints into torch hub's cache, from the publisher's address or another that is known.

    Parameters
    ----------
    names
        Extractors, presets or files, as `pipeline weights` lists them; timm:MODEL too.

    """
    from extractors import catalogue
    from pipeline import printing

    for name in names:
        with _said():
            path, verdict = catalogue.fetch(catalogue.named(name))
        printing.print_lines([f"{path}: {verdict}"])
    return 0


@weights.command(name="add")
def _add(file: Path, name: str, /) -> int:
    """Put a file of your own into the cache: it must have the published sha256, or fit where none is published.

    Parameters
    ----------
    file
        The checkpoint.
    name
        The extractor, preset or file it is for.

    """
    from extractors import catalogue
    from pipeline import printing

    with _said():
        path, verdict = catalogue.add(catalogue.named(name), file)
    return printing.print_lines([f"{path}: {verdict}"])


@weights.command(name="check")
def _check(names: list[str] | None = None, /) -> int:
    """Check the checkpoints that are here: sha256, or structure where none is published. Exit code 1 if one is wrong.

    Parameters
    ----------
    names
        Extractors, presets or files; default all that are here.

    """
    from extractors import catalogue
    from extractors import weights as files
    from pipeline import printing

    with _said():
        chosen = [catalogue.named(name) for name in names] if names else catalogue.known()
    right, wrong, absent = [], [], []
    for checkpoint in chosen:
        here = files.here(checkpoint.weights)
        try:
            if here is None:
                absent.append(f"{checkpoint.weights.file}: not here")
            else:
                right.append(f"{here[1]}: {catalogue.check(checkpoint, here[1])}")
        except (ExtractorError, OSError) as error:
            wrong.append(f"WRONG: {error}")
    counts = f"{len(right)} right, {len(wrong)} wrong, {len(absent)} not here"
    printing.print_lines([*right, *wrong, *(absent if names else []), counts])
    return 1 if wrong else 0


@contextmanager
def _said() -> Iterator[None]:
    """Make of an extractor's error the pipeline's, which is printed as one line."""
    try:
        yield
    except (ExtractorError, OSError) as error:
        raise MissingWeights(str(error)) from None
