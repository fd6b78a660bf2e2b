"""What the steps of a served pipeline compute for one request, measured on sample requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.plan.expr import Call
from silva.serve.cluster.placement import Cost
from silva.serve.engine.units import Part, Unit, run_unit
from silva.serve.models.model import Model
from silva.serve.requests import checked, identity_of


def is_movable(unit: Unit) -> bool:
    """Whether a step may run elsewhere: it calls a function or a local model. Indices are open on
    the front, at one version; remote models and loops mostly wait, for which threads do."""
    if unit.loop is not None or not (unit.functions or unit.asks):
        return False
    return all(_is_local(call) for call in unit.asks)


def _is_local(call: Call) -> bool:
    ref = dict(call.params).get("model")
    model = None if ref is None else ref.model
    return isinstance(model, Model) and not hasattr(model, "price")


def costs_of(
    units: Sequence[Unit],
    names: Sequence[str],
    sample: Sequence[Mapping[str, Any]],
    context: Context,
) -> list[Cost]:
    """The costs of the steps that may run elsewhere: means over the sample, of which the first
    request is run once more before, since it opens models. Without a sample, they are unknown. A
    local model may compute in a process of its own, so its time counts; of a function, that of this
    process does."""
    rows = [checked(names, row) for row in sample]
    worker = Worker(shares_generators=False)
    spent = dict.fromkeys(units, 0.0)
    for number, row in enumerate([*rows[:1], *rows]):
        part = Part(identity_of(names, row), [dict(row)])
        for unit in units:
            clock = time.perf_counter if unit.asks else time.process_time
            began = clock()
            if part.rows and not part.lost:
                run_unit(unit, [part], context, worker)
            if number:
                spent[unit] += clock() - began
    return [
        Cost(unit.number, unit.label, spent[unit] / len(rows) if rows else None)
        for unit in units
        if is_movable(unit)
    ]
