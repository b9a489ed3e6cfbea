"""Where tests find things, and when they skip."""

from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

SHAPES = (
    "candidates", "correspondence", "linear", "losses", "metrics", "moments", "normalisation", "placement", "probing",
    "segments", "windows",
)  # fmt: skip
"""Modules of functions on tensors."""
# Shapes in signatures are checked here, and only here; before the modules are imported.
install_import_hook(
    ["extractors.networks", *(f"train.{name}" for name in SHAPES)],
    "beartype.beartype",
)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's shared data, beside the checkout."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the shared data folder is not here")
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Networks run as they do in a worker: on one thread."""
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `gpu` tests, here and nowhere else, where there is no CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
