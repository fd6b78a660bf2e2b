"""Bounds on a mean from a sample, on which promises rest: exact for losses of 0 and 1, and valid
for every loss between them.

The claim "the mean loss is below epsilon" is made where so small a total loss has a probability of
at most `delta` if the claim is wrong. For losses of 0 and 1 that probability is binomial (the test
behind Clopper and Pearson's interval); for others it is bounded by the smaller one of Hoeffding's
and Bentkus's inequality (Bates et al., "Distribution-free, risk-controlling prediction sets").
"""

from __future__ import annotations

import bisect
import math

import numpy as np

from silva.errors import PlanError
from silva.plan.arguments import share


def rows_needed(epsilon: float, delta: float) -> int:
    """The rows without a single loss that it takes to claim a loss below `epsilon`.

    >>> rows_needed(0.02, 0.1)
    114
    """
    return math.ceil(math.log(delta) / math.log1p(-epsilon))


def tail(total: float, count: int, epsilon: float, *, binary: bool) -> float:
    """The largest probability of a total loss of at most `total` on `count` rows if the mean loss
    is `epsilon` or more. It never falls as the total grows.

    >>> round(tail(0, 114, 0.02, binary=True), 4)
    0.0999
    """
    if binary:
        return _binomial(round(total), count, epsilon)
    mean = total / count
    if mean >= epsilon:
        return 1.0
    hoeffding = math.exp(-count * _divergence(mean, epsilon))
    bentkus = math.e * _binomial(math.ceil(total), count, epsilon)
    return min(1.0, hoeffding, bentkus)


def most_claims(totals: np.ndarray, count: int, epsilon: float, delta: float) -> int:
    """How many of the claims hold that these total losses support, which do not fall from the
    first one to the last. `totals` of whole numbers are those of losses of 0 and 1.

    >>> most_claims(np.array([0, 1, 1, 2, 9]), 200, 0.02, 0.1)  # 200 rows permit one loss
    3
    """
    binary = totals.dtype.kind in "iub"

    def p_value(total: float) -> float:
        return tail(total, count, epsilon, binary=binary)

    return bisect.bisect_right(totals, delta, key=p_value)


def check_risk(epsilon: float, delta: float, rows: int) -> None:
    """Refuses a promise that no outcome on so many rows could support."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        share(f"{name}=", value)
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
