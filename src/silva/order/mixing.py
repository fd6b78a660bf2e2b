"""Which pipeline gives the next row of a mix: a pure function of how many each has given.

The pipeline that is furthest behind its share comes next, with a keyed jitter so that the pattern
does not repeat. Ratios are thus honoured at any length (the counts stay within two of their
shares), and the state is one count a pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.errors import PlanError
from silva.order.draws import Draw, stream_key

_JITTER = 0.5
_AHEAD = 4096
"""Jitters are drawn for this many rows at a time."""

Schedule = tuple[tuple[int, tuple[float, ...]], ...]


def check_schedule(schedule: Schedule, pipelines: int) -> None:
    """Raises `PlanError` for weights that cannot be followed."""
    for at, weights in schedule:
        if len(weights) != pipelines:
            raise PlanError(f"mix of {pipelines} pipelines needs as many weights, not {weights}")
        if any(not np.isfinite(w) or w < 0 for w in weights) or not sum(weights) > 0:
            raise PlanError(f"mix: weights are finite, not negative and not all zero: {weights}")
        if at < 0:
            raise PlanError(f"mix: a schedule begins at row 0 and goes up, not {at}")
    starts = [at for at, _ in schedule]
    if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
        raise PlanError(f"mix: a schedule's rows begin at 0 and go up, not {starts}")


class Chooser:
    """Says who is next; `given` is all the state there is."""

    def __init__(self, schedule: Schedule, given: list[int], key: tuple[int | str, ...]) -> None:
        self.given = given
        """Rows given so far, by each pipeline."""
        self._key = key
        self._row = sum(given)
        self._phases = _phases(schedule)
        self._phase = -1
        self._jitter_window = -1
        self._jitter: list[list[float]] = []

    def next(self, live: list[bool]) -> int:
        """The pipeline that gives the next row, among those that still have rows."""
        row = self._row
        if not self._phase_holds(row):
            self._phase = max(i for i, phase in enumerate(self._phases) if row >= phase.at)
        phase = self._phases[self._phase]
        window, offset = divmod(row, _AHEAD)
        if window != self._jitter_window:
            self._draw_jitters(window)
        jitter = self._jitter[offset]
        span = row + 1 - phase.at
        best, choice = -1e300, -1
        for i, weight in enumerate(phase.shares):
            if weight and live[i]:
                lag = phase.owed[i] + span * weight - self.given[i] + jitter[i]
                if lag > best:
                    best, choice = lag, i
        return choice if choice >= 0 else live.index(True)  # only pipelines of weight 0 are left

    def take(self, choice: int) -> None:
        """Notes that a pipeline gave a row."""
        self.given[choice] += 1
        self._row += 1

    def _phase_holds(self, row: int) -> bool:
        if self._phase < 0 or row < self._phases[self._phase].at:
            return False
        following = self._phase + 1
        return following == len(self._phases) or row < self._phases[following].at

    def _draw_jitters(self, window: int) -> None:
        ids = np.arange(window * _AHEAD, (window + 1) * _AHEAD, dtype=np.uint64)
        drawn = Draw(stream_key("mix", *self._key), ids).uniform(len(self.given))
        self._jitter = (drawn * _JITTER).tolist()
        self._jitter_window = window


@dataclass(frozen=True)
class _Phase:
    """A part of the schedule with the same weights throughout."""

    at: int
    """Its first row."""
    shares: tuple[float, ...]
    owed: tuple[float, ...]
    """Each pipeline's share of all rows before it."""


def _phases(schedule: Schedule) -> list[_Phase]:
    found: list[_Phase] = []
    owed = tuple(0.0 for _ in schedule[0][1])
    for at, weights in schedule:
        if found:
            before = found[-1]
            span = at - before.at
            owed = tuple(o + span * s for o, s in zip(before.owed, before.shares, strict=True))
        total = sum(weights)
        found.append(_Phase(at, tuple(w / total for w in weights), owed))
    return found
