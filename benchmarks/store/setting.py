"""How large and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    rows: int
    """Of the log."""
    rounds: int
    steps: int
    """Training steps of each contestant in a round."""


FULL = Sizes(rows=100_000, rounds=5, steps=8)
QUICK = Sizes(rows=20_000, rounds=2, steps=4)
