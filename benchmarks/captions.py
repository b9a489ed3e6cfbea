"""What tagging and merging cost beside what anybody would write: `python -m benchmarks.captions [--json]`.

1. `pipeline run tag` on MSR-VTT's 200,000 captions against a plain loop of spaCy's default pipeline over the same ones.
   The loop is timed over every 40th caption and scaled.
2. `pipeline run merge` on a synthetic raw_caption.json against `json.load` of the same file, and the peak memory of
   `merge` on that file and on one of a tenth of its videos.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import spacy

from benchmarks.children import watched
from benchmarks.printing import show
from pipeline import datasets
from pipeline.tagging import package_of

HERE = Path(__file__).resolve().parent
EVERY = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parents[1] / "shared/data/msrvtt")
    parser.add_argument("--videos", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["tag", "merge"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        if chosen.only != "merge":
            found |= tagging(chosen.root, Path(place), chosen.runs)
        if chosen.only != "tag":
            found |= merging(Path(place), chosen.videos, chosen.runs)
    print(json.dumps(found, indent=2)) if chosen.json else show(found)


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def pipeline(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pipeline.cli", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


def tagging(root: Path, place: Path, runs: int) -> dict[str, float]:
    out = place / "tag.h5"
    captions = [caption.text for caption in datasets.load("msrvtt", root).captions]
    nlp = spacy.load(package_of("en_core_web_sm"))
    ours, plain = [], []
    for _ in range(runs):
        out.unlink(missing_ok=True)
        words: list[str | Path] = ["run", "tag", "--dataset", "msrvtt", "--root", root, "--features", out]
        ours.append(seconds(partial(pipeline, *words)))
        plain.append(EVERY * seconds(lambda: [nlp(text) for text in captions[::EVERY]]))
    return {
        "captions": len(captions),
        "tag, wall s": statistics.median(ours),
        "plain loop, wall s": statistics.median(plain),
        "plain loop / tag": statistics.median(b / a for a, b in zip(ours, plain, strict=True)),
    }


def merging(place: Path, videos: int, runs: int) -> dict[str, float]:
    large, small = place / "large/raw_caption.json", place / "small/raw_caption.json"
    for path, count in ((large, videos), (small, videos // 10)):
        path.parent.mkdir()
        subprocess.run([sys.executable, HERE / "make_raw_caption.py", path, "--videos", str(count)], check=True)
    load = "import json, sys; json.load(open(sys.argv[1]))"
    ours, theirs, peaks = [], [], []
    for _ in range(runs):
        took, peak = merge(large)
        ours.append(took)
        peaks.append(peak)
        theirs.append(seconds(lambda: subprocess.run([sys.executable, "-c", load, large], check=True)))
    return {
        "videos": videos,
        "file, MB": large.stat().st_size / 1e6,
        "merge, wall s": statistics.median(ours),
        "json.load, wall s": statistics.median(theirs),
        "merge / json.load": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
        "peak memory of one process, MB": statistics.median(peaks),
        "the same with a tenth of the videos, MB": merge(small)[1],
    }


def merge(captions: Path) -> tuple[float, float]:
    """Return the wall seconds of the command and the largest resident size of any of its processes in MB."""
    out = captions.parent / "merged.h5"
    out.unlink(missing_ok=True)
    words = ["run", "merge", "--root", str(captions.parent), "--out", str(out)]
    told = watched([sys.executable, "-m", "pipeline.cli", *words])
    return told.seconds, told.peak / 1e6


if __name__ == "__main__":
    main()
