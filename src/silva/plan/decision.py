"""A decision about a plan or a run: what was chosen and why, and how it turned out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RATE = "rows/s"
"""The unit of a throughput."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: float
    unit: str = RATE
    interval: tuple[float, float] | None = None
    """Where the true value is expected; None if that is not known."""
    higher_is_better: bool = True

    def times(self, other: Quantity) -> float:
        """How many times as good it is as another one.

        >>> Quantity(300.0).times(Quantity(100.0))
        3.0
        >>> Quantity(2.0, "s", higher_is_better=False).times(Quantity(3.0, "s"))
        1.5
        """
        better, worse = (self, other) if self.higher_is_better else (other, self)
        return better.value / worse.value if worse.value else 1.0


@dataclass(frozen=True)
class Decision:
    """One choice among several ways to run something. A measurement makes a new decision of the
    same `what`.

    >>> made = Decision("order", "drop early", Quantity(300.0), default=Quantity(100.0))
    >>> made.predicted_gain, made.measured_gain
    (3.0, None)
    """

    what: str
    why: str
    predicted: Quantity | None = None
    measured: Quantity | None = None
    bound: Quantity | None = None
    """What no choice can exceed."""
    default: Quantity | None = None
    """What would have been without it."""
    kind: Literal["rule", "choice", "check", "backend", "width", "cluster", "change"] = "choice"
    notes: tuple[str, ...] = ()
    """What it changes, one line each."""
    why_not: str | None = None
    """Why it is not used; None if it is."""
    pending: bool = False
    """It is used as soon as it passes its check."""
    after: int = 0
    """Rows that had come before a change of a plan that runs."""
    of: str = ""
    """The work that prediction and measurement are about, where it is not all that is left."""

    @property
    def name(self) -> str:
        """The name by which `options(disable=…)` knows a rule or a choice."""
        return self.what

    @property
    def applied(self) -> bool:
        return self.why_not is None

    @property
    def predicted_gain(self) -> float | None:
        """How many times as good as the default it was predicted."""
        return self._gain(self.predicted)

    @property
    def measured_gain(self) -> float | None:
        """How many times as good as the default it was measured."""
        return self._gain(self.measured)

    def _gain(self, found: Quantity | None) -> float | None:
        return None if found is None or self.default is None else found.times(self.default)
