"""A text encoder that knows the words of synthetic rows: a folder of `transformers`, with the directions as features.

With `--text-encoder FOLDER --text-pool mean --freeze-text` a caption is the average of its words' directions, which is
what its rows show: what is then learnt is where, not what words mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

PAD, UNKNOWN = "[PAD]", "[UNK]"


def save(folder: Path, words: Sequence[str], directions: NDArray[np.float64]) -> None:
    """Write the encoder: BERT without a layer, positions and types that are 0, and no scale but its layer norm's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([PAD, UNKNOWN, *words])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    raw.normalizer, raw.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=PAD, unk_token=UNKNOWN).save_pretrained(folder)
    dim = directions.shape[1]
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=dim, num_hidden_layers=0, num_attention_heads=1, intermediate_size=dim,
        max_position_embeddings=512, hidden_dropout_prob=0.0,
    )  # fmt: skip
    net = BertModel(config)
    with torch.no_grad():
        for parameter in net.embeddings.parameters():
            if parameter.ndim == 2:
                parameter.zero_()
        net.embeddings.word_embeddings.weight[2:] = torch.from_numpy(directions).float()
    net.save_pretrained(folder)
