"""The one place where a rule runs: is it enabled, apply it, verify the plan, note what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from silva.errors import PlanError
from silva.optimize.rules import drop_unread
from silva.plan.node import Node, option
from silva.plan.verify import verify


@dataclass(frozen=True)
class Rule:
    name: str
    apply: Callable[[Node], Node]
    reason: str
    """Why a plan is better for it, as `explain` says it."""


@dataclass(frozen=True)
class Applied:
    """A rule that changed the plan."""

    rule: Rule
    seconds: float


RULES = (Rule(drop_unread.NAME, drop_unread.apply, "nobody reads what these steps write"),)


def optimize(plan: Node, rules: tuple[Rule, ...] = RULES) -> tuple[Node, list[Applied]]:
    """The plan that runs, and the rules that made it differ from the plan as written."""
    verify(plan)
    disabled = set(option(plan, "disable", ()))
    unknown = disabled - {rule.name for rule in rules}
    if unknown:
        raise PlanError(
            f"options(disable=…): there is no rule called {sorted(unknown)[0]!r}; rules are "
            f"{', '.join(rule.name for rule in rules)}"
        )
    applied: list[Applied] = []
    if not option(plan, "optimize", True):
        return plan, applied
    for rule in rules:
        if rule.name in disabled:
            continue
        began = perf_counter()
        changed = rule.apply(plan)
        if changed != plan:
            verify(changed)
            applied.append(Applied(rule, perf_counter() - began))
            plan = changed
    return plan, applied
