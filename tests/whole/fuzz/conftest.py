"""The table of all inputs and what became of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

ONE_RUN = "one run of all"
"""What holds the same videos once more."""


@dataclass
class Tally:
    """Counts of outcomes, by what was read and how it was damaged."""

    counts: defaultdict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, what: str, kind: str, outcome: str) -> None:
        self.counts[what, kind][outcome] += 1

    def lines(self) -> list[str]:
        """Return one table for each thing that was read, with totals."""
        lines = [f"{sum(c.total() for (what, _), c in self.counts.items() if what != ONE_RUN):,} damaged inputs"]
        for what in dict.fromkeys(what for what, _ in self.counts):
            rows = {kind: counter for (of, kind), counter in self.counts.items() if of == what}
            total = sum(rows.values(), Counter())
            outcomes = sorted(total)
            lines += ["", f"{what:28}" + "".join(f"{outcome:>10}" for outcome in outcomes) + f"{'all':>10}"]
            for kind, counter in [*sorted(rows.items()), ("total", total)]:
                cells = "".join(f"{counter[outcome]:10,}" for outcome in outcomes)
                lines.append(f"{kind:28}{cells}{counter.total():10,}")
        return lines


TALLY = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    return TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table after the tests."""
    if TALLY.counts:
        terminalreporter.section("damaged inputs")
        for line in TALLY.lines():
            terminalreporter.write_line(line)
