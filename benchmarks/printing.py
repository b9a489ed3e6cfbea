"""Figures that have no table of their own."""

from __future__ import annotations

from typing import Any


def show(found: dict[str, Any], before: str = "") -> None:
    """Print a line for each number, under the names it is found by."""
    for name, value in found.items():
        if isinstance(value, dict):
            show(value, f"{before}{name}, ")
        else:
            print(f"{before + name:<48}  {words_of(value)}")


def words_of(value: Any) -> str:
    """Return how a value is printed.

    >>> words_of([0.12345, 12]), words_of(True), words_of(123456.7)
    ('0.123 12', 'yes', '123456.70')
    """
    if isinstance(value, list):
        return " ".join(words_of(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3g}"
    return str(value)
