"""Whether one configuration scores more than another, by the rows that both have answered.

Somebody who believes that it does not bets on it, row by row: a share of the capital on the
difference of the two scores. If the scores were equal, or the other way around, the capital would
be multiplied by `1 / alpha` at any time with a probability of at most `alpha` (Ville's inequality).
So it may be looked at after every row, and as often as one likes, without losing confidence, and
nothing is assumed about how scores are distributed but that they lie between 0 and 1 (Waudby-Smith
and Ramdas, 2024).
"""

from __future__ import annotations

import math

import numpy as np

_BETS = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 15 / 16])
"""Shares of the capital: a player for each, all with the same capital. For any two configurations,
the best share lies within a factor of two of one of them, which grows nearly as fast."""


def log_evidence(won: np.ndarray) -> np.ndarray:
    """The logarithm of the capital after betting that the mean of `won`, each -1 or more, is above
    0; for each column, where it has several.

    >>> round(float(log_evidence(np.ones(20))), 1)
    11.3
    >>> float(log_evidence(np.zeros(20)))
    0.0
    """
    capitals = np.stack([np.log1p(bet * won).sum(axis=0) for bet in _BETS])
    most = capitals.max(axis=0)
    return np.asarray(most + np.log(np.exp(capitals - most).mean(axis=0)))


def rows_to_tell(won: np.ndarray, needed: float) -> int | None:
    """How many more rows like these it takes until the evidence is `needed`; None where these rows
    show no difference, so that nothing says that any number would do.

    >>> rows_to_tell(np.tile([1.0, 0.0, 0.0, 0.0], 10), needed=9.0)
    27
    >>> rows_to_tell(np.zeros(40), needed=9.0) is None
    True
    """
    growth = max(float(np.log1p(bet * won).mean()) for bet in _BETS) if len(won) else 0.0
    if growth <= 0:
        return None
    all_rows = (needed + math.log(len(_BETS))) / growth  # if one player alone wins
    return max(math.ceil(all_rows) - len(won), 1)


def needed_evidence(count: int, delta: float) -> float:
    """The evidence at which a claim about two of `count` configurations is made, so that the chance
    that any of all such claims is wrong is at most `delta`."""
    return math.log(count * (count - 1) / delta)
