"""Evaluates conditions that do not depend on the row.

Motive: conditions are put together by programs (`keep = condition & flag`), and a part that is
always true should neither cost anything nor hide a comparison that a Parquet file's statistics can
answer.

    filter (label > 0) & True       →    filter label > 0
    source                               source

A filter that keeps every row is dropped.

Must not fire: where the type of a result could change. Beside a column of bytes, a Python number
is weak (`x + 6` stays uint8), but the product of two of them is an array of int64 (`x + (2 * 3)` is
int64): so no numbers are folded, only True and False, and only where a truth value is expected.
`x & False` stays: its rows may be null, or fail. `filter True` stays where a take, skip or shuffle
above it would then reach the source, because cursors would have another form.

Law: `p & True = p`, `p | False = p`, `p ^ False = p`, `~~p = p` for a predicate p, whose values are
bool already.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silva.columns import Array, Constant
from silva.order.forms import cursor_form
from silva.plan import expr
from silva.plan.expr import show_term
from silva.plan.function import Function
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.operator import operator
from silva.plan.schema import COMPARISONS, LOGIC, PREDICATES, is_batched
from silva.plan.show import show_node
from silva.rewrite.rule import Rewrite, Rule

_NEUTRAL = {"and": True, "or": False, "xor": False}
_NUMBERS = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative",
    "absolute",
}  # fmt: skip


def apply(plan: Node) -> Rewrite:
    """The plan with constant conditions evaluated."""
    made = _folded_plan(plan, drops=True)
    return made if cursor_form(made.plan) == cursor_form(plan) else _folded_plan(plan, drops=False)


def _folded_plan(plan: Node, drops: bool) -> Rewrite:
    """The plan with constant conditions evaluated; with `drops`, without filters that keep every
    row."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Derive | Filter) or isinstance(node.step, Function):
            return node
        if is_batched(node):
            return node
        step = expr.rebuild(node.step, _folded)
        if isinstance(node, Filter):
            step = _truth(step)
            if drops and isinstance(step, expr.Literal) and step.value is True:
                notes.append(f"{show_node(node)} keeps every row")
                return node.input
        if step is node.step:
            return node
        notes.append(f"{show_term(node.step)} → {show_term(step)}")
        return replace(node, step=step)

    return Rewrite(transform(plan, change), tuple(notes))


def _folded(term: expr.Term) -> expr.Term:
    """A logical operator without its constant operands."""
    if not isinstance(term, expr.Call) or term.op not in LOGIC:
        return term
    args = tuple(_truth(arg) for arg in term.args)
    if any(new is not old for new, old in zip(args, term.args, strict=True)):
        term = replace(term, args=args)
    if term.op == "not":
        (inner,) = term.args
        if isinstance(inner, expr.Call) and inner.op == "not" and _is_predicate(inner.args[0]):
            return inner.args[0]
        return term
    for one, other in (term.args, term.args[::-1]):
        neutral = isinstance(one, expr.Literal) and one.value is _NEUTRAL[term.op]
        if neutral and _is_predicate(other):
            return other
    return term


def _is_predicate(term: expr.Term) -> bool:
    return isinstance(term, expr.Call) and term.op in PREDICATES


def _truth(term: expr.Term) -> expr.Term:
    """A predicate of constants as True or False; anything else as it is."""
    if not _is_predicate(term):
        return term
    found = _value(term)
    return expr.Literal(bool(found)) if isinstance(found, np.bool_) else term


def _value(term: expr.Term) -> np.generic | None:
    """The value that the operators compute from constants; None for a term that is not constant."""
    made: dict[int, Array] = {}
    for part in expr.walk(term):
        match part:
            case expr.Literal(bool() | int() | float() as value) if abs(value) < 1 << 53:
                made[id(part)] = Constant.of(value, 2)
            case expr.Call() if part.op in _NUMBERS | COMPARISONS | LOGIC:
                try:
                    with np.errstate(all="raise"):
                        args = [made[id(arg)] for arg in part.args]
                        made[id(part)] = operator(part.op).kernel(args, {}, None)
                except (ArithmeticError, TypeError, ValueError):
                    return None
            case _:
                return None
    found: np.generic = made[id(term)].data[0]
    return found


RULE = Rule(
    "fold_constants",
    apply,
    "it does not depend on the row",
    numeric=True,
    acts_on=expr.Call | expr.Literal,
)
