"""What is left to extract: the data set, what the output already holds, and which settings both were made with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from extractors.spec import Preset
from pipeline import datasets, remote
from pipeline.errors import BadDataset, BadSetting, PresetMismatch
from pipeline.jobs import Job, compiled, jobs, stream_settings
from pipeline.loading import load
from pipeline.output import FILES, current
from pipeline.parts import Part
from pipeline.records import Manifest, Outcome, Remote, Status, Video
from pipeline.remote import State
from pipeline.store import STATUS, Features

if TYPE_CHECKING:
    from pipeline.output import Output
    from pipeline.stages.extract import Extract

BYTES_PER_SECOND = 125_000
"""A guess at 1 Mbit/s, to balance videos whose duration no annotation tells."""
FAR_SECONDS = 240.0
"""A guess for videos elsewhere, whose size nobody has asked for yet."""


@dataclass(frozen=True, slots=True)
class Item:
    """One video and the presets it lacks."""

    id: str
    file: str | Remote
    """Its path, as text."""
    seconds: float
    jobs: tuple[Job, ...]

    @property
    def path(self) -> Path | Remote:
        """Where it is."""
        return Path(self.file) if isinstance(self.file, str) else self.file

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams it is extracted for."""
        return tuple(name for job in self.jobs for name, _ in job.preset.streams)


@dataclass
class Plan:
    """What a run has before it."""

    manifest: Manifest
    """The data set as loaded, until `forget`."""
    jobs: tuple[Job, ...]
    items: tuple[Item, ...]
    missing: tuple[str, ...]
    """Ids of videos whose file is not there."""
    done: tuple[Outcome, ...]
    """What became of the videos that the output already holds in every stream."""
    changed: int
    """Videos among the items whose file is not the one that was extracted."""
    wanted: dict[str, dict[str, Any]]
    """Settings of the streams to be made."""

    def forget(self) -> None:
        """Let go of all that is annotated: where it is written, nobody needs it while a million videos are done."""
        self.manifest = Manifest(self.manifest.dataset, ())


def check_settings(part: Part, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise PresetMismatch when a stream is there that was made with other settings than those wanted now."""
    for name in (name for name in wanted if name in part.streams):
        differences = _differences(part.streams[name]["settings"], wanted[name])
        if differences:
            raise PresetMismatch(
                f"stream {name} in {part.path} was made with other settings: {'; '.join(differences)}; "
                "use another --out, or --force to make the stream anew"
            )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, f"{prefix}{key}.")
        elif json.dumps(a) != json.dumps(b):
            found.append(f"{prefix}{key} was {_short(a)}, is {_short(b)}")
    return found


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text  # a digest


def divide(videos: Sequence[Video], limit: int | None, part: str) -> list[Video]:
    """Return the videos of this run: the first `limit`, and of these every n-th from the i-th for `part` 'i/n'."""
    chosen = list(videos[:limit])
    if not part:
        return chosen
    i, _, n = part.partition("/")
    if not (i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise BadSetting(f"--part {part}: expected I/N with 1 <= I <= N, for example 3/64")
    return chosen[int(i) - 1 :: int(n)]


def left(
    videos: Sequence[Video], todo: tuple[Job, ...], features: Features, retry_failed: bool
) -> tuple[list[Item], list[str], int, list[Outcome]]:
    """Return (items, ids of missing files, how many changed on disk, outcomes of what is done) of `videos`."""
    items: list[Item] = []
    missing: list[str] = []
    done: list[Outcome] = []
    changed = 0
    kinds: dict[tuple[bool, ...], tuple[Job, ...]] = {}
    far, here = remote.look(videos, features), str(Path.cwd())
    for video in videos:
        file = video.file
        if isinstance(file, str) and not file.startswith("/"):
            file = f"{here}/{file}"
        state = far.get(video.id, remote.UNKNOWN) if isinstance(file, Remote) else remote.of_file(file)
        if file is None or state is None:
            missing.append(video.id)
            continue
        fresh = _unchanged(features, video.id, state)
        lacks = tuple(not (fresh and _has(features, job.preset, video.id, retry_failed)) for job in todo)
        if any(lacks):
            changed += fresh is False
            guess = state.size / BYTES_PER_SECOND if isinstance(file, str) else FAR_SECONDS
            lacking = kinds.setdefault(lacks, tuple(compress(todo, lacks)))
            items.append(Item(video.id, file, video.duration or guess, lacking))
        else:
            done.append(_outcome(features, video.id, todo))
    return items, missing, changed, done


def _outcome(features: Features, video: str, todo: Sequence[Job]) -> Outcome:
    """Return the worst that a video's streams say."""
    at = features.index[video]
    streams = [features.streams[name] for job in todo for name, _ in job.preset.streams]
    worst = max(streams, key=lambda stream: int(stream.status[at]))
    status = cast(Status, STATUS[worst.status[at]])
    return Outcome(video, status, str(worst.reason[at]), float(features.videos["decoded"][at]))


def _unchanged(features: Features, video: str, state: State) -> bool | None:
    """Return whether a video is the one that was extracted; None when none was."""
    at = features.index.get(video)
    if at is None or not features.videos["source_mtime"][at]:
        return None
    return State(int(features.videos["source_size"][at]), int(features.videos["source_mtime"][at])) == state


def _has(features: Features, preset: Preset, video: str, retry_failed: bool) -> bool:
    codes = [
        int(features.streams[name].status[features.index[video]]) if name in features.streams else 0
        for name, _ in preset.streams
    ]
    wanting = {"missing", "failed"} if retry_failed else {"missing"}
    return not any(STATUS[code] in wanting for code in codes)


def make_plan(stage: Extract, output: Output) -> Plan:
    """Return what `stage` has before it. Raises PipelineError for whatever makes the run impossible."""
    manifest = load(stage.dataset, stage.root, stage.videos, stage.dedup, stage.allow_pickle)
    todo = jobs(stage.extractor, stage.weights)
    wanted = stream_settings(todo, stage.dtype, stage.autocast)
    todo = compiled(todo) if stage.compile else todo
    videos = divide(manifest.videos, stage.limit, stage.part)
    features = Features(_held(stage, output, manifest.dataset, wanted))
    items, missing, changed, done = left(videos, todo, features, stage.retry_failed)
    if videos and len(missing) == len(videos):
        raise BadDataset(
            f"none of the {len(videos)} videos of {stage.dataset} is there; {datasets.get(stage.dataset).HINT}"
        )
    return Plan(
        manifest=manifest,
        jobs=todo,
        items=tuple(items),
        missing=tuple(missing),
        done=tuple(done),
        changed=changed,
        wanted=wanted,
    )


def _held(stage: Extract, output: Output, dataset: str, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[Part]:
    """Yield what the output holds already, a file after the other. Raises PresetMismatch for what cannot go with it."""
    parts: Iterable[Part] = output.parts()
    for part in _forced(stage, list(parts), wanted) if stage.force else parts:
        if (held := str(part.attrs["dataset"])) != dataset:
            raise PresetMismatch(f"{output.path} holds data set {held}, not {dataset}; use another --out")
        check_settings(part, wanted)
        yield part


def check_flags(stage: Extract) -> None:
    """Raise BadSetting for a flag whose value cannot be. Before anything is made, a folder for the output too."""
    suffix, folder = stage.out.suffix, stage.out.is_dir()
    checks = {
        "--extractor": (stage.extractor, bool(stage.extractor), "a name or more"),
        "--batch": (stage.batch, stage.batch >= 0, "0 or more"),
        "--decoders": (stage.decoders, stage.decoders >= 0, "0 or more"),
        "--limit": (stage.limit, stage.limit is None or stage.limit > 0, "1 or more"),
        "--chunk-seconds": (stage.chunk_seconds, stage.chunk_seconds >= 0, "0 or more"),
        "--out": (stage.out, suffix in FILES or not suffix or folder, "a name in .h5, or a folder's without a dot"),
        f"--out {stage.out}": ("is a folder", not (suffix in FILES and folder), "a file, or a name without .h5"),
    }
    for flag, (value, good, expected) in checks.items():
        if not good:
            raise BadSetting(f"{flag} {value}: expected {expected}")
    divide([], None, stage.part)


def _forced(stage: Extract, parts: list[Part], wanted: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """Return what still counts under `--force`: of streams made with other settings, what is made anew already."""
    left = [current(part, wanted) for part in parts]
    if sum(len(part.streams) for part in left) < sum(len(part.streams) for part in parts):
        if stage.part or stage.limit:
            flag = f"--part {stage.part}" if stage.part else f"--limit {stage.limit}"
            raise BadSetting(f"--force with other settings makes whole streams anew; leave out {flag}")
        return left
    return [replace(part, streams={n: s for n, s in part.streams.items() if n not in wanted}) for part in parts]
