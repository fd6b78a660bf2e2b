"""Whether a step is so quick that it runs on the thread of the event loop.

While a step runs there, no other request is looked at. So a step has to be quick many times in a
row before it may, and loses its place by its slowest batch, not by its mean; each time it does, it
has to be quick twice as many times to get it back.
"""

from __future__ import annotations

from dataclasses import dataclass

_STANDSTILL = 0.01
"""Seconds that all other requests may lose to one batch: what a client does not notice, and longer
than the system usually takes a thread off its core."""
_FIRST = 8
"""Batches that must have been quick before a step first runs on the loop."""


@dataclass
class Quickness:
    """The judgement on one step."""

    in_place: bool = False
    """Whether it runs on the loop."""
    _streak: int = 0
    """How many batches in a row were quick."""
    _needed: int = _FIRST

    def add(self, rows: int, seconds: float, handing_over: float) -> None:
        """Notes a batch; `handing_over` is what it costs to run one on another thread.

        >>> step = Quickness()
        >>> for _ in range(8): step.add(1, 1e-5, handing_over=5e-5)
        >>> step.in_place
        True
        >>> step.add(1, 3.0, handing_over=5e-5)
        >>> step.in_place
        False
        """
        if self.in_place:
            if seconds > _STANDSTILL:
                self.in_place = False
                self._streak = 0
                self._needed *= 2
            return
        self._streak = self._streak + 1 if seconds < rows * handing_over else 0
        self.in_place = self._streak >= self._needed
