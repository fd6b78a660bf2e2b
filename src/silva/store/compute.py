"""Derived columns, computed here and now, of the rows at hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silva.columns import Column
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.rows import Rows
from silva.physical.steps import Call, CallColumns, Evaluate
from silva.plan.function import Function
from silva.plan.node import Step


def compute(
    step: Step, into: tuple[str, ...], columns: Mapping[str, Column], count: int, worker: Worker
) -> dict[str, Column]:
    """The columns that a step makes of so many rows of others; raises what the step raises on the
    first bad row."""
    rows = Rows(Context(0, 0), dict(columns), np.arange(count, dtype=np.uint64), None, count)
    made: Evaluate | Call | CallColumns
    if isinstance(step, Function):
        kind = CallColumns if step.marks.batched else Call
        made = kind(step, into, ",".join(into))
    else:
        made = Evaluate(step, into, ",".join(into))
    made.apply(rows, worker)
    for failure in rows.failures:
        raise failure.cause or ValueError(failure.error)
    return {name: rows.columns[name] for name in into}
