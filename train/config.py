"""A run's settings: the fields are the flags of `train`, and what `settings.json` holds. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.errors import BadSetting, MissingWeights
from train import ranges
from train.settings import FLAGS, METHODS

if TYPE_CHECKING:
    import torch

Long = Literal["truncate", "uniform", "bins"]
IdfNorm = Literal["word", "piece"]
Pool = Literal["first", "mean", "last"]
TextPool = Literal["auto", "first", "mean", "last"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is trained on."""

    features: Path
    """Feature file, or folder of shards, with captions and idf weights."""
    streams: tuple[str, ...] = ()
    """Streams to train on, separated by commas; default: all there are."""
    split: str = ""
    """Split to train on (its part `train`) and to evaluate on (`test`, else `val`); `all` for both on all clips, which
    shows that training can fit, or with --hold-out evaluated on what is held out. Default: the one over which words
    were weighed, else the only one there is."""
    val: str = ""
    """Part to choose the best step by, as PART or SPLIT/PART; default: the split's `val`, if it has a `test` too."""
    test: str = ""
    """Part to report on; default: the split's `test`, else its `val`."""
    text_encoder: str = "bert-base-uncased"
    """Folder or name of a transformers encoder; `minilm` (installed with the demo); `tiny`, made from scratch; `lstm`,
    word vectors and an LSTM, for grounding."""
    glove: Path | None = None
    """Word vectors for `lstm`, which are then not trained: glove.6B.300d.txt or the like."""
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
    rerank: int = 0
    """In evaluations the fusion sees only each caption's best M clips, and each clip's best M captions, by the other
    scores; 0: all pairs."""
    save_every: int = 500
    """Steps between two checkpoints."""
    tensorboard: bool = False
    """Also write events for TensorBoard."""


@dataclass(frozen=True)
class Run:
    """Everything that decides a run. `method_settings` is the method's own `Settings`."""

    data: Data
    fit: Fit
    method: str
    method_settings: Any
    parts: tuple[str, str, str]
    """Parts to train on, to choose the best step by (or ''), and to report on (or '')."""
    task: str = "retrieval"
    """What the model is for, by which its steps are compared and its results are found."""
    seen: dict[str, str] = dataclasses.field(default_factory=dict)
    """What it was trained on: `train/seen.py`."""

    def as_json(self) -> str:
        """Return the settings as JSON."""
        values = {name: dataclasses.asdict(value) for name, value in self._groups().items()}
        own = {"task": self.task, "method": self.method, "parts": self.parts, "seen": self.seen}
        return json.dumps({**own, **values}, indent=2, default=str)

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
            "glove": found["data"]["glove"] and Path(found["data"]["glove"]),
        }
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in found["method_settings"].items()}
        own = METHODS[found["method"]](**settings)
        start = found["fit"]["start_from"]
        fit = {**found["fit"], "start_from": start and Path(start)}
        return Run(Data(**data), Fit(**fit), found["method"], own, tuple(found["parts"]), found["task"], found["seen"])
    except OSError:
        raise MissingWeights(f"{folder} is no run: it has no settings.json; `train --out {folder}` makes one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise MissingWeights(f"{path} is not what this version writes ({error}); train again") from error


def located(run: Run) -> Run:
    """Return a run whose files are found from any folder, and whose streams are named one by one."""
    data, fit = run.data, run.fit
    encoder = str(Path(data.text_encoder).absolute()) if Path(data.text_encoder).is_dir() else data.text_encoder
    streams = tuple(name for text in data.streams for name in text.split(",") if name)
    data = dataclasses.replace(
        data,
        features=data.features.absolute(),
        streams=streams,
        text_encoder=encoder,
        glove=data.glove and data.glove.absolute(),
    )
    fit = dataclasses.replace(fit, start_from=fit.start_from and fit.start_from.absolute())
    return dataclasses.replace(run, data=data, fit=fit)


def read_json(path: Path) -> dict[str, Any]:
    """Return what a run's JSON file holds. Raises MissingWeights."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise MissingWeights(f"{path} is not there; `train resume {path.parent}` brings the run to its end") from None
    except ValueError as error:
        raise MissingWeights(f"{path} is damaged ({error}); `train resume {path.parent}` writes it anew") from None
    return found


def check(run: Run, others: dict[str, Any]) -> None:
    """Raise BadSetting for a number that cannot be, and for settings of `others`, which are not the run's method."""
    for settings, prefix in ((run.data, ""), (run.fit, ""), (run.method_settings, FLAGS[run.method])):
        ranges.check(settings, prefix)
    check_rerank(run, run.fit.rerank)
    if run.task == "retrieval" and run.data.text_encoder == "lstm":
        raise BadSetting("--text-encoder lstm is for `train ground`: no first token of it stands for a caption")
    if run.data.hold_out and run.parts[1]:
        raise BadSetting(
            f"--hold-out {run.data.hold_out}: the split has validation clips, {run.parts[1]}; leave it out"
        )
    for name, settings in others.items():
        given = [field.name for field in dataclasses.fields(settings) if getattr(settings, field.name) != field.default]
        if name != run.method and given:
            flag = f"--{FLAGS[name]}{given[0].replace('_', '-')}"
            raise BadSetting(f"{flag} is of --method {name}, not of {run.method}; leave it out")


def check_rerank(run: Run, rerank: int) -> None:
    """Raise BadSetting where only the best are to be fused, and nothing is fused or nothing says which are best."""
    parts = run.method_settings.parts if run.method == "taco" else ()
    if rerank and not ("L3" in parts and len(parts) > 1):
        raise BadSetting(
            f"--rerank {rerank}: it needs TACo with L3 and, to choose what is fused, L1 or L2; leave it out"
        )


def device_of(name: str) -> torch.device:
    """Return the device called `name`; `auto` is the first GPU, if there is one. Raises BadSetting."""
    import torch

    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadSetting(f"--device {name}: expected auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise BadSetting(f"--device {name}: expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadSetting(f"--device {name}: {torch.cuda.device_count()} CUDA devices are there; choose cpu or another")
    return device


def parts_of(data: Data, there: list[str], default: str = "") -> tuple[str, str, str]:
    """Return the parts to train on, to select by and to report on. Raises BadSetting where none can be chosen."""
    split = data.split
    if split == "all":
        return "all", "", "" if data.hold_out else "all"
    splits = sorted({part.split("/")[0] for part in there if part.endswith("/train")})
    chosen = split or (default if default in splits else splits[0] if len(splits) == 1 else "")
    if f"{chosen}/train" not in there:
        raise BadSetting(
            f"--split {split or 'is needed'}: the file has {', '.join(splits) or 'no split with a train part'}"
        )
    usual = {name: f"{chosen}/{name}" if f"{chosen}/{name}" in there else "" for name in ("val", "test")}
    named = {
        name: part if "/" in part or not part else f"{chosen}/{part}"
        for name, part in vars(data).items()
        if name in usual
    }
    for name, part in named.items():
        if part and part not in there:
            raise BadSetting(f"--{name} {part}: the file has {', '.join(there)}")
    val, test = (named[name] or usual[name] for name in ("val", "test"))
    return f"{chosen}/train", val if test else "", test or val
