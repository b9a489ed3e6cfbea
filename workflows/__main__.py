"""Run a recipe: `python -m workflows NAME [--dry-run]`."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in HERE.glob("*.toml"))


def steps(name: str) -> list[list[str]]:
    """Return the commands of a recipe, each a list of words that begins with a program of this project."""
    recipe = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return [shlex.split(step["run"]) for step in recipe["steps"]]


def main() -> int:
    """Run the recipe's commands in order; stop at the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m workflows", description=__doc__)
    parser.add_argument("name", choices=names())
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    chosen = parser.parse_args()
    for step in steps(chosen.name):
        print(f"\n$ {shlex.join(step)}", flush=True)
        if not chosen.dry_run:
            program, *words = step
            code = subprocess.run([sys.executable, "-m", f"{program}.cli", *words], check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
