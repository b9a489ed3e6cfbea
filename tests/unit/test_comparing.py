"""Which mistake a difference looks like: planted, and on reference rows of real videos."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pipeline import lags
from pipeline.diagnosing import PICTURES, Finding, Moved, diagnose, of_counts, pictures
from tests.unit.features import head, shard, video
from tests.whole.command import error, inside

DATA = Path(__file__).parents[1] / "data"
BILINEAR, BICUBIC = (DATA / f"howto100m_extractor_{kind}.npz" for kind in ("bilinear", "bicubic"))
UNIVL = DATA / "univl_extractor_bilinear.npz"
Rows = NDArray[Any]
Videos = dict[str, Rows]
kinds = pytest.mark.parametrize("kind", ["2d", "3d", "s3d"])


def reference(kind: str) -> Videos:
    with np.load(UNIVL if kind == "s3d" else BILINEAR) as found:
        return {key.partition("/")[2]: found[key] for key in found if key.startswith(f"{kind}/")}


def found(a: Mapping[str, Rows], b: Mapping[str, Rows], rate: float | None = None) -> list[Finding]:
    both = [(a[one], b[one]) for one in a]
    cut = [(x[: min(len(x), len(y))], y[: min(len(x), len(y))]) for x, y in both]
    pairs = [(x.astype(np.float64), y.astype(np.float64)) for x, y in cut]
    return diagnose(pairs, [(len(x), len(y)) for x, y in both], rate)


def said(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.sure) for finding in findings]


def changed(videos: Videos, change: Callable[[Rows], Rows]) -> Videos:
    return {one: change(rows.astype(np.float32)) for one, rows in videos.items()}


def unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def later(rows: Rows, by: float) -> Rows:
    """Return what would be seen `by` rows later, between the rows; the ends are repeated."""
    at = np.arange(len(rows)) + by
    low = np.floor(at).astype(int)
    part = (at - low)[:, None]
    first, second = (rows[np.clip(low + step, 0, len(rows) - 1)] for step in (0, 1))
    return np.asarray(first * (1 - part) + second * part)


def compared(a: Path, b: Path, *words: str) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(inside("compare", a, b, *words, "--json")[0])
    return out


@pytest.mark.parametrize("kind", ["2d", "3d"])
def test_bilinear_against_bicubic(kind: str) -> None:
    out = compared(BILINEAR, BICUBIC, "--stream", kind)
    (finding,) = out["findings"]
    assert (finding["kind"], finding["sure"]) == ("picture", "possible")  # never more: other changes move rows as much
    assert finding["text"].partition("as by ")[2].startswith("the scaler: bilinear or bicubic")
    assert (out["videos"], out["only_a"], out["only_b"]) == (4, 0, 0)
    by_video = {one["video"]: one for one in out["differences"]}
    with np.load(BILINEAR) as one, np.load(BICUBIC) as two:
        a, b = (side[f"{kind}/video7010.mp4"].astype(np.float64) for side in (one, two))
    told = by_video["video7010.mp4"]
    assert told["error"] == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(0)))
    assert told["cosine"] == pytest.approx(
        np.mean([x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a, b, strict=True)])
    )
    assert told["cosine"] > told["centred_cosine"] > 0.99
    assert (told["rows_a"], told["rows_b"]) == (len(a), len(b))


@kinds
def test_the_same_rows(kind: str) -> None:
    rows = reference(kind)
    assert said(found(rows, rows)) == [("same", "certain")]
    noise = np.random.default_rng(0)
    near = {
        one: r.astype(np.float64) + 0.005 * r.astype(np.float64).std(0) * noise.standard_normal(r.shape)
        for one, r in rows.items()
    }
    assert said(found(rows, near)) == [("same", "certain")]


def test_rounding_to_float16() -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.standard_normal((9, 64)).astype(np.float32) for name in "abc"}
    assert said(found(rows, changed(rows, lambda r: r.astype(np.float16)))) == [("float16", "certain")]
    coarser = changed(rows, lambda r: np.asarray(torch.from_numpy(r).bfloat16().float()))
    assert ("float16", "certain") not in said(found(rows, coarser))


@kinds
def test_rows_that_are_normalised(kind: str) -> None:
    rows = reference(kind)
    normalised = changed(rows, lambda r: unit(r).astype(np.float16))
    for a, b, which in ((rows, normalised, "B's"), (normalised, rows, "A's")):
        first, second = found(a, b)
        assert (first.kind, first.sure) == ("l2", "certain")
        assert first.text.startswith(which)
        assert second.kind in ("same", "float16")
    assert "l2" not in [kind for kind, _ in said(found(normalised, normalised))]


def test_normalised_and_more() -> None:
    """What is left of a difference when both sides are normalised is looked at too."""
    rows = reference("2d")
    with np.load(BICUBIC) as two:
        other = {one: unit(two[f"2d/{one}"].astype(np.float32)) for one in rows}
    assert said(found(rows, other)) == [("l2", "certain"), ("picture", "possible")]


@kinds
def test_rows_times_a_factor(kind: str) -> None:
    rows = reference(kind)
    first, second = found(rows, changed(rows, lambda r: r * 255))
    assert (first.kind, first.text) == ("factor", "B's rows are A's times 255")
    assert second.kind in ("same", "float16")


@kinds
@pytest.mark.parametrize("by", [0.5, -0.5])
def test_half_a_second_planted(kind: str, by: float) -> None:
    rows = reference(kind)
    rate = 1.5 if kind == "3d" else 1.0
    (finding,) = found(rows, changed(rows, lambda r: later(r, by * rate)), rate)
    assert (finding.kind, finding.sure) == ("shift", "certain")
    assert ("later" if by > 0 else "earlier") in finding.text
    assert float(finding.text.partition("(")[2].partition(" s)")[0]) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("by", [1, -2])
def test_whole_rows_late(by: int) -> None:
    rows = {one: r for one, r in reference("2d").items() if len(r) > 6}
    (finding,) = found(rows, changed(rows, lambda r: later(r, by)))
    assert (finding.kind, finding.sure) == ("shift", "certain")
    assert f"about {abs(by)} rows {'later' if by > 0 else 'earlier'}" in finding.text
    assert " s)" not in finding.text  # nobody has said how long a row is


@kinds
def test_a_constant_in_all_rows(kind: str) -> None:
    """In a shallow network, or where features were centred, another mean pixel is this."""
    rows = reference(kind)
    offset = np.random.default_rng(0).standard_normal(next(iter(rows.values())).shape[1])
    spread = np.mean([r.astype(np.float64).std(0).mean() for r in rows.values()])
    (finding,) = found(rows, changed(rows, lambda r: r + spread * offset))
    assert (finding.kind, finding.sure) == ("offset", "likely")
    assert "mean pixel" in finding.text


@kinds
def test_another_network(kind: str) -> None:
    rows = reference(kind)
    dim = next(iter(rows.values())).shape[1]
    mixed = np.random.default_rng(0).standard_normal((dim, dim)) / dim**0.5
    (finding,) = found(rows, changed(rows, lambda r: r @ mixed))
    assert (finding.kind, finding.sure) == ("network", "likely")
    assert "the same videos in another network" in finding.text
    rng = np.random.default_rng(1)
    (finding,) = found(rows, changed(rows, lambda r: rng.standard_normal(r.shape) + 3))
    assert (finding.kind, finding.sure) in [("network", "likely"), ("shift", "possible")]
    assert "other videos" in finding.text
    narrow = changed(rows, lambda r: r[:, :100])
    assert said(found(rows, narrow)) == [("network", "certain")]


def test_noise_is_no_mistake_of_pictures() -> None:
    rows = reference("2d")
    rng = np.random.default_rng(0)
    spread = np.mean([r.astype(np.float64).std(0).mean() for r in rows.values()])
    (finding,) = found(rows, changed(rows, lambda r: r + 0.4 * spread * rng.standard_normal(r.shape)))
    assert (finding.kind, finding.sure) == ("shift", "possible")
    assert "noise" in finding.text


COUNTS: dict[str, tuple[list[tuple[int, int]], tuple[str, ...], bool, str]] = {
    "equal": ([(3, 3), (9, 9)], (), True, ""),
    "one more": ([(10, 11), (40, 40), (90, 91)], ("count",), True, "more in 2, fewer in 0"),
    "one fewer": ([(10, 9), (40, 41), (90, 90)], ("count",), True, "more in 1, fewer in 1"),
    "cut": ([(100, 95), (100, 100), (100, 100)], ("count",), True, "up to 5 rows"),
    "half as often": ([(10, 5), (41, 20), (90, 45)], ("rate",), False, "0.496 times"),
    "three for two": ([(10, 15), (20, 30), (3, 5)], ("rate",), False, "1.52 times"),
    "short ones alone": ([(1, 2), (2, 3), (40, 40)], ("count",), True, "in 2 of 3 videos"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_numbers_of_rows(case: str) -> None:
    counts, names, comparable, text = COUNTS[case]
    findings, goes_on = of_counts(counts)
    assert tuple(finding.kind for finding in findings) == names
    assert all(finding.sure == "certain" and text in finding.text for finding in findings)
    assert goes_on == comparable


def test_of_other_rates_no_rows_are_compared() -> None:
    out = compared(BILINEAR, BICUBIC, "--stream", "2d,3d")
    assert [finding["kind"] for finding in out["findings"]] == ["rate"]
    assert out["error"] is out["differences"][0]["error"] is out["differences"][0]["cosine"] is None


@pytest.mark.parametrize("number", range(len(PICTURES)))
def test_the_median_of_a_mistake_is_that_mistake(number: int) -> None:
    known = PICTURES[number]
    assert known.name in pictures(Moved(known.error[1], known.uneven[1], 0.0))
    far = (known.error[0] / 10, known.error[2] * 10)
    assert all(known.name not in pictures(Moved(error, known.uneven[1], 0.0)) for error in far)


def test_one_row_a_video() -> None:
    """Rows are compared with all the others': there is no other row of their own video."""
    rng = np.random.default_rng(0)
    rows = {f"v{n}": rng.standard_normal((1, 32)) for n in range(30)}
    other = {one: r + 0.3 * rng.standard_normal(r.shape) for one, r in rows.items()}
    (finding,) = found(rows, other)
    assert finding.sure == "possible"


def held(place: Path, rows: Videos, fps: float = 1.0) -> Path:
    videos = [video(one, len(r)) for one, r in rows.items()]
    for made in videos:
        made.rows["a:x"] = rows[made.video]  # type: ignore[index]
    return shard(place, *videos, **{"a:x": head(dim=next(iter(rows.values())).shape[1], fps=fps)})


def test_a_feature_file_beside_a_folder(tmp_path: Path) -> None:
    """Either side first; names with suffixes; videos of one side only; half a second in seconds of the file's rate."""
    rows = {one.partition(".")[0]: r for one, r in reference("2d").items()}
    held(tmp_path / "f.h5", {**rows, "ours alone": rows["video7010"]}, fps=2.0)
    (tmp_path / "theirs").mkdir()
    for one, r in {**rows, "theirs": rows["video7010"]}.items():
        np.save(tmp_path / f"theirs/{one}.mp4.npy", later(r.astype(np.float32), 0.5))
    ours, theirs = tmp_path / "f.h5", tmp_path / "theirs"
    one, two = compared(ours, theirs), compared(theirs, ours, "--stream", "a:x")
    assert (one["videos"], one["only_a"], one["only_b"]) == (two["videos"], two["only_b"], two["only_a"]) == (4, 1, 1)
    assert "later" in one["findings"][0]["text"]
    assert "earlier" in two["findings"][0]["text"]
    assert "(0.25 s)" in one["findings"][0]["text"]
    assert {d["video"] for d in one["differences"]} == set(rows)
    printed = inside("compare", ours, theirs, "--most", "1")[0]
    assert "4 videos in both, 1 in A only, 1 in B only" in printed
    assert "certain: B's rows" in printed


def test_two_feature_files(tmp_path: Path) -> None:
    rows = reference("2d")
    held(tmp_path / "a.h5", rows)
    held(tmp_path / "b.h5", changed(rows, lambda r: (r * 2).astype(np.float16)))
    findings = compared(tmp_path / "a.h5", tmp_path / "b.h5")["findings"]
    assert [finding["kind"] for finding in findings] == ["factor", "same"]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    assert "no video in common" in error("compare", BILINEAR, UNIVL, "--stream", "none")
    held(tmp_path / "a.h5", {"v": np.ones((3, 4), np.float16)})
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["v"] = np.array([[1, np.nan, 0, 0]] * 3)
    assert "v of B: rows that are not finite" in error("compare", tmp_path / "a.h5", tmp_path / "two.h5")
    assert "does not exist" in error("compare", tmp_path / "a.h5", tmp_path / "none")
    (tmp_path / "x.txt").write_text("x")
    assert "no known format" in error("compare", tmp_path / "a.h5", tmp_path / "x.txt")
    assert "a:x" in error("compare", tmp_path / "a.h5", BILINEAR, "--stream", "b,2d")
    assert "--most -1" in error("compare", tmp_path / "a.h5", BILINEAR, "--most", "-1")
    shard(tmp_path / "more.h5", video("v", streams=("a:x", "b:y")))
    assert "a:x, b:y" in error("compare", tmp_path / "more.h5", BILINEAR)


@pytest.fixture(scope="module")
def real() -> dict[str, list[Rows]]:
    """Rows of three real videos by EfficientNet-Lite0 with its published weights, by what was done to the pictures.

    The first 256 of 1,280 numbers a row of what `benchmarks/mistakes.py --out` keeps of video7010, R6llTwEh07w and
    v_SoccerJuggling_g23_c01.
    """
    made: dict[str, list[Rows]] = {}
    with np.load(DATA / "efficientnet_lite0_mistakes.npz") as found:
        for key in found:
            made.setdefault(key.rpartition("/")[2], []).append(found[key].astype(np.float64))
    return made


def pairs_of(real: dict[str, list[Rows]], a: str, b: str) -> list[tuple[Rows, Rows]]:
    return list(zip(real[a], real[b], strict=True))


@pytest.mark.parametrize("swapped", [False, True])
def test_the_start_of_a_second_instead_of_its_middle(swapped: bool, real: dict[str, list[Rows]]) -> None:
    """Real frames, half a second earlier."""
    pairs = pairs_of(real, *(("early", "base") if swapped else ("base", "early")))
    (finding,) = diagnose(pairs, [], 1.0)
    assert finding.kind == "shift"
    assert finding.sure != "possible"
    assert ("later" if swapped else "earlier") in finding.text
    assert 0.3 < float(finding.text.partition("(")[2].partition(" s)")[0]) < 0.7


MISTAKES = {
    "scaler": "the scaler",
    "mean swapped": "a mean pixel whose channels are swapped",
    "crop": "another geometry",
    "no deviation": "another range",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_pictures_made_otherwise(name: str, real: dict[str, list[Rows]]) -> None:
    for a, b in (("base", name), (name, "base")):
        (finding,) = diagnose(pairs_of(real, a, b), [], 1.0)
        assert (finding.kind, finding.sure) == ("picture", "possible")
        assert MISTAKES[name] in finding.text
    assert lags.alike(pairs_of(real, "base", name)) > 0.2


def test_what_moves_rows_far_is_not_what_moves_them_little(real: dict[str, list[Rows]]) -> None:
    said = {name: diagnose(pairs_of(real, "base", name), [])[-1].text for name in ("scaler", "no deviation")}
    assert "another range" not in said["scaler"]
    assert "scaler" not in said["no deviation"]
