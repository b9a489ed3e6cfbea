"""`sbatch` and `scancel` for tests: jobs are processes of this machine, begun at once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

SBATCH = """#!/bin/sh
# The job script is deleted as soon as this ends.
grep -q '#SBATCH -p nowhere' "$1" && { echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1; }
cp "$1" "$FOLDER/$$.sh"
setsid sh "$FOLDER/$$.sh" >"$FOLDER/$$.out" 2>&1 &
echo $! >"$FOLDER/$$.job"
echo "Submitted batch job $$"
"""
SCANCEL = """#!/bin/sh
kill -TERM -- "-$(cat "$FOLDER/$1.job")" 2>/dev/null
"""


def install(folder: Path) -> dict[str, str]:
    """Put the commands into `folder` and return the variables of a process that is to find them."""
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        command = folder / name
        command.write_text(text.replace("$FOLDER", str(folder)))
        command.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def jobs(folder: Path) -> list[Path]:
    """Return the files of the jobs so far, oldest first."""
    return sorted(folder.glob("*.job"), key=lambda file: file.stat().st_mtime_ns)


def kill(job: Path) -> None:
    """End a job as a lost node does."""
    with suppress(ProcessLookupError):
        os.killpg(int(job.read_text()), signal.SIGKILL)
