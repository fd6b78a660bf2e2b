"""How long a request still takes after a step: the longest path through the steps that follow."""

from __future__ import annotations

from collections.abc import Sequence


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
