"""Text-video retrieval: every caption looks for its clip, every clip for its captions, by each level of score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from train.data import Corpus
from train.evening import Evened
from train.metrics import Retrieval, text_to_video, video_to_text

COLUMNS = ("R@1", "R@5", "R@10", "R@50", "MdR", "MnR", "gallery")


def evaluate(
    scores: dict[str, Tensor],
    corpus: Corpus,
    how: str = "none",
    evened: dict[str, Evened] | None = None,
    oracle: bool = False,
) -> dict[str, Any]:
    """Return the results of each level of score (captions, clips), in both directions; chance beside them.

    `evened`: the same levels evened out at test time, as `how` says; they come beside the plain ones, and say whether
    they used test queries (`oracle`).

    Captions whose clip has no features are misses; with several captions a clip both conventions of video-to-text are
    given, as their numbers cannot be compared.
    """
    several = len(corpus.texts) > len(corpus.clips)
    among = len(corpus.texts) / (len(corpus.texts) + corpus.lacking_captions)  # the others are misses
    found: dict[str, Any] = {"dataset": corpus.dataset, "part": corpus.part, "chance": among / len(corpus.clips)}
    found["scores"] = {
        level: [one.as_dict() for one in _both(matrix, corpus, several)] for level, matrix in scores.items()
    }
    for level, one in (evened or {}).items():
        lines = _both(one.to_video, corpus, several, one.to_text, oracle)
        found["scores"][f"{level} + {how}"] = [line.as_dict() for line in lines]
        found.setdefault("errors", {})[level] = one.errors
    return found


def _both(
    scores: Tensor, corpus: Corpus, several: bool, to_text: Tensor | None = None, oracle: bool = False
) -> list[Retrieval]:
    to_text = scores if to_text is None else to_text
    declared = corpus.declared or len(corpus.clips) + len(corpus.lacking)
    missing, lost = corpus.lacking_captions, len(corpus.lacking)
    found = [
        text_to_video(scores, corpus.clip, expected=declared, missing=missing, uses_test_queries=oracle),
        video_to_text(to_text, corpus.clip, "group_max", expected=declared, missing=lost, uses_test_queries=oracle),
    ]
    if several:
        texts = len(corpus.texts) + missing
        found.append(
            video_to_text(to_text, corpus.clip, "best_caption", expected=texts, missing=lost, uses_test_queries=oracle)
        )
    return found


def selection(scores: dict[str, Tensor], corpus: Corpus) -> float:
    """Return the number by which steps are compared: mean of R@1, R@5 and R@10, text to video, of the last level."""
    found = text_to_video(list(scores.values())[-1], corpus.clip, missing=corpus.lacking_captions)
    return float(torch.tensor([found.recalls[k] for k in (1, 5, 10)]).mean())


def rows(results: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield level, direction and the cells of `COLUMNS` for each line of the results."""
    for level, lines in results.get("scores", {}).items():
        for line in lines:
            name = line["direction"] if line["convention"] != "best_caption" else "v2t, best"
            recalls = [f"{100 * line[column]:.1f}" for column in COLUMNS[:4]]
            size = f"{line['gallery']}" + (f" of {line['expected']}" if line["note"] else "")
            used = " (uses test queries)" if line["uses_test_queries"] else ""
            yield level + used, name, [*recalls, f"{line['MdR']:.1f}", f"{line['MnR']:.1f}", size]


def show(results: dict[str, Any]) -> None:
    """Print the results of a run as a table, recalls in per cent."""
    console = Console()
    if "scores" not in results:
        console.print("no part to evaluate on; `train evaluate --part SPLIT/PART`")
        return
    head = (
        f"{results['dataset']}, {results['part']}, step {results['step']}: chance R@1 is {100 * results['chance']:.1f}"
    )
    table = Table(title=head, title_justify="left")
    for column in ("score", "direction", *COLUMNS):
        table.add_column(column, justify="right" if column in COLUMNS else "left")
    for level, direction, numbers in rows(results):
        table.add_row(level, direction, *numbers)
    if any(direction == "v2t, best" for _, direction, _ in rows(results)):
        table.caption = "v2t ranks clips by their best caption; best: that caption among all captions"
        table.caption_justify = "left"
    console.print(table)
    level, lines = list(results["scores"].items())[-1]
    lost, queries = lines[0]["missing"], lines[0]["queries"]
    if 0 < lost < queries:
        among = 100 * lines[0]["R@1"] * queries / (queries - lost)
        console.print(
            f"{lost:,} of {queries:,} captions have a clip without features and count as misses; among the others R@1 "
            f"({level}, t2v) is {among:.1f}"
        )
    if results.get("weights"):
        said = ", ".join(f"{level} {weight:g}" for level, weight in results["weights"].items())
        console.print(f"chosen: the sum by the weights that retrieve the validation part best: {said}", highlight=False)
    for level, errors in results.get("errors", {}).items():
        (t2v, v2t), (t2v_after, v2t_after) = errors["before"], errors["after"]
        console.print(f"{level}: normalisation error t2v {t2v:.3f} → {t2v_after:.3f}, v2t {v2t:.3f} → {v2t_after:.3f}")
