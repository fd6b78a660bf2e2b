"""What a verb is given, checked and made a part of a plan."""

from __future__ import annotations

from typing import Any

from silva.errors import PlanError
from silva.operators.from_text import as_function
from silva.plan import node as logical
from silva.plan.expr import Expr, width
from silva.plan.expr import Literal as Constant
from silva.plan.function import Stateful, describe, locate, read_function
from silva.plan.schema import columns
from silva.plan.traits import step_reads


class Weights:
    """One weight a row, given as numbers."""

    def __init__(self, values: Any) -> None:
        import numpy as np

        self.values = np.asarray(values, dtype=np.float64)
        if self.values.ndim != 1:
            raise PlanError("sample(weights=…) takes a column's name or one number a row")

    def __repr__(self) -> str:
        return f"{len(self.values)} numbers"


def groups_of(grouped: Any) -> tuple[tuple[str, ...], ...]:
    """Groups of names, from a name, the names of one group, or several groups."""
    if isinstance(grouped, str):
        grouped = (grouped,)
    if all(isinstance(name, str) for name in grouped):
        grouped = (grouped,) if grouped else ()
    groups = tuple((group,) if isinstance(group, str) else tuple(group) for group in grouped)
    names = [name for group in groups for name in group]
    if not all(groups) or len(set(names)) < len(names):
        raise PlanError(f"batch(grouped=…) takes different columns, in groups, not {grouped!r}")
    return groups


class Pad(dict[str, Any]):
    """Pad values by column, hashable so that plans can be compared."""

    @staticmethod
    def of(pad: Any) -> Any:
        return Pad(pad) if isinstance(pad, dict) else pad

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def derived(plan: logical.Node, names: tuple[str, ...], step: Any, reads: Any) -> logical.Node:
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


def as_step(plan: logical.Node, step: Any, reads: Any) -> logical.Step:
    there = columns(plan)
    if isinstance(step, Expr):
        missing = [n for n in step_reads(step.term) if n not in there]
        if missing:
            raise PlanError(
                f"the expression {step!r} reads {missing[0]!r}, but the columns here are "
                f"{', '.join(map(repr, there)) or '(none)'}"
            )
        return step.term
    step = as_function(step)
    if callable(step) or isinstance(step, Stateful):
        if isinstance(step, type):
            raise PlanError(
                f"{describe(step)} ({locate(step)}) is a class: give an instance, or mark it with "
                "@sv.stateful and give Class(…)"
            )
        return read_function(step, there, reads)
    if isinstance(step, bool | int | float | str | bytes):
        return Constant(step)
    raise PlanError(f"a step is a function or an expression such as sv.col('x') + 1, not {step!r}")


def step_id(plan: logical.Node, name: str) -> str:
    """Its output and how often that was written before: survives rewrites, so draws do too."""
    before = sum(getattr(node, "id", "").rpartition("#")[0] == name for node in logical.walk(plan))
    return f"{name}#{before}"


def natural(what: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PlanError(f"{what} takes a whole number from {least} up, not {value!r}")
    return value
