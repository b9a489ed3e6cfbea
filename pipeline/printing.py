"""What the commands print to stdout: tables for people, JSON for programs."""

from __future__ import annotations

import inspect
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

import extractors
from extractors.spec import Chain, Preset
from pipeline import datasets, stages

FAILURES = 20
"""How many failures are printed; the file and its failures.jsonl have them all."""


def _console(width: int | None = None, soft_wrap: bool = False) -> Console:
    # Ids may hold brackets and colons: they are no markup and no emoji.
    return Console(width=width, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)


def _print(*things: Any) -> int:
    text = _console(soft_wrap=True)
    # Wide tables keep their lines when the output is not a terminal.
    tables = _console(width=None if text.is_terminal else 160)
    for thing in things:
        (tables if isinstance(thing, Table) else text).print(thing)
    return 0


def print_all(things: list[Any]) -> int:
    """Print lines and tables for people."""
    return _print(*things)


def print_json(values: Any) -> int:
    """Print values as JSON."""
    print(orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
    return 0


def print_lines(lines: list[str]) -> int:
    """Print lines as they are."""
    print("\n".join(lines))
    return 0


def names() -> dict[str, Any]:
    """Return extractors with their presets, data sets and stages, each with a line of its own documentation."""
    return {
        "extractors": {name: _presets(name) for name in extractors.names()},
        "datasets": {name: _first_line(datasets.get(name)) for name in datasets.names()},
        "stages": stages.names(),
    }


def _presets(extractor: str) -> list[dict[str, Any]]:
    return [
        {
            "preset": preset.name,
            "streams": dict(preset.streams),
            "fps": preset.chain.fps,
            "frames": preset.frames,
            "rows_per_second": preset.rows_per_second,
            "geometry": geometry(preset.chain),
            "scaler": preset.chain.scaler,
            "step": preset.step,
            "tail": preset.tail,
            "pixels": pixels(preset),
            "weights": preset.weights.file,
            "license": preset.weights.license,
            "source": preset.source,
            "differs": preset.differs,
            "warning": preset.warning,
        }
        for preset in extractors.get(extractor).PRESETS.values()
    ]


def geometry(chain: Chain) -> str:
    """Return a chain's scaling and crop in words."""
    if chain.stretch is not None:
        return (
            f"stretched to {chain.stretch[0]} x {chain.stretch[1]}, {f'crop {chain.crop}' if chain.crop else 'no crop'}"
        )
    if chain.crop_first:
        return f"square crop, then {chain.short_side}"
    return f"short side {chain.short_side}, {f'crop {chain.crop}' if chain.crop else 'no crop'}"


def sampling(frames: int, fps: float, step: int) -> str:
    """Return which frames a row sees, in words."""
    return f"{frames} at {fps:.6g} fps" + (f", every {step}" if step != frames else "")


def pixels(preset: Preset) -> str:
    """Return what is done to a preset's pixels, in words."""
    if preset.mean == (0.0, 0.0, 0.0) and preset.std == (1.0, 1.0, 1.0):
        return f"/{preset.scale:g}"
    return f"/{preset.scale:g} − {preset.mean}, / {preset.std}"


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def print_names(as_json: bool) -> int:
    """Print extractors, data sets and stages."""
    found = names()
    if as_json:
        return print_json(found)
    presets = Table(title="extractors and presets", title_justify="left")
    for column in ("preset", "rows/s", "dims", "frames", "geometry", "scaler", "weights"):
        presets.add_column(column, overflow="fold")
    for name, rows in found["extractors"].items():
        for row in rows:
            dims = " + ".join(str(dim) for dim in row["streams"].values())
            frames = sampling(row["frames"], row["fps"], row["step"])
            rate = f"{row['rows_per_second']:g}"
            presets.add_row(row["preset"], rate, dims, frames, row["geometry"], row["scaler"], row["weights"])
        if not rows:
            presets.add_row(f"{name}:MODEL", "1", "", "", "", "", _first_line(extractors.get(name)))
    sets = Table(title="data sets", title_justify="left")
    sets.add_column("name")
    sets.add_column("what it is")
    for name, line in found["datasets"].items():
        sets.add_row(name, line)
    return _print(presets, sets, f"stages: {', '.join(found['stages'])}")


def print_presets(as_json: bool) -> int:
    """Print every preset with the source of its choices, and what differs from that."""
    found = {name: _presets(name) for name in extractors.names()}
    if as_json:
        return print_json(found)
    table = Table(title="presets", title_justify="left", show_lines=True)
    for column, ratio in (("preset", 2), ("what it sees", 3), ("after whom, and what differs", 6)):
        table.add_column(column, overflow="fold", ratio=ratio)
    for rows in found.values():
        for row in rows:
            dims = ", ".join(f"{stream.partition('+')[2] or 'row'} {dim}" for stream, dim in row["streams"].items())
            rows_seen = f"{sampling(row['frames'], row['fps'], row['step'])}: {row['rows_per_second']:.4g} rows/s"
            seen = "; ".join([rows_seen, f"{row['geometry']}, {row['scaler']}", row["pixels"], dims])
            warning = f"WARNING: {row['warning']}." if row["warning"] else ""
            differs = f"DIFFERS: {row['differs']}" if row["differs"] else ""
            table.add_row(row["preset"], seen, "\n".join(filter(None, (row["source"], warning, differs))))
    return _print(table, "timm:MODEL: any image model of timm, its input from timm")


def print_checkpoints(found: list[dict[str, Any]], as_json: bool) -> int:
    """Print what `extractors.catalogue.facts` says of every checkpoint; addresses stand on lines of their own."""
    if as_json:
        return print_json(found)
    lines = []
    for row in found:
        size = f"{row['mib']:.1f} MiB" if row["mib"] else "size unknown"
        digest = f"sha256 {row['sha256']}" if row["sha256"] else "no sha256 published"
        here = f"here: {row['path']} ({row['here']})" if row["here"] else "not here"
        lines += [
            f"{row['file']}: {size}, licence {row['license'] or 'not stated'}, {digest}; {here}",
            *(f"    for {', '.join(row['presets'])}" for _ in row["presets"][:1]),
            *(f"    {one['address']}{' (DEAD)' if one['dead'] else ''}" for one in row["official"]),
            *(f"    {address} (other people's)" for address in row["mirrors"]),
            *(f"    {note}" for note in [row["note"]] if note),
        ]
    return print_lines([*lines, f"{sum(bool(row['here']) for row in found)} of {len(found)} are here"])


def print_features(found: dict[str, Any]) -> int:
    """Print what `report.show` found."""
    videos = found["videos"]
    head = (
        f"{found['path']}: data set {found['dataset']}, {videos['total']} videos "
        f"({videos['ok']} ok, {videos['partial']} partial, {videos['failed']} failed, {videos['missing']} missing), "
        f"{found['seconds'] / 3600:.2f} hours, written by {found['created_by'].get('version', '?')}"
    )
    streams = Table(title="streams", title_justify="left")
    for column in ("stream", "rows", "dim", "type", "rows/s", "MiB", "videos", "weights", "made with"):
        streams.add_column(column, overflow="fold")
    for s in found["streams"]:
        done = f"{s['videos']['ok'] + s['videos']['partial']}/{videos['total']}"
        made = s["provenance"]
        streams.add_row(
            s["name"], str(s["rows"]), str(s["dim"]), s["dtype"], f"{s['rows_per_second']:g}",
            f"{s['bytes'] / 2**20:.2f}", done, s["settings"]["weights"]["sha256"][:8], _made(made, s["settings"]),
        )  # fmt: skip
    things = [streams] if found["streams"] else ["no streams: captions only"]
    return _print(head, *things, *_parts(found), *_derived(found["tables"]), *_failures(found["failures"]))


def _made(made: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return what a stream was made with, or what it was imported from."""
    if "imported" in made:
        return f"imported ({made['imported']['format']}), {'L2-normalised' if settings['l2'] else 'raw'}"
    return f"torch {made.get('torch', '?')}, {made.get('device', '?')}"


def _parts(found: dict[str, Any]) -> list[Any]:
    """Return the table of parts, and where it differs from what the data set's authors say."""
    table = Table(title="parts", title_justify="left")
    table.add_column("")
    columns = ["videos", "clips", "captions", "gallery", *(["steps"] if "steps" in found["counts"][""] else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for part, sizes in found["counts"].items():
        table.add_row(part or "all", *(f"{sizes[name]:,}" if name in sizes else "" for name in columns))
    return [table, *found["incomplete"]]


def _derived(tables: dict[str, Any]) -> list[str]:
    lines = []
    if words := tables.get("words"):
        tagger = f"{words['tagger']['model']} {words['tagger']['version']}"
        lines.append(f"words: {words['words']:,}, tagged by {tagger}; of interest: {', '.join(words['interest'])}")
    if idf := tables.get("idf"):
        lines.append(
            f"idf: {idf['types']:,} types over {idf['documents']:,} captions of {idf['split']}, by {idf['form']}"
        )
    return lines


def _failures(found: list[dict[str, str]]) -> list[Any]:
    if not found:
        return []
    table = Table(title="failures and remarks", title_justify="left")
    for column in ("video", "status", "reason"):
        table.add_column(column, overflow="fold")
    for failure in found[:FAILURES]:
        table.add_row(failure["video"], failure["status"], failure["reason"])
    more = len(found) - FAILURES
    return [table, *([f"... and {more} more; `--json` prints them all"] if more > 0 else [])]
