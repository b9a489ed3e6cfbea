"""Text encoders made from scratch over the words of training captions: `tiny`, and 2D-TAN's word vectors and LSTM."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import MissingWeights

log = logging.getLogger(__name__)

TINY, LSTM = "tiny", "lstm"
MADE = (TINY, LSTM)
TINY_DIM = 128
VECTOR, HIDDEN, LAYERS = 300, 512, 3
"""2D-TAN's: numbers of a word vector, of an LSTM state, LSTM layers."""
PAD, UNKNOWN, FIRST, LAST = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


class WordLstm(nn.Module):
    """Word vectors and an LSTM; the state after a caption's last word stands for it (2D-TAN, 3.2).

    Called as an encoder of transformers is. What follows a caption's last word does not change what comes before it.
    """

    def __init__(self, words: int, vectors: Tensor | None = None) -> None:
        """`vectors` (words, d): given ones, which are not trained."""
        super().__init__()
        self.words = nn.Embedding(words, VECTOR) if vectors is None else nn.Embedding.from_pretrained(vectors)
        self.lstm = nn.LSTM(self.words.embedding_dim, HIDDEN, LAYERS, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:  # noqa: ARG002
        """Return the states (B, S, d) as `last_hidden_state`."""
        return SimpleNamespace(last_hidden_state=self.lstm(self.words(input_ids))[0])


def make(
    name: str, texts: Sequence[str], seed: int, tokenizer_json: str = "", glove: Path | None = None
) -> tuple[Any, nn.Module, int]:
    """Return tokenizer, network and its dimensions; `tokenizer_json`: the tokenizer of one that was trained before."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer.from_str(tokenizer_json) if tokenizer_json else _words_of(texts, marked=name == TINY)
    ends = {"cls_token": FIRST, "sep_token": LAST} if name == TINY else {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=PAD, unk_token=UNKNOWN, **ends)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == TINY:
            return tokenizer, _bert(raw.get_vocab_size()), TINY_DIM
        vectors = None if glove is None else vectors_of(glove, raw.get_vocab())
        return tokenizer, WordLstm(raw.get_vocab_size(), vectors), HIDDEN


def _bert(words: int) -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = BertConfig(
        vocab_size=words, hidden_size=TINY_DIM, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=4 * TINY_DIM,
    )  # fmt: skip
    net: nn.Module = BertModel(sizes, add_pooling_layer=False)
    return net


def _words_of(texts: Sequence[str], marked: bool) -> Any:
    """Return a tokenizer whose pieces are the lower-cased words of `texts`, in the order of the alphabet.

    `marked`: [CLS] before and [SEP] after each caption.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    normalizer, cut = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    words = sorted({word for text in texts for word, _ in cut.pre_tokenize_str(normalizer.normalize_str(text))})
    special = [PAD, UNKNOWN, FIRST, LAST] if marked else [PAD, UNKNOWN]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    raw.normalizer, raw.pre_tokenizer = normalizer, cut
    if marked:
        raw.post_processor = processors.TemplateProcessing(
            single=f"{FIRST} $A {LAST}", special_tokens=[(FIRST, 2), (LAST, 3)]
        )
    return raw


def vectors_of(path: Path, vocabulary: dict[str, int]) -> Tensor:
    """Return (words, d) vectors of a GloVe file, a word and its numbers a line; 0 for words that are not in it."""
    found: dict[int, list[float]] = {}
    try:
        size, line = _numbers(path), ""
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                word, *numbers = line.rstrip().rsplit(" ", maxsplit=size)
                if word in vocabulary:
                    found[vocabulary[word]] = [float(number) for number in numbers]
    except OSError as error:
        raise MissingWeights(f"--glove {path}: {error.strerror}; give the file glove.6B.300d.txt or the like") from None
    except ValueError:
        raise MissingWeights(f"--glove {path}: a line is not a word and its numbers: {line:.60}") from None
    sizes = {len(values) for values in found.values()}
    if len(sizes) != 1:
        raise MissingWeights(f"--glove {path}: " + ("vectors of several lengths" if sizes else "none of our words"))
    vectors = torch.zeros(len(vocabulary), sizes.pop())
    for place, values in found.items():
        vectors[place] = torch.tensor(values)
    log.info("%s: vectors of %d of %d words; the others' are 0", path.name, len(found), len(vocabulary))
    return vectors


def _numbers(path: Path) -> int:
    """Return how many numbers a line has: the least of the first lines, as a word of GloVe may have blanks."""
    with path.open(encoding="utf-8") as lines:
        return min((len(line.rstrip().split(" ")) - 1 for line in islice(lines, 1000)), default=0)
