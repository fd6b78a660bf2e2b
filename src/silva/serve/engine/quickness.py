"""Whether a step is so quick that it runs on the thread of the event loop.

While a step runs there, no other request is looked at. So a step first has to be quick several
times, and loses its place by one slow batch, whatever its mean. It gets it back by as many quick
batches as the slow ones were long: one that the system kept waiting for 20 ms is back soon, and one
that now and then sleeps for seconds never is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_STANDSTILL = 0.01
"""Seconds that all other requests may lose to one batch: what a client does not notice."""
_PRICE = 8
"""Quick batches that make up for one standstill, and that a step begins with."""


@dataclass
class Quickness:
    """The judgement on one step."""

    in_place: bool = False
    """Whether it runs on the loop."""
    _owes: int = _PRICE
    """How many more batches must be quick before it does."""

    def add(self, rows: int, seconds: float, handing_over: float) -> None:
        """Notes a batch; `handing_over` is what it costs to run one on another thread.

        >>> step = Quickness()
        >>> for _ in range(8): step.add(1, 1e-5, handing_over=5e-5)
        >>> step.in_place
        True
        >>> step.add(1, 3.0, handing_over=5e-5)
        >>> for _ in range(1000): step.add(1, 1e-5, handing_over=5e-5)
        >>> step.in_place
        False
        """
        if seconds > max(_STANDSTILL, rows * handing_over):
            self._owes += math.ceil(seconds / _STANDSTILL) * _PRICE
            self.in_place = False
        elif not self.in_place and seconds < rows * handing_over:
            self._owes = max(self._owes - 1, 0)
            self.in_place = not self._owes
