"""The training loop: everything a step does, top to bottom, in `fit`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.errors import MissingWeights, PipelineError
from train import batches, checkpoint, methods
from train.config import Run
from train.data import Corpus
from train.text import Pieces

Evaluate = Callable[[nn.Module], float]
"""The number by which steps are compared, higher is better; of the part `val`."""


@dataclass
class State:
    """What changes while training; all of it is in a checkpoint."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    step: int = 0
    best: float = -1.0
    best_step: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        parts = {name: getattr(self, name).state_dict() for name in ("optimiser", "schedule")}
        numbers = {name: getattr(self, name) for name in ("step", "best", "best_step")}
        return {"model": self.weights(), **parts, **numbers, "rng": torch.get_rng_state(), "cuda_rng": _cuda_rng()}

    def weights(self) -> dict[str, Tensor]:
        """Return what is learnt: not the weights of a frozen encoder."""
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        return {name: value for name, value in self.model.state_dict().items() if name not in frozen}

    def load_weights(self, found: dict[str, Tensor]) -> None:
        """Take weights of a checkpoint. Raises MissingWeights where they are another model's."""
        own = self.weights()
        odd = sorted(own.keys() ^ found.keys()) + [
            n for n in own.keys() & found.keys() if own[n].shape != found[n].shape
        ]
        if odd:
            raise MissingWeights(
                f"the checkpoint is of another model: {odd[0]} differs, and {len(odd) - 1} more; use the text encoder, "
                "streams and layers that it was trained with"
            )
        self.model.load_state_dict(found, strict=False)

    def restore(self, found: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.load_weights(found["model"])
        for name in ("optimiser", "schedule"):
            getattr(self, name).load_state_dict(found[name])
        for name in ("step", "best", "best_step"):
            setattr(self, name, found[name])
        torch.set_rng_state(found["rng"].cpu())
        if found["cuda_rng"] is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(found["cuda_rng"].cpu())


def _cuda_rng() -> Tensor | None:
    return torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def begin(run: Run, model: nn.Module) -> State:
    """Return the state before the first step: Adam, linear warm-up, linear decay to 0."""
    fit = run.fit
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(learning, lr=fit.lr, weight_decay=fit.weight_decay)

    def rate(step: int) -> float:
        warm = min(1.0, (step + 1) / fit.warmup) if fit.warmup else 1.0
        return warm * max(0.0, (fit.steps - step) / max(1, fit.steps - fit.warmup)) if step >= fit.warmup else warm

    return State(model, optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, rate))


def fit(run: Run, state: State, corpus: Corpus, pieces: Pieces, folder: Path, evaluate: Evaluate | None) -> None:
    """Train to the last step, from the step that `state` is at; write checkpoints and `metrics.jsonl` to `folder`."""
    method, s, settings = methods.get(run.method), run.fit, run.method_settings
    order = batches.Order.of(corpus, s.batch, s.seed)
    log = Log(folder / "metrics.jsonl", state.step)
    for step in range(state.step, s.steps):
        if s.patience and state.best_step and step - state.best_step >= s.patience * s.evaluate_every:
            break  # here, so that a run that ended so does not go on when it is resumed
        state.model.train()
        batch = batches.make(corpus, pieces, order.at(step), run.data, (step, s.steps))
        with torch.autocast(corpus.device.type, torch.bfloat16, enabled=s.autocast):
            parts = method.losses(state.model, batch, settings, order.generator(3 * step + 2))
        _check_finite(parts, batch, corpus, step, folder)
        parts["loss"].backward()
        if s.clip:
            nn.utils.clip_grad_norm_(state.model.parameters(), s.clip)
        state.optimiser.step()
        state.optimiser.zero_grad(set_to_none=True)
        state.schedule.step()
        state.step = step + 1
        log.add(state.step, parts, len(batch.clips))
        if evaluate and s.evaluate_every and state.step % s.evaluate_every == 0:
            _select(state, evaluate(state.model), folder, log)
        if state.step % s.save_every == 0:
            checkpoint.save(folder / "last.pt", state.as_dict())
    checkpoint.save(folder / "last.pt", state.as_dict())


def _select(state: State, value: float, folder: Path, log: Log) -> None:
    """Keep the weights of the best step so far."""
    log.write({"step": state.step, "val": value})
    if value > state.best:
        state.best, state.best_step = value, state.step
        checkpoint.save(folder / "best.pt", {"model": state.weights(), "step": state.step, "val": value})


def _check_finite(parts: dict[str, Tensor], batch: batches.Batch, corpus: Corpus, step: int, folder: Path) -> None:
    """Stop at a loss that is no number, with the batch's ids on the disk."""
    if bool(torch.isfinite(parts["loss"])):
        return
    ids = [corpus.captions[i] for i in batch.captions.tolist()]
    path = folder / f"not-finite-{step}.json"
    path.write_text(
        json.dumps({"step": step, "losses": {k: float(v.detach()) for k, v in parts.items()}, "captions": ids})
    )
    loss = float(parts["loss"].detach())
    raise PipelineError(f"step {step}: the loss is {loss}; its captions are in {path}; try a lower --lr, or --clip 1")


def _plain(parts: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(part.detach()) for name, part in parts.items()}


class Log:
    """`metrics.jsonl`: a line for every tenth step, and for each evaluation."""

    EVERY = 10

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.begun, self.pairs = time.monotonic(), 0
        kept = [entry for entry in entries(path) if entry["step"] <= step]  # a run that goes on begins at a checkpoint
        path.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def add(self, step: int, parts: dict[str, Tensor], pairs: int) -> None:
        """Note the losses of a step."""
        self.pairs += pairs
        if step % self.EVERY == 0:
            rate = self.pairs / (time.monotonic() - self.begun)
            self.write(
                {"step": step, **{k: float(v.detach()) for k, v in parts.items()}, "pairs_per_second": round(rate, 1)}
            )

    def write(self, entry: dict[str, Any]) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a `metrics.jsonl`; a torn last one is passed over."""
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
