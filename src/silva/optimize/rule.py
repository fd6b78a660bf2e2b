"""What a rule is, in which batch it runs, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from silva.optimize.rewrite import Rewrite
from silva.plan.node import Node


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
    """The plan rewritten, or as it was where there is nothing to do."""
    reason: str
    """Why a plan is better for it, as `explain` says it."""
    exact: bool = True
    """Every bit stays; otherwise it is used under `fidelity="close"` only."""
    numeric: bool = False
    """Its exactness rests on numbers, not only on which columns steps read and write."""
    merges: bool = False
    """Makes one step of several: then a row that fails in one of them fails in all, so it is not
    used where bad rows are substituted and flow on."""
    refused: str | None = None
    """Why it must never be used: for tempting rewrites that do not hold, which are only looked for
    so that `explain` can name them."""


@dataclass(frozen=True)
class Batch:
    """Rules that run one after another, again and again until nothing changes."""

    name: str
    rules: tuple[Rule, ...]
    repeat: int = 1
    """How often at most."""


@dataclass(frozen=True)
class Outcome:
    """A rule that changed the plan, or would have, or was not asked."""

    rule: Rule
    applied: bool
    notes: tuple[str, ...]
    seconds: float
    why: str | None = None
    """Why it was not applied."""

    @property
    def numeric(self) -> bool:
        """Its exactness rests on numbers, so that it is worth checking on real rows."""
        return self.rule.numeric
