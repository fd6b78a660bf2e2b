"""Each step of a plan as work that can be measured alone, on blocks that came to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from silva.columns import Block
from silva.insight.nodes import node_line
from silva.insight.overall import Overall
from silva.insight.repeat import Work, rows_a_second
from silva.insight.replay import Inputs, Replay, StageReplay, replay_stage
from silva.insight.words import tidy
from silva.io.source import may_hold
from silva.physical import plan as physical
from silva.physical.batch_value import batch_value
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.plan import node as logical
from silva.profile.machine import Machine
from silva.run.flows.batch import fast_arrays
from silva.run.lane import Lane

_READERS = 2
"""Threads that read a chunked source."""
_BATCH = 64
"""Rows of a batch that is filled by other means than their number."""

Resource = Literal["workers", "consumer", "readers"]
"""Who does it: steps of one resource take turns, different resources work side by side."""


@dataclass(frozen=True)
class Alone:
    """A step as it would be if all others were free."""

    label: str
    stage: str | None
    resource: Resource
    rows_per_second: float
    """Of the rows that come out of the pipeline."""
    share: float = 0.0
    """Of the time of all steps."""
    gain: float = 1.0
    """How many times as fast the pipeline would be if just this step were free."""
    scaled: bool = False
    """Measured on one worker, times the number of processes: they do not get in each other's way
    but for the cores."""


@dataclass(frozen=True, eq=False)
class _Job:
    """A step to be measured."""

    label: str
    stage: str | None
    resource: Resource
    work: Work
    width: int
    factor: float
    """Rows that come out of the pipeline for each that comes to the step."""
    processes: int = 0
    """Of a stage in processes, how many."""

    def rate(self, seconds: float) -> float:
        """Rows a second that come out of the pipeline, measured for so long."""
        times = min(self.processes, Machine.here().cpus) if self.processes else 1
        return rows_a_second(self.work, self.width, seconds) * self.factor * times

    def alone(self, rate: float) -> Alone:
        return Alone(self.label, self.stage, self.resource, rate, scaled=self.processes > 0)


class Jobs:
    """The steps of a plan, from the sources up."""

    def __init__(
        self, lanes: dict[str, Lane], inputs: Inputs, found: Overall, context: Context
    ) -> None:
        self._lanes, self._inputs, self._found, self._context = lanes, inputs, found, context
        self._replays: dict[str, StageReplay] = {}

    def of(self, plan: Any) -> list[_Job]:
        return list(self._of(plan, None))

    def _of(self, plan: Any, above: Lane | None) -> Iterator[_Job]:
        """`above` is the next stage, of which it is known how many rows came to it."""
        lane = self._lanes.get(getattr(plan, "name", ""))
        for child in physical.inputs(plan):
            yield from self._of(child, lane or above)
        match plan:
            case physical.ChunkedFeed() if above is None or self._is_given_blocks(above):
                came = above.stats.rows_in if above is not None else self._found.rows
                yield from _reading(plan, self._found.rows / max(came, 1))
            case physical.Segment() | physical.BatchSegment() if lane is not None:
                yield from self._stage(plan, lane)
            case physical.Batch(input=physical.Segment() as below):
                yield from self._batch(plan, below)

    def _is_given_blocks(self, lane: Lane) -> bool:
        """Whether others read for a stage, and not its workers."""
        kept = self._inputs.kept.get(lane.name, ())
        return not kept or isinstance(kept[0], Block)

    def _replayed(self, node: Any) -> StageReplay | None:
        kept = list(self._inputs.kept.get(node.name, ()))
        if kept and node.name not in self._replays:
            self._replays[node.name] = replay_stage(node.stage, kept, self._context)
        return self._replays.get(node.name)

    def _stage(self, node: Any, lane: Lane) -> Iterator[_Job]:
        replayed = self._replayed(node)
        if replayed is None:
            return
        of_batches = isinstance(node, physical.BatchSegment)
        onward = 1.0 if of_batches else self._found.rows / max(lane.stats.rows_out, 1)
        for step in replayed.steps:
            if step.rows:
                yield _step_job(step, lane, replayed.rows / step.rows * onward)

    def _batch(self, node: physical.Batch, below: physical.Segment) -> Iterator[_Job]:
        replayed = self._replayed(below)
        if replayed is not None and replayed.rows:
            work = _batching(replayed.blocks, node.spec)
            yield _Job(node_line(node), None, "consumer", work, 1, 1.0)


def _step_job(step: Replay, lane: Lane, factor: float) -> _Job:
    inline = lane.backend == "inline"
    threads = lane.backend == "threads"
    return _Job(
        tidy(step.label),
        lane.name,
        "consumer" if inline else "workers",
        step.work,
        lane.workers if threads else 1,
        factor,
        lane.workers if lane.backend == "processes" else 0,
    )


def _reading(feed: physical.ChunkedFeed, factor: float) -> Iterator[_Job]:
    source, columns = feed.read.source, feed.read.columns
    units = [u for u in range(source.units()) if may_hold(source, u, feed.conditions)]

    def work(turn: int, worker: Worker) -> Iterator[int]:
        for run in source.open(units[turn % len(units)], 0, columns):
            yield len(next(iter(run.values())))

    if units:
        label = f"read {', '.join(columns)} in chunks"
        yield _Job(label, None, "readers", work, min(_READERS, len(units)), factor)


def _batching(blocks: list[Block], spec: logical.Batch) -> Work:
    """What the consumer's own thread does: cutting blocks into batches."""
    size = spec.size or _BATCH

    def work(turn: int, worker: Worker) -> Iterator[int]:
        block = blocks[turn % len(blocks)]
        if spec.grouped or fast_arrays(block) is None:
            for at in range(0, len(block), size):
                batch_value(block.slice(at, at + size), spec.pad, spec.grouped)
        yield len(block)

    return work
