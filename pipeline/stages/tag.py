"""Tag: captions to words, each with its lemma and part of speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.records import Outcome

if TYPE_CHECKING:
    from pipeline.captions import Block, Captions

BLOCK = 10_000
"""Captions in one item: what a worker holds, and what a killed one loses."""


@dataclass(frozen=True, kw_only=True)
class Tag:
    """Tag the captions of a feature file: words, lemmas, parts of speech, by spaCy."""

    features: Path = Path("features.h5")
    """Feature file, or folder of shards, to read captions from and to add words to."""
    spacy_model: str = "en_core_web_sm"
    """spaCy model: an installed package; other languages have their own."""
    interest: tuple[str, ...] = ("NOUN", "VERB")
    """Parts of speech of the tokens of interest, separated by commas: also PROPN, AUX, DET, ADP and so on."""
    allow_pickle: bool = False
    """With a data set: read annotations that are a pickle, of dicts, lists, texts, numbers; nothing in it is run."""
    force: bool = False
    """Tag again what is tagged."""
    chunk_seconds: float = 1.0
    """Not used: every block of captions is a chunk."""

    def items(self) -> Sequence[Block]:
        """Return the blocks of captions that are not yet tagged."""
        from pipeline.wordtable import is_current

        place = place_of(self)
        if not self.force and is_current(place):
            return []
        return place.kept().left(place.blocks(BLOCK))

    def work(self, chunk: Sequence[Block]) -> list[Outcome]:
        """Tag a few blocks of captions, each into a file of its own."""
        from pipeline.captions import texts
        from pipeline.tagging import tag

        place = place_of(self)
        for block in chunk:
            place.kept().write(block, tag(texts(place.path, block), self.spacy_model))
        return [Outcome(block.id, "ok") for block in chunk]

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Write the feature file anew, with the words of all blocks."""
        from pipeline.wordtable import save

        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        if not failed:  # half of the words would be taken for all of them
            save(place_of(self), BLOCK, self.interest, made=bool(outcomes) or self.force)


@lru_cache(maxsize=1)
def place_of(stage: Tag) -> Captions:
    """Return the captions, and where their tagged blocks go. Raises BadSetting for a model that is not there."""
    from pipeline.captions import Captions, tables_file
    from pipeline.tagging import identity

    return Captions(tables_file(stage.features), "words", identity(stage.spacy_model))
