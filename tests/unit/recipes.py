"""What the tests of recipes share: commands that are noted instead of run, and made-up results."""

import json
import subprocess
from pathlib import Path

from workflows import __main__ as program


def noted(monkeypatch) -> tuple[list[str], dict[str, int]]:
    """Return the commands that would have been run, of which none is, and what each program returns."""
    found: list[str] = []
    codes: dict[str, int] = {}

    def call(words, check):
        found.append(" ".join(words[2:]))
        return subprocess.CompletedProcess(words, codes.get(words[2], 0))

    monkeypatch.setattr(program.subprocess, "run", call)
    return found, codes


def put(place: str, scores: dict, task: str = "retrieval") -> None:
    """Write results of the recipe `mine`."""
    path = Path("runs/mine") / place
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"task": task, "scores" if task == "retrieval" else "numbers": scores}
    path.write_text(json.dumps(told), encoding="utf-8")
