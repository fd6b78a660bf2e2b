"""All stages of a loader together: rows for each row that the consumer gets, and what limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from silva.optimize.system import Loaded, Throughput, throughput
from silva.physical import plan as physical
from silva.run.executor import Executor
from silva.run.forecast import LIMITS
from silva.run.lane import Lane


@dataclass(frozen=True)
class Overall:
    """What the consumer of a loader got so far."""

    rows: int
    seconds: float
    waited: float
    """Seconds of these in which it waited."""
    consumer: float
    """Seconds that it takes for a row itself: batching, and what the loop does."""
    stages: tuple[Loaded, ...]
    settled: float | None = None
    """Rows a second since the stages are where they are; None where that is not known."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def now(self) -> float:
        """Rows a second, without the time that workers took to start where that can be told."""
        return self.settled or self.rows_per_second

    @property
    def limits(self) -> bool:
        """The stages are what limits, not the loop that reads them."""
        return self.waited > LIMITS * self.seconds

    def model(self, cores: int) -> Throughput:
        """What the cost model makes of the same loads."""
        return throughput(self.stages, cores, self.consumer)


def overall(plan: Any, executor: Executor) -> Overall | None:
    """None where nothing was run yet."""
    lanes = lanes_of(plan, executor)
    tops = [lane for lane in _tops(plan, executor) if lane.stats.blocks]
    rows = sum(lane.stats.rows_out for lane in tops)
    if not rows:
        return None
    seconds = max(lane.stats.elapsed for lane in lanes)
    inline = sum(lane.stats.busy for lane in lanes if lane.backend == "inline")
    waited = sum(lane.stats.starved for lane in lanes) + inline
    own = max(seconds - waited, 0.0)
    stages = tuple(part for lane in lanes for part in _loaded(lane, lane.stats.rows_in / rows))
    return Overall(rows, seconds, min(waited, seconds), own / rows, stages, _settled(lanes, rows))


def _loaded(lane: Lane, rows: float) -> list[Loaded]:
    """A stage, or its parts where it is cut in two."""
    parts = lane.cutting.parts(lane.stats)
    if parts is None:
        return [Loaded(lane.name, lane.average(), lane.backend, lane.workers, rows)]
    return [
        Loaded(lane.name, load, backend, lane.workers, rows, number)
        for number, (load, backend) in enumerate(zip(parts, lane.backends, strict=True))
    ]


def _settled(lanes: list[Lane], rows: int) -> float | None:
    top = max(lanes, key=lambda lane: lane.stats.elapsed)
    first = top.forecasts.first
    seen = None if first is None or first.backend == "inline" else first.seen(top.counters)
    return None if seen is None else seen.rows_per_second * rows / max(top.stats.rows_in, 1)


def lanes_of(plan: Any, executor: Executor) -> list[Lane]:
    """The stages of a plan that have run, from the sources up."""
    found = [lane for child in physical.inputs(plan) for lane in lanes_of(child, executor)]
    lane = executor.lanes.get(getattr(plan, "name", ""))
    return [*found, lane] if lane is not None and lane.stats.blocks else found


def _tops(plan: Any, executor: Executor) -> Iterator[Lane]:
    """Of each branch the stage of rows that is nearest to the consumer."""
    if isinstance(plan, physical.Segment):
        if plan.name in executor.lanes:
            yield executor.lanes[plan.name]
        return
    for child in physical.inputs(plan):
        yield from _tops(child, executor)
