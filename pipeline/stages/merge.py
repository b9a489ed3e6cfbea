"""Merge: HowTo100M's captions to clips whose text has ten words or more (TACo, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.records import Outcome

if TYPE_CHECKING:
    from pipeline.captions import Block
    from pipeline.merged import Place

BYTES = 16 << 20
"""Of the caption file in one item; of a folder with a file for each video, files."""


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merge short neighbouring captions of speech recognition into longer ones, in a captions-only feature file."""

    root: str = ""
    """Folder of the data set, or its caption file; default $DATA_ROOT/howto100m, data/howto100m."""
    out: Path = Path("captions.h5")
    """Feature file to write: captions and clips, no streams."""
    min_words: int = 10
    """Words that a text should have; one without enough neighbours stays shorter."""
    max_gap: float = 5.0
    """Seconds between two captions beyond which they are never merged."""
    max_seconds: float = 30.0
    """Seconds that a merged clip lasts at most; a single caption that is longer stays as it is."""
    allow_pickle: bool = False
    """Read captions that are a pickle: its dicts, lists, texts, numbers and arrays; nothing in it is run."""
    chunk_seconds: float = 1.0
    """Not used: every range of the file is a chunk."""

    def items(self) -> Sequence[Block]:
        """Return the ranges of the caption file that are not yet merged."""
        place = place_of(self)
        return place.kept().left(place.ranges(BYTES))

    def work(self, chunk: Sequence[Block]) -> list[Outcome]:
        """Merge the captions of the videos that begin in each range, into a file of its own."""
        from pipeline.merged import merge_range

        for item in chunk:
            merge_range(place_of(self), item)
        return [Outcome(item.id, "ok") for item in chunk]

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Put the ranges together, in the order of the caption file."""
        from pipeline.merged import save

        if all(outcome.status == "ok" for outcome in outcomes):
            print(save(place_of(self), BYTES))


@lru_cache(maxsize=1)
def place_of(stage: Merge) -> Place:
    """Return the captions' file, and where its merged ranges go. Raises BadDataset where there is none."""
    from pipeline.merged import find
    from pipeline.restricted import permit

    settings = {"min_words": stage.min_words, "max_gap": stage.max_gap, "max_seconds": stage.max_seconds}
    place = find(stage.root, stage.out, settings)
    permit(place.source, stage.allow_pickle)
    return place
