"""Intervals that hold the true value in 95 % of samples, also of few rows.

A bootstrap draws only what the sample has: three rows that gain nothing would prove that no row
gains. So the ends allow for what few rows do not show. Each end is a quantile of weighted means,
with random weights (as of a Bayesian bootstrap) for the values and for one more, which is the worst
that there may be: for scores 0 or 1, for gains in a score -1 or 1. This is Gaffke's bound. Of
scores of 0 and 1 it is Clopper and Pearson's, which is exact; of others no sample size and no
distribution is known that breaks it (Learned-Miller and Thomas, 2020). With many rows it becomes
the usual interval.

Of seconds and money, nobody knows the worst value. It is taken to lie as far beyond the values seen
as half of their range; of fewer than eight values nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.serve.search.bounds import tail

_TAIL = 0.025
"""The chance that the true value lies beyond one end."""
_DRAWS = 2000
"""Weighted means: the ends of a 95 % interval then move by less than a tenth of its width."""
_AT_ONCE = 1 << 20
"""Weights that are drawn at once, 8 MiB."""
_BEYOND = 0.5
"""How far an unseen value without a bound may lie beyond those seen, by their range."""
_FEWEST = 8
"""Values that an end without a bound takes: of fewer that are as skew as latencies often are, it
would hold in less than nine of ten samples."""

ANY = (-np.inf, np.inf)
"""The bounds of values that have none."""
AMOUNT = (0.0, np.inf)
"""The bounds of seconds, money and tokens."""


@dataclass(frozen=True)
class Interval:
    """An estimate between two ends that hold the true value in 95 % of samples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def score_interval(scores: np.ndarray) -> Interval:
    """The mean of scores, which are taken to lie between 0 and 1 if all of these do.

    >>> str(score_interval(np.ones(6)))
    '1.000 (0.541 to 1.000)'
    """
    within = bool(((scores >= 0) & (scores <= 1)).all())
    return mean_interval(scores, (0.0, 1.0) if within else ANY)


def gain_interval(before: np.ndarray, after: np.ndarray) -> Interval:
    """The mean of what each row gains in its score.

    >>> found = gain_interval(np.zeros(6), np.zeros(6))  # six rows that gain nothing
    >>> found.low < -0.4, found.high > 0.4
    (True, True)
    """
    both = np.concatenate([before, after])
    within = bool(((both >= 0) & (both <= 1)).all())
    return mean_interval(after - before, (-1.0, 1.0) if within else ANY)


def mean_interval(values: np.ndarray, bounds: tuple[float, float] = ANY) -> Interval:
    """The mean of a sample of values between these bounds. It is the same every time.

    >>> found = mean_interval(np.array([0.0, 0.5, 1.0, 1.0]), (0, 1))
    >>> found.value, found.low < 0.3, found.high > 0.95
    (0.625, True, True)
    >>> mean_interval(np.array([0.1, 0.2]), AMOUNT).high  # seconds
    inf
    """
    low, high = bounds
    if not len(values):
        return Interval(np.nan, low, high)
    mean = float(values.mean())
    if bounds == (0.0, 1.0) and np.isin(values, bounds).all():
        return Interval(mean, 1 - _largest(1 - values), _largest(values))
    reach = _BEYOND * float(np.ptp(values)) if len(values) >= _FEWEST else np.inf
    lowest = low if np.isfinite(low) else float(values.min()) - reach
    highest = high if np.isfinite(high) else float(values.max()) + reach
    means, spare = _weighted(values)
    ends = [
        float(np.quantile(means + spare * end, share)) if np.isfinite(end) else end
        for end, share in ((lowest, _TAIL), (highest, 1 - _TAIL))
    ]
    return Interval(mean, *ends)


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


def _largest(scores: np.ndarray) -> float:
    """The largest mean of scores of 0 and 1 that so few ones are still likely with, to 1e-6."""
    total = float(scores.sum())
    low, high = total / len(scores), 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        held = tail(total, len(scores), middle, binary=True) <= _TAIL
        low, high = (low, middle) if held else (middle, high)
    return high


def _weighted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of the values with random weights, and the weight that is left for one more."""
    rng, means, spare = np.random.default_rng(0), np.empty(_DRAWS), np.empty(_DRAWS)
    step = max(_AT_ONCE // (len(values) + 1), 1)
    for begin in range(0, _DRAWS, step):
        rows = slice(begin, min(begin + step, _DRAWS))
        drawn = rng.standard_exponential((rows.stop - rows.start, len(values) + 1))
        total = drawn.sum(axis=1)
        means[rows], spare[rows] = drawn[:, :-1] @ values / total, drawn[:, -1] / total
    return means, spare
