"""The rules by which data sets repair what is odd in annotations, and the list of what they did.

One rule for each kind of oddity, the same in every data set; what a data set does otherwise, its docstring says. Every
record that a rule touches is listed: `run extract` and `run tag` write them to `OUT.oddities.jsonl`.

    odd = Oddities()
    text = odd.text("video7#3", " a  man sings\\n")          # "a man sings"
    span = odd.span("video7#3", 5.0, 31.2, duration=30.0)   # (5.0, 30.0); None where nothing can be made of it
    ...
    odd.captions(captions, clips)
    Manifest(..., oddities=odd.found())
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pipeline.records import Caption, Clip, Manifest, Oddity, Part
from pipeline.sources import tidy

KEPT, DROPPED, CLAMPED, SWAPPED, TRIMMED = "kept", "dropped", "clamped", "swapped", "trimmed"

INVERTED = "end before start"
EMPTY = "zero length"
PAST = "end past the end of the video"
OUTSIDE = "start at or past the end of the video"
BLANKS = "blanks at the ends"
INSIDE = "newline, control character or run of blanks inside"
NO_TEXT = "caption without text"
NOT_ASCII = "characters outside ASCII"
DAMAGED = "encoding damage or invisible characters"
REPEATED = "caption repeats another of its clip"
NEARLY = "caption repeats another of its clip but for blanks"
COMMON = "caption text on several videos"
LEAK = "videos of another split's test in a train list"

# What UTF-8 read as Latin-1 or Windows-1252 looks like, what could not be decoded at all, and what shows no ink.
_DAMAGE = re.compile(r"\ufffd|[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac|[\u200b-\u200f\u2060\ufeff]")


class Oddities:
    """Collects what was found, by kind and rule."""

    def __init__(self) -> None:
        self._records: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    def note(self, kind: str, rule: str, record: str, detail: str = "") -> None:
        """List a record under a kind of oddity and the rule that was applied."""
        self._records[kind, rule].append(f"{record}: {detail}" if detail else record)

    def found(self) -> tuple[Oddity, ...]:
        """Return all that was noted, by kind and rule; records in their order, which must be the data set's own."""
        return tuple(Oddity(kind, rule, tuple(records)) for (kind, rule), records in sorted(self._records.items()))

    def text(self, record: str, raw: str) -> str:
        """Return a caption without blanks at its ends or in runs inside. Nothing else is changed."""
        text = tidy(raw)
        if not text:
            self.note(NO_TEXT, DROPPED, record)
            return ""
        if raw != raw.strip():
            self.note(BLANKS, TRIMMED, record)
        if raw.strip() != text:
            self.note(INSIDE, TRIMMED, record)
        if not text.isascii():
            self.note(NOT_ASCII, KEPT, record)
        if _DAMAGE.search(text):
            self.note(DAMAGED, KEPT, record)
        return text

    def span(self, record: str, start: float, end: float, duration: float | None = None) -> tuple[float, float] | None:
        """Return (start, end) in seconds within the video, or None for a span that is none."""
        if end < start:
            self.note(INVERTED, DROPPED, record, f"{start:g} to {end:g}")
            return None
        if end == start:
            self.note(EMPTY, DROPPED, record, f"{start:g}")
            return None
        if duration and start >= duration:
            self.note(OUTSIDE, DROPPED, record, f"{start:g} of {duration:g} s")
            return None
        if duration and end > duration:
            self.note(PAST, CLAMPED, record, f"{end:g} to {duration:g}, by {end - duration:.3g} s")
            return start, duration
        return start, end

    def captions(
        self, captions: Sequence[Caption], clips: Iterable[Clip], raw: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """List captions that stand twice on one clip, and texts that stand on several videos; all are kept.

        `raw` has captions' texts as they stand in the file, by id, to tell repeats that are literal from others.
        """
        video = {clip.id: clip.video for clip in clips}
        seen: set[tuple[str, str]] = set()
        literal: set[tuple[str, str]] = set()
        videos: defaultdict[str, set[str]] = defaultdict(set)
        for caption in captions:
            written = raw.get(caption.id, caption.text)
            if (caption.clip, caption.text) in seen:
                self.note(REPEATED if (caption.clip, written) in literal else NEARLY, KEPT, caption.id)
            seen.add((caption.clip, caption.text))
            literal.add((caption.clip, written))
            videos[caption.text].add(video[caption.clip])
        for text, where in videos.items():
            if len(where) > 1:
                self.note(COMMON, KEPT, text, f"{len(where)} videos")

    def leaks(self, parts: Sequence[Part], video: dict[str, str]) -> None:
        """List what is trained on in one split and tested on in another; `video` is each clip's. All are kept."""
        for train in (part for part in parts if part.name.startswith("train")):
            ours = {video[clip] for clip in train.clips}
            for test in (p for p in parts if p.split != train.split and p.name.startswith(("test", "val"))):
                both = sorted(ours & {video[clip] for clip in test.clips})
                if both:
                    detail = f"{len(both)} of its videos, first {both[0]}: never train on one and test on the other"
                    self.note(LEAK, KEPT, f"{test.split}/{test.name} in {train.split}/{train.name}", detail)


def without_repeats(manifest: Manifest) -> Manifest:
    """Return a data set without the captions that repeat another of their clip, in the parts too."""
    first: dict[tuple[str, str], str] = {}
    for caption in manifest.captions:
        first.setdefault((caption.clip, caption.text), caption.id)
    kept = set(first.values())
    captions = tuple(caption for caption in manifest.captions if caption.id in kept)
    # A test list's own copy of a caption is what its part names: it stays there under the id that was kept.
    stays = {c.id: first[c.clip, c.text] for c in manifest.captions}
    splits = tuple(
        replace(part, captions=tuple(dict.fromkeys(stays[name] for name in part.captions))) for part in manifest.splits
    )
    oddities = tuple(replace(o, rule=DROPPED) if o.kind in (REPEATED, NEARLY) else o for o in manifest.oddities)
    return replace(manifest, captions=captions, splits=splits, oddities=oddities, dedup=True)


def lines(oddities: Iterable[Oddity]) -> list[str]:
    """Return one line for each kind of oddity, with its count and its first record."""
    return [f"{len(o.records):,} x {o.kind}: {o.rule}, e.g. {o.records[0]:.120}" for o in oddities]


def totals(oddities: Iterable[Oddity]) -> Counter[str]:
    """Return the number of records by 'kind: rule'."""
    return Counter({f"{o.kind}: {o.rule}": len(o.records) for o in oddities})
