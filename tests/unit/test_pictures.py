"""Pictures: they are made, the same bytes every time, with their texts, also of odd values; nothing overlaps."""

import doctest
import re
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.figure
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from pipeline.errors import BadSetting
from train import pictures
from train.pictures import Query, colour_bars, confusion, histograms, similarity, timeline

LONG = "He then jumps off and does several flips in the air before " + "landing " * 20
STEPS = ["background", "pour the water", "whisk the eggs", "fry"]
QUERIES = [
    Query("A man stands on a board", 60.0, [(1.0, 20.0)], [(0.5, 18.0, 0.91), (10.0, 30.0, 0.52), (40.0, 60.0, 0.13)]),
    Query(LONG, 60.0, [(20.0, 41.5), (50.0, 55.0)], []),
    Query("Five $ and ten $ & <b>", 12.5, [(0.0, 3.0)], [(1.0, 2.0, -1.25), (5.0, 5.0, 0.77), (0.0, 9.0, -np.inf)]),
]


def draw_timeline(path: Path) -> None:
    timeline(path, QUERIES, title="v_1")


def draw_bars(path: Path) -> None:
    truth = np.repeat([0, 1, 0, 2], [5, 10, 3, 8])
    colour_bars(path, {"truth": truth, "prediction": np.roll(truth, 2)}, STEPS, step=2.0, title="video 7")


def draw_confusion(path: Path) -> None:
    confusion(path, np.array([[8, 2, 0], [1, 1, 2], [0, 0, 0]]), ["pour", "whisk " * 10, "fry"], title="COIN")


def draw_similarity(path: Path) -> None:
    values = np.linspace(-0.2, 0.9, 12).reshape(3, 4)
    similarity(path, values, ["a", "dog", "runs", "antidisestablishmentarianism"], values > 0.5, title="K = 3")


def draw_histograms(path: Path) -> None:
    draw = np.random.default_rng(0)
    both = {"matched": draw.normal(0.5, 0.1, 200), "unmatched": draw.normal(0.1, 0.1, (30, 20))}
    histograms(path, both, title="with the fine loss")


DRAWN: dict[Callable[[Path], None], list[str]] = {
    draw_timeline: [
        "v_1", "A man stands on a board", "truth", "1", "2", "3", "found", "nothing", "score", "0.91", "-1.25",
        "Five $ and ten $ & <b>", "seconds",
    ],
    draw_bars: ["video 7", "truth", "prediction", "pour the water", "whisk the eggs", "background", "seconds"],
    draw_confusion: ["COIN", "pour", "pour (10)", "fry (0)", "80", "20", "25", "50", "truth", "prediction"],
    draw_similarity: ["K = 3", "dog", "runs", "antidisestablis…", "clip", "similarity"],
    draw_histograms: ["with the fine loss", "matched (200), mean 0.50", "unmatched (600), mean 0.10", "similarity"],
}  # fmt: skip
ALL = pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)


def texts(path: Path) -> list[str]:
    return ["".join(one.itertext()) for one in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def colours(path: Path) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", path.read_text()))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the figures that were saved, to look at what is in them."""
    found: list[Any] = []
    save = matplotlib.figure.Figure.savefig

    def keep(figure: Any, *args: Any, **settings: Any) -> None:
        found.append(figure)
        save(figure, *args, **settings)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    return found


def drawn(figure: Any) -> Any:
    """Return what has drawn a figure, and measures its texts."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def test_doctests() -> None:
    found = doctest.testmod(pictures)
    assert (found.failed, found.attempted >= 2) == (0, True)


@ALL
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_bytes_every_time(draw: Callable[[Path], None], suffix: str, tmp_path: Path) -> None:
    first, again = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    draw(first)
    draw(again)
    assert first.read_bytes() == again.read_bytes()
    start = {"svg": b"<?xml", "png": b"\x89PNG"}[suffix]
    assert first.read_bytes().startswith(start)


@ALL
def test_an_svg_has_its_texts(draw: Callable[[Path], None], tmp_path: Path) -> None:
    draw(tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    assert [text for text in DRAWN[draw] if text not in found] == []


@ALL
def test_no_text_overlaps_another_or_leaves_the_picture(
    draw: Callable[[Path], None], tmp_path: Path, figures: list[Any]
) -> None:
    draw(tmp_path / "a.png")
    (figure,) = figures
    renderer, beyond = drawn(figure), set()
    for axis in (side for panel in figure.axes for side in (panel.xaxis, panel.yaxis)):
        low, high = sorted(axis.get_view_interval())
        hidden = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        beyond |= {label for tick in hidden for label in (tick.label1, tick.label2)}
    shown = [
        one.get_window_extent(renderer) for one in figure.findobj(matplotlib.text.Text)
        if one.get_text() and one.get_visible() and one.get_rotation() in (0, 90) and one not in beyond
    ]  # fmt: skip
    assert len(shown) > 5
    for box in shown:
        assert figure.bbox.x0 - 1 <= box.x0
        assert box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0
        assert box.y1 <= figure.bbox.y1 + 1
    for one, other in combinations(shown, 2):
        width = min(one.x1, other.x1) - max(one.x0, other.x0)
        height = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert width < 1 or height < 1


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    draw_timeline(tmp_path / "a.svg")
    (cut,) = [text for text in texts(tmp_path / "a.svg") if text.startswith("He then")]
    assert cut.endswith("…")
    assert LONG.startswith(cut[:-1])
    assert len(cut) <= 104


def test_what_has_no_length_or_score_is_not_shown(tmp_path: Path) -> None:
    draw_timeline(tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    assert "0.77" not in found
    assert not any("inf" in text for text in found)


def test_bars_stand_where_they_should(tmp_path: Path, figures: list[Any]) -> None:
    draw_timeline(tmp_path / "a.png")
    first = figures[0].axes[0]
    spans = [bar.get_paths()[0].get_extents() for bar in first.collections]
    assert [(box.x0, box.x1) for box in spans] == [(1, 20), (0.5, 18), (10, 30), (40, 60)]
    draw_bars(tmp_path / "b.png")
    bars = [bar.get_paths()[0].get_extents() for bar in figures[1].axes[0].collections][:4]
    assert [(box.x0, box.x1) for box in bars] == [(0, 10), (10, 30), (30, 36), (36, 52)]  # a value is two seconds
    looks = [to_hex(bar.get_facecolor()[0]) for bar in figures[1].axes[0].collections][:4]
    assert looks == [pictures.TRACK, pictures.BLUE, pictures.TRACK, pictures.ORANGE]


def test_many_classes_look_different(tmp_path: Path, figures: list[Any]) -> None:
    classes = np.arange(29)
    colour_bars(tmp_path / "a.svg", {"truth": classes}, [f"step {i}" for i in classes])
    looks = {(to_hex(bar.get_facecolor()[0]), bar.get_hatch()) for bar in figures[0].axes[0].collections}
    assert len(looks) == 29
    assert {f"step {i}" for i in classes[1:]} < set(texts(tmp_path / "a.svg"))


def test_shares_of_rows(tmp_path: Path, figures: list[Any]) -> None:
    draw_confusion(tmp_path / "a.png")
    found = figures[0].axes[0].images[0].get_array()
    assert found[:2].tolist() == [[0.8, 0.2, 0.0], [0.25, 0.25, 0.5]]
    assert found.mask[2].all()


@pytest.mark.parametrize(("classes", "named"), [(1, True), (5, True), (21, True), (105, True), (200, False)])
def test_names_stand_where_they_fit(classes: int, named: bool, tmp_path: Path, figures: list[Any]) -> None:
    names = [f"a step with a long name {i}" for i in range(classes)]
    confusion(tmp_path / "a.svg", np.eye(classes, dtype=int), [name[7:] for name in names])
    axis, renderer = figures[0].axes[0], drawn(figures[0])
    labels = [label for label in axis.get_yticklabels() if label.get_text()]
    assert any("with a long" in label.get_text() for label in labels) == named
    boxes = [label.get_window_extent(renderer) for label in labels]
    assert all(abs(one.y0 - other.y0) >= 0.7 * one.height for one, other in pairwise(boxes))
    assert max(figures[0].get_size_inches()) < 18


def test_chosen_words_are_marked(tmp_path: Path, figures: list[Any]) -> None:
    draw_similarity(tmp_path / "a.png")
    dots = figures[0].axes[0].collections[0].get_offsets()
    assert dots.tolist() == [[0, 2], [1, 2], [2, 2], [3, 2]]


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no queries": (lambda path: timeline(path, []), "no queries"),
    "nothing found": (lambda path: timeline(path, [Query("q", 5.0, [], [])]), "nothing"),
    "no length": (lambda path: timeline(path, [Query("", 0.0, [], [])]), "truth"),
    "no bars": (lambda path: colour_bars(path, {}, []), "no segments"),
    "empty bars": (lambda path: colour_bars(path, {"truth": np.array([], int)}, ["a"]), "no segments"),
    "background": (lambda path: colour_bars(path, {"truth": np.zeros(3, int)}, ["none"]), "background"),
    "no background": (lambda path: colour_bars(path, {"truth": np.ones(3, int)}, ["none", "fry"]), "fry"),
    "one of them empty": (
        lambda path: colour_bars(path, {"truth": np.ones(3, int), "found": np.array([], int)}, ["none", "fry"]),
        "found",
    ),
    "no classes": (lambda path: confusion(path, np.zeros((0, 0)), []), "no classes"),
    "one class": (lambda path: confusion(path, np.array([[3]]), ["fry"]), "fry (3)"),
    "nothing to confuse": (lambda path: confusion(path, np.zeros((2, 2)), ["fry", "cut"]), "cut (0)"),
    "no clips": (lambda path: similarity(path, np.zeros((0, 2)), ["a", "b"], np.zeros((0, 2), bool)), "no clips"),
    "no words": (lambda path: similarity(path, np.zeros((2, 0)), [], np.zeros((2, 0), bool)), "no words"),
    "one word": (lambda path: similarity(path, np.ones((1, 1)), ["a"], np.ones((1, 1), bool)), "a"),
    "no numbers": (lambda path: similarity(path, np.full((1, 1), np.nan), ["a"], np.ones((1, 1), bool)), "a"),
    "no pairs": (lambda path: histograms(path, {"matched": np.array([]), "unmatched": np.array([np.nan])}), "no pairs"),
    "no unmatched": (
        lambda path: histograms(path, {"matched": np.array([0.5, np.nan]), "unmatched": np.array([])}),
        "matched (1), mean 0.50",
    ),
}


@pytest.mark.parametrize(("draw", "said"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_odd_values(draw: Callable[[Path], None], said: str, suffix: str, tmp_path: Path) -> None:
    draw(tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 1000
    if suffix == "svg":
        assert said in texts(tmp_path / "a.svg")


def test_captions_of_other_scripts(tmp_path: Path) -> None:
    timeline(tmp_path / "a.svg", [Query("玉ねぎを切る" * 20, 10.0, [(0, 5)], [])])
    (cut,) = [text for text in texts(tmp_path / "a.svg") if text.startswith("玉")]
    assert 48 <= len(cut) <= 52


def test_other_kinds_of_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"a\.pdf: a picture's name ends in \.svg or \.png"):
        timeline(tmp_path / "a.pdf", [])
    assert not (tmp_path / "a.pdf").exists()


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        colour_bars(tmp_path / "a.svg", {"truth": np.array([7])}, ["one"])
    assert not (tmp_path / "a.svg").exists()


def test_the_map_of_colours_grows_lighter() -> None:
    """What is more is lighter also where colours are not seen."""
    red, green, blue, _ = colormaps[pictures.HEAT](np.linspace(0, 1, 64)).T
    assert (np.diff(0.2126 * red + 0.7152 * green + 0.0722 * blue) > 0).all()
