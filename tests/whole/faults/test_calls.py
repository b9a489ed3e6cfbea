"""Each call of the store's writer to the system fails once, with each error; and the process ends there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.unit.breaking import Case
from tests.whole.faults.conftest import Tally

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EINTR])
def test_each_call_fails(tmp_path: Path, tally: Tally, code: int) -> None:
    case = Case(tmp_path)
    for number in range(1, case.calls + 1):
        case.fail(number, code)
        tally.done[f"{errno.errorcode[code]} in a call to the system"] += 1


def test_the_process_ends_at_each_call(tmp_path: Path, tally: Tally) -> None:
    case = Case(tmp_path)
    for number in range(1, case.calls + 1):
        case.end(number)
        tally.done["end of the process at a call to the system"] += 1
