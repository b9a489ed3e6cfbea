"""What `train.py` trains on: a feature file, a text encoder with random weights, a .npy a video for the peer.

Clips and captions are as long as MSR-VTT's, or all as long as can be (`full`); what is in them does not matter here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.train import Job
from pipeline.layout import StreamHead, new_head
from pipeline.parts import read_part
from pipeline.records import Caption, Clip, Manifest, Part, Video
from pipeline.shards import Extracted, fold, write_shard
from pipeline.tables import write_tables

STREAMS = {"resnet152:random": 2048, "s3d:random": 1024}
VOCABULARY = 30_522  # BERT's
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HEAD_OF_FILE = {"dataset": "benchmark", "created_by": "{}"}


def write(job: Job) -> dict[str, float]:
    """Write everything to the job's folder, and return what lengths there are."""
    draw = np.random.default_rng(0)
    rows = np.full(job.videos, job.video_tokens) if job.full else draw.integers(10, 31, job.videos)
    words = np.clip(np.rint(draw.normal(9, 4, job.videos)), 3, job.text_tokens - 2).astype(int)
    words = np.full(job.videos, job.text_tokens - 2) if job.full else words
    texts = [" ".join(f"w{n}" for n in draw.integers(0, VOCABULARY - len(SPECIAL), count)) for count in words]
    _write_features(job, draw, rows, texts)
    _write_encoder(job)
    (job.place / "texts.json").write_text(json.dumps(texts))
    return {"video tokens, mean": float(np.minimum(rows, job.video_tokens).mean()), "words, mean": float(words.mean())}


def _write_features(job: Job, draw: np.random.Generator, rows: NDArray[np.int64], texts: Sequence[str]) -> None:
    ids = tuple(f"v{n}" for n in range(len(texts)))
    manifest = Manifest(
        dataset="benchmark",
        videos=tuple(Video(name, None) for name in ids),
        clips=tuple(Clip(name, name) for name in ids),
        captions=tuple(Caption(name, name, text) for name, text in zip(ids, texts, strict=True)),
        splits=(Part("bench", "train", ids, ids),),
    )
    tables, shard = job.place / "tables.h5", job.place / "shard.h5"
    write_tables(tables, HEAD_OF_FILE, manifest)
    heads = {name: _head(dim) for name, dim in STREAMS.items()}
    write_shard(shard, HEAD_OF_FILE, heads, _videos(job, draw, ids, rows))
    fold([read_part(tables), read_part(shard)], job.features, HEAD_OF_FILE)
    _write_words(job.features, texts)


def _head(dim: int) -> StreamHead:
    settings = {"chain": {"fps": 1.0}, "frames": 1, "weights": {"file": "", "sha256": "0" * 64}}
    return new_head(settings, {"torch": "none"}, dim, np.dtype(np.float16))


def _videos(job: Job, draw: np.random.Generator, ids: Sequence[str], rows: NDArray[np.int64]) -> list[Extracted]:
    """Return videos for the feature file, and leave each one's rows in a file of its own too, streams side by side."""
    job.arrays.mkdir()
    found = []
    for name, count in zip(ids, rows.tolist(), strict=True):
        held = {
            stream: (draw.standard_normal(dim) + draw.standard_normal((count, dim))).astype(np.float16)
            for stream, dim in STREAMS.items()
        }
        np.save(job.arrays / f"{name}.npy", np.concatenate(list(held.values()), axis=1))
        known = {"source_size": 1, "source_mtime": 1, "duration": float(count), "decoded": float(count)}
        found.append(Extracted(name, known, tuple(STREAMS), held, "ok"))
    return found


def _write_words(path: Path, texts: Sequence[str]) -> None:
    """Write the tables `words` and `idf` as far as training reads them; every second word is of interest."""
    spans, interest, weights, offsets = [], [], [], [0]
    for text in texts:
        sizes = np.array([len(word) for word in text.split()])
        ends = np.cumsum(sizes + 1) - 1
        spans.append(np.stack([ends - sizes, ends], axis=1))
        interest.append(np.arange(len(sizes)) % 2 == 1)
        weights.append(interest[-1] / interest[-1].sum())
        offsets.append(offsets[-1] + len(sizes))
    flat = np.concatenate(spans).astype(np.int32)
    with h5py.File(path, "r+") as file:
        words = file.create_group("words")
        words["offsets"], words["interest"] = np.array(offsets), np.concatenate(interest)
        words["start"], words["end"] = flat[:, 0], flat[:, 1]
        file.create_group("idf")["weight"] = np.concatenate(weights).astype(np.float32)


def _write_encoder(job: Job) -> None:
    """Write a BERT of the size asked for; a word of the captions is one word piece."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    vocabulary = [*SPECIAL, *(f"w{n}" for n in range(VOCABULARY - len(SPECIAL)))]
    BertTokenizer(vocab={word: n for n, word in enumerate(vocabulary)}).save_pretrained(job.encoder)
    sizes = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=job.hidden,
        num_hidden_layers=job.layers,
        num_attention_heads=max(1, job.hidden // 64),
        intermediate_size=4 * job.hidden,
    )
    BertModel(sizes).save_pretrained(job.encoder)
