"""Toy videos, drawn by code: a shape of some colour moves in some way, and the captions say just that.

Source: this file. Nothing is downloaded; what is not yet in ROOT is drawn there: 72 H.264 files, one for each of 6
colours x 4 shapes x 3 motions, `COLOUR-SHAPE-MOTION.mp4` (3-7 s, 320 x 240, 25 frames per second). Backgrounds, places,
sizes and speeds are random, from seeded generators: the same ffmpeg draws the same bytes again.

Each video is one clip and has three captions, in different words. Split `toy`: `test` holds 24 videos, one for each
pair of colour and shape, `train` the other 48. Every colour, shape, motion and word of the test occurs in training,
but no combination does; a caption fits one test video only. So retrieval can be right, and chance is 1 in 24.

Repair rules: none. A file that is there is not drawn again; files appear whole or not at all.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadDataset, BadFeatureFile
from pipeline.publish import publish, remove_stale
from pipeline.records import Caption, Clip, Manifest, Part, Video

HINT = "nothing: the videos are drawn there (72 files, 1 MB, twenty seconds)"

WIDTH, HEIGHT, FPS = 320, 240, 25
COLOURS = {
    "red": (225, 30, 30),
    "green": (30, 190, 50),
    "blue": (40, 70, 240),
    "yellow": (240, 220, 40),
    "white": (250, 250, 250),
    "purple": (170, 40, 190),
}
SHAPES = {"circle": "disc", "square": "box", "triangle": "wedge", "star": "pentagram"}
"""Each with a second word for it."""
MOTIONS = {
    "right": (
        "a {colour} {shape} moves to the right",
        "the {colour} {other} travels rightwards",
        "a {shape} in {colour} slides from left to right",
    ),
    "bounce": (
        "a {colour} {shape} bounces up and down",
        "the {colour} {other} jumps and falls again and again",
        "a {shape} in {colour} hops on the spot",
    ),
    "grow": (
        "a {colour} {shape} grows larger",
        "the {colour} {other} gets bigger and bigger",
        "a {shape} in {colour} swells in the middle",
    ),
}
"""Each with its captions."""

_SEED = 20_210

Picture = NDArray[np.uint8]
"""(HEIGHT, WIDTH, 3), RGB."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Film:
    """One video to be drawn; `number` seeds its generator."""

    number: int
    colour: str
    shape: str
    motion: str

    @property
    def id(self) -> str:
        """The video's id."""
        return f"{self.colour}-{self.shape}-{self.motion}"


FILMS = tuple(Film(n, *names) for n, names in enumerate(product(COLOURS, SHAPES, MOTIONS)))


def load(root: Path) -> Manifest:
    """Draw the toy videos that are not yet in `root`, and return all. Raises BadDataset if they cannot be drawn."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadDataset(f"cannot make the folder {root} for the toy videos: {error.strerror}; name another") from error
    files = {film: root / f"{film.id}.mp4" for film in FILMS}
    missing = [film for film in FILMS if not files[film].is_file()]
    if missing:
        logging.getLogger(__name__).info("drawing %d toy videos in %s", len(missing), root)
        remove_stale(root)
    for film in missing:
        draw(film, files[film])
    return Manifest(
        dataset="toy",
        videos=tuple(Video(film.id, files[film], frames(film) / FPS) for film in FILMS),
        clips=tuple(Clip(film.id, film.id) for film in FILMS),
        captions=tuple(caption for film in FILMS for caption in captions(film)),
        splits=(_part("train"), _part("test")),
        notes=(f"{len(missing)} of {len(FILMS)} videos were drawn now",) if missing else (),
    )


def captions(film: Film) -> list[Caption]:
    """Return the three captions of `film`, `ID#0` to `ID#2`."""
    words = {"colour": film.colour, "shape": film.shape, "other": SHAPES[film.shape]}
    texts = [text.format_map(words) for text in MOTIONS[film.motion]]
    return [Caption(f"{film.id}#{n}", film.id, text) for n, text in enumerate(texts)]


def part(film: Film) -> str:
    """Return `test` for one motion of each pair of colour and shape, else `train`."""
    names = (list(COLOURS).index(film.colour), list(SHAPES).index(film.shape), list(MOTIONS).index(film.motion))
    return "test" if sum(names) % len(MOTIONS) == 0 else "train"


def _part(name: str) -> Part:
    films = [film for film in FILMS if part(film) == name]
    return Part("toy", name, tuple(film.id for film in films), tuple(c.id for film in films for c in captions(film)))


def frames(film: Film) -> int:
    """Return how many frames `film` has: 3 to 7 s of them."""
    return 3 * FPS + film.number * 37 % (4 * FPS + 1)


def draw(film: Film, file: Path) -> None:
    """Draw `film` and write it to `file`, whole or not at all. Raises BadDataset if that fails."""
    pixels = b"".join(picture.tobytes() for picture in pictures(film))
    try:
        with publish(file) as temporary:
            _encode(pixels, temporary)
    except BadFeatureFile as error:
        raise BadDataset(f"the toy videos cannot be drawn: {error}") from error


def _encode(pixels: bytes, file: Path) -> None:
    """Write raw RGB frames as H.264. One thread and no dates or versions: the same input gives the same bytes."""
    from pipeline.ffmpeg import program

    source = f"-f rawvideo -pix_fmt rgb24 -s {WIDTH}x{HEIGHT} -r {FPS} -i pipe:0"
    sink = "-c:v libx264 -preset veryfast -crf 27 -pix_fmt yuv420p -threads 1 -map_metadata -1 -fflags +bitexact"
    command = [program(), "-v", "error", "-y", *source.split(), *sink.split(), "-flags:v", "+bitexact", "-f", "mp4"]
    try:
        done = subprocess.run([*command, str(file)], input=pixels, capture_output=True, check=False)
    except OSError as error:
        raise BadDataset(f"cannot run {command[0]} to draw the toy videos: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BadDataset(f"ffmpeg could not write {file.parent}: {' '.join(last)}; it needs libx264 and free space")


def pictures(film: Film) -> Iterator[Picture]:
    """Yield the pictures of `film`: a moving shape before a still, textured background."""
    rng = np.random.default_rng((_SEED, film.number))
    background = _background(rng)
    colour = np.array(COLOURS[film.colour]) * rng.uniform(0.9, 1.0)
    for x, y, radius in _path(film, rng):
        yield _picture(background, film.shape, colour, (x, y, radius))


def _background(rng: np.random.Generator) -> Picture:
    """Return a grey ground with waves of some tint and a fine grain, between 20 and 200."""
    y, x = np.mgrid[:HEIGHT, :WIDTH][..., None]
    ground = rng.uniform(60, 140) + rng.normal(0, 4, (HEIGHT, WIDTH, 3))
    for _ in range(3):
        across, down = rng.uniform(-0.06, 0.06, 2)
        ground += rng.uniform(4, 12, 3) * np.sin(across * x + down * y + rng.uniform(0, 2 * np.pi))
    return np.clip(ground, 20, 200).astype(np.uint8)


def _path(film: Film, rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    """Yield where the shape's centre is and its radius, in pixels, for each frame."""
    count = frames(film)
    done = np.arange(count) / (count - 1)
    x = rng.uniform(135, 185) * np.ones(count)
    y = rng.uniform(90, 150) * np.ones(count)
    radius = rng.uniform(24, 36) * np.ones(count)
    period = rng.uniform(1.1, 1.7)
    match film.motion:
        case "right":
            x += (done - 0.5) * 220
        case "bounce":
            y = 190 - 135 * np.abs(np.sin(np.pi * np.arange(count) / FPS / period))
        case "grow":
            radius *= 0.35 + 2.25 * done
    return zip(x.tolist(), y.tolist(), radius.tolist(), strict=True)


def _picture(background: Picture, shape: str, colour: Floats, place: tuple[float, float, float]) -> Picture:
    """Return `background` with the shape upon it; its edge is one pixel soft."""
    x, y, radius = place
    reach = 1.5 * radius + 1
    top, left = max(int(y - reach), 0), max(int(x - reach), 0)
    picture = background.copy()
    window = picture[top : int(y + reach) + 1, left : int(x + reach) + 1]
    down, right = np.mgrid[: window.shape[0], : window.shape[1]]
    cover = np.clip(0.5 - distance(shape, right + (left - x), down + (top - y), radius), 0, 1)[..., None]
    window[:] = (1 - cover) * window + cover * colour
    return picture


def distance(shape: str, right: Floats, down: Floats, radius: float) -> Floats:
    """Return how far points, relative to the centre, lie outside the outline: negative inside. Areas are alike."""
    if shape == "circle":
        return np.asarray(np.hypot(right, down) - radius)
    if shape == "square":
        return np.asarray(np.maximum(abs(right), abs(down)) - 0.87 * radius)
    if shape == "triangle":
        return np.asarray(np.maximum(abs(right) * np.sqrt(0.75) - down / 2, down) - 0.75 * radius)
    # A star is one edge, from an outer corner to the next inner one, mirrored and turned into ten.
    angle = abs((np.arctan2(right, -down) + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)
    outer, inner, length = 1.45 * radius, 0.65 * radius, np.hypot(right, down)
    away = np.array((inner * np.sin(np.pi / 5), outer - inner * np.cos(np.pi / 5)))
    across = away[0] * (length * np.cos(angle) - outer) + away[1] * length * np.sin(angle)
    return np.asarray(across / np.hypot(*away))
