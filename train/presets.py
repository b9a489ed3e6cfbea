"""The papers' settings by name: `--preset NAME` stands for these flags; those that a user gives beside it win."""

from __future__ import annotations

from pipeline.errors import unknown

_TACO = ("--method", "taco", "--text-encoder", "bert-base-uncased", "--steps", "30000", "--batch", "128")
_FUSED = (*_TACO, "--video-layers", "2", "--fusion-layers", "2")
_LONG = ("--max-video-tokens", "256", "--max-text-tokens", "256")
_TUNED = ("--lr", "2e-5", "--steps", "20000")

PRESETS: dict[str, tuple[str, ...]] = {
    "taco-ablation": (*_TACO, "--video-layers", "1", "--fusion-layers", "2"),
    "taco-youcook2": _FUSED,
    "taco-msrvtt-split1": (*_FUSED, "--split", "split1"),
    "taco-msrvtt-split2": (*_FUSED, "--split", "split2"),
    "taco-activitynet": (*_FUSED, *_LONG, "--split", "paragraph"),
    "taco-howto100m": (
        "--method", "taco", "--text-encoder", "bert-base-uncased", "--steps", "500000", "--batch", "64",
        "--video-layers", "4", "--fusion-layers", "2",
    ),
    "taco-finetune": (
        "--method", "taco", "--text-encoder", "bert-base-uncased", "--batch", "128", "--video-layers", "4",
        "--fusion-layers", "2", *_TUNED,
    ),
}  # fmt: skip
"""TACo, section 4: Tables 2-4 and 11-13 use one video layer, the comparisons two, HowTo100M four."""


def expanded(words: list[str]) -> list[str]:
    """Return a command's words with `--preset NAME` replaced by its flags, but for those that are given.

    >>> expanded(["--features", "f.h5", "--preset", "taco-msrvtt-split1", "--split", "split2"])[-2:]
    ['--split', 'split2']
    """
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--preset=") else [word])]
    if "--preset" not in words[:-1]:
        return words
    name = words[words.index("--preset") + 1]
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    given = {word.split("=", 1)[0] for word in words if word.startswith("--")}
    flags = PRESETS[name]
    added = [w for flag, value in zip(flags[::2], flags[1::2], strict=True) if flag not in given for w in (flag, value)]
    return [*words, *added]
