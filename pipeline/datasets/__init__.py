"""Data sets: annotations and media files as they are downloaded, to a Manifest.

The file's name is the registry: `pipeline/datasets/msrvtt.py` is the data set `msrvtt`. What several of them need
is in `pipeline.sources`.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Protocol, cast

from pipeline.counts import Counts
from pipeline.errors import BadSetting, unknown
from pipeline.records import Manifest


class Dataset(Protocol):
    """What every `pipeline/datasets/NAME.py` offers."""

    HINT: str
    """What must lie in the root, in one sentence."""
    load: Callable[..., Manifest]
    """`load(root, ...)`: the manifest of what lies in root, in an order that does not depend on the file system."""


def names() -> list[str]:
    """Return the names of all data sets."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def get(name: str) -> Dataset:
    """Return the data set called `name`. Raises UnknownName with the names there are."""
    if name not in names():
        raise unknown("data set", name, names())
    return cast(Dataset, import_module(f"pipeline.datasets.{name}"))


def expected(name: str) -> Counts:
    """Return how large the whole data set is, part by part, as far as it is known."""
    found: Counts = getattr(get(name), "EXPECTED", {})
    return found


def papers(name: str) -> dict[str, tuple[int, str]]:
    """Return how many queries papers count in a part where it is another number than ours, and why."""
    return dict(getattr(get(name), "PAPERS", {}))


def default_split(name: str) -> str:
    """Return the split whose training captions are meant where none is named; '' where there is no such."""
    return str(getattr(get(name), "DEFAULT_SPLIT", "")) if name in names() else ""


def load(name: str, root: Path, videos: Path | None = None, allow_pickle: bool = False) -> Manifest:
    """Load the data set `name` from `root`; `videos` is the folder of its media files when that is elsewhere.

    Raises UnknownName, BadDataset, and BadSetting for `videos` where the data set has no such option, and for
    annotations in a pickle unless `allow_pickle`.
    """
    loader = get(name).load
    known = signature(loader).parameters
    if videos is not None and "videos" not in known:
        raise BadSetting(f"data set '{name}' has no folder of videos besides its root; leave out videos = {videos}")
    given = {"videos": videos, "allow_pickle": allow_pickle}
    return loader(root, **{option: value for option, value in given.items() if option in known})
