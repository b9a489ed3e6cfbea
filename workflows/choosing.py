"""A part of a data set: one split, or the first videos of each part, with all that is annotated in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipeline.errors import BadSetting
from pipeline.records import Manifest, Part


def first_videos(manifest: Manifest, most: int) -> Manifest:
    """Return the data set with the first `most` videos of each part of each split; of all, if there is no split."""
    of_clip = {clip.id: clip.video for clip in manifest.clips}
    of_caption = {caption.id: of_clip[caption.clip] for caption in manifest.captions}
    kept: set[str] = set()
    for part in manifest.splits:
        own = [*map(of_clip.__getitem__, part.clips), *map(of_caption.__getitem__, part.captions)]
        kept |= set(list(dict.fromkeys(own))[:most])
    if not manifest.splits:
        kept = {video.id for video in manifest.videos[:most]}
    return replace(
        manifest,
        videos=tuple(video for video in manifest.videos if video.id in kept),
        clips=tuple(clip for clip in manifest.clips if clip.video in kept),
        captions=tuple(caption for caption in manifest.captions if of_caption[caption.id] in kept),
        steps=tuple(step for step in manifest.steps if of_clip[step.clip] in kept),
        splits=tuple(_of_kept(part, of_clip, of_caption, kept) for part in manifest.splits),
    )


def of_split(manifest: Manifest, name: str) -> Manifest:
    """Return the data set with one split, and what is in it. Raises BadSetting for a split that it has not."""
    splits = tuple(part for part in manifest.splits if part.split == name)
    if not splits:
        known = ", ".join(sorted({part.split for part in manifest.splits})) or "none"
        raise BadSetting(f"--split {name}: {manifest.dataset} has {known}")
    captions = {caption for part in splits for caption in part.captions}
    clips = {clip for part in splits for clip in part.clips}
    clips |= {caption.clip for caption in manifest.captions if caption.id in captions}
    videos = {clip.video for clip in manifest.clips if clip.id in clips}
    return replace(
        manifest,
        videos=tuple(video for video in manifest.videos if video.id in videos),
        clips=tuple(clip for clip in manifest.clips if clip.id in clips),
        captions=tuple(caption for caption in manifest.captions if caption.id in captions),
        steps=tuple(step for step in manifest.steps if step.clip in clips),
        splits=splits,
    )


def _of_kept(part: Part, of_clip: Mapping[str, str], of_caption: Mapping[str, str], kept: set[str]) -> Part:
    return replace(
        part,
        clips=tuple(clip for clip in part.clips if of_clip[clip] in kept),
        captions=tuple(caption for caption in part.captions if of_caption[caption] in kept),
    )
