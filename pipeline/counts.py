"""How large a data set is, part by part, against what its authors and its papers say."""

from __future__ import annotations

from collections.abc import Mapping

import h5py
import numpy as np

from pipeline.records import Manifest

Counts = Mapping[str, Mapping[str, int]]
"""By 'SPLIT/PART', and by '' for the whole: videos, clips, captions, and the gallery, which is the number of clips of a
part that have a caption there, i.e. what a query is searched among. Any of these may be left out."""


def counts(manifest: Manifest) -> dict[str, dict[str, int]]:
    """Return how many videos, clips, captions there are, in all and in each part."""
    video = {clip.id: clip.video for clip in manifest.clips}
    clip = {caption.id: caption.clip for caption in manifest.captions}
    whole = {"videos": len(manifest.videos), "clips": len(manifest.clips), "captions": len(manifest.captions)}
    found = {"": whole | ({"steps": len(manifest.steps)} if manifest.steps else {})}
    for part in manifest.splits:
        found[f"{part.split}/{part.name}"] = {
            "videos": len({video[c] for c in part.clips}),
            "clips": len(part.clips),
            "captions": len(part.captions),
            "gallery": len({clip[c] for c in part.captions}),
        }
    return found


def stored(file: h5py.File) -> dict[str, dict[str, int]]:
    """Return the same counts of a feature file's tables."""
    tables = {name: file[name] for name in ("clips", "captions", "steps") if f"{name}/id" in file}
    whole = {"videos": len(file["videos/id"]), **{name: len(group["id"]) for name, group in tables.items()}}
    found = {"": {name: size for name, size in whole.items() if size or name != "steps"}}
    if not {"clips", "captions"} <= set(tables):
        return found
    video, clip = tables["clips"]["video"][()], tables["captions"]["clip"][()]
    splits = file.get("splits", {})
    for name, part in ((f"{s}/{p}", splits[s][p]) for s in splits for p in splits[s]):
        clips, captions = part["clips"][()], part["captions"][()]
        found[name] = {
            "videos": len(np.unique(video[clips])),
            "clips": len(clips),
            "captions": len(captions),
            "gallery": len(np.unique(clip[captions])),
        }
    return found


def differences(found: Counts, expected: Counts) -> list[str]:
    """Return one line for each count that is not what is expected, for example 'split1/test: 998 of 1,000 clips'."""
    return [
        f"{part or 'in all'}: {found.get(part, {}).get(what, 0):,} of {number:,} {what}"
        for part, numbers in expected.items()
        for what, number in numbers.items()
        if found.get(part, {}).get(what, 0) != number
    ]
