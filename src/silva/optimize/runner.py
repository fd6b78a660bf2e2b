"""The one place where a rule runs: is it enabled, apply it, verify the plan, note what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from silva.errors import PlanError
from silva.optimize.rewrite import Rewrite
from silva.optimize.rules import drop_unread, filter_early, recognise, shrink_decode, shuffle_early
from silva.plan.node import Node, option
from silva.plan.verify import verify


@dataclass(frozen=True)
class Rule:
    name: str
    apply: Callable[[Node], Rewrite]
    reason: str
    """Why a plan is better for it, as `explain` says it."""
    exact: bool = True
    """Every bit stays; otherwise it is used under `fidelity="close"` only."""


@dataclass(frozen=True)
class Outcome:
    """A rule that had something to change."""

    rule: Rule
    applied: bool
    """False where it may only be used under `fidelity="close"`."""
    notes: tuple[str, ...]
    seconds: float


RULES = (
    Rule(drop_unread.NAME, drop_unread.apply, "nobody reads what these steps write"),
    Rule(
        shuffle_early.NAME,
        shuffle_early.apply,
        "an order costs nothing at the source, and lets steps around it be planned together",
    ),
    Rule(filter_early.NAME, filter_early.apply, "rows that are dropped should cost nothing before"),
    Rule(
        recognise.NAME,
        recognise.apply,
        "silva has operators with the same meaning",
        exact=False,
    ),
    Rule(
        shrink_decode.NAME,
        shrink_decode.apply,
        "the next step shrinks the image anyway: decoded at 1/2, 1/4 or 1/8",
        exact=False,
    ),
)


def optimize(plan: Node, rules: tuple[Rule, ...] = RULES) -> tuple[Node, list[Outcome]]:
    """The plan that runs, and the rules that changed it or would have."""
    verify(plan)
    disabled = set(option(plan, "disable", ()))
    unknown = disabled - {rule.name for rule in rules}
    if unknown:
        raise PlanError(
            f"options(disable=…): there is no rule called {sorted(unknown)[0]!r}; rules are "
            f"{', '.join(rule.name for rule in rules)}"
        )
    outcomes: list[Outcome] = []
    if not option(plan, "optimize", True):
        return plan, outcomes
    close = option(plan, "fidelity", "exact") == "close"
    for rule in rules:
        if rule.name in disabled:
            continue
        began = perf_counter()
        changed = rule.apply(plan)
        if changed.plan == plan:
            continue
        verify(changed.plan)
        applied = rule.exact or close
        outcomes.append(Outcome(rule, applied, changed.notes, perf_counter() - began))
        if applied:
            plan = changed.plan
    return plan, outcomes
