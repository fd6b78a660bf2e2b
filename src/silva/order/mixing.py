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


@dataclass
class Chooser:
    """Says who is next; `given` is all the state there is."""

    schedule: Schedule
    given: list[int]
    """Rows given so far, by each pipeline."""
    key: tuple[int | str, ...]

    def __post_init__(self) -> None:
        self._jitter_at = -1
        self._jitter = np.empty((0, 0))

    def next(self, live: list[bool]) -> int:
        """The pipeline that gives the next row, among those that still have rows."""
        row = sum(self.given)
        weights = self.weights(row)
        if not any(w for w, ok in zip(weights, live, strict=True) if ok):
            weights = tuple(1.0 for _ in weights)  # only pipelines of weight 0 are left
        owed = self._owed(row + 1)
        jitter = self._jitters(row)
        best, choice = -np.inf, -1
        for i, ok in enumerate(live):
            if ok and weights[i] > 0:
                lag = owed[i] - self.given[i] + jitter[i] * _JITTER
                if lag > best:
                    best, choice = lag, i
        return choice

    def weights(self, row: int) -> tuple[float, ...]:
        for at, weights in reversed(self.schedule):
            if row >= at:
                return weights
        return self.schedule[0][1]

    def _owed(self, rows: int) -> list[float]:
        """Each pipeline's share of the first `rows` rows."""
        owed = [0.0] * len(self.given)
        for i, (at, weights) in enumerate(self.schedule):
            end = self.schedule[i + 1][0] if i + 1 < len(self.schedule) else rows
            span = min(end, rows) - at
            if span <= 0:
                break
            total = sum(weights)
            owed = [o + span * w / total for o, w in zip(owed, weights, strict=True)]
        return owed

    def _jitters(self, row: int) -> list[float]:
        window, offset = divmod(row, _AHEAD)
        if window != self._jitter_at:
            ids = np.arange(window * _AHEAD, (window + 1) * _AHEAD, dtype=np.uint64)
            self._jitter = Draw(stream_key("mix", *self.key), ids).uniform(len(self.given))
            self._jitter_at = window
        row_jitter: list[float] = self._jitter[offset].tolist()
        return row_jitter
