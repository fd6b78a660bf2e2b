"""What happens to rows on which a step failed: raise, skip within a budget, or substitute."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from silva.errors import FailureBudgetExceeded, PlanError, RowError
from silva.physical.context import Failure

KEPT = 1000
"""Failures that a loader remembers; all are counted, and all go to the file if there is one."""


@dataclass(frozen=True)
class Skip:
    """Leaves out rows that fail, as long as there are not too many.

    >>> Skip(at_most=10)
    Skip(at_most=10, rate=None)
    """

    at_most: int | None = None
    """Rows that may fail in an epoch."""
    rate: float | None = None
    """Share of the rows that may fail, judged once 1 / rate rows were seen."""

    def __post_init__(self) -> None:
        if self.at_most is not None and self.at_most < 0:
            raise PlanError(f"Skip(at_most=…) cannot be negative: {self.at_most}")
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise PlanError(f"Skip(rate=…) is a share between 0 and 1, not {self.rate}")


@dataclass(frozen=True)
class Substitute:
    """Uses `value` as the result of a step that failed.

    >>> Substitute(0)
    Substitute(value=0)
    """

    value: Any


Policy = Skip | Substitute | Literal["raise"]


class Failures:
    """Counts and keeps the failures of a loader, and applies its policy in stream order."""

    def __init__(self, policy: Policy, file: Path | None) -> None:
        self._policy = policy
        self._file = file
        self._failed = 0
        self._seen = 0
        self.kept: list[Failure] = []

    def forgives(self, seen: int) -> bool:
        """Whether one more failure, `seen` rows further on, is within the policy."""
        if isinstance(self._policy, Skip):
            return not self._over(self._policy, self._failed + 1, self._seen + seen)
        return self._policy != "raise"

    @property
    def counts(self) -> bool:
        """Whether states carry the counts."""
        return isinstance(self._policy, Skip)

    @property
    def total(self) -> int:
        return self._failed

    def start(self) -> None:
        """A new epoch, or a restored one, has begun: budgets count from here."""
        self._failed = self._seen = 0

    def resume(self, failed: int, seen: int) -> None:
        """Adds the counts that a state brings along."""
        self._failed += failed
        self._seen += seen

    def saw(self, rows: int) -> None:
        self._seen += rows

    def handle(self, failure: Failure, seen: int = 0) -> None:
        """Notes a failure, `seen` rows further on; raises if the policy says so."""
        self._failed += 1
        if len(self.kept) < KEPT:
            self.kept.append(failure)
        if self._file is not None:
            self._write(failure)
        if self._policy == "raise":
            raise row_error(failure)
        if isinstance(self._policy, Skip):
            self._check_budget(self._policy, failure, self._seen + seen)

    def _over(self, policy: Skip, failed: int, seen: int) -> bool:
        over = policy.at_most is not None and failed > policy.at_most
        if policy.rate is not None and seen * policy.rate >= 1:
            over = over or failed > policy.rate * seen + 1
        return over

    def _check_budget(self, policy: Skip, failure: Failure, seen: int) -> None:
        if self._over(policy, self._failed, seen):
            raise FailureBudgetExceeded(
                f"{self._failed} of {max(seen, self._failed)} rows failed, more than "
                f"{policy} allows; the last:\n{describe(failure)}"
            ) from failure.cause

    def _write(self, failure: Failure) -> None:
        assert self._file is not None
        record = {
            "key": failure.key,
            "step": failure.step,
            "error": failure.error,
            "traceback": failure.traceback,
        }
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def describe(failure: Failure) -> str:
    return (
        f"row {failure.key} failed in `{failure.step}`\n{failure.traceback.rstrip()}\n"
        f"To run this row alone: pipeline.row({failure.key!r})"
    )


def row_error(failure: Failure) -> RowError:
    """The error to raise for a row, with the user's own exception as its cause."""
    error = RowError(describe(failure), key=failure.key, step=failure.step)
    error.__cause__ = failure.cause
    return error
