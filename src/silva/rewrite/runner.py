"""The one place where a rule runs: if it is enabled, apply it, verify the plan, record the outcome.

Before the first rule and after each, random calls are pinned to the draws that they have, so that
no rewrite can change a random number by moving a call to another place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from silva.errors import PlanError
from silva.order.forms import cursor_form
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.law import LAWS, laws
from silva.plan.node import Derive, Filter, Node, Source, option, transform, walk
from silva.plan.operator import operator
from silva.plan.schema import verify
from silva.rewrite.rule import Outcome, Rewrite, Rule, RuleBatch
from silva.rewrite.rules import (
    drop_unread,
    fast_tokenizer,
    filter_before_explode,
    filter_before_rename,
    filter_early,
    filter_into_concat,
    fold_constants,
    merge_derives,
    read_stored,
    recognise,
    share,
    shuffle_early,
    use_law,
)

_ROUNDS = 100
"""A law moves a call by one place each round, and a rule of filters moves them past nodes of one
kind; no plan is as long."""

NEEDS_CLOSE = 'needs options(fidelity="close")'
DISABLED = "switched off by options(disable=…)"
LEFT_OUT = "left out"
OTHER_CURSORS = "a state that was saved with it could not be loaded without it"
SUBSTITUTES = "bad rows are substituted, and the later steps see the substitute"
COUNTS = "failures are counted, and a row that is dropped earlier would not fail"

_BUILT_IN = {
    "columns": (read_stored, fold_constants, drop_unread, shuffle_early),
    "filters": (filter_early, filter_before_rename, filter_into_concat, filter_before_explode),
    "functions": (recognise, fast_tokenizer),
    "merge": (merge_derives,),
    "laws": (),
    "yours": (),
    "share": (share,),
    "last laws": (),
}
"""The batches in the order in which they run, with the files of their rules."""
CHOICES = ("order", "cache")
"""Decisions that are made from measurements, and can be switched off like a rule."""
_RULES: dict[str, tuple[str, Rule]] = {}
"""By name: the batch that a rule belongs to, and the rule."""


def register_rule(rule: Rule, batch: str = "yours") -> Rule:
    """Registers a rule; from then on it runs on every plan. A name can be registered only once."""
    if batch not in _BUILT_IN:
        raise PlanError(
            f"register_rule(batch=…): there is no batch called {batch!r}; choose one of "
            f"{', '.join(_BUILT_IN)}"
        )
    if rule.name in _RULES and _RULES[rule.name][1].apply is not rule.apply:
        raise PlanError(
            f"register_rule: a rule called {rule.name!r} is already registered; choose another name"
        )
    _RULES[rule.name] = (batch, rule)
    return rule


for _batch, _files in _BUILT_IN.items():
    for _file in _files:
        register_rule(_file.RULE, _batch)


def batches() -> Iterator[RuleBatch]:
    """All rules in the order in which they run; each registered law is one."""
    for name in _BUILT_IN:
        rules = tuple(rule for batch, rule in _RULES.values() if batch == name)
        of_laws = name in ("laws", "last laws")
        repeats = of_laws or name == "filters"
        if of_laws:
            last = name == "last laws"
            rules += tuple(use_law.as_rule(law) for law in LAWS.values() if law.last == last)
        yield RuleBatch(name, rules, _ROUNDS if repeats else 1)


def optimize(
    plan: Node,
    without: frozenset[str] = frozenset(),
    *,
    counts: bool = False,
    substitutes: bool = False,
) -> tuple[Node, list[Outcome]]:
    """The plan that runs, and the rules that changed it or would have changed it.

    `without` names rules and laws to leave out, in addition to those that the plan itself switches
    off. `counts`: rows that fail do not end the run, but are counted. `substitutes`: they are
    replaced by a substitute.
    """
    verify(plan)
    run = _Run(plan, without, counts, substitutes)
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
    """One plan while the rules are applied to it."""

    def __init__(
        self, plan: Node, without: frozenset[str], counts: bool, substitutes: bool
    ) -> None:
        self.plan = plan
        self.outcomes: dict[str, Outcome] = {}
        self._close = option(plan, "fidelity", "exact") == "close"
        self._disabled = frozenset(option(plan, "disable", ()))
        self._without = without
        self._counts = counts
        self._form = cursor_form(plan)
        self._substitutes = substitutes
        self._kinds = _kinds_in(plan)
        _check_names(self._disabled | without)

    def apply(self, rule: Rule) -> None:
        before = self.outcomes.pop(rule.name, None)
        if (why := self._why_skipped(rule)) is not None:
            self.outcomes[rule.name] = Outcome(rule, False, (), 0.0, why)
            return
        began = perf_counter()
        has_work = any(issubclass(kind, rule.acts_on) for kind in self._kinds)
        made = rule.apply(self.plan) if has_work else Rewrite(self.plan)
        changed, why = made.plan != self.plan, self._why_rejected(rule)
        if changed:
            verify(made.plan)
            if cursor_form(made.plan) != self._form:
                why = OTHER_CURSORS
            if why is None:
                self.plan = _pin(made.plan)
                self._kinds = _kinds_in(self.plan)
        spent = perf_counter() - began
        notes = made.notes if changed else ()
        if before is not None and before.applied:
            notes, spent = before.notes + notes, before.seconds + spent
        elif not changed:
            if made.why_not is None:
                return
            why = made.why_not
        self.outcomes[rule.name] = Outcome(rule, why is None, notes, spent, why)

    def _why_skipped(self, rule: Rule) -> str | None:
        """Why a rule is not applied at all; None if it is."""
        if rule.name in self._disabled:
            return DISABLED
        if rule.name in self._without:
            return LEFT_OUT
        return None

    def _why_rejected(self, rule: Rule) -> str | None:
        """Why the plan that a rule makes is not used; None if it is."""
        if rule.refused is not None:
            return rule.refused
        if rule.reorders and self._counts:
            return COUNTS
        if rule.merges and self._substitutes:
            return SUBSTITUTES
        return None if rule.exact or self._close else NEEDS_CLOSE


def _kinds_in(plan: Node) -> set[type]:
    """The kinds of nodes, steps and sources in a plan."""
    sources = {type(node.source) for node in walk(plan) if isinstance(node, Source)}
    return sources | {type(part) for node in walk(plan) for part in (node, node.runs)}


def _check_names(names: frozenset[str]) -> None:
    names = names - _RULES.keys() - set(CHOICES)
    if not names or names <= LAWS.keys():
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
        step = pin_draws(node.step, node.id)
        return node if step is node.step else replace(node, step=step)

    return transform(plan, change)


def pin_draws(term: expr.Term, step: str) -> expr.Term:
    """The term with every random call bound to the draws that it has where it stands, in `step`, so
    that they stay the same wherever it is moved to."""
    made: dict[int, expr.Term] = {}
    for place, part in enumerate(expr.walk(term)):
        if id(part) in made:
            continue
        before = expr.parts_of(part)
        after = tuple(made[id(one)] for one in before)
        moved = any(a is not b for a, b in zip(after, before, strict=True))
        new = expr.with_parts(part, after) if moved else part
        if isinstance(new, expr.Call) and new.draw is None and operator(new.op).random:
            new = replace(new, draw=(step, place))
        made[id(part)] = new
    return made[id(term)]
