"""A replica: one step on a core of the cluster, for the requests that the front sends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import cloudpickle

from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.stage import Stage
from silva.run.pools.pickling import pickle_stage
from silva.serve.engine.units import Effect, Part, Unit, effects
from silva.serve.engine.warm import open_all
from silva.serve.tenant import Tenant, acting_for


class Replica:
    """Runs a step on batches, one at a time."""

    def __init__(self, stage: bytes, context: Context) -> None:
        loaded: Stage = cloudpickle.loads(stage)
        self._unit = Unit(0, loaded.steps[0], frozenset())
        self._context = context
        self._worker = Worker(shares_generators=False, answers=True)
        self._lock = threading.Lock()
        self._held = open_all(self._unit.asks)

    def run(self, parts: Sequence[Part], tenant: str) -> Sequence[Effect]:
        """What the step makes of each request."""
        with self._lock, acting_for(Tenant(tenant)):
            return effects(self._unit, parts, self._context, self._worker)


def pickled_step(unit: Unit) -> bytes:
    """The step of a unit, for `Replica`. A `PicklingError` names the variable at fault."""
    return pickle_stage(Stage((unit.step,)))


def sent(parts: Sequence[Part], unit: Unit) -> list[Part]:
    """The requests with the columns that the step reads, and nothing else of them."""
    reads = unit.step.reads
    return [
        Part(
            part.identity,
            [row if reads is None else {n: row[n] for n in sorted(reads)} for row in part.rows],
            part.places,
        )
        for part in parts
    ]
