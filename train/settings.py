"""The settings of each method: their fields are flags of `train`. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["L1", "L2", "L3"]


@dataclass(frozen=True, kw_only=True)
class Taco:
    """TACo (Yang et al., ICCV 2021); the defaults are the paper's."""

    video_layers: int = 1
    """Self-attention layers of the video encoder: 0, 1, 2 or 4."""
    fusion_layers: int = 2
    """Self-attention layers over text and video together."""
    parts: tuple[Level, ...] = ("L1", "L2", "L3")
    """Losses that are used (Table 3)."""
    token_weight: float = 0.5
    """lambda_t: L2 beside the others, and the words' score beside the others at test (appendix F)."""
    negatives: int = 8
    """K': hard negatives of each caption, and of each video, that are fused."""
    cascade: Literal["hard", "random", "all"] = "hard"
    """How these are picked: by the scores of L1 and L2, whichever are trained (by chance if neither is), by chance, or
    all there are in the batch."""
    start: float = 0.0
    """Share of the steps in which negatives are picked by chance before the cascade picks hard ones; the paper says
    nothing of one. Scores of a model that has learnt nothing know no hard ones."""
    aggregate: Literal["mean", "sum"] = "mean"
    """The words' part of that score: their mean by idf, or their sum (the paper's word)."""
    directions: Literal["both", "text"] = "both"
    """L1 and L3 contrast videos for a text, and texts for a video; or only the first, as eqs. 3 and 5 are written."""
    norm: Literal["none", "l2"] = "none"
    """Tokens as they are (the paper's), or of length 1 with a scale that is learnt."""
    tau: float = 1.0
    """tau_1 = tau_2: temperature; with --norm l2 where the scale begins."""
    dropout: float = 0.1
    """After attention and in perceptrons; a text encoder has its own."""
    fusion_chunk: int = 0
    """Pairs that are fused at once, in two passes: for the scores, and again for the gradients; 0: all, activations
    kept."""
    normalise: tuple[Level, ...] = ()
    """Losses whose scores get NCL's biases in training (NCL, eq. 12)."""
    iterations: int = 4
    """Of Sinkhorn, for these."""
    detach: bool = False
    """No gradients through these iterations."""

    @property
    def contextual(self) -> bool:
        """Whether a video token knows of the others."""
        return self.video_layers > 0


@dataclass(frozen=True, kw_only=True)
class Locvtp:
    """LocVTP (Cao et al., ECCV 2022); the defaults are the paper's."""

    clip_layers: int = 0
    """Self-attention layers over a video's clips; 0: clip by clip, without positions, which the probes need."""
    top_k: int = 3
    """K: words that a clip goes with."""
    correspondence: Literal["clip-topk", "word-topk", "2d-topk", "random"] = "clip-topk"
    """Who picks: each clip its words, each word its clips, the best of the whole map, or chance (Table 5a)."""
    own_words: Literal["mask", "keep"] = "mask"
    """The other words of a clip's own sentence in the denominators: left out, or kept as eq. 3 is written."""
    same_words: Literal["mask", "keep"] = "mask"
    """Words of other sentences that are the ones a clip has chosen: left out, or kept."""
    delta_max: int = 4
    """Clips that the warping head looks away at most."""
    direction: bool = True
    """The warping head is told on which side (Table 5c)."""
    distance: bool = True
    """The warping head is told how far away (Table 5c)."""
    modality: Literal["cross", "intra"] = "cross"
    """What a warped clip finds: its words, or itself among clips (Table 5e)."""
    mode: Literal["weighted", "warm-up", "multi-stage"] = "weighted"
    """What becomes of the coarse loss while training (Table 4a)."""
    start: float = 0.0
    """Share of the steps before L_f and L_t begin, as their labels are the features' own and poor at first."""
    coarse: float = 0.5
    """lambda_c"""
    fine: float = 1.0
    """lambda_f"""
    temporal: float = 1.0
    """lambda_t"""
    symmetric: bool = False
    """L_c in both directions; eq. 1 has video to text."""
    tau: float = 0.07
    """Temperature of all three losses."""
    dropout: float = 0.0
    """In attention and perceptrons."""

    @property
    def contextual(self) -> bool:
        """Whether a video token knows of the others."""
        return self.clip_layers > 0


@dataclass(frozen=True, kw_only=True)
class Ncl:
    """NCL (Park et al., EMNLP 2022) on CLIP4Clip's heads; the defaults are the papers'."""

    head: Literal["mean", "transformer"] = "mean"
    """A clip's vector: the average of its frames, or of what a sequence transformer adds to them."""
    sequence_layers: int = 4
    """Layers of that transformer."""
    normalise_training: bool = True
    """Train with Sinkhorn's biases (eq. 12), or plainly contrastive (eq. 4), which is CLIP4Clip."""
    iterations: int = 4
    """Of Sinkhorn."""
    detach: bool = False
    """No gradients through these iterations."""
    gamma: float = 0.07
    """Temperature with which training begins; it is learnt."""
    dropout: float = 0.0
    """In the sequence transformer."""

    @property
    def contextual(self) -> bool:
        """Whether a video token knows of the others."""
        return self.head == "transformer"


@dataclass(frozen=True, kw_only=True)
class Tan2d:
    """2D-TAN (Zhang et al., AAAI 2020); the defaults are the original's for ActivityNet Captions."""

    clips: int = 64
    """N: clips that a video is averaged to; the map is N x N. 16, 64 and 128 are the original's."""
    map: Literal["pool", "conv"] = "pool"
    """A candidate's features: the maximum over its clips, or stacked convolutions."""
    kernel: int = 9
    """Of the convolutions over the map; odd."""
    layers: int = 4
    """Convolutions over the map."""
    hidden: int = 512
    """Numbers of a candidate."""
    start: Literal["even", "conv2d"] = "even"
    """Weights over the map begin the same for all neighbours, which keeps the scale of values; or as in the original
    code, where gradients are at first too small for Adam in the first layers."""
    t_min: float = 0.5
    """Overlap with the truth up to which a candidate's target is 0."""
    t_max: float = 1.0
    """Overlap from which it is 1."""
    nms: float = 0.5
    """Overlap above which the worse of two moments is left out."""


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Grounding by a span of each video token, without candidates (`train/methods/spans.py`)."""

    dim: int = 256
    """Numbers of a token, 64 for each attention head."""
    layers: int = 2
    """Self-attention layers over words and video together."""
    overlap_weight: float = 3.0
    """lambda: the spans' overlap with the moment beside what tokens say of it."""
    dropout: float = 0.1
    """In attention and perceptrons."""
    nms: float = 0.5
    """Overlap above which the worse of two moments is left out."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How a video encoder goes over a whole video; one that sees rows one by one needs no windows."""

    window: float = 0.0
    """Seconds that the video encoder sees at once; 0: as many as it was trained on at most."""
    stride: float = 0.0
    """Seconds from one window to the next; 0: half a window. What windows share is averaged."""


@dataclass(frozen=True, kw_only=True)
class Placing:
    """Step localisation."""

    splits: int = 5
    """Random splits, of which mean and spread are given."""
    per_task: int = 30
    """Videos of each task that are not tested but choose the temperature."""


@dataclass(frozen=True, kw_only=True)
class Segmenting:
    """Action segmentation."""

    epochs: int = 10
    """Of the linear head over all seconds of training videos."""
    batch: int = 1024
    """Seconds in a batch."""
    lr: float = 3e-3
    """Adam's rate at the beginning; it falls to 0 linearly."""
    weight_decay: float = 0.0
    """Adam's."""
    seed: int = 0
    """Of the order of the seconds, and of --train-share."""
    train_share: float = 0.0
    """Train on this share of the part's videos, drawn by chance, and test on the others; 0: the split's own parts."""
    zero_shot: bool = False
    """No training: a second is of the step whose text it is most like, or background below a threshold."""
    threshold_by: Literal["balanced", "frame"] = "balanced"
    """What that threshold is chosen by on training videos: background and foreground alike, or frame accuracy."""


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Probes."""

    clips: int = 5
    """Equidistant rows of a video, of which order and distance are probed."""
    labels: str = ""
    """Probe these instead: `clips`, the labels that the data set gives its clips; or a CSV file of ID,LABEL, of clips
    or videos."""
    rows: int = 64
    """Rows of a clip that the attentive probe sees at most: averages of equal spans of longer ones."""
    share: float = 0.8
    """Of the videos to train on, drawn by chance, where no split is named."""
    seed: int = 0
    """Of that draw, and of the attentive probe."""


METHODS: dict[str, type[Any]] = {"taco": Taco, "locvtp": Locvtp, "ncl": Ncl, "tan2d": Tan2d, "spans": Spans}
"""The settings of each method; `train/methods/NAME.py` is the method itself."""
TASKS = {"retrieval": ("taco", "locvtp", "ncl"), "grounding": ("tan2d", "spans")}
"""The methods of each task."""
FLAGS = {"taco": "", "locvtp": "locvtp.", "ncl": "ncl.", "tan2d": "", "spans": "spans."}
"""How the flags of a method begin."""
WEIGH_WORDS = frozenset({"taco"})
"""Methods that need the idf weights of words; the others train on files without them."""
