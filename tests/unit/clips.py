"""A CLIP of a few numbers, untrained, as a folder of `transformers`."""

from pathlib import Path
from typing import Any

import torch

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def save(folder: Path) -> Any:
    """Write it with its tokenizer, of single letters, and return it."""
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizerFast

    pieces = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = CLIPTokenizerFast(vocab=vocabulary, merges=[])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": len(pieces) - 2, "eos_token_id": len(pieces) - 1, "pad_token_id": len(pieces) - 1}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config={**sizes, **ends, "vocab_size": len(pieces)},
        vision_config={**sizes, "image_size": 32, "patch_size": 16},
        projection_dim=24,
    )
    model = CLIPModel(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model
