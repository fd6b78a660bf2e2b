"""When requests must be through a step, and how many of those that wait its next batch takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence


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
