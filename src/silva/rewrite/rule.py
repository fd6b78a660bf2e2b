"""A rule, the batch that it runs in, the plan that it makes, and the outcome of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType

from silva.plan.node import Node


@dataclass(frozen=True)
class Rewrite:
    """The plan that a rule made, and notes on what it changed."""

    plan: Node
    notes: tuple[str, ...] = ()
    """What was changed, a line each, as `explain` shows it."""
    why_not: str | None = None
    """Why nothing was changed, where users would expect that something is."""


@dataclass(frozen=True)
class Rule:
    """A way to rewrite plans.

    >>> from silva.plan.node import Filter, transform
    >>> def keep_all(plan):
    ...     bare = transform(plan, lambda n: n.input if isinstance(n, Filter) else n)
    ...     return Rewrite(bare, ("every filter",))
    >>> Rule("keep_all", keep_all, "rows are never dropped here", exact=False).name
    'keep_all'
    """

    name: str
    apply: Callable[[Node], Rewrite]
    """Returns the plan rewritten, or as it was if there is nothing to do."""
    reason: str
    """Why a plan is better for it, as `explain` prints it."""
    exact: bool = True
    """It keeps every bit; a rule that does not is used under `fidelity="close"` only."""
    numeric: bool = False
    """Its exactness depends on numbers, not only on which columns steps read and write."""
    merges: bool = False
    """It merges steps: a row that fails in one of them then fails in all, so it is not used where
    bad rows are substituted and pass through the later steps."""
    reorders: bool = False
    """It moves a filter before a step that may fail: a row that fails as written is then dropped
    first, so it is not used where failures are counted."""
    renames: bool = False
    """It puts another implementation in place of a step: a row that fails is repeated without it,
    so that errors are those of the step as written."""
    refused: str | None = None
    """Why it must never be used: a tempting rewrite that does not hold is matched only so that
    `explain` can name it."""
    acts_on: type | UnionType = object
    """The kind of node, step or source that it looks for; it does not run on a plan without."""


@dataclass(frozen=True)
class RuleBatch:
    """Rules that run one after another, again and again until nothing changes."""

    name: str
    rules: tuple[Rule, ...]
    repeat: int = 1
    """The largest number of rounds."""


@dataclass(frozen=True)
class Outcome:
    """A rule that changed the plan, would have changed it, or was skipped."""

    rule: Rule
    applied: bool
    notes: tuple[str, ...]
    seconds: float
    why: str | None = None
    """Why it was not applied."""

    @property
    def numeric(self) -> bool:
        """Its exactness depends on numbers, so it is worth checking on real rows."""
        return self.rule.numeric
