"""A derived column, computed here and now, of the rows at hand."""

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
    step: Step, name: str, columns: Mapping[str, Column], count: int, worker: Worker
) -> Column:
    """The column that a step makes of so many rows of others; raises what the step raises on the
    first bad row."""
    rows = Rows(Context(0, 0), dict(columns), np.arange(count, dtype=np.uint64), None, count)
    made: Evaluate | Call | CallColumns
    if isinstance(step, Function):
        kind = CallColumns if step.marks.batched else Call
        made = kind(step, (name,), name)
    else:
        made = Evaluate(step, (name,), name)
    made.apply(rows, worker)
    for failure in rows.failures:
        raise failure.cause or ValueError(failure.error)
    return rows.columns[name]
