"""The papers' settings by name: `--preset NAME` stands for these flags; those that a user gives beside it win."""

from __future__ import annotations

import itertools

from pipeline.errors import unknown

_BERT = {"--method": "taco", "--text-encoder": "bert-base-uncased"}
_TACO = _BERT | {"--steps": "30000", "--batch": "128"}
_FUSED = _TACO | {"--video-layers": "2", "--fusion-layers": "2"}
_LONG = {"--max-video-tokens": "256", "--max-text-tokens": "256"}
_DEEP = _BERT | {"--video-layers": "4", "--fusion-layers": "2"}
_TUNED = _DEEP | {"--batch": "128", "--steps": "20000", "--lr": "2e-5"}

# Adam at 1e-4, x 0.1 at epochs 100 and 160 of 200, says the paper; `train` has only a linear decay to 0. Nothing is
# said of warm-up and weight decay. 200 epochs of HowTo100M would be 100 million steps: ours are as many as TACo's.
_LOCVTP = {
    "--method": "locvtp", "--text-encoder": "distilbert-base-uncased", "--steps": "500000", "--batch": "256",
    "--lr": "1e-4", "--warmup": "0", "--weight-decay": "0", "--max-video-tokens": "8", "--long": "uniform",
}  # fmt: skip

# CLIP4Clip's: five epochs over all captions, a tenth of them warm-up; a clip's frames are equidistant. CLIP's text
# encoder is trained at 1e-7, new layers at 1e-4; its image encoder, whose features are cached, is not.
_CLIP4CLIP = {
    "--method": "ncl", "--text-encoder": "openai/clip-vit-base-patch32", "--batch": "128",
    "--lr": "1e-4", "--text-lr": "1e-7", "--max-video-tokens": "12", "--max-text-tokens": "32", "--long": "uniform",
}  # fmt: skip
_MSRVTT = _CLIP4CLIP | {"--split": "split1", "--steps": "7000", "--warmup": "700"}
_MSVD = _CLIP4CLIP | {"--split": "msvd", "--steps": "1900", "--warmup": "190"}
_ACTIVITYNET = _CLIP4CLIP | {
    "--split": "paragraph", "--steps": "390", "--warmup": "39", "--max-video-tokens": "64", "--max-text-tokens": "64",
}  # fmt: skip

# 2D-TAN's: 100 epochs of batches of 32, Adam at 1e-4 without decay (ours falls to 0 linearly), gradients cut at 10.
_TAN2D = {
    "--text-encoder": "lstm", "--batch": "32", "--lr": "1e-4", "--warmup": "0", "--weight-decay": "0", "--clip": "10",
    "--max-video-tokens": "256", "--max-text-tokens": "40", "--long": "bins",
}  # fmt: skip
_ANET = _TAN2D | {"--val": "val_1", "--test": "val_2", "--steps": "117000"}

USUAL = {"locvtp": "locvtp", "ncl": "ncl-clip4clip", "tan2d": "tan2d", "spans": "spans"}
"""What a method takes where no preset is named; TACo's are the defaults of the flags."""
LISTS = ("--parts", "--normalise")
"""Flags that take several values, which commas may separate."""
PRESETS: dict[str, dict[str, str]] = {
    "taco-ablation": _TACO | {"--video-layers": "1", "--fusion-layers": "2"},
    "taco-youcook2": _FUSED | {"--split": "youcook2"},
    "taco-msrvtt-split1": _FUSED | {"--split": "split1"},
    "taco-msrvtt-split2": _FUSED | {"--split": "split2"},
    "taco-activitynet": _FUSED | _LONG | {"--split": "paragraph"},
    "taco-howto100m": _DEEP | {"--steps": "500000", "--batch": "64"},
    "taco-finetune": _TUNED,
    "taco-finetune-activitynet": _TUNED | _LONG | {"--split": "paragraph"},
    "locvtp": _LOCVTP,
    # Not in the paper: as many passes over MSR-VTT's 9,000 clips as the 200 epochs of pre-training.
    "locvtp-msrvtt": _LOCVTP | {"--split": "split1", "--steps": "7000"},
    "ncl-clip4clip": _CLIP4CLIP | {"--steps": "7000", "--warmup": "700"},
    "ncl-clip4clip-msrvtt": _MSRVTT,
    "ncl-clip4clip-msvd": _MSVD,
    "ncl-clip4clip-activitynet": _ACTIVITYNET,
    "tan2d": _TAN2D | {"--steps": "117000"},
    "tan2d-activitynet": _ANET | {"--split": "grounding"},
    "tan2d-charades": _TAN2D
    | {"--split": "charades_sta", "--steps": "38800"}
    | {"--clips": "16", "--kernel": "5", "--layers": "8", "--nms": "0.45"},
    "tan2d-tacos": _TAN2D
    | {"--split": "tacos", "--steps": "31700", "--clips": "128", "--kernel": "5"}
    | {"--layers": "8", "--t-min": "0.3", "--t-max": "0.7", "--nms": "0.4"},
    "spans": _TAN2D
    | {"--method": "spans", "--steps": "20000", "--lr": "3e-4", "--clip": "1", "--max-video-tokens": "64"},
}
"""TACo, section 4: Tables 2-4 and 11-13 use one video layer, the comparisons two, HowTo100M and what is tuned from it
four. LocVTP, section 4.1, on cached features of 8 clips. NCL on CLIP4Clip, with either `--ncl.head`. Flags without a
value have ''."""


def expanded(words: list[str]) -> list[str]:
    """Return a command's words with `--preset NAME` replaced by its flags, but for those that are given.

    >>> words = expanded(["--features", "f.h5", "--preset", "taco-msrvtt-split1", "--split", "split2"])
    >>> words.count("--split"), words[-4:]
    (1, ['--video-layers', '2', '--fusion-layers', '2'])
    """
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--preset=") else [word])]
    words = [part for before, word in zip(["", *words], words, strict=False) for part in _one_by_one(before, word)]
    name = _named(words)
    if not name:
        return words
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    given = {word.split("=", 1)[0].replace("--no-", "--", 1) for word in words if word.startswith("--")}
    if "--text-encoder" in given:
        given.add("--text-lr")  # it is the rate of the preset's own encoder, which is pretrained
    added = [(flag, value) for flag, value in PRESETS[name].items() if flag not in given]
    return [*words, *(word for pair in added for word in pair if word)]


def _named(words: list[str]) -> str:
    """Return the preset that a command names, or that its method takes without one; '' for none."""
    flags = dict(itertools.pairwise(words))
    if "--preset" in flags:
        return flags["--preset"]
    grounds = words[:1] == ["ground"]
    if not (grounds or "".join(words[:1]).startswith("-")):
        return ""
    joined = next((word.split("=", 1)[1] for word in words if word.startswith("--method=")), "tan2d" * grounds)
    return USUAL.get(flags.get("--method", joined), "")


def _one_by_one(flag: str, word: str) -> list[str]:
    """Return `L1,L2` after `--parts` as `L1 --parts L2`."""
    return word.replace(",", f",{flag},").split(",") if flag in LISTS else [word]
