"""One task: a few videos, decoded once each, through all networks, into one shard. Runs in a worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from extractors.spec import ExtractorError, Preset
from pipeline import devices, ffmpeg
from pipeline.ahead import ahead
from pipeline.cutting import Cutter, Frames
from pipeline.decode import Decoded, DecoderKilled, Decoding
from pipeline.devices import ONE_DECODER, Decoders, mine
from pipeline.errors import BadSetting, BadVideo, MissingWeights
from pipeline.jobs import Job, stream_settings
from pipeline.layout import StreamHead, new_head
from pipeline.output import Output
from pipeline.plan import Item
from pipeline.probe import Probe, probe
from pipeline.provenance import file_attrs, versions
from pipeline.records import Outcome
from pipeline.remote import UNFETCHED, State, local, of_file
from pipeline.shards import Extracted, write_shard
from pipeline.store import STATUS, Features

if TYPE_CHECKING:
    from torch import nn

    from extractors.embed import Batcher
    from pipeline.stages.extract import Extract

TRIES = 2
"""How often a video is decoded when its ffmpeg is killed from outside."""

COMPILER = ("torch._dynamo", "torch._inductor")
"""Modules whose errors are the compiler's; importing them to name these takes seconds."""

FAILED = STATUS.index("failed")
LOST = 1_000
"""Videos that failed without their worker, in one shard."""


@dataclass
class Progressing:
    """One video under way: its rows by preset and row number, and how its decoding ended."""

    item: Item
    rows: dict[str, dict[int, NDArray[np.float32]]] = field(default_factory=dict)
    state: State | None = None
    """Of its source, where that is elsewhere and was fetched."""
    probe: Probe | None = None
    decoded: Decoded | None = None
    failure: str = ""


def extract(stage: Extract, chunk: Sequence[Item], output: Output) -> list[Outcome]:
    """Extract the videos of `chunk` and write them as one shard; return one outcome for each."""
    import torch

    torch.set_num_threads(1)  # the same sums in the same order, whatever the number of workers
    device = mine(stage.device)
    try:
        decoders = devices.decoders(stage.decoders, stage.hwaccel, device)
        done = [_finish(video, stage) for video in embed(chunk, batchers_for(chunk, stage, device), decoders)]
    except torch.OutOfMemoryError as error:
        raise BadSetting(f"not enough memory on {device} ({str(error)[:80]}); use a smaller --batch") from None
    except ExtractorError as error:
        raise BadSetting(str(error)) from None
    except RuntimeError as error:
        if not type(error).__module__.startswith(COMPILER):
            raise
        why = str(error).splitlines()[0][:120]
        raise BadSetting(f"the networks cannot be compiled here ({why}); leave out --compile") from None
    heads = stream_heads(_jobs(chunk), stage, device)
    write_shard(output.shard(_name(chunk, heads)), file_attrs(stage.dataset), heads, done)
    return [Outcome(v.video, v.status, v.reason, float(v.columns.get("decoded", 0.0))) for v in done]


def _jobs(chunk: Sequence[Item]) -> list[Job]:
    return list(dict.fromkeys(job for item in chunk for job in item.jobs))


def _name(chunk: Sequence[Item], heads: Mapping[str, StreamHead]) -> str:
    """Return a name that depends on what is in the shard only, so that a task that runs twice writes one file."""
    settings = json.dumps({name: head.settings for name, head in heads.items()}, sort_keys=True)
    text = "\0".join([settings, *(item.id for item in chunk)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=8)
def _network(job: Job, device: str) -> nn.Module:
    from extractors.embed import network

    try:
        return network(job.preset, job.weights, device, job.compiled)
    except (ExtractorError, OSError) as error:  # the file may be on the client's machine only
        raise MissingWeights(str(error)) from None


def batchers_for(chunk: Sequence[Item], stage: Extract, device: str) -> dict[str, Batcher]:
    """Return a batcher for each preset of `chunk`, with its network on `device`."""
    from extractors.embed import Batcher  # seconds of importing torch, for workers only

    return {
        job.preset.name: Batcher(
            job.preset, _network(job, device), _batch(job.preset, stage, device), autocast=stage.autocast
        )
        for job in _jobs(chunk)
    }


def _batch(preset: Preset, stage: Extract, device: str) -> int:
    return stage.batch or preset.batch * (8 if device.startswith("cuda") else 1)


def embed(
    chunk: Sequence[Item], batchers: Mapping[str, Batcher], decoders: Decoders = ONE_DECODER
) -> list[Progressing]:
    """Decode the videos and run every network on batches filled across them."""
    videos = [Progressing(item) for item in chunk]
    rows = ahead([partial(_decode, video, decoders.hwaccel) for video in videos], decoders.count)
    with closing(rows):
        for number, (preset, row, frames) in rows:
            _take(videos, preset, batchers[preset].add((number, row), frames))
    for preset, batcher in batchers.items():
        _take(videos, preset, batcher.flush())
    return videos


def _take(videos: list[Progressing], preset: str, finished: Any) -> None:
    for (number, row), values in finished:
        videos[number].rows.setdefault(preset, {})[row] = values


def _decode(video: Progressing, hwaccel: str) -> Generator[tuple[str, int, Frames]]:
    """Yield (preset, row number, frames of one row) of a video; note in `video` how it went."""
    try:
        with local(video.item.path) as (path, video.state):
            yield from _decode_file(video, path, hwaccel)
    except BadVideo as error:
        video.failure = str(error)


def _decode_file(video: Progressing, path: Path, hwaccel: str) -> Iterator[tuple[str, int, Frames]]:
    for _ in range(TRIES):
        try:
            probed = probe(path)
            video.probe = replace(probed, mtime_ns=video.state.mtime) if video.state else probed
            video.decoded = yield from cut(video.item, path, video.probe, hwaccel)
        except DecoderKilled as error:
            video.failure = f"{error} ({TRIES} times)"
            continue
        video.failure = ""
        return


def cut(item: Item, path: Path, probed: Probe, hwaccel: str = "") -> Generator[tuple[str, int, Frames], None, Decoded]:
    """Yield (preset, row number, frames of one row); the last row of each preset may be short of frames."""
    presets = [job.preset for job in item.jobs]
    chains = list(dict.fromkeys(preset.chain for preset in presets))
    cutters = [[Cutter(p) for p in presets if p.chain == chain] for chain in chains]
    with closing(Decoding(path, probed, chains, hwaccel=hwaccel)) as decoding:
        for chain, frame in decoding:
            for cutter in cutters[chain]:
                yield from cutter.add(frame)
    for cutter in (c for some in cutters for c in some):
        yield from cutter.end()
    return decoding.summary


def _finish(video: Progressing, stage: Extract) -> Extracted:
    """Return a video's rows as they are stored, or why there are none."""
    failure, rows = video.failure, {}
    if not failure:
        rows = _stored(video, stage.dtype)
        failure = next((text for name, r in rows.items() if (text := _unfit(name, r, stage.dtype))), "")
    decoded, columns = video.decoded, _columns(video)
    if failure:
        return Extracted(video.item.id, columns, video.item.streams, {}, "failed", failure)
    assert decoded is not None
    return Extracted(
        video.item.id, columns, video.item.streams, rows, decoded.status, decoded.reason, _short(video.item, decoded)
    )


def _short(item: Item, decoded: Decoded) -> dict[str, str]:
    """Mark the streams whose rate is too low for so short a video: their one row is of the first frame."""
    note = f"one row, of the first frame: {decoded.seconds:.2f} s of video"
    slow = [job.preset for job in item.jobs if decoded.short and decoded.seconds * job.preset.chain.fps < 0.5]
    return {name: note for preset in slow for name, _ in preset.streams}


def _stored(video: Progressing, dtype: str) -> dict[str, NDArray[np.floating[Any]]]:
    """Return rows by stream: each preset's outputs are side by side in a row and are parted here."""
    rows: dict[str, NDArray[np.floating[Any]]] = {}
    for job in video.item.jobs:
        found = video.rows[job.preset.name]
        values = np.stack([found[row] for row in range(len(found))])
        at = 0
        for name, dim in job.preset.streams:
            with np.errstate(over="ignore"):  # said in words by _unfit
                rows[name] = np.ascontiguousarray(values[:, at : at + dim].astype(dtype))
            at += dim
    return rows


def _unfit(stream: str, rows: NDArray[np.floating[Any]], dtype: str) -> str:
    if np.isfinite(rows).all():
        return ""
    if dtype == "float16":
        return f"rows of {stream} are not finite or beyond float16's range; try --dtype float32 with another --out"
    return f"rows of {stream} are not finite: the network or its weights are at fault"


def _columns(video: Progressing) -> dict[str, Any]:
    """Return what the feature file keeps of a video and its decoding."""
    columns: dict[str, Any] = {}
    if video.probe is None:
        path = video.item.path
        state = of_file(path) if isinstance(path, Path) else video.state or UNFETCHED
        return {"source_size": state.size, "source_mtime": state.mtime} if state else columns
    p = video.probe
    columns = {
        "duration": p.duration or 0.0,
        "first_frame": p.first_frame,
        "width": p.width,
        "height": p.height,
        "fps": p.fps,
        "stream": p.stream,
        "codec": p.codec,
        "color": p.color,
        "source_size": p.size,
        "source_mtime": p.mtime_ns,
        "ffmpeg": ffmpeg.version(ffmpeg.program()),
    }
    if video.decoded is not None:
        columns |= {"decoded": video.decoded.seconds, "frames": video.decoded.frames}
    return columns


def stream_heads(jobs: Sequence[Job], stage: Extract, device: str) -> dict[str, StreamHead]:
    """Return the heads of the streams of `jobs`, without any video yet."""
    dtype, hwaccel = np.dtype(stage.dtype), devices.decoders(1, stage.hwaccel, device).hwaccel.partition(":")[0]
    made_by = {**versions(), "device": device.partition(":")[0], "threads": 1, "hwaccel": hwaccel}
    settings = stream_settings(jobs, stage.dtype, stage.autocast)
    return {
        name: new_head(
            settings[name],
            {**made_by, "batch": _batch(job.preset, stage, device), "compiled": job.compiled},
            dim,
            dtype,
        )
        for job in jobs
        for name, dim in job.preset.streams
    }


def record_failures(
    stage: Extract, items: Sequence[Item], failed: Sequence[Outcome], output: Output, known: Features
) -> None:
    """Write shards for the items that failed before their worker could: it died, or an error was not foreseen."""
    by_id = {item.id: item for item in items}
    lost: dict[tuple[Job, ...], list[tuple[Item, str]]] = {}
    for outcome in failed:
        item = by_id[outcome.item]
        at = known.index.get(item.id)
        if at is not None and all(s in known.streams and known.streams[s].status[at] == FAILED for s in item.streams):
            continue
        lost.setdefault(item.jobs, []).append((item, outcome.reason))
    for jobs, every in lost.items():
        heads = stream_heads(jobs, stage, "none")
        for begin in range(0, len(every), LOST):
            some = every[begin : begin + LOST]
            videos = [
                Extracted(item.id, _columns(Progressing(item)), item.streams, {}, "failed", why) for item, why in some
            ]
            name = _name([item for item, _ in some], heads)
            write_shard(output.shard(name), file_attrs(stage.dataset), heads, videos)
