"""What is run on videos: presets with their weights, and the settings that their rows depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import extractors
from extractors import weights
from extractors.spec import ExtractorError, Preset
from pipeline.errors import BadSetting, MissingWeights, UnknownName


@dataclass(frozen=True)
class Job:
    """One preset to extract, with the weights that were found for it."""

    preset: Preset
    weights: weights.Found
    compiled: bool = False
    """Whether the network is compiled; its rows are the same but for their last bits."""


def jobs(names: Sequence[str], given: Sequence[str]) -> tuple[Job, ...]:
    """Return the presets called `names`, with weights from `given` ('NAME=FILE' or 'random'), cache or address."""
    files = _weight_files(given)
    try:
        presets = {preset.name: preset for preset in (extractors.preset(name) for name in names)}
    except ExtractorError as error:
        raise UnknownName(str(error)) from None
    unused = set(files) - {""} - {key for p in presets.values() for key in (p.name, p.extractor)}
    if unused:
        raise BadSetting(f"--weights names {', '.join(sorted(unused))}, which --extractor does not")
    found = []
    for preset in presets.values():
        file = files.get(preset.name, files.get(preset.extractor, files.get("")))
        try:
            found.append(Job(preset, weights.find(preset, file)))
        except (ExtractorError, OSError, RuntimeError) as error:
            raise MissingWeights(str(error)) from None
    return tuple(found)


def compiled(todo: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs, those marked whose networks see one frame size only: each is compiled anew."""
    chains = [job.preset.chain for job in todo]
    fixed = [chain.crop is not None or chain.stretch is not None for chain in chains]
    return tuple(replace(job, compiled=one) for job, one in zip(todo, fixed, strict=True))


def _weight_files(given: Sequence[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not equals and text != "random":
            raise BadSetting(f"--weights {text}: expected NAME=FILE, NAME=random or random")
        files[name if equals else ""] = file if equals else text
    return files


def settings(job: Job, layer: int, dtype: str, autocast: bool) -> dict[str, Any]:
    """Return all that decides the rows of one stream; rows are comparable only if these are equal."""
    values = job.preset.as_json()
    output = values.pop("outputs")[layer]
    published = values.pop("weights")
    return {
        **values,
        **output,
        "weights": {"file": published["file"], "sha256": job.weights.sha256 or job.weights.source},
        "dtype": dtype,
        "autocast": autocast,
    }


def stream_settings(todo: Sequence[Job], dtype: str, autocast: bool) -> dict[str, dict[str, Any]]:
    """Return the settings of every stream that `todo` makes."""
    found = {
        name: settings(job, layer, dtype, autocast)
        for job in todo
        for layer, (name, _) in enumerate(job.preset.streams)
    }
    return cast(dict[str, dict[str, Any]], json.loads(json.dumps(found)))  # as they are read back
