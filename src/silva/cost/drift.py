"""Whether costs are still those by which a plan was chosen.

A cost is measured in stretches of several blocks: the more its blocks differ, the longer they are.
It has *drifted* if two stretches in a row differ from what was measured before them, in the same
direction, by more than the blocks differ from each other explains: a pause of the machine lies in
one stretch, and noise is as large before as after. From then on it counts from the first of the
two. A cost without blocks is declared, not measured: it has no error and drifts at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from silva.cost.costs import ENOUGH_BLOCKS, ERRORS, Cost
from silva.cost.model import GAIN, duration


@dataclass
class _Track:
    """One cost; all three are totals since the steps of the stage last changed."""

    origin: Cost = field(default_factory=Cost)
    """The total when the present cost began."""
    mark: Cost = field(default_factory=Cost)
    """The total at the end of the latest stretch."""
    doubted: Cost | None = None
    """The total before the latest stretch, if that differed."""


class Change(NamedTuple):
    """A cost that has drifted."""

    name: str
    label: str
    """What it is called in words."""
    before: Cost
    after: Cost

    def __str__(self) -> str:
        a, b = self.before.seconds_a_row, self.after.seconds_a_row
        kept, keeps = self.before.selectivity, self.after.selectivity
        if max(a, b) * min(kept, keeps) < max(kept, keeps) * min(a, b):
            return f"{self.label} keeps {keeps:.0%} of the rows ({kept:.0%} before)"
        took = f"({duration(a)} → {duration(b)} per row)"
        if b > a:
            return f"{self.label} takes {b / max(a, 1e-12):.1f}× as long {took}"
        return f"{self.label} is {a / max(b, 1e-12):.1f}× as fast {took}"


class Drift:
    """Follows costs by name.

    >>> cost, drift = Cost(), Drift()
    >>> def work(seconds):
    ...     for number in range(8):
    ...         cost.add(StepUse(seconds * (1 + number % 2 / 10), seconds, 10, 10))
    ...     return drift.compare({"decode": cost})
    >>> from silva.cost.costs import StepUse
    >>> work(1.0), work(1.0), work(3.0)
    ([], [], [])
    >>> [str(change) for change in work(3.0)]
    ['decode takes 3.0× as long (105 ms → 315 ms per row)']
    >>> round(drift.present("decode", cost).seconds_a_row, 3)
    0.315
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names`: what costs are called in words, by their names here."""
        self._names = names or {}
        self._tracks: dict[str, _Track] = {}

    def present(self, name: str, total: Cost) -> Cost:
        """A cost without what was measured before it drifted."""
        track = self._tracks.get(name)
        if track is None or total.rows < track.origin.rows or not total.blocks:
            return total
        return total.since(track.origin)

    def compare(self, totals: Mapping[str, Cost]) -> list[Change]:
        """What has drifted since the last call. `totals` are the costs by name, each
        added up since its stage has its present steps."""
        found = [self._compare(name, total) for name, total in totals.items()]
        return [one for one in found if one is not None]

    def _compare(self, name: str, total: Cost) -> Change | None:
        if not total.rows:
            return None
        track = self._tracks.setdefault(name, _Track())
        if not total.blocks:
            was, track.mark = track.mark, total
            drifted = was.rows > 0 and any(_moves(was, total))
            return self._change(name, was, total) if drifted else None
        if total.rows < track.mark.rows:
            track = self._tracks[name] = _Track()  # the steps of its stage have changed
        if total.blocks - track.mark.blocks < ENOUGH_BLOCKS:
            return None
        before, stretch = track.mark.since(track.origin), total.since(track.mark)
        if track.doubted is not None:
            before = track.doubted.since(track.origin)
            earlier = track.mark.since(track.doubted)
            first, second = _moves(before, earlier), _moves(before, stretch)
            if any(a and a == b for a, b in zip(first, second, strict=True)):
                track.origin, track.doubted, track.mark = track.doubted, None, total.copy()
                return self._change(name, before, total.since(track.origin))
            if stretch.blocks < earlier.blocks:
                return None
            track.doubted = None
        elif before.blocks >= ENOUGH_BLOCKS:
            if any(_moves(before, stretch)):
                track.doubted = track.mark
            elif stretch.blocks < _enough(before):
                return None
        track.mark = total.copy()
        return None

    def _change(self, name: str, before: Cost, after: Cost) -> Change:
        return Change(name, self._names.get(name, name), before, after)


def _enough(before: Cost) -> float:
    """Blocks of a stretch that would show a change by half, by how much blocks differ."""
    spread = _error(before) * math.sqrt(before.blocks)
    return (2 * 2 * ERRORS * spread) ** 2


def _moves(before: Cost, after: Cost) -> tuple[int, int]:
    """Whether the seconds per row, and the share of rows that a step keeps, became more (1), less
    (-1) or neither, by more than their errors and by enough to change a plan."""
    took, takes = before.seconds_a_row, after.seconds_a_row
    usual = _error(before) * math.sqrt(before.blocks / max(after.blocks, 1))
    error = math.hypot(took * _error(before), max(took * usual, takes * _error(after)))
    kept, keeps = before.selectivity, after.selectivity
    share = (before.kept + after.kept) / max(before.rows + after.rows, 1)
    variance = max(share * (1 - share), 0.0) if after.blocks else 0.0
    spread = math.sqrt(variance * (1 / max(before.rows, 1) + 1 / max(after.rows, 1)))
    return _direction(took, takes, error), _direction(kept, keeps, spread)


def _direction(a: float, b: float, error: float) -> int:
    # twice the usual errors: it is asked of every cost, several times a second
    if max(a, b) <= GAIN * min(a, b) or abs(a - b) <= 2 * ERRORS * error:
        return 0
    return 1 if b > a else -1


def _error(cost: Cost) -> float:
    return cost.uncertainty if cost.blocks else 0.0
