"""The one place where a rule runs: is it enabled, apply it, verify the plan, note what happened.

Before the first rule and after each, random calls are pinned to the draws that they have, so that
no rewrite can change a random number by moving a call to another place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from silva.errors import PlanError
from silva.optimize.rule import Batch, Outcome, Rule
from silva.optimize.rules import (
    drop_unread,
    filter_early,
    fold_constants,
    merge_derives,
    read_stored,
    recognise,
    share,
    shuffle_early,
    use_law,
)
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.law import known_laws, laws
from silva.plan.node import Derive, Filter, Node, option, transform
from silva.plan.operator import operator
from silva.plan.verify import verify

__all__ = ["Batch", "Outcome", "Rule", "batches", "optimize", "register_rule"]

_ROUNDS = 100
"""A law moves a call by one place each time; this is more than any chain is long."""

NEEDS_CLOSE = 'needs options(fidelity="close")'
DISABLED = "switched off by options(disable=…)"
LEFT_OUT = "left out"
SUBSTITUTES = "bad rows are substituted, and what is put in their place flows on"

_BUILT_IN = {
    "columns": (
        Rule(read_stored.NAME, read_stored.apply, "what a table has stored need not be computed"),
        Rule(fold_constants.NAME, fold_constants.apply, "it is known beforehand", numeric=True),
        Rule(drop_unread.NAME, drop_unread.apply, "nobody reads what these steps write"),
        Rule(
            shuffle_early.NAME,
            shuffle_early.apply,
            "an order costs nothing at the source, and lets steps around it be planned together",
        ),
        Rule(
            filter_early.NAME,
            filter_early.apply,
            "rows that are dropped should cost nothing before",
        ),
    ),
    "functions": (
        Rule(
            recognise.NAME,
            recognise.apply,
            "silva has operators with the same meaning",
            exact=False,
            numeric=True,
        ),
    ),
    "merge": (
        Rule(
            merge_derives.NAME,
            merge_derives.apply,
            "a row stays in the CPU's cache, and laws reach across",
            merges=True,
        ),
    ),
    "laws": (),
    "yours": (),
    "share": (
        Rule(share.NAME, share.apply, "what several steps need is computed once", merges=True),
    ),
    "last laws": (),
}
CHOICES = ("order", "cache", "cut")
"""What is decided from measurements, and can be switched off like a rule."""
_RULES: dict[str, tuple[str, Rule]] = {}
"""By name: the batch that a rule belongs to, and the rule."""


def register_rule(rule: Rule, batch: str = "yours") -> Rule:
    """Makes a rule known; from then on it runs on every plan. A name can be given only once."""
    if batch not in _BUILT_IN:
        raise PlanError(f"there is no batch called {batch!r}; batches are {', '.join(_BUILT_IN)}")
    if rule.name in _RULES and _RULES[rule.name][1].apply is not rule.apply:
        raise PlanError(f"a rule called {rule.name!r} is already registered")
    _RULES[rule.name] = (batch, rule)
    return rule


for _batch, _rules in _BUILT_IN.items():
    for _rule in _rules:
        register_rule(_rule, _batch)


def batches() -> Iterator[Batch]:
    """All rules in the order in which they run, each law that is known by then as one."""
    for name in _BUILT_IN:
        rules = tuple(rule for batch, rule in _RULES.values() if batch == name)
        of_laws = name in ("laws", "last laws")
        if of_laws:
            last = name == "last laws"
            rules += tuple(use_law.as_rule(law) for law in known_laws() if law.last == last)
        yield Batch(name, rules, _ROUNDS if of_laws else 1)


def optimize(
    plan: Node, without: frozenset[str] = frozenset(), substitutes: bool = False
) -> tuple[Node, list[Outcome]]:
    """The plan that runs, and the rules that changed it or would have.

    `without` names rules and laws to leave out, beside those that the plan itself switches off.
    `substitutes` says that something is put in the place of bad rows.
    """
    verify(plan)
    run = _Run(plan, without, substitutes)
    if not option(plan, "optimize", True):
        return plan, []
    run.plan = _pin(plan)
    for batch in batches():
        for _ in range(batch.repeat):
            before = run.plan
            for rule in batch.rules:
                run.apply(rule)
            if run.plan == before:
                break
    return run.plan, list(run.outcomes.values())


class _Run:
    """One plan on its way through the rules."""

    def __init__(self, plan: Node, without: frozenset[str], substitutes: bool) -> None:
        self.plan = plan
        self.outcomes: dict[str, Outcome] = {}
        self._close = option(plan, "fidelity", "exact") == "close"
        self._disabled = frozenset(option(plan, "disable", ()))
        self._without = without
        self._substitutes = substitutes
        _check_names(self._disabled | without)

    def apply(self, rule: Rule) -> None:
        before = self.outcomes.pop(rule.name, None)
        if (why := self._why_skipped(rule)) is not None:
            self.outcomes[rule.name] = Outcome(rule, False, (), 0.0, why)
            return
        began = perf_counter()
        made = rule.apply(self.plan)
        changed, why = made.plan != self.plan, self._why_unused(rule)
        if changed:
            verify(made.plan)
            self.plan = _pin(made.plan) if why is None else self.plan
        spent = perf_counter() - began
        notes = made.notes if changed else ()
        if before is not None and before.applied:
            notes, spent = before.notes + notes, before.seconds + spent
        elif not changed:
            return
        self.outcomes[rule.name] = Outcome(rule, why is None, notes, spent, why)

    def _why_skipped(self, rule: Rule) -> str | None:
        """Why a rule is not even asked."""
        if rule.name in self._disabled:
            return DISABLED
        if rule.name in self._without:
            return LEFT_OUT
        return None

    def _why_unused(self, rule: Rule) -> str | None:
        """Why what a rule proposes is not done."""
        if rule.refused is not None:
            return rule.refused
        if rule.merges and self._substitutes:
            return SUBSTITUTES
        return None if rule.exact or self._close else NEEDS_CLOSE


def _check_names(names: frozenset[str]) -> None:
    names = names - set(CHOICES)
    if not names - {rule.name for batch in batches() for rule in batch.rules}:
        return
    there = [*_RULES, *(law.name for law in laws())]  # also laws of operators not yet used
    unknown = sorted(names - set(there))
    if unknown:
        raise PlanError(
            f"options(disable=…): there is no rule or law called {unknown[0]!r}; rules are "
            f"{', '.join([*_RULES, *CHOICES])}; laws are {', '.join(there[len(_RULES) :])}"
        )


def _pin(plan: Node) -> Node:
    """The plan with every random call bound to the draws that it has where it stands."""

    def change(node: Node) -> Node:
        if not isinstance(node, Derive | Filter) or isinstance(node.step, Function):
            return node
        step = expr.pinned(node.step, node.id, lambda call: operator(call.op).random)
        return node if step is node.step else replace(node, step=step)

    return transform(plan, change)
