"""Which pipeline gives the next row of a mix: a pure function of the rows each has given.

The pipeline that is furthest behind its share comes next, with a keyed jitter so that the pattern
does not repeat. So ratios hold at any length (counts stay within two of their shares), and the
state is one count per pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import isinf

import numpy as np

from silva.errors import PlanError
from silva.order.draws import Draw, stream_key

_JITTER = 0.5
_FURTHEST = 8
"""Rows that one pipeline may lag behind another; in practice at most two."""
_AHEAD = 4096
"""Jitters are drawn for this many rows at a time."""

Schedule = tuple[tuple[int, tuple[float, ...]], ...]


def check_schedule(schedule: Schedule, pipelines: int) -> None:
    """Raises `PlanError` for weights that cannot be honoured."""
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


def could_have_given(schedule: Schedule, given: Sequence[int], live: Sequence[bool]) -> bool:
    """Whether pipelines can have given these numbers of rows: no live pipeline is far behind the
    others, or the mix would give only its rows until it caught up. Pipelines that have ended leave
    their share to the others.

    >>> [could_have_given(((0, (1.0, 1.0)),), (7, n), (True, True)) for n in (8, 90)]
    [True, False]
    """
    row = sum(given)
    phase = [phase for phase in _phases(schedule) if phase.at <= row][-1]
    lags = [
        owed + (row - phase.at) * share - count
        for owed, share, count, reads in zip(phase.owed, phase.shares, given, live, strict=True)
        if share and reads
    ]
    left = 0 if all(live) else phase.at
    return not lags or max(lags) - min(lags) <= _FURTHEST + len(lags) + left


class Chooser:
    """Chooses the pipeline that gives the next row; `given` is all its state."""

    def __init__(self, schedule: Schedule, given: list[int], key: tuple[int | str, ...]) -> None:
        self.given = given
        """Rows given so far by each pipeline."""
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

    def comes(self, pipeline: int) -> bool:
        """Whether a pipeline has a weight, now or later in the schedule."""
        ends = [phase.at for phase in self._phases[1:]]
        left = [p for p, end in zip_longest(self._phases, ends) if end is None or end > self._row]
        return any(phase.shares[pipeline] for phase in left)

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
    """A part of the schedule with constant weights."""

    at: int
    """Its first row."""
    shares: tuple[float, ...]
    owed: tuple[float, ...]
    """Each pipeline's share of the rows before this phase."""


def _phases(schedule: Schedule) -> list[_Phase]:
    found: list[_Phase] = []
    owed = tuple(0.0 for _ in schedule[0][1])
    for at, weights in schedule:
        if found:
            before = found[-1]
            span = at - before.at
            owed = tuple(o + span * s for o, s in zip(before.owed, before.shares, strict=True))
        found.append(_Phase(at, _shares(weights), owed))
    return found


def _shares(weights: tuple[float, ...]) -> tuple[float, ...]:
    """Each weight's share of their sum, also where that is too large for a float.

    >>> _shares((1e308, 1e308))
    (0.5, 0.5)
    """
    if isinf(sum(weights)):
        largest = max(weights)
        weights = tuple(w / largest for w in weights)
    total = sum(weights)
    return tuple(w / total for w in weights)
