"""Intervals that hold the true value in 95 % of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from silva.serve.search.bounds import tail

_TAIL = 0.025
"""The chance that the true value lies beyond one end."""
_DRAWS = 2000
"""Samples of a bootstrap: the ends of a 95 % interval then move by less than a tenth of its
width."""


@dataclass(frozen=True)
class Interval:
    """An estimate between two ends that hold the true value in 95 % of samples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def mean_interval(scores: np.ndarray) -> Interval:
    """The mean of scores. That of scores of 0 and 1 is exact (Clopper and Pearson); so is that of
    equal scores between them, of which a bootstrap would say that no other one is possible.

    >>> str(mean_interval(np.ones(6)))
    '1.000 (0.541 to 1.000)'
    """
    within = bool(len(scores)) and bool(((scores >= 0) & (scores <= 1)).all())
    if within and (np.isin(scores, (0.0, 1.0)).all() or np.ptp(scores) == 0):
        return Interval(float(scores.mean()), 1 - _largest(1 - scores), _largest(scores))
    return bootstrap(scores)


def _largest(scores: np.ndarray) -> float:
    """The largest mean that so low scores are still likely with, to 1e-6."""
    total, binary = float(scores.sum()), bool(np.isin(scores, (0.0, 1.0)).all())
    low, high = total / len(scores), 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        held = tail(total, len(scores), middle, binary=binary) <= _TAIL
        low, high = (low, middle) if held else (middle, high)
    return high


def bootstrap(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray] | None = None
) -> Interval:
    """The mean of a sample with the 95 % interval of a bootstrap, which draws the same way every
    time.

    >>> bootstrap(np.array([0.0, 1.0] * 50)).value
    0.5
    """
    if not len(values):
        return Interval(np.nan, -np.inf, np.inf)
    rng = np.random.default_rng(0)
    of = (lambda drawn: drawn.mean(axis=-1)) if statistic is None else statistic
    picked = values[rng.integers(0, len(values), (_DRAWS, len(values)))]
    low, high = np.quantile(of(picked), (_TAIL, 1 - _TAIL))
    return Interval(float(of(values[None])[0]), float(low), float(high))


def quantile_interval(values: np.ndarray, share: float) -> Interval:
    """A quantile of a sample, between two of its values. Few rows give no upper end: 59 values say
    nothing above the largest of them about a 95th percentile.

    >>> quantile_interval(np.arange(10.0), 0.95).high
    inf
    """
    if not len(values):
        return Interval(np.nan, 0.0, np.inf)
    ordered, count = np.sort(values), len(values)
    at_most = np.array([tail(k, count, share, binary=True) for k in range(count + 1)])
    low = int(np.searchsorted(at_most, _TAIL, side="right"))  # P[fewer than `low` lie below] ≤ tail
    high = int(np.searchsorted(at_most, 1 - _TAIL)) + 1
    return Interval(
        float(np.quantile(ordered, share)),
        float(ordered[low - 1]) if low else 0.0,
        float(ordered[high - 1]) if high <= count else np.inf,
    )
