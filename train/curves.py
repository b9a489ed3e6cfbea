"""The losses and evaluations of a run as a picture."""

from __future__ import annotations

from pathlib import Path

from train.logbook import entries

COLOURS = {"loss": "#222222", "L1": "#31688e", "L2": "#35b779", "L3": "#b5442e"}


def draw(folder: Path) -> Path:
    """Draw `curves.svg` from `metrics.jsonl`: each part of the loss against steps, and the evaluations beside them."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    found = entries(folder / "metrics.jsonl")
    losses = [entry for entry in found if "loss" in entry]
    values = [entry for entry in found if "val" in entry]
    names = dict.fromkeys(name for entry in losses for name in entry if name not in ("step", "pairs_per_second"))
    path = folder / "curves.svg"
    with mpl.rc_context({"svg.hashsalt": "curves", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        left, *right = figure.subplots(1, 2 if values else 1, squeeze=False)[0]
        for name in names:
            steps, values_of = zip(*((e["step"], e[name]) for e in losses if name in e), strict=True)
            left.plot(steps, values_of, label=name, color=COLOURS.get(name), lw=1)
        left.set(xlabel="step", ylabel="loss", title=folder.name)
        if names:
            left.legend(frameon=False)
        for axis in right:
            axis.plot([e["step"] for e in values], [100 * e["val"] for e in values], marker="o", color=COLOURS["L1"])
            axis.set(xlabel="step", ylabel="mean of R@1, R@5, R@10 (%)", title="val")
        for axis in (left, *right):
            axis.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})
    return path
