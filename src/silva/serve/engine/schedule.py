"""When requests must be through a step, and how many of those that wait its next batch takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from silva.serve.engine.station import Station

_HALF = 0.5
"""The share of its deadline within which a request may be overtaken: the rest is for rows that take
longer than others did."""


def time_after(following: Sequence[Sequence[int]], seconds: Sequence[float]) -> list[float]:
    """For each unit, the seconds of the longest path through those that follow it. Units that run
    at the same time count once. `following`: for each unit, those that wait for it.

    >>> time_after([[1, 2], [3], [3], []], [0.1, 0.2, 0.5, 0.3])
    [0.8, 0.3, 0.3, 0.0]
    """
    rest = [0.0] * len(following)
    for number in reversed(range(len(following))):
        paths = (seconds[after] + rest[after] for after in following[number])
        rest[number] = max(paths, default=0.0)
    return rest


def rows_in_time(
    few: int, many: int, left: Sequence[float], rate: float, seconds: Callable[[float], float]
) -> int:
    """Whether a batch takes so few rows that the one that waits longest is in time, or as many as
    an objective allows: those by which fewer are late. A small batch for the sake of one may make
    all those late that wait behind it, and the step slower than rows arrive.

    `left`: for each row that waits, the seconds that it still has for this step; the first has
    waited longest. `rate`: rows that arrive in a second. `seconds`: what a batch of so many takes.

    >>> call_and_rows = lambda rows: 0.040 + 0.001 * rows
    >>> rows_in_time(5, 40, [0.045] * 5 + [0.085] * 35, 400, call_and_rows)
    40
    >>> rows_in_time(5, 40, [0.045] * 5 + [0.200] * 35, 400, call_and_rows)
    5
    """

    def late(rows: int) -> int:
        first = seconds(rows)
        second = first + seconds(len(left) - rows + rate * first)
        return sum(has < first for has in left[:rows]) + sum(has < second for has in left[rows:])

    return many if few < many and late(many) < late(few) else few


class Schedule:
    """The sizes of batches, within an objective for each request or else its deadline."""

    def __init__(
        self,
        slo: float | None,
        clock: Callable[[], float],
        following: Sequence[Sequence[int]],
        stations: Sequence[Station],
    ) -> None:
        self._slo = slo
        self._clock = clock
        self._following = following
        self._stations = stations

    def free(self, station: Station, count: int) -> int:
        """How many of those that have waited longest are in time also behind a batch that leaves
        them out (`prefixes.py`)."""
        batch, given_up = station.curve.seconds(count), self.left(station, _HALF)
        objective = given_up if self._slo is None else self.left(station)
        for place, (left, half) in enumerate(zip(objective, given_up, strict=True)):
            ahead = station.curve.seconds(place + 1)
            if (left if left >= ahead else half) < batch + ahead:
                return place
        return len(given_up)

    def rows(self, station: Station, share: int) -> int:
        """How many rows the next batch of a costly unit takes, of so many that are for its slot.
        One that is late already makes no batch small, or all those behind it would be late too."""
        curve, left = station.curve, self.left(station)
        many = curve.most_rows(math.inf if self._slo is None else self._slo, share)
        if left[0] < curve.seconds(1):
            return many
        few = curve.most_rows(left[0], share)
        waited = self._clock() - next(iter(station.waiting)).began
        rate = len(left) / waited if waited > 0 else 0.0
        return rows_in_time(few, many, left, rate, curve.seconds)

    def left(self, station: Station, share: float | None = None) -> list[float]:
        """Seconds that the requests which wait for a unit still have for it, within the objective,
        or else their deadline; within a share of their deadline, if one is given. Those that have
        waited longest come first."""
        rest = time_after(self._following, [one.expected for one in self._stations])
        now = self._clock() + rest[station.unit.number]
        if self._slo is not None and share is None:
            return [flight.began + self._slo - now for flight in station.waiting]
        given = ((one.began, one.deadline) for one in station.waiting)
        return [began + (share or 1.0) * (deadline - began) - now for began, deadline in given]
