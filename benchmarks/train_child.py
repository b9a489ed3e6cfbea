"""One measurement of `train.py`, in a process of its own: `python -m benchmarks.train_child SIDE JOB`.

Sides: `nothing` (libraries alone), `files`, `ours`, `peer`, `peer, cascade`, `loading`. Prints a line of JSON.
"""

from __future__ import annotations

import functools
import itertools
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import train_files, train_peer
from benchmarks.train import Job
from pipeline.store import Features
from train import batches, data, loop, methods, text
from train.config import Data, Fit, Run, device_of
from train.settings import Taco

PART = "bench/train"


class Clock:
    """When steps begin, and for how long each is in the model: forward pass, backward pass, optimiser."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.begins, self.inside = device, list[float](), list[float]()
        self.depth, self.since = 0, 0.0

    def now(self) -> float:
        """Return the seconds at which the device has done all it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def begin(self) -> None:
        """Begin a step."""
        self.begins.append(self.now())
        self.inside.append(0.0)

    def enter(self, *_: Any) -> None:
        """Go into the model, maybe from inside it."""
        self.depth += 1
        self.since = self.now() if self.depth == 1 else self.since

    def leave(self, *_: Any) -> None:
        """Come out again."""
        self.depth -= 1
        if not self.depth:
            self.inside[-1] += self.now() - self.since

    def around(self, work: Callable[..., Any], first: bool = False) -> Callable[..., Any]:
        """Return `work` as a part of the model; `first`: a step begins with it."""

        @functools.wraps(work)
        def timed(*args: Any, **options: Any) -> Any:
            if first:
                self.begin()
            self.enter()
            found = work(*args, **options)
            self.leave()
            return found

        return timed

    def watch(self, optimiser: torch.optim.Optimizer) -> None:
        """Count the optimiser in."""
        optimiser.register_step_pre_hook(self.enter)
        optimiser.register_step_post_hook(self.leave)
        optimiser.zero_grad = self.around(optimiser.zero_grad)  # type: ignore[method-assign]

    def found(self, warmup: int) -> dict[str, Any]:
        """Return the seconds of a step, and the share of all steps that was spent outside the model."""
        seconds = [b - a for a, b in itertools.pairwise(self.begins)][warmup:]
        inside = self.inside[warmup : warmup + len(seconds)]
        return {"step": statistics.median(seconds), "outside": 1 - sum(inside) / sum(seconds)}


def nothing(job: Job) -> dict[str, Any]:
    """Load every library that a side loads, as late as they may be: one step of the smallest BERT."""
    from transformers import BertConfig, BertModel

    sizes = BertConfig(vocab_size=8, hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=64)
    net = BertModel(sizes)
    optimiser = torch.optim.Adam(net.parameters())
    net(input_ids=torch.ones(2, 4).long()).last_hidden_state.sum().backward()
    optimiser.step()
    return {"kind": device_of(job.device).type}


def run_of(job: Job) -> Run:
    """Return a run that is one step longer than what is measured: a step ends where the next one begins."""
    settings = Data(
        features=job.features,
        text_encoder=str(job.encoder),
        max_video_tokens=job.video_tokens,
        max_text_tokens=job.text_tokens,
    )
    steps = job.warmup + job.steps + 1
    fit = Fit(
        steps=steps, batch=job.batch, device=job.device, autocast=job.autocast, evaluate_every=0, save_every=steps
    )
    return Run(settings, fit, "taco", Taco(negatives=job.negatives), (PART, "", ""))


def loaded(job: Job, run: Run) -> tuple[data.Corpus, text.Text, text.Pieces]:
    """Return what is trained on, on the device."""
    device = device_of(job.device)
    torch.use_deterministic_algorithms(device.type == "cpu", warn_only=True)  # as `train` does
    with Features.open(job.features) as features:
        corpus = data.load(features, PART)
    words = text.load(run.data.text_encoder, corpus.texts)
    pieces = text.pieces(words.tokenizer, corpus.texts, corpus.words, run.data.max_text_tokens)
    return corpus.to(device), words, pieces.to(device)


def ours(job: Job) -> dict[str, Any]:
    """Train with `loop.fit` itself, and time it from outside."""
    run, method = run_of(job), methods.get("taco")
    corpus, words, pieces = loaded(job, run)
    torch.manual_seed(0)
    model = method.Model(run.method_settings, run.data, corpus.dim, words.encoder).to(corpus.device)
    state, clock, fused = loop.begin(run, model), Clock(corpus.device), list[int]()
    clock.watch(state.optimiser)
    pairs_of = method.unique_pairs

    def counted(*args: Any) -> Any:
        found = pairs_of(*args)
        fused.append(len(found[0]))
        return found

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for owner, name, new in (
            (method, "losses", clock.around(method.losses, first=True)),
            (method, "unique_pairs", counted),
            (Tensor, "backward", clock.around(Tensor.backward)),
            (nn.utils, "clip_grad_norm_", clock.around(nn.utils.clip_grad_norm_)),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        loop.fit(run, state, corpus, pieces, folder, None)
    return {**clock.found(job.warmup), "pairs": statistics.mean(fused[job.warmup :])}


def peer(job: Job, negatives: int) -> dict[str, Any]:
    """Train the peer; `negatives` 0: all pairs are fused."""
    run, device = run_of(job), device_of(job.device)
    torch.manual_seed(0)
    layers, dropout = (run.method_settings.video_layers, run.method_settings.fusion_layers), run.method_settings.dropout
    model = train_peer.Model(job, sum(train_files.STREAMS.values()), layers, dropout).to(device).train()
    state, clock, fused = loop.begin(run, model), Clock(device), list[int]()
    for step, batch in enumerate(train_peer.batches(job)):
        clock.begin()
        if step == job.warmup + job.steps:
            break
        clock.enter()
        there = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=job.autocast):
            loss, pairs = train_peer.losses(model, there, negatives)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), run.fit.clip)
        state.optimiser.step()
        state.optimiser.zero_grad(set_to_none=True)
        state.schedule.step()
        clock.leave()
        fused.append(pairs)
    return {**clock.found(job.warmup), "pairs": statistics.mean(fused[job.warmup :])}


def loading(job: Job, times: int = 30) -> dict[str, float]:
    """Return medians of the seconds for one batch: put together by us, copied plainly, sampled by the peer."""
    run = run_of(job)
    corpus, _, pieces = loaded(job, run)
    order = batches.Order.of(corpus, job.batch, 0)
    chosen = [order.at(step) for step in range(times)]
    made = [batches.make(corpus, pieces, some, run.data).video for some in chosen]
    half, wide = made[0].half(), torch.empty_like(made[0])
    source, samples, clock = torch.rand_like(wide), train_peer.Samples(job), Clock(corpus.device)
    ways: dict[str, Callable[[int], object]] = {
        "order": order.at,
        "make": lambda i: batches.make(corpus, pieces, chosen[i], run.data),
        "convert": lambda _: wide.copy_(half),
        "convert, new": lambda _: half.float(),
        "memcpy": lambda _: wide.copy_(source),
        "peer": lambda i: _collated(samples, chosen[i], corpus.device),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(times):
        for name, way in ways.items():
            begun = clock.now()
            way(i)
            seconds[name].append(clock.now() - begun)
    return {**{name: statistics.median(found[2:]) for name, found in seconds.items()}, "megabytes": wide.nbytes / 1e6}


def _collated(samples: train_peer.Samples, chosen: Tensor, device: torch.device) -> Tensor:
    found = [samples[number] for number in chosen.tolist()]
    stacked = {name: torch.from_numpy(np.stack([one[name] for one in found])) for name in found[0]}
    return stacked["video"].to(device).float()


def measured(side: str, job: Job) -> dict[str, Any]:
    """Return what a side measures, and the peak of its memory in bytes."""
    cuda = device_of(job.device).type == "cuda"
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        "nothing": lambda: nothing(job),
        "files": lambda: train_files.write(job),
        "ours": lambda: ours(job),
        "peer": lambda: peer(job, 0),
        "peer, cascade": lambda: peer(job, job.negatives),
        "loading": lambda: loading(job),
    }
    try:
        found = sides[side]()
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    resident = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**found, "peak": torch.cuda.max_memory_allocated() if cuda and side != "nothing" else resident}


def main() -> None:
    side, words = sys.argv[1:]
    job = Job(**json.loads(words))
    job = replace(job, place=Path(job.place))
    torch.set_num_threads(job.threads)
    print(json.dumps(measured(side, job)))


if __name__ == "__main__":
    main()
