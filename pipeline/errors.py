"""Every error a user can cause, drawn as a tree.

    PipelineError
    ├── UnknownName      an extractor, preset, data set, stage or split that does not exist
    ├── BadSetting       a flag's value that cannot be
    ├── BadDataset       annotations that are missing or damaged
    ├── MissingWeights   a checkpoint that is not here, or is not this network's
    ├── PresetMismatch   an output that was made with other settings
    ├── BadFeatureFile   a feature file that cannot be read or written
    └── BadVideo         one video that cannot be decoded: reported, and the run goes on

A message is one line: what was wrong, the value, the cure. All but `BadVideo` end the run with exit code 2.
"""

from collections.abc import Iterable


class PipelineError(Exception):
    """The root: printed as one line, never as a traceback."""


class UnknownName(PipelineError):
    """A name that is not there; the message lists those that are."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for a `name` that is not among the `known` ones."""
    return UnknownName(f"unknown {kind} '{name}'; there are: {', '.join(sorted(known)) or 'none'}")


class BadSetting(PipelineError):
    """A setting whose value cannot be used."""


class BadDataset(PipelineError):
    """Annotations that are missing or damaged: file, record, what was expected."""


class MissingWeights(PipelineError):
    """A checkpoint that is not here, or that belongs to another network."""


class PresetMismatch(PipelineError):
    """An output that was made with other settings; the message names the differences."""


class BadFeatureFile(PipelineError):
    """A feature file that cannot be read or written."""


class BadVideo(PipelineError):
    """One video that cannot be decoded. Belongs to an item: it is reported and the run goes on."""
