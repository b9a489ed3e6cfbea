"""The generated documents say what the code says."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["commands.md", "presets.md", "formats.md"])
def test_what_code_can_print(name: str) -> None:
    generate = runpy.run_path(str(DOCS / "generate.py"))
    assert generate[name.removesuffix(".md")]() == (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.slow  # `make check` asks the same each time
def test_sizes_and_oddities_of_the_real_annotations(shared: Path) -> None:
    """Every annotation file loads, and has what `docs/datasets.md` says."""
    assert runpy.run_path(str(DOCS / "generate.py"))["data_sets"]() == (DOCS / "datasets.md").read_text(
        encoding="utf-8"
    )
