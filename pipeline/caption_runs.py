"""`pipeline run tag`, `idf` and `merge`: where they run, what comes before them, and what is said of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from pipeline import datasets
from pipeline.captions import count, tables_file
from pipeline.errors import BadFeatureFile, BadSetting, PresetMismatch
from pipeline.frequencies import training_split
from pipeline.loading import write_oddities
from pipeline.output import Output
from pipeline.parts import read_part
from pipeline.provenance import file_attrs
from pipeline.records import Manifest, Outcome
from pipeline.runner import Loop, Pool, Stage, run
from pipeline.stages.idf import Idf
from pipeline.stages.merge import Merge
from pipeline.stages.tag import BLOCK, Tag, place_of
from pipeline.wordtable import check_interest, is_current

log = logging.getLogger(__name__)


def tag(stage: Tag, manifest: Manifest | None, workers: int | None, scheduler: str) -> int:
    """Tag a feature file's captions, after writing those of `manifest` if that is given. Returns the exit code."""
    check_interest(stage.interest)
    output = Output(stage.features)
    if manifest is None and not stage.features.exists():
        raise _absent(stage.features)
    with output.owned():
        if manifest is not None:
            _write_captions(output, manifest)
        place = place_of(stage)
        done = not stage.force and is_current(place)
        outcomes = _run(stage, workers, scheduler, "blocks of captions", count(place.path), BLOCK)
        code = _failed(outcomes)
        what = "were tagged before" if done else "tagged"
        if not code:
            print(f"{place.path}: {count(place.path):,} captions {what} by {place.settings['model']}")
    return code


def _absent(path: Path) -> BadFeatureFile:
    return BadFeatureFile(
        f"no feature file {path}: `pipeline run extract --dataset NAME` writes one with features and captions, "
        "`pipeline run tag --dataset NAME` one with captions only; or name another with --features"
    )


def _write_captions(output: Output, manifest: Manifest) -> None:
    if output.path.exists() and tables_file(output.path).exists():
        held = str(read_part(tables_file(output.path)).attrs["dataset"])
        if held != manifest.dataset:
            raise PresetMismatch(f"{output.path} holds data set {held}, not {manifest.dataset}; use another --features")
        if "merge" in read_part(tables_file(output.path)).attrs:
            raise PresetMismatch(
                f"{output.path} holds merged captions, which those of --dataset would replace; leave out --dataset, or "
                "use another --features"
            )
    if not manifest.captions:
        raise BadSetting(f"--dataset {manifest.dataset} has no captions to tag")
    output.begin(manifest, file_attrs(manifest.dataset))
    output.finish(file_attrs(manifest.dataset), {})
    write_oddities(output, manifest)


def idf(stage: Idf, workers: int | None, scheduler: str) -> int:
    """Weigh a feature file's words, and tag its captions first if they are not. Returns the exit code."""
    path = tables_file(stage.features)
    if not path.exists():
        raise _absent(stage.features)
    if stage.min_count < 1:
        raise BadSetting(f"--min-count {stage.min_count}: expected 1 or more")
    count(path)
    part = read_part(path)
    if "words" not in part.tables:
        log.info("%s has no words yet: tagging its captions first", path)
        if code := tag(Tag(features=stage.features), None, workers, scheduler):
            return code
    default = datasets.default_split(str(part.attrs["dataset"]))
    split = training_split(path, stage.split, default)
    if not stage.split:
        log.info("the training captions are those of %s", split)
    with Output(stage.features).owned():
        outcomes = _run(replace(stage, split=split), workers, scheduler, "blocks of captions", count(path), 1_000_000)
    return _failed(outcomes)


def merge(stage: Merge, workers: int | None, scheduler: str) -> int:
    """Merge the captions of speech recognition into a captions-only feature file. Returns the exit code."""
    from pipeline import merged
    from pipeline.asr import extent
    from pipeline.stages import merge as stages

    place = stages.place_of(stage)
    output = Output(stage.out)
    if stage.out.exists():
        raise BadSetting(f"--out {stage.out} is there already; move it away, or choose another")
    with output.owned():
        merged.warn_without_stop_words(place)
        share = merged.range_size(place.source, stages.BYTES)
        outcomes = _run(stage, workers, scheduler, "ranges of the file", extent(place.source), share)
    return _failed(outcomes)


def _run(stage: Stage, workers: int | None, scheduler: str, unit: str, size: int, share: int) -> list[Outcome]:
    """Run a stage over `size` things; a worker by default for every `share` of them, none at all for the first."""
    return run(stage, pool(workers, scheduler, -(-size // share)), unit)


def pool(workers: int | None, scheduler: str, shares: int) -> AbstractContextManager[Pool]:
    """Return where a caption stage runs: by default here, or on as many workers as there are cores and shares."""
    if scheduler:
        from pipeline.abroad import same_versions
        from pipeline.cluster import existing

        return existing(scheduler, gpu=False, met=same_versions)
    count = workers if workers is not None else min(len(os.sched_getaffinity(0)), shares)
    if count == 0 or (workers is None and count == 1):
        return Loop()
    from pipeline.cluster import local

    return local(count, gpu=False)


def _failed(outcomes: Sequence[Outcome]) -> int:
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    for outcome in failed:
        log.error("%s: %s", outcome.item, outcome.reason)
    if failed:
        log.error("%d blocks failed, so nothing was written; run again: what was done is kept", len(failed))
    return 1 if failed else 0
