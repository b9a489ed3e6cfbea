"""Commands as a user runs them, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from train.cli import main

Command = Callable[..., str]
Word = str | Path | float


def inside(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return what runs `train WORDS`: it gives what is printed, or of a wrong command its one line of error."""

    def run(*words: Word, code: int = 0, of: Callable[[list[str]], None] = main) -> str:
        with pytest.raises(SystemExit) as ended:
            of(list(map(str, words)))
        out, err = capsys.readouterr()
        assert ended.value.code == code, (out, err)
        if not code:
            return out
        assert "Traceback" not in err
        return err.splitlines()[-1].removeprefix("error: ")

    return run
