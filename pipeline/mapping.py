"""Paths as workers see them, where a file system stands in another place there: `--map-path FROM=TO`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.errors import BadSetting
from pipeline.plan import Item

Maps = tuple[tuple[Path, Path], ...]
"""(folder here, the same folder as workers see it)."""


def maps_of(texts: Sequence[str]) -> Maps:
    """Return what `--map-path FROM=TO` says, the longest FROM first. Raises BadSetting."""
    found = []
    for text in texts:
        here, equals, there = text.partition("=")
        if not (equals and Path(here).is_absolute() and Path(there).is_absolute()):
            raise BadSetting(f"--map-path {text}: expected FROM=TO, two whole paths that begin with /")
        found.append((Path(here), Path(there)))
    return tuple(sorted(found, key=lambda pair: -len(pair[0].parts)))


def moved(value: Any, maps: Maps) -> Any:
    """Return a value with all paths in it, at any depth of dataclasses and tuples, as workers see them."""
    if not maps:
        return value
    if isinstance(value, Path):
        below = ((here, there) for here, there in maps if value.is_relative_to(here))
        return next((there / value.relative_to(here) for here, there in below), value)
    if isinstance(value, tuple):
        some = tuple(moved(one, maps) for one in value)
        return some if any(new is not old for new, old in zip(some, value, strict=True)) else value
    if is_dataclass(value) and not isinstance(value, type):
        new = {field.name: moved(getattr(value, field.name), maps) for field in fields(value) if field.init}
        if isinstance(value, Item) and isinstance(value.path, Path):
            new["file"] = str(moved(value.path, maps))
        changed = {name: one for name, one in new.items() if one is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    return value
