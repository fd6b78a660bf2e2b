"""What a request may take at most, and what a search may: `sv.p95("latency") <= 0.5`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from silva.errors import PlanError
from silva.plan.arguments import duration, natural, number, one_of, several

Amount = Literal["latency", "cost", "tokens"]
"""What a request takes: seconds, by itself; money, by the prices of models; tokens."""
_UNITS = {"latency": " s", "cost": "", "tokens": " tokens"}


@dataclass(frozen=True)
class Quantity:
    """One number about what requests take. Compared with another one, it is a constraint."""

    statistic: Literal["p95", "mean"]
    amount: Amount

    def __le__(self, most: float) -> Constraint:
        if not 0 < number(f"{self} <= …", most) < math.inf:
            raise PlanError(f"{self} <= … takes a number above 0, not {most!r}")
        return Constraint(self, float(most))

    def __str__(self) -> str:
        return f"{self.statistic}({self.amount!r})"


@dataclass(frozen=True)
class Constraint:
    """The most that a quantity may be."""

    quantity: Quantity
    most: float

    def above(self) -> str:
        """What a configuration is that breaks it."""
        return f"{self.quantity} is above {self.most:g}{_UNITS[self.quantity.amount]}"


def p95(amount: Amount) -> Quantity:
    """What 95 % of the requests take at most, for `tune(subject_to=[…])`.

    >>> p95("latency") <= 0.5
    Constraint(quantity=Quantity(statistic='p95', amount='latency'), most=0.5)
    """
    return Quantity("p95", one_of("p95", amount, *_UNITS))


def mean(amount: Amount) -> Quantity:
    """What a request takes on average: `"latency"` in seconds, `"cost"` in money or `"tokens"`.

    >>> (mean("cost") <= 2e-4).above()
    "mean('cost') is above 0.0002"
    """
    return Quantity("mean", one_of("mean", amount, *_UNITS))


@dataclass(frozen=True)
class Budget:
    """What a search may take; it ends with whichever is used up first."""

    seconds: float | None = None
    executions: int | None = None
    """Rows that steps are run on."""

    def __post_init__(self) -> None:
        if self.seconds is None and self.executions is None:
            raise PlanError("Budget takes seconds=… or executions=…, or both")
        if self.seconds is not None:
            duration("Budget(seconds=…)", self.seconds)
        if self.executions is not None:
            natural("Budget(executions=…)", self.executions, least=1)

    def spent(self, seconds: float, executions: int) -> float:
        """The share of it that is used up."""
        of_time = 0.0 if self.seconds is None else seconds / self.seconds
        return max(of_time, 0.0 if self.executions is None else executions / self.executions)


def constraints_of(given: Any) -> tuple[Constraint, ...]:
    """The constraints that a search is given."""
    found = several("tune(subject_to=…)", given)
    for one in found:
        if not isinstance(one, Constraint):
            raise PlanError(
                f"tune(subject_to=…) takes constraints such as sv.p95('latency') <= 0.5 and "
                f"sv.mean('cost') <= 2e-4, not {one!r}"
            )
    return found
