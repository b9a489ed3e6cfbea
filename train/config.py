"""A run's settings: the fields are the flags of `train`, and what `settings.json` holds. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter

from pipeline.errors import BadSetting, MissingWeights, unknown

if TYPE_CHECKING:
    import torch

Long = Literal["truncate", "uniform", "bins"]
IdfNorm = Literal["word", "piece"]
Pool = Literal["first", "mean", "last"]
TextPool = Literal["auto", "first", "mean", "last"]
Level = Literal["L1", "L2", "L3"]


def _levels(_: Any, tokens: Sequence[Any]) -> tuple[str, ...]:
    """Return the levels that a flag names, separated by commas or each with the flag before it."""
    names = tuple(name for token in tokens for name in token.value.split(","))
    if odd := [name for name in names if name not in get_args(Level)]:
        raise ValueError(f"{odd[0]} is none of {', '.join(get_args(Level))}")
    return names


Levels = Annotated[tuple[Level, ...], Parameter(converter=_levels)]


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is trained on."""

    features: Path
    """Feature file, or folder of shards, with captions and idf weights."""
    streams: tuple[str, ...] = ()
    """Streams to train on, separated by commas; default: all there are."""
    split: str = ""
    """Split to train on (its part `train`) and to evaluate on (`test`, else `val`); `all` for both on all clips, which
    shows that training can fit. Default: the one over which words were weighed, else the only one there is."""
    text_encoder: str = "bert-base-uncased"
    """Folder or name of a transformers encoder; `minilm` (installed with the demo); `tiny`, made from scratch."""
    freeze_text: bool = False
    """Leave the text encoder as it is; its token features are computed once."""
    idf_norm: IdfNorm = "word"
    """What sums to one over a caption: its words' weights, each piece having its word's; or its pieces' weights."""
    text_pool: TextPool = "auto"
    """What stands for a caption: its first token, [CLS]; its last one, as in CLIP; or the average of all, as MiniLM was
    trained. auto: the last one for CLIP, the first one for others."""
    max_video_tokens: int = 48
    """Video tokens of a clip at most."""
    max_text_tokens: int = 30
    """Word pieces of a caption at most, [CLS] and [SEP] included."""
    long: Long = "truncate"
    """What becomes of longer clips: their first tokens, equidistant ones, or averages of equal spans."""
    resident: Literal["auto", "yes", "no"] = "auto"
    """Hold all rows on the device, or read those of a batch from the file while others are trained on; auto: hold them
    if they take less than half of its free memory."""
    hold_out: float = 0.0
    """Share of the training clips that is kept for validation, where the split has no part `val`."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How it is trained; the defaults are TACo's."""

    steps: int = 30_000
    """Batches."""
    batch: int = 128
    """Pairs in a batch."""
    lr: float = 1e-4
    """Adam's rate after warm-up; it falls to 0 linearly."""
    text_lr: float | None = None
    """Adam's rate for the text encoder; default: --lr."""
    weight_decay: float = 1e-5
    """Adam's."""
    warmup: int = 5_000
    """Steps in which the rate rises linearly from 0."""
    clip: float = 1.0
    """Length that gradients are cut to; 0 leaves them."""
    seed: int = 0
    """Of weights, batches and dropout."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    autocast: bool = False
    """Networks in bfloat16; scores, losses and ranks stay in float32."""
    ema: float = 0.0
    """Decay of an average of the weights that is evaluated in their place, e.g. 0.999; 0: none."""
    compile: bool = False
    """Networks through torch.compile: a slow start, faster steps."""
    start_from: Path | None = None
    """Checkpoint, or folder of a run, whose weights training begins with."""
    evaluate_every: int = 1_000
    """Steps between two evaluations on the split's part `val`, or on what was held out; 0: never."""
    patience: int = 0
    """Evaluations without a better one after which training ends; 0: never."""
    save_every: int = 500
    """Steps between two checkpoints."""
    tensorboard: bool = False
    """Also write events for TensorBoard."""


@dataclass(frozen=True, kw_only=True)
class Taco:
    """TACo (Yang et al., ICCV 2021); the defaults are the paper's."""

    video_layers: int = 1
    """Self-attention layers of the video encoder: 0, 1, 2 or 4."""
    fusion_layers: int = 2
    """Self-attention layers over text and video together."""
    parts: Levels = ("L1", "L2", "L3")
    """Losses that are used (Table 3)."""
    token_weight: float = 0.5
    """lambda_t: L2 beside the others, and the words' score beside the others at test (appendix F)."""
    negatives: int = 8
    """K': hard negatives of each caption, and of each video, that are fused."""
    cascade: Literal["hard", "random", "all"] = "hard"
    """How these are picked: by L1's and L2's scores, by chance, or all there are in the batch."""
    aggregate: Literal["mean", "sum"] = "mean"
    """The words' part of that score: their mean by idf, or their sum (the paper's word)."""
    directions: Literal["both", "text"] = "both"
    """L1 and L3 contrast videos for a text, and texts for a video; or only the first, as eqs. 3 and 5 are written."""
    norm: Literal["none", "l2"] = "none"
    """Tokens as they are (the paper's), or of length 1 with a scale that is learnt."""
    tau: float = 1.0
    """tau_1 = tau_2: temperature; with --norm l2 where the scale begins."""
    dropout: float = 0.1
    """In attention and perceptrons, as in BERT."""
    fusion_chunk: int = 0
    """Pairs that are fused at once, in two passes: for the scores, and again for the gradients; 0: all, activations
    kept."""
    normalise: Levels = ()
    """Losses whose scores get NCL's biases in training (NCL, eq. 12)."""
    iterations: int = 4
    """Of Sinkhorn, for these."""
    detach: bool = False
    """No gradients through these iterations."""


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


METHODS: dict[str, type[Any]] = {"taco": Taco, "locvtp": Locvtp, "ncl": Ncl}
"""The settings of each method; `train/methods/NAME.py` is the method itself."""
WEIGH_WORDS = frozenset({"taco"})
"""Methods that need the idf weights of words; the others train on files without them."""


@dataclass(frozen=True)
class Run:
    """Everything that decides a run. `method_settings` is the method's own `Settings`."""

    data: Data
    fit: Fit
    method: str
    method_settings: Any
    parts: tuple[str, str, str]
    """Parts to train on, to choose the best step by (or ''), and to report on (or '')."""

    def as_json(self) -> str:
        """Return the settings as JSON."""
        values = {name: dataclasses.asdict(value) for name, value in self._groups().items()}
        return json.dumps({"method": self.method, "parts": self.parts, **values}, indent=2, default=str)

    def _groups(self) -> dict[str, Any]:
        return {"data": self.data, "fit": self.fit, "method_settings": self.method_settings}


def read(folder: Path) -> Run:
    """Return the settings of the run in a folder. Raises MissingWeights."""
    path = folder / "settings.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        data = {
            **found["data"],
            "features": Path(found["data"]["features"]),
            "streams": tuple(found["data"]["streams"]),
        }
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in found["method_settings"].items()}
        own = METHODS[found["method"]](**settings)
        start = found["fit"]["start_from"]
        fit = {**found["fit"], "start_from": start and Path(start)}
        return Run(Data(**data), Fit(**fit), found["method"], own, tuple(found["parts"]))
    except OSError:
        raise MissingWeights(f"{folder} is no run: it has no settings.json; `train --out {folder}` makes one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise MissingWeights(f"{path} is not what this version writes ({error}); train again") from error


def check(method: str, fit: Fit, data: Data) -> None:
    """Raise UnknownName for a method that is not there, BadSetting for a number that cannot be."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    for name, share in {"ema": fit.ema, "hold-out": data.hold_out}.items():
        if not 0 <= share < 1:
            raise BadSetting(f"--{name} {share}: expected 0 or more, and less than 1")
    least = {"steps": 1, "batch": 1, "lr": 0, "weight_decay": 0, "warmup": 0, "clip": 0, "save_every": 1}
    for name, value in least.items():
        if getattr(fit, name) < value:
            raise BadSetting(f"--{name.replace('_', '-')} {getattr(fit, name)}: expected {value} or more")


def device_of(name: str) -> torch.device:
    """Return the device called `name`; `auto` is the first GPU, if there is one. Raises BadSetting."""
    import torch

    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadSetting(f"--device {name}: expected auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadSetting(f"--device {name}: {torch.cuda.device_count()} CUDA devices are there; choose cpu or another")
    return device


def parts_of(split: str, there: list[str], default: str = "") -> tuple[str, str, str]:
    """Return the parts to train on, to select by and to report on. Raises BadSetting where none can be chosen."""
    if split == "all":
        return "all", "", "all"
    splits = sorted({part.split("/")[0] for part in there if part.endswith("/train")})
    chosen = split or (default if default in splits else splits[0] if len(splits) == 1 else "")
    if f"{chosen}/train" not in there:
        raise BadSetting(
            f"--split {split or 'is needed'}: the file has {', '.join(splits) or 'no split with a train part'}"
        )
    val, test = (f"{chosen}/{name}" if f"{chosen}/{name}" in there else "" for name in ("val", "test"))
    return f"{chosen}/train", val if test else "", test or val
