"""Computes derived columns of rows that are in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from silva.columns import Column
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Call, CallColumns, Evaluate
from silva.plan.function import Function, Step


def compute(
    step: Step, into: tuple[str, ...], columns: Mapping[str, Column], count: int, worker: Worker
) -> dict[str, Column]:
    """The columns that a step makes of `count` rows; raises what the step raises on the first bad
    row."""
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
