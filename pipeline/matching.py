"""Names of other people's files to the ids of a data set's videos.

    index = Index(manifest.videos)
    index.find("QOlSCBRmfWY.mp4")          # 'v_QOlSCBRmfWY' of ActivityNet

A name is an id as it stands, or by its last folder, without what follows a dot (`.mp4`, `.avi`, once or more), without
`_2d` or `_3d` at the end, with or without `v_` in front, or as annotations call the video. The first that is an id
counts, so nothing is taken off a name that is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.foreign import KINDS
from pipeline.records import Video

PREFIX = "v_"
"""Of ActivityNet's ids, which some leave out."""


class Index:
    """The ids of a data set, by all the names they are known under."""

    def __init__(self, videos: Iterable[Video]) -> None:
        self._ids: dict[str, str] = {}
        originals = []
        for video in videos:
            self._ids[video.id] = video.id
            originals.append((video.original, video.id))
        for original, known in originals:
            if original:
                self._ids.setdefault(original, known)

    def find(self, name: str) -> str | None:
        """Return the id that `name` means, None if there is none."""
        return next((self._ids[form] for form in forms(name) if form in self._ids), None)


def forms(name: str) -> Iterator[str]:
    """Yield what a video called `name` may be called, the name itself first.

    >>> list(forms("a/v_x.mp4"))
    ['a/v_x.mp4', 'v_a/v_x.mp4', 'v_x.mp4', 'x.mp4', 'v_x', 'x']
    """
    seen: set[str] = set()
    for stem in _stems(name):
        for form in (stem, stem.removeprefix(PREFIX) if stem.startswith(PREFIX) else PREFIX + stem):
            if form not in seen:
                seen.add(form)
                yield form


def _stems(name: str) -> Iterator[str]:
    yield name
    last = name.rpartition("/")[2]
    yield last
    while "." in last[1:]:
        last = last.rpartition(".")[0]
        yield last
    for kind in KINDS:
        if last.endswith(kind):
            yield last.removesuffix(kind)
