"""Captions to words."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import BadSetting
from pipeline.tagging import tag
from pipeline.wordtable import TABLES, check_interest

MODEL = "en_core_web_sm"


def rows(texts):
    """Return, for each text, its words as (text, lemma, part of speech)."""
    columns = tag(texts, MODEL)
    offsets = columns["offsets"]
    tables = [
        columns[table][columns[name]] for name, table in (("text", "texts"), ("lemma", "lemmas"), ("pos", "tags"))
    ]
    words = list(zip(*tables, strict=True))
    return [words[a:b] for a, b in pairwise(offsets)]


def test_words_by_hand():
    found = rows(["two women were cutting tomatoes", "a man doesn't sing"])
    assert found[0] == [
        ("two", "two", "NUM"), ("women", "woman", "NOUN"), ("were", "be", "AUX"), ("cutting", "cut", "VERB"),
        ("tomatoes", "tomato", "NOUN"),
    ]  # fmt: skip
    assert found[1] == [
        ("a", "a", "DET"), ("man", "man", "NOUN"), ("does", "do", "AUX"), ("n't", "not", "PART"),
        ("sing", "sing", "VERB"),
    ]  # fmt: skip


def test_order_and_repeats_do_not_matter():
    texts = ["a dog runs", "the cat sleeps on a very long red sofa", "a dog runs", "a bird"]
    one, two = rows(texts), rows(texts[::-1])
    assert one == two[::-1]
    assert one[0] == one[2] != one[1]


def test_tables_are_sorted_and_used():
    columns = tag(["b a c", "c b"], MODEL)
    for name, table in TABLES.items():
        values = list(columns[table])
        assert values == sorted(set(values))
        assert set(columns[name]) == set(range(len(values)))


def test_nothing_at_all():
    columns = tag([], MODEL)
    assert columns["offsets"].tolist() == [0]
    assert all(len(values) == 0 for name, values in columns.items() if name != "offsets")


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=4))
def test_any_text_gives_the_words_at_their_places(texts):
    columns = tag(texts, MODEL)
    offsets = columns["offsets"]
    for at, text in enumerate(texts):
        span = slice(offsets[at], offsets[at + 1])
        places = list(zip(columns["start"][span], columns["end"][span], columns["text"][span], strict=True))
        for start, end, word in places:
            assert text[start:end] == columns["texts"][word]
            assert not text[start:end].isspace()
        # In order, without overlap, and nothing but white space left out.
        covered = np.zeros(len(text), int)
        for start, end, _ in places:
            covered[start:end] += 1
        assert covered.max(initial=0) <= 1
        assert [start for start, _, _ in places] == sorted(start for start, _, _ in places)
        assert all(character.isspace() for character, seen in zip(text, covered, strict=True) if not seen)


def test_a_model_that_is_not_installed_says_how_to_get_it():
    with pytest.raises(BadSetting, match="--spacy-model de_core_news_sm: not installed; install spaCy's own package"):
        tag(["ein Mann"], "de_core_news_sm")


@pytest.mark.parametrize("interest", [("NOUN", "WORD"), ()])
def test_parts_of_speech_that_there_are_not(interest):
    with pytest.raises(BadSetting, match="--interest .*: expected parts of speech among ADJ, ADP"):
        check_interest(interest)
