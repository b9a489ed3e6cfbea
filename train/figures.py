"""Pictures of what LocVTP's losses see: which words each clip goes with (Figure 5b), and what warping does (5c)."""

from __future__ import annotations

from pathlib import Path

import torch

from pipeline.errors import BadSetting
from train import batches, methods
from train.loading import Loaded, Trained, opened
from train.pictures import Album, histograms, similarity

MAPS = 4
"""Clips that are drawn."""
PAIRS = 10_000
"""Captions whose clips are in the histograms, as many as in the paper."""


def draw(album: Album, path: Path, features: Path | None, part: str) -> None:
    """Draw maps of some captions of a part, and histograms over many. Raises BadSetting for another method."""
    with opened(path, features) as found:
        if not hasattr(methods.get(found.run.method), "seen"):
            raise BadSetting(f"--plots: {found.run.method} has no pictures of clips and words; leave it out")
        _draw(album, found, found.part(part))


def _draw(album: Album, found: Trained, loaded: Loaded) -> None:
    method, settings, corpus = methods.get(found.run.method), found.run.method_settings, loaded.corpus
    generator = torch.Generator().manual_seed(found.run.fit.seed)
    every = torch.linspace(0, len(corpus.captions) - 1, min(PAIRS, len(corpus.captions))).long()
    drawn, likeness = every[:: max(1, len(every) // MAPS)][:MAPS], dict[str, list[torch.Tensor]]()
    for some in every.split(256):
        batch = batches.make(corpus, loaded.pieces, some, found.run.data, share=slice(None))
        for name, values in method.seen(found.model, batch, settings, generator).to_words.items():
            likeness.setdefault(name, []).append(values.flatten().cpu())
    whole = {name: torch.cat(values).numpy() for name, values in likeness.items()}
    histograms(album.file("warping"), whole, f"cosine of clips and their words, {corpus.part}")
    batch = batches.make(corpus, loaded.pieces, drawn, found.run.data, share=slice(None))
    seen = method.seen(found.model, batch, settings, generator)
    for at, caption in enumerate(drawn.tolist()):
        words, clips = seen.words[at].nonzero()[:, 0], batch.video_mask[at].nonzero()[:, 0]
        said = found.words.tokenizer.convert_ids_to_tokens(batch.texts.ids[at, words].tolist())
        maps = [one[at][clips][:, words].cpu().numpy() for one in (seen.similarity, seen.chosen)]
        similarity(album.file(f"words-{at}"), maps[0], said, maps[1], corpus.texts[caption])
