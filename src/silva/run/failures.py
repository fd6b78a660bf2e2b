"""What happens to rows on which a step failed: raise, skip within a budget, or substitute."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from silva.errors import FailureBudgetExceeded, PlanError, RowError, SourceError, printable
from silva.folders import append_whole, telling_full_disk
from silva.physical.stage.context import Failure
from silva.plan.arguments import natural, number

_ADVICE = (
    "A row failed and could not be noted there; the rows noted so far are whole lines. Free some "
    "room, or give loader(failures=…) a file on another disk"
)
KEPT = 1000
"""Failures that a loader keeps in memory; all are counted, and all are written to the file."""


@dataclass(frozen=True)
class Skip:
    """Drops rows that fail, up to a limit.

    >>> Skip(at_most=10)
    Skip(at_most=10, rate=None)
    """

    at_most: int | None = None
    """The number of rows that may fail in an epoch."""
    rate: float | None = None
    """The share of rows that may fail, of those read from the sources so far; checked at each batch
    once 1 / rate rows were read."""

    def __post_init__(self) -> None:
        if self.at_most is not None:
            natural("Skip(at_most=…)", self.at_most)
        if self.rate is not None and not 0 <= number("Skip(rate=…)", self.rate) <= 1:
            raise PlanError(f"Skip(rate=…) is a share between 0 and 1, not {self.rate}")


@dataclass(frozen=True)
class Substitute:
    """Uses `value` as the result of a step that failed.

    >>> Substitute(0)
    Substitute(value=0)
    """

    value: Any
    """The result, as if the step had returned it: it takes part in the type of its batch like any
    other row, so give it the type of the column, such as `np.float32(0)`. Each row gets a copy."""


Policy = Skip | Substitute | Literal["raise"]


class Tally:
    """Rows that failed since a flow was opened."""

    __slots__ = ("_whole", "failed")

    def __init__(self, whole: Tally | None = None) -> None:
        """`whole` also counts what this tally counts."""
        self.failed = 0
        self._whole = whole

    def add(self) -> None:
        self.failed += 1
        if self._whole is not None:
            self._whole.add()


class Failures:
    """Counts and keeps the failures of a loader, and applies its policy in stream order: a failure
    is handled when the row after it is asked for, however far ahead rows were computed."""

    def __init__(
        self, policy: Policy, file: Path | None, file_of: Callable[[str], str | None] | None = None
    ) -> None:
        """`file_of` maps the key of a row to the file that the row is, if it is one."""
        self._policy = policy
        self._file_of = file_of
        self._file = file
        self._failed = 0
        self._cleared = 0
        """The number of failures for which the rate was checked, and held."""
        self._raised: list[tuple[RowError, Failure]] = []
        """Errors that were raised while rows were read ahead; one of them ends the stream."""
        self.kept: list[Failure] = []

    @property
    def raises(self) -> bool:
        """Whether the first failure ends the stream."""
        return self._policy == "raise"

    @property
    def total(self) -> int:
        return self._failed

    def start(self, failed: int) -> None:
        """Begins an epoch, or continues from a state in which this many rows had failed."""
        self._failed, self._cleared = failed, 0

    def handle(self, failure: Failure) -> None:
        """Counts a failure that has been reached in stream order; raises if the policy says so, or
        if the source itself is wrong."""
        if failure.wrong_source:
            raise failure.cause or SourceError(failure.error)
        if self._file_of is not None:
            failure = replace(failure, file=self._file_of(failure.key))
        if self.raises:
            error = row_error(failure)
            self._raised.append((error, failure))
            raise error
        self._note(failure)
        limit = self._policy.at_most if isinstance(self._policy, Skip) else None
        if limit is not None and self._failed > limit:
            raise self._exceeded(f"{self._failed} rows failed")

    def note_end(self, error: RowError) -> None:
        """Counts the failure whose error ends the stream."""
        for raised, failure in self._raised:
            if raised is error:
                self._note(failure)
        self._raised.clear()

    def _note(self, failure: Failure) -> None:
        self._failed += 1
        if len(self.kept) < KEPT:
            self.kept.append(failure)
        if self._file is not None:
            self._write(failure)

    @property
    def unjudged(self) -> bool:
        """Whether the rate is yet to be checked for some of the failures."""
        rated = isinstance(self._policy, Skip) and self._policy.rate is not None
        return rated and self._failed > self._cleared

    def judge(self, failed: int, seen: int, at_end: bool = False) -> None:
        """Raises if too large a share of the `seen` rows has failed. Before the end of the epoch,
        a few rows say nothing about the share. Both counts belong to one position of the stream,
        so that it does not depend on how far ahead rows were computed."""
        rate = self._policy.rate if isinstance(self._policy, Skip) else None
        if rate is None or not (at_end or seen * rate >= 1):
            return
        if failed > rate * seen + 1:
            raise self._exceeded(f"{failed} of {max(seen, failed)} rows failed")
        self._cleared = failed

    def _exceeded(self, what: str) -> FailureBudgetExceeded:
        last = self.kept[-1] if self.kept else None
        shown = "" if last is None else f"; the last:\n{describe(last)}"
        error = FailureBudgetExceeded(f"{what}, more than {self._policy} allows{shown}")
        error.__cause__ = None if last is None else last.cause
        return error

    def _write(self, failure: Failure) -> None:
        assert self._file is not None
        record = {
            "key": failure.key,
            **({} if failure.file is None else {"file": failure.file}),
            "step": failure.step,
            "error": failure.error,
            "traceback": failure.traceback,
        }
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with telling_full_disk(self._file, _ADVICE):  # half a surrogate pair is escaped
            append_whole(self._file, line.encode(errors="backslashreplace"))


class DeferredFailures:
    """Failures of rows that are read ahead: they are handled when the row after them is asked for.

    A failure that ends the stream is raised at once: the reader ahead hands out the
    rows before an error first.
    """

    def __init__(self, failures: Failures | DeferredFailures) -> None:
        self._failures = failures
        self._deferred: deque[tuple[int, Failure]] = deque()
        self.rows = 0
        """The number of rows that were read ahead so far."""

    @property
    def raises(self) -> bool:
        return self._failures.raises

    def handle(self, failure: Failure) -> None:
        if self.raises or failure.wrong_source:
            self._failures.handle(failure)
        self._deferred.append((self.rows, failure))

    def take(self, before: int | None = None) -> list[tuple[int, Failure]]:
        """Removes and returns the failures before row `before` (None: all), each with its row."""
        taken = []
        while self._deferred and (before is None or self._deferred[0][0] < before):
            taken.append(self._deferred.popleft())
        return taken


def describe(failure: Failure) -> str:
    row = failure.key if failure.file is None else f"{failure.key} ({printable(failure.file)})"
    return (
        f"row {row} failed in `{failure.step}`\n{failure.traceback.rstrip()}\n"
        f"To run this row alone: pipeline.row({failure.key!r})"
    )


def row_error(failure: Failure) -> RowError:
    """The error to raise for a row, with the user's own exception as its cause."""
    error = RowError(describe(failure), key=failure.key, step=failure.step)
    error.__cause__ = failure.cause
    return error
