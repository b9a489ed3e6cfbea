"""Idf: the inverse document frequency of words over the training captions, and each caption's weights (TACo, eq. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.records import Outcome

if TYPE_CHECKING:
    from pipeline.captions import Block, Captions

BLOCK = 100_000
"""Captions in one item."""


@dataclass(frozen=True, kw_only=True)
class Idf:
    """Weigh the words of a feature file's captions by inverse document frequency. Tags them first if need be."""

    features: Path = Path("features.h5")
    """Feature file, or folder of shards, with captions."""
    split: str = ""
    """Training captions: SPLIT (its part `train`), SPLIT/PART, or `all`; default the data set's own."""
    form: Literal["surface", "lemma"] = "surface"
    """What counts as one word: its lower-cased form, or its lower-cased lemma."""
    min_count: int = 1
    """Words in fewer training captions than this have no weight."""
    chunk_seconds: float = 1.0
    """Not used: every block of captions is a chunk."""

    def items(self) -> Sequence[Block]:
        """Return the blocks of captions that are not yet counted."""
        place = place_of(self)
        return place.kept().left(place.blocks(BLOCK))

    def work(self, chunk: Sequence[Block]) -> list[Outcome]:
        """Count in how many training captions of each block each word stands."""
        from pipeline.frequencies import count

        place = place_of(self)
        for block in chunk:
            place.kept().write(block, count(place.path, block, self.split, self.form))
        return [Outcome(block.id, "ok") for block in chunk]

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Add the counts, and write the feature file anew with the weights."""
        from pipeline.frequencies import save

        if all(outcome.status == "ok" for outcome in outcomes):
            save(place_of(self), BLOCK, self.split, self.form, self.min_count)


def place_of(stage: Idf) -> Captions:
    """Return the captions, and where their counted blocks go."""
    from pipeline.captions import Captions, tables_file
    from pipeline.frequencies import training_captions, words_of

    path = tables_file(stage.features)
    training = training_captions(path, stage.split)
    settings = {"split": stage.split, "training": training, "form": stage.form, "words": words_of(path)}
    return Captions(path, "idf", settings)
