"""The training loop: everything a step does, top to bottom, in `_step`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pipeline.errors import MissingWeights, PipelineError
from train import batches, checkpoint, methods, processes
from train.config import Run
from train.data import Corpus
from train.encoders import Block
from train.logbook import Logbook
from train.text import Pieces

Evaluate = Callable[[nn.Module], float]
"""The number by which steps are compared, higher is better; of the part `val`."""


class Losses(nn.Module):
    """A method's losses as a module, as DistributedDataParallel and the loop call it."""

    def __init__(self, model: nn.Module, run: Run) -> None:
        super().__init__()
        self.model, self.method, self.settings = model, methods.get(run.method), run.method_settings

    def forward(self, batch: batches.Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """Return the parts of the loss by name; `loss` is what is minimised."""
        found: dict[str, Tensor] = self.method.losses(self.model, batch, self.settings, generator)
        return found


@dataclass
class State:
    """What changes while training; all of it is in a checkpoint. Dropout is a function of seed and step."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    average: AveragedModel | None = None
    step: int = 0
    best: float = -1.0
    best_step: int = 0

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: that of the averaged weights, if there are such."""
        return self.model if self.average is None else self.average.module

    def as_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on; `model` is what is evaluated."""
        parts = {name: getattr(self, name).state_dict() for name in ("optimiser", "schedule")}
        numbers = {name: getattr(self, name) for name in ("step", "best", "best_step")}
        averaged = None
        if self.average is not None:
            averaged = {"learnt": weights(self.model), "count": self.average.n_averaged}
        return {"model": weights(self.evaluated), **parts, **numbers, "averaged": averaged}

    def restore(self, found: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        load_weights(self.evaluated, found["model"])
        if self.average is not None and found["averaged"]:
            load_weights(self.model, found["averaged"]["learnt"])
            self.average.n_averaged.copy_(found["averaged"]["count"])
        for name in ("optimiser", "schedule"):
            getattr(self, name).load_state_dict(found[name])
        for name in ("step", "best", "best_step"):
            setattr(self, name, found[name])


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return what is learnt: not the weights of a frozen encoder."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def load_weights(model: nn.Module, found: dict[str, Tensor]) -> None:
    """Take weights of a checkpoint. Raises MissingWeights where they are another model's."""
    own = weights(model)
    odd = sorted(own.keys() ^ found.keys()) + [n for n in own.keys() & found.keys() if own[n].shape != found[n].shape]
    if odd:
        raise MissingWeights(
            f"the checkpoint is of another model: {odd[0]} differs, and {len(odd) - 1} more; use the text encoder, "
            "streams and layers that it was trained with"
        )
    model.load_state_dict(found, strict=False)


def begin(run: Run, model: nn.Module) -> State:
    """Return the state before the first step: Adam, linear warm-up, linear decay to 0."""
    fit = run.fit
    groups: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[name.startswith("text.")].append(parameter)
    rates = {False: fit.lr, True: fit.lr if fit.text_lr is None else fit.text_lr}
    learning = [{"params": some, "lr": rates[of_text]} for of_text, some in groups.items() if some]
    fused = all(parameter.is_cuda for some in groups.values() for parameter in some)
    optimiser = torch.optim.Adam(learning, weight_decay=fit.weight_decay, fused=fused)

    def rate(step: int) -> float:
        warm = min(1.0, (step + 1) / fit.warmup) if fit.warmup else 1.0
        return warm * max(0.0, (fit.steps - step) / max(1, fit.steps - fit.warmup)) if step >= fit.warmup else warm

    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(fit.ema)) if fit.ema else None
    return State(model, optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, rate), average)


def fit(run: Run, state: State, corpus: Corpus, pieces: Pieces, folder: Path, evaluate: Evaluate | None) -> None:
    """Train to the last step, from the step that `state` is at; write checkpoints and `metrics.jsonl` to `folder`."""
    s = run.fit
    order, losses = batches.Order.of(corpus, s.batch, s.seed), _losses(run, state.model, corpus.device)
    coming = batches.ahead(corpus, pieces, order, run.data, range(state.step, s.steps))
    with Logbook(folder, state.step, s.steps, s.tensorboard) as book:
        for step in range(state.step, s.steps):
            if s.patience and state.best_step and step - state.best_step >= s.patience * s.evaluate_every:
                break  # here, so that a run that ended so does not go on when it is resumed
            batch = next(coming)
            parts = _step(run, state, losses, batch, order)
            _check_finite(parts, batch, corpus, step, folder)
            state.step = step + 1
            book.add(state.step, parts, len(batch.captions))
            if evaluate and s.evaluate_every and state.step % s.evaluate_every == 0:
                _select(state, processes.first(evaluate(state.evaluated), corpus.device), folder, book)
            if state.step % s.save_every == 0:
                _save(folder / "last.pt", state.as_dict())
    _save(folder / "last.pt", state.as_dict())


def _losses(run: Run, model: nn.Module, device: torch.device) -> nn.Module:
    """Return the losses, their networks compiled and their gradients averaged over processes, where that is asked."""
    if run.fit.compile:
        for module in model.modules():
            if isinstance(module, Block):
                module.compile_tokens()
    losses = Losses(model, run)
    if processes.size() == 1:
        return losses
    places = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(losses, device_ids=places, find_unused_parameters=True)


def _step(run: Run, state: State, losses: nn.Module, batch: batches.Batch, order: batches.Order) -> dict[str, Tensor]:
    """Take a step; if the loss is no number, leave the weights as they are."""
    step, device = state.step, batch.video.device.type
    state.model.train()
    torch.manual_seed(order.seed_of(step, processes.rank()))
    with torch.autocast(device, torch.bfloat16, enabled=run.fit.autocast):
        parts: dict[str, Tensor] = losses(batch, order.generator(3 * step + 2))
    if processes.any_of(not bool(torch.isfinite(parts["loss"])), batch.video.device):
        return {**parts, "loss": parts["loss"].detach() * torch.nan}
    parts["loss"].backward()
    if run.fit.clip:
        nn.utils.clip_grad_norm_(state.model.parameters(), run.fit.clip)
    state.optimiser.step()
    state.optimiser.zero_grad(set_to_none=True)
    state.schedule.step()
    if state.average is not None:
        state.average.update_parameters(state.model)
    return parts


def _select(state: State, value: float, folder: Path, book: Logbook) -> None:
    """Keep the weights of the best step so far."""
    book.write({"step": state.step, "val": value})
    if value > state.best:
        state.best, state.best_step = value, state.step
        _save(folder / "best.pt", {"model": weights(state.evaluated), "step": state.step, "val": value})


def _save(path: Path, found: dict[str, Any]) -> None:
    if processes.rank() == 0:
        checkpoint.save(path, found)


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
