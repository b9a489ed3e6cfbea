"""`pipeline run`: choose where a stage runs, run it, and account for what came of it."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import orjson

from pipeline.abroad import Away, sent
from pipeline.devices import gpus, resolve
from pipeline.kinds import Kind, has_gpus, read
from pipeline.loading import write_lines, write_oddities
from pipeline.mapping import maps_of
from pipeline.output import Output
from pipeline.provenance import file_attrs
from pipeline.records import Outcome
from pipeline.runner import Loop, Pool, run
from pipeline.stages.extract import Extract, output_of, plan_of
from pipeline.stopping import STOPPED, watched
from pipeline.where import Where

log = logging.getLogger(__name__)

MEMORY_PER_WORKER = 3 * 2**30
"""Bytes: three networks in float32, their activations for one batch, and the libraries."""


def launch(stage: Extract, where: Where, limit: float | None = None) -> int:
    """Run a stage, for `limit` seconds at most, and print what came of it. Returns the exit code."""
    plan_of.cache_clear()  # of an earlier run in this process
    output = output_of(stage)
    kind = read(where.cluster) if where.cluster else None
    if kind is not None and has_gpus(kind) and stage.device == "auto":
        stage = replace(stage, device="cuda")  # a node whose GPU is broken must not go on without
    pool = None if where.elsewhere else _here(stage, where.workers)
    with watched(limit) as stop, output.owned():
        plan = plan_of(stage)
        output.drop(plan.wanted)
        _announce(stage)
        output.begin(plan.manifest, file_attrs(plan.manifest.dataset))
        write_oddities(output, plan.manifest)
        plan.forget()
        if pool is not None:
            outcomes = run(stage, pool, stop=stop)
        else:
            with sent(stage, output, maps_of(where.map_path)) as away:
                outcomes = run(away, _elsewhere(away, where.scheduler, kind), stop=stop)
        # What the output holds counts, not only what this run did: the same command gives the same answer again.
        troubles = [o for o in (*plan.done, *outcomes) if o.status != "ok"]
        write_lines(output.beside("missing.txt"), [video.encode() for video in plan.missing])
        write_lines(output.beside("failures.jsonl"), [orjson.dumps(o) for o in troubles])
    code = _summary(stage, outcomes, output)
    if len(outcomes) == len(plan.items):
        return code
    left = len(plan.items) - len(outcomes)
    print(f"stopped by {stop.why()}: {left} videos are left; the same command goes on")
    return STOPPED


def _announce(stage: Extract) -> None:
    plan = plan_of(stage)
    for job in plan.jobs:
        if job.weights.source == "random":
            log.warning("WARNING: %s has RANDOM weights; its features mean nothing", job.preset.name)
        if job.preset.warning:
            log.warning("WARNING: %s: %s", job.preset.name, job.preset.warning)
    log.info(
        "%s: %d videos to extract, %d done before, %d changed on disk, %d without a file",
        stage.dataset, len(plan.items), len(plan.done), plan.changed, len(plan.missing),
    )  # fmt: skip


def _elsewhere(away: Away, scheduler: str, kind: Kind | None) -> AbstractContextManager[Pool]:
    """Return workers that have devices of their own: those of a scheduler, or of a cluster to start."""
    gpu = away.stage.device.startswith("cuda")
    if kind is None:
        from pipeline.cluster import existing

        return existing(scheduler, gpu, away.met)
    from pipeline.clusters import opened

    return opened(kind, gpu, away.met)


def _here(stage: Extract, workers: int | None) -> AbstractContextManager[Pool]:
    gpu = resolve(stage.device).startswith("cuda")
    count = default_workers(gpu) if workers is None else workers
    if count == 0:
        return Loop()
    from pipeline.cluster import local

    return local(count, gpu)


def default_workers(gpu: bool) -> int:
    """Return one worker for each GPU, or as many as cores and memory allow."""
    if gpu:
        return gpus()
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // MEMORY_PER_WORKER))


def _summary(stage: Extract, outcomes: Sequence[Outcome], output: Output) -> int:
    plan = plan_of(stage)
    now, before = _counts(outcomes), _counts(plan.done)
    print(f"{stage.out}: {now}; done before: {before}; {len(plan.missing)} without a file")
    if any(o.status != "ok" for o in (*plan.done, *outcomes)):
        print(f"reasons are in {output.beside('failures.jsonl')}")
    if plan.missing:
        print(f"videos without a file are listed in {output.beside('missing.txt')}")
    return 1 if any(o.status == "failed" for o in (*plan.done, *outcomes)) else 0


def _counts(outcomes: Sequence[Outcome]) -> str:
    found: Counter[str] = Counter(outcome.status for outcome in outcomes)
    said = ", ".join(f"{found[status]} {status}" for status in ("ok", "partial", "failed") if found[status])
    return said or "nothing"
