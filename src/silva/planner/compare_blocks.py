"""Compares two blocks that should be the same, bit by bit, and measures how far they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.columns.padding import bytes_of


@dataclass(frozen=True)
class Difference:
    """How two versions of one column differ, on the rows that were compared."""

    column: str
    rows: int
    differing: int
    largest: float | None
    """The largest distance between two numbers; None where the values are no numbers."""
    average: float | None

    def __str__(self) -> str:
        if self.largest is None:
            return f"{self.column}: {self.differing} of {self.rows} rows differ"
        return (
            f"{self.column}: {self.differing} of {self.rows} rows differ, by at most "
            f"{self.largest:.3g}, on average {self.average:.3g}"
        )


def differences(first: Block, second: Block) -> list[Difference]:
    """The columns in which two blocks differ in any bit; if the rows themselves differ, all of
    them."""
    found = []
    for name, column in first.columns.items():
        ours = column.rows()
        theirs = second.columns[name].rows() if name in second.columns else []
        if len(ours) != len(theirs) or not np.array_equal(first.ids, second.ids):
            found.append(Difference(name, len(ours), max(len(ours), len(theirs)), None, None))
            continue
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if not same(a, b)]
        if pairs:
            largest, average = _distance(pairs)
            found.append(Difference(name, len(ours), len(pairs), largest, average))
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, bit by bit.

    >>> same(float("nan"), float("nan")), same(0.0, -0.0), same(1, 1.0)
    (True, False, False)
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.hasobject:
            return all(map(same, a.ravel().tolist(), b.ravel().tolist()))
        return bytes_of(np.ascontiguousarray(a)) == bytes_of(np.ascontiguousarray(b))
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def _distance(pairs: list[tuple[Any, Any]]) -> tuple[float | None, float | None]:
    """The largest and the average distance of numbers of one shape."""
    largest, total, count = 0.0, 0.0, 0
    for a, b in pairs:
        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.kind not in "buif" or y.dtype.kind not in "buif" or x.shape != y.shape:
            return None, None
        distances = np.abs(x.astype(np.float64) - y.astype(np.float64))
        largest = max(largest, float(distances.max(initial=0.0)))
        total += float(distances.sum())
        count += distances.size
    return largest, total / max(count, 1)
