"""Checks the arguments of verbs and turns them into parts of a plan."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from silva.errors import PlanError
from silva.operators.from_text import as_function
from silva.plan import node as logical
from silva.plan.arguments import names_of
from silva.plan.class_tags import named
from silva.plan.expr import Expr, width
from silva.plan.expr import Literal as Constant
from silva.plan.function import Stateful, Step, describe, locate, read_function
from silva.plan.open import Open
from silva.plan.schema import columns, step_reads, verify_comparisons


@named("Weights")
class Weights:
    """One weight per row, passed as numbers."""

    def __init__(self, values: Any) -> None:
        import numpy as np

        from silva.columns.column import is_masked_array

        if is_masked_array(values) and np.ma.is_masked(values):
            raise PlanError("sample(weights=…) needs one number per row: some rows have none")
        try:
            self.values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            self.values = np.empty(())
        if self.values.ndim != 1:
            raise PlanError(
                "sample(weights=…) takes a column's name or one number per row; derive computed "
                "weights first: derive(w=…).sample('w')"
            )

    def __repr__(self) -> str:
        return f"{len(self.values)} numbers"


def groups_of(grouped: Any) -> tuple[tuple[str, ...], ...]:
    """Returns groups of column names, given a name, the names of one group, or several groups."""
    if isinstance(grouped, str):
        grouped = (grouped,)
    if not isinstance(grouped, Sequence):
        raise PlanError(f"batch(grouped=…) takes columns, in groups, not {grouped!r}")
    if all(isinstance(name, str) for name in grouped):
        grouped = (grouped,) if grouped else ()
    groups = tuple(names_of("batch(grouped=…)", group) for group in grouped)
    names = [name for group in groups for name in group]
    if not all(groups) or len(set(names)) < len(names):
        raise PlanError(f"batch(grouped=…) takes different columns, in groups, not {grouped!r}")
    return groups


class PadValues(dict[str, Any]):
    """Pad values by column; hashable, so that plans can be compared."""

    @staticmethod
    def of(pad: Any) -> Any:
        if isinstance(pad, bool):
            raise PlanError(
                f"pad= takes the value that fills up shorter rows, such as 0, not {pad!r}; for a "
                f"column of booleans, name it: pad={{'x': {pad!r}}}"
            )
        return PadValues(pad) if isinstance(pad, dict) else pad

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def add_derive(
    plan: logical.Node, names: tuple[str, ...], step: object, reads: Any
) -> logical.Node:
    """Returns the plan with one more `Derive`."""
    for name in names:
        if not name or not isinstance(name, str):
            raise PlanError(f"a column's name is a non-empty string, not {name!r}")
    if not names or len(set(names)) < len(names):
        raise PlanError(f"derive makes different columns, not {names}")
    if isinstance(step, Expr) and width(step.term) != len(names):
        raise PlanError(
            f"the expression {step!r} makes {width(step.term)} column(s), not {len(names)}: name "
            'them all, derive(…, into=("image", "boxes"))'
        )
    return logical.Derive(plan, as_step(plan, step, reads), names, step_id(plan, ",".join(names)))


def condition_of(plan: logical.Node, step: object, reads: Any) -> Step:
    """Returns the step of a `filter`. A constant is refused, because any text would be true."""
    if isinstance(step, Expr | Stateful | Open) or callable(step):
        return as_step(plan, step, reads)
    name = next(iter(_columns_named_in(step, columns(plan))), "x")
    raise PlanError(
        f"filter takes an expression such as sv.col({name!r}) > 3 or a function such as "
        f"lambda {name if name.isidentifier() else 'x'}: …, not {step!r}"
    )


def as_step(plan: logical.Node, step: object, reads: Any) -> Step:
    """Returns a function, expression or constant as a step that reads columns of the plan."""
    there = columns(plan)
    if isinstance(step, Open):
        return step.as_step(lambda one: as_step(plan, one, reads))
    if isinstance(step, Expr):
        missing = [n for n in step_reads(step.term) if n not in there]
        if missing:
            raise PlanError(
                f"the expression {step!r} reads {missing[0]!r}, but the columns here are "
                f"{', '.join(map(repr, there)) or '(none)'}"
            )
        verify_comparisons(plan, step.term)
        return step.term
    if not callable(step):
        step = as_function(step)
    if callable(step) or isinstance(step, Stateful):
        if isinstance(step, type):
            raise PlanError(
                f"{describe(step)} ({locate(step)}) is a class: pass an instance, or mark it with "
                "@sv.stateful and pass Class(…)"
            )
        return read_function(step, there, reads)
    for name in _columns_named_in(step, there):
        raise PlanError(
            f"{step!r} is text, and would be the same text in every row: for the column write "
            f"sv.col({name!r}) or lambda {name}: …; for the text itself, lambda: {step!r}"
        )
    if isinstance(step, bool | int | float | str | bytes):
        return Constant(step)
    raise PlanError(f"a step is a function or an expression such as sv.col('x') + 1, not {step!r}")


def _columns_named_in(step: object, there: tuple[str, ...]) -> list[str]:
    """Returns the columns that a text names, if it reads like an expression."""
    if not isinstance(step, str):
        return []
    if step in there:
        return [step]
    try:
        found = ast.walk(ast.parse(step, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = {node.id for node in found if isinstance(node, ast.Name)}
    return [name for name in there if name in names]


def step_id(plan: logical.Node, name: str) -> str:
    """Returns the id of a new step: its output, and how often that was written before. Rewrites
    keep it, and so its random draws stay the same."""
    before = sum(getattr(node, "id", "").rpartition("#")[0] == name for node in logical.walk(plan))
    return f"{name}#{before}"
