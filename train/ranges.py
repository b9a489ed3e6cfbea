"""What numbers the settings may have."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pipeline.errors import BadSetting

ABOVE_0 = math.ulp(0.0)
BELOW_1 = math.nextafter(1, 0)
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "batch", "save_every", "max_video_tokens", "negatives", "fusion_layers"), (1, math.inf)),
    **dict.fromkeys(("top_k", "delta_max", "sequence_layers", "iterations"), (1, math.inf)),
    **dict.fromkeys(("lr", "text_lr", "weight_decay", "warmup", "clip", "evaluate_every", "patience"), (0, math.inf)),
    **dict.fromkeys(("rerank", "video_layers", "token_weight", "fusion_chunk", "clip_layers"), (0, math.inf)),
    **dict.fromkeys(("coarse", "fine", "temporal", "overlap_weight"), (0, math.inf)),
    **dict.fromkeys(("clips", "kernel", "layers", "hidden", "dim"), (1, math.inf)),
    **dict.fromkeys(("t_min", "t_max", "nms"), (0, 1)),
    **dict.fromkeys(("tau", "gamma"), (ABOVE_0, math.inf)),
    **dict.fromkeys(("ema", "hold_out", "dropout"), (0, BELOW_1)),
    **dict.fromkeys(("window", "stride"), (0, math.inf)),
    **dict.fromkeys(("splits", "per_task", "epochs", "rows"), (1, math.inf)),
    "train_share": (0, BELOW_1),
    "share": (ABOVE_0, BELOW_1),
    "start": (0, 1),
    "max_text_tokens": (3, math.inf),  # the first, a word, the last
}
"""Least and most by the setting's name; infinity itself is never meant."""


def check(settings: Any, prefix: str = "") -> None:
    """Raise BadSetting for a number that cannot be; `prefix` is that of the settings' flags."""
    for field in dataclasses.fields(settings):
        value, (least, most) = getattr(settings, field.name), RANGES.get(field.name, (-math.inf, math.inf))
        if isinstance(value, int | float) and not (least <= value <= most and math.isfinite(value)):
            flag = f"--{prefix}{field.name.replace('_', '-')}"
            raise BadSetting(f"{flag} {value}: expected {_words(least, most)}")


def _words(least: float, most: float) -> str:
    low = "more than 0" if least == ABOVE_0 else f"{least:g} or more" if math.isfinite(least) else "a number"
    return low + (", less than 1" if most == BELOW_1 else f", {most:g} at most" if math.isfinite(most) else "")
