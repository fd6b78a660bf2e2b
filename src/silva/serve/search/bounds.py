"""Bounds on a mean from a sample, on which promises rest: exact for losses of 0 and 1, and valid
for every loss between them.

Each `p_value` is the largest probability of so small a loss if the true one were `epsilon` or more:
where it is at most `delta`, the claim "the loss is below epsilon" is wrong with a probability of at
most delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from silva.errors import PlanError


def rows_needed(epsilon: float, delta: float) -> int:
    """The rows without a single loss that it takes to claim a loss below `epsilon`.

    >>> rows_needed(0.02, 0.1)
    114
    """
    return math.ceil(math.log(delta) / math.log1p(-epsilon))


def p_value(losses: np.ndarray, epsilon: float) -> float:
    """How well the losses of a sample, each between 0 and 1, fit a mean of `epsilon` or more.

    >>> round(p_value(np.zeros(114), 0.02), 4)
    0.0999
    """
    count = len(losses)
    if not count:
        return 1.0
    total = float(losses.sum())
    if np.isin(losses, (0.0, 1.0)).all():
        return _binomial(round(total), count, epsilon)
    mean = total / count
    if mean >= epsilon:
        return 1.0
    hoeffding = math.exp(-count * _divergence(mean, epsilon))
    bentkus = math.e * _binomial(math.ceil(total), count, epsilon)
    return min(1.0, hoeffding, bentkus)


def upper_bound(losses: np.ndarray, delta: float) -> float:
    """The smallest loss that can be claimed to be an upper bound, to 1e-6."""
    low, high = float(losses.mean()) if len(losses) else 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if p_value(losses, middle) <= delta else (middle, high)
    return high


def strictest_first(p_values: Sequence[float], delta: float) -> int | None:
    """The last of a sequence of claims, from strict to loose, that can be made together: each is
    tested only if all before it hold, so the chance that any is wrong is at most `delta`. None if
    not even the first can be made.

    >>> strictest_first([0.01, 0.04, 0.2, 0.01], 0.1)
    1
    """
    last = None
    for number, value in enumerate(p_values):
        if value > delta:
            break
        last = number
    return last


def check_risk(epsilon: float, delta: float, rows: int) -> None:
    """Refuses a promise that no outcome on so many rows could support."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not 0 < value < 1:
            raise PlanError(f"{name}= is between 0 and 1, not {value!r}")
    needed = rows_needed(epsilon, delta)
    if rows < needed:
        raise PlanError(
            f"{rows} rows cannot show that the loss is below {epsilon:g} with a confidence of "
            f"{1 - delta:.0%}, even if none is lost: it takes {needed} rows"
        )


def _binomial(successes: int, count: int, share: float) -> float:
    """The probability of at most so many successes."""
    if successes >= count:
        return 1.0
    logs = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(share)
        + (count - k) * math.log1p(-share)
        for k in range(successes + 1)
    ]
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(one - most) for one in logs))


def _divergence(mean: float, epsilon: float) -> float:
    """The relative entropy of two coins, for Hoeffding's bound."""
    first = mean * math.log(mean / epsilon) if mean else 0.0
    return first + (1 - mean) * math.log((1 - mean) / (1 - epsilon))
