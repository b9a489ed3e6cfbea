"""What the table `idf` says, as values, as text and as a picture: TACo's Table 10 and Figure 4."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from pipeline.captions import tables_file
from pipeline.parts import read_column
from pipeline.publish import publish

TACO = {
    "msrvtt": {"types": 15_740, "nouns": 4_415, "verbs": 1_463},
    "youcook2": {"types": 2_144, "nouns": 378, "verbs": 168},
    "activitynet": {"types": 9_059, "nouns": 2_602, "verbs": 1_021},
}
"""TACo, Table 10. Which captions, which tagger and which words were counted is not said there."""

PICTURES = (".svg", ".png")
SPEECH = {"NOUN": "nouns", "VERB": "verbs"}
"""A type is counted under the part of speech that it has most often."""


def summary(features: Path, most: int = 20) -> dict[str, Any]:
    """Return the counts of the training captions' words, and the `most` words of highest and lowest idf."""
    path = tables_file(features)
    with h5py.File(path, "r") as file:
        idf, words = file["idf"], file["words"].attrs
        columns = {name: read_column(idf[name]) for name in ("type", "df", "idf", "pos")}
        attrs = {name: idf.attrs[name] for name in ("split", "form", "min_count", "documents", "tokens", "equal")}
        dataset = str(file.attrs["dataset"])
        interest, tagger = (json.loads(words[name]) for name in ("interest", "settings"))
    seen = columns["df"] > 0
    return {
        "file": str(path),
        "dataset": dataset,
        "split": str(attrs["split"]),
        "captions": int(attrs["documents"]),
        "tokens": int(attrs["tokens"]),
        "types": int(seen.sum()),
        **{plural: int((columns["pos"] == name).sum()) for name, plural in SPEECH.items()},
        "form": str(attrs["form"]),
        "min_count": int(attrs["min_count"]),
        "interest": interest,
        "tagger": tagger,
        "captions with equal weights": int(attrs["equal"]),
        "taco": TACO.get(dataset, {}),
        "highest": {plural: _extremes(columns, name, most, rarest=True) for name, plural in SPEECH.items()},
        "lowest": {plural: _extremes(columns, name, most, rarest=False) for name, plural in SPEECH.items()},
    }


def _extremes(columns: dict[str, NDArray[Any]], speech: str, most: int, rarest: bool) -> list[dict[str, Any]]:
    """Return words by idf, equal ones in the order of the alphabet."""
    chosen = np.flatnonzero(columns["pos"] == speech)
    sign = 1 if rarest else -1
    order = chosen[np.lexsort((columns["type"][chosen].astype(str), sign * columns["df"][chosen]))][:most]
    return [{"word": columns["type"][i], "df": int(columns["df"][i]), "idf": float(columns["idf"][i])} for i in order]


def tables(found: dict[str, Any]) -> list[Any]:
    """Return what is printed for people."""
    head = (
        f"{found['file']}: {found['captions']:,} training captions ({found['split']}), {found['tokens']:,} tokens, "
        f"counted by {found['form']}; tagged by {found['tagger']['model']} {found['tagger']['version']}"
    )
    counts = Table(title="words (TACo, Table 10)", title_justify="left")
    for column in ("", "types", "nouns", "verbs"):
        counts.add_column(column, justify="left" if not column else "right")
    for name, numbers in (("here", found), ("TACo", found["taco"])):
        if numbers:
            counts.add_row(name, *(f"{numbers[key]:,}" for key in ("types", "nouns", "verbs")))
    words = Table(title="idf (TACo, Figure 4)", title_justify="left")
    for column in ("nouns, highest", "nouns, lowest", "verbs, highest", "verbs, lowest"):
        words.add_column(column)
    sides = [found[side][plural] for plural in SPEECH.values() for side in ("highest", "lowest")]
    for row in range(max(map(len, sides))):
        words.add_row(*(f"{s[row]['word']}  {s[row]['idf']:.2f}" if row < len(s) else "" for s in sides))
    return [head, counts, words]


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw the words of highest and lowest idf as bars; the suffix of `path` says which kind of picture."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # the first time, it tells of a list of fonts
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same data give the same file; text stays text.
    with mpl.rc_context({"svg.hashsalt": "idf", "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 7.5), layout="constrained")
        axes = figure.subplots(2, 2)
        top = max((w["idf"] for words in found["highest"].values() for w in words), default=0.0) or 1.0
        for row, (plural, color) in enumerate(zip(SPEECH.values(), ("#31688e", "#b5442e"), strict=True)):
            for column, side in enumerate(("lowest", "highest")):
                bars = found[side][plural]
                axis = axes[row][column]
                axis.barh([w["word"] for w in bars], [w["idf"] for w in bars], color=color)
                axis.invert_yaxis()
                axis.set(title=f"{plural}, {side} idf", xlim=(0, 1.05 * top), xlabel="idf")
                axis.tick_params(axis="y", labelsize=8)
                axis.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{found['dataset']}: {found['captions']:,} training captions ({found['split']})")
        with publish(path) as temporary:
            kind = path.suffix[1:]
            figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None, dpi=150)
