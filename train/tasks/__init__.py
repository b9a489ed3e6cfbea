"""What models are for and are judged by, one file each: `train/tasks/steps.py` is `train evaluate --task steps`.

Every file offers `show(results)`, which prints them for people. A task that is trained for, retrieval or grounding,
has `selection(run, model, val)`, the number by which steps are compared, and `results(run, model, parts)`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

NAMES = ("retrieval", "grounding", "steps", "segmentation", "probes")


def get(name: str) -> ModuleType:
    """Return the task called `name`."""
    return import_module(f"train.tasks.{name}")
