"""The planted worlds themselves: which videos there are, what is in their rows, what their captions say.

`workflows/planted.py` says what each world is for, and writes them to feature files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

DIM = 64
NOUNS, VERBS = {"A": 60, "B": 20, "C": 60, "D": 60}, {"A": 30, "B": 10, "C": 30, "D": 30}
FUNCTION = ("a", "the", "and", "then", "with", "is", "to", "of")
ZIPF = 0.8
"""Exponent of the words' frequencies."""
NUISANCE = 1.0
"""Length of a video's nuisance, beside nouns and verbs of length 1."""
NOISE = {"A": 2.0, "B": 1.0, "C": 1.0, "D": 2.5}
"""Length of a row's noise."""
CUE = 1.0
"""Length of world C's cue."""
TASKS = 20
SIZES = {
    "tiny": {"A": (1000, 200), "B": (1000, 150), "C": (400, 200), "D": (1500, 300)},
    "small": {"A": (3000, 500), "B": (3000, 300), "C": (1000, 400), "D": (6000, 1000)},
}
"""Videos to train on and to test on."""


@dataclass(frozen=True, kw_only=True)
class World:
    """Which world, and what may be chosen in it."""

    name: str
    size: str = "tiny"
    seed: int = 0
    interest: str = "content"
    desc: int = 1
    """World A: events that the caption tells."""
    hubs: float = 0.1
    """World D: share of the videos that show 12 events."""
    cue: str = "parity"
    """World C: `parity`, the sign of the half times the parity of the noun; `smooth`, the row's place; `none`."""


@dataclass(frozen=True)
class Scene:
    """One video, and what its caption tells."""

    events: tuple[tuple[int, int], ...]
    """(noun, verb) of each."""
    shown: tuple[int, ...]
    """The event of each row."""
    told: tuple[int, ...]
    group: int = -1
    hub: bool = False
    cue: tuple[float, ...] = ()
    """Of each row."""


Words = tuple[tuple[str, str, int], ...]
"""A caption: text, part of speech and event (-1: none) of each word."""


def _draw(rng: np.random.Generator, count: int, most: int) -> list[int]:
    """Return different words of a kind that has `most`, by Zipf's law."""
    odds = np.arange(1, most + 1) ** -ZIPF
    return [int(x) for x in rng.choice(most, count, replace=False, p=odds / odds.sum())]


def _events(world: World, rng: np.random.Generator, count: int) -> tuple[tuple[int, int], ...]:
    """Return events that share no word."""
    return tuple(zip(_draw(rng, count, NOUNS[world.name]), _draw(rng, count, VERBS[world.name]), strict=True))


def _some(rng: np.random.Generator, count: int, of: int) -> tuple[int, ...]:
    return tuple(sorted(int(x) for x in rng.choice(of, count, replace=False)))


def _tokens(world: World, rng: np.random.Generator, count: int) -> list[Scene]:
    shown = tuple(np.repeat(range(3), 4).tolist())
    return [Scene(_events(world, rng, 3), shown, _some(rng, world.desc, 3)) for _ in range(count)]


def _cascade(world: World, rng: np.random.Generator, count: int) -> list[Scene]:
    """Return fives: a video of two events, and four in each of which another one of its four words is changed."""
    scenes: list[Scene] = []
    for group in range(count // 5):
        events = _events(world, rng, 2)
        scenes.append(Scene(events, (0, 0, 1, 1), (0, 1), group))
        for place in range(4):
            event, kind = divmod(place, 2)
            used = {pair[kind] for pair in events}
            new = next(w for w in _draw(rng, 3, (NOUNS, VERBS)[kind][world.name]) if w not in used)
            pair = (new, events[event][1]) if kind == 0 else (events[event][0], new)
            scenes.append(replace(scenes[5 * group], events=(*events[:event], pair, *events[event + 1 :])))
    return scenes


def _order(world: World, rng: np.random.Generator, count: int) -> list[Scene]:
    """Return videos of `TASKS` tasks: four events, all once in the first half and, in another order, in the second.

    The parity cue is 1 or -1, evenly, in each half and for each parity: alone it tells neither.
    """
    tasks = []
    for _ in range(TASKS):
        first, second = rng.permutation(4), rng.permutation(4)
        while (first == second).any():
            second = rng.permutation(4)
        half = NOUNS[world.name] // 2
        nouns = [2 * w for w in _draw(rng, 2, half)] + [2 * w + 1 for w in _draw(rng, 2, half)]
        events = tuple(zip(nouns, _draw(rng, 4, VERBS[world.name]), strict=True))
        tasks.append((events, (*first.tolist(), *second.tolist())))
    scenes = []
    for _ in range(count):
        events, shown = tasks[int(rng.integers(TASKS))]
        cue = tuple(_cue(world.cue, events[event][0], row) for row, event in enumerate(shown))
        scenes.append(Scene(events, shown, shown[:4], cue=cue))
    return scenes


def _cue(kind: str, noun: int, row: int) -> float:
    if kind == "parity":
        return float((1 if row < 4 else -1) * (1 if noun % 2 else -1))
    return row / 3.5 - 1 if kind == "smooth" else 0.0


def _hubs(world: World, rng: np.random.Generator, count: int) -> list[Scene]:
    scenes = []
    for _ in range(count):
        hub = bool(rng.random() < world.hubs)
        size = 12 if hub else 2
        scenes.append(Scene(_events(world, rng, size), tuple(range(size)), _some(rng, 2, size), hub=hub))
    return scenes


WORLDS: dict[str, Callable[[World, np.random.Generator, int], list[Scene]]] = {
    "A": _tokens,
    "B": _cascade,
    "C": _order,
    "D": _hubs,
}
CHOICES = {"A": "desc", "C": "cue", "D": "hubs"}
"""What may be chosen in which world."""


def directions(world: World) -> dict[str, NDArray[np.float64]]:
    """Return the unit directions of nouns (n, DIM), verbs (n, DIM) and world C's cue (1, DIM)."""
    rng = np.random.default_rng([world.seed, ord(world.name), 0])
    sizes = {"noun": NOUNS[world.name], "verb": VERBS[world.name], "cue": 1}
    found = {name: rng.standard_normal((size, DIM)) for name, size in sizes.items()}
    return {name: values / np.linalg.norm(values, axis=1, keepdims=True) for name, values in found.items()}


def scenes(world: World) -> list[Scene]:
    """Return the videos, those to train on first."""
    count = sum(SIZES[world.size][world.name])
    return WORLDS[world.name](world, np.random.default_rng([world.seed, ord(world.name), 1]), count)


def rows_of(world: World, made: Sequence[Scene]) -> list[NDArray[np.float16]]:
    """Return the rows (n, DIM) of each video."""
    rng = np.random.default_rng([world.seed, ord(world.name), 2])
    known, unit = directions(world), DIM**-0.5
    found = []
    for scene in made:
        nouns, verbs = np.asarray([scene.events[event] for event in scene.shown]).T
        rows = known["noun"][nouns] + known["verb"][verbs]
        rows += NUISANCE * unit * rng.standard_normal(DIM) + NOISE[world.name] * unit * rng.standard_normal(rows.shape)
        if scene.cue:
            rows += CUE * np.outer(scene.cue, known["cue"][0])
        found.append(rows.astype(np.float16))
    return found


def captions_of(world: World, made: Sequence[Scene]) -> list[Words]:
    """Return the caption of each video."""
    rng = np.random.default_rng([world.seed, ord(world.name), 3])
    found = []
    for scene in made:
        words: list[tuple[str, str, int]] = []
        for event in scene.told:
            noun, verb = scene.events[event]
            a, b, c = (FUNCTION[int(at)] for at in rng.integers(len(FUNCTION), size=3))
            words += [(a, "DET", -1), (f"noun{noun}", "NOUN", event), (b, "DET", -1)]
            words += [(f"verb{verb}", "VERB", event), (c, "DET", -1)]
        found.append(tuple(words))
    return found


@dataclass(frozen=True)
class Moment:
    """A query to a video of world C: one of the two times at which an event is shown."""

    video: int
    row: int
    words: Words


def moments_of(world: World, made: Sequence[Scene]) -> list[Moment]:
    """Return, for each row of world C, the query that asks for it: `first` or `again`, then its event."""
    found = []
    for video, scene in enumerate(made if world.name == "C" else ()):
        for row, event in enumerate(scene.shown):
            noun, verb = scene.events[event]
            when = "first" if row < len(scene.shown) // 2 else "again"
            words = ((when, "ADV", -1), (f"noun{noun}", "NOUN", event), (f"verb{verb}", "VERB", event))
            found.append(Moment(video, row, words))
    return found


def text_of(caption: Words) -> str:
    """Return the caption as it is written."""
    return " ".join(text for text, _, _ in caption)
