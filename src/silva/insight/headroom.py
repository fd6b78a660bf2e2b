"""Where the next gain is: how fast the pipeline would be if every step but one were free.

The pipeline is run for a while, and of each stage the latest blocks are kept as they arrive at each
step. Then each step is run alone on its blocks, as many at once as the stage has workers. All rates
are in rows that come out of the pipeline, so that a step before a filter and one after it compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Literal

from silva.columns import Block
from silva.errors import PlanError
from silva.insight.fragment import bar, fragment, rows_table
from silva.insight.nodes import node_line
from silva.insight.overall import Overall, overall
from silva.insight.replay import Inputs, Replay, StageReplay, Work, replay_stage, rows_a_second
from silva.insight.trial import trial
from silva.insight.words import percent, rate, tidy, times, wrapped
from silva.io.source import may_hold
from silva.physical import plan as physical
from silva.physical.batches import batch_value
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.profile.machine import Machine
from silva.run.flows.batch import fast_arrays
from silva.run.lane import Lane

_READERS = 2
"""Threads that read a chunked source."""
_BATCH = 64
"""Rows of a batch that is filled by other means than their number."""
_BAR = 10

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


@dataclass(frozen=True)
class Headroom:
    """Steps from the slowest to the fastest."""

    now: float
    """Rows a second that were measured."""
    steps: tuple[Alone, ...]
    seconds: float
    """That it took to find out."""

    @property
    def lowest(self) -> Alone:
        """The step that allows least: where the next gain is."""
        return self.steps[0]

    def __str__(self) -> str:
        lines = [
            f"{rate(self.now)} now. Each step alone, all others free:",
            "",
            f"  {'rows/s':>12}  {'share of all time':<17}  if free",
        ]
        for step in self.steps:
            full = round(step.share * _BAR)
            drawn = "█" * full + "░" * (_BAR - full)
            first = (
                f"  {step.rows_per_second:>12,.0f}  {drawn} {percent(step.share):>6}  "
                f"{times(step.gain):>7}  "
            )
            lines += wrapped(step.label, first, " " * (len(first) + 4))
        free = f"{times(self.lowest.gain)} as fast" if self.lowest.gain > 1.005 else "no faster"
        named = _short(self.lowest.label)
        lines += ["", *wrapped(f"The next gain is in `{named}`: were it free, {free}.")]
        if any(step.scaled for step in self.steps):
            lines.append("Steps in processes were measured on one, times their number.")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "seconds": self.seconds,
            "steps": [asdict(step) for step in self.steps],
            "lowest": self.lowest.label,
        }

    def _repr_html_(self) -> str:
        rows = [
            (
                f"<code>{escape(step.label)}</code>",
                bar(step.share),
                percent(step.share),
                f"{step.rows_per_second:,.0f}",
                times(step.gain),
            )
            for step in self.steps
        ]
        head = ("step, alone", "share of all time", "", "rows a second", "if it were free")
        said = f'<p class="note">{escape(rate(self.now))} now</p>'
        return fragment(f'<div class="panel"><h3>Headroom</h3>{said}{rows_table(head, rows)}</div>')


def _short(label: str) -> str:
    return label.partition("(")[0].partition("  [")[0].rstrip()


def headroom(loader: Any, seconds: float) -> Headroom:
    """Runs a loader for half of the time, and replays what came to its steps in the other half."""
    inputs = Inputs()
    loader._executor.keep = inputs.keep
    try:
        trial(loader, seconds / 2)
    finally:
        loader._executor.keep = None
    plan, executor = loader._lowered(), loader._executor
    found = overall(plan, executor)
    if found is None:
        raise PlanError(f"no row came out in {seconds / 2:g} s: give it more, seconds=…")
    jobs = _Jobs(executor.lanes, inputs, found, loader._context(loader.epoch)).of(plan)
    each = seconds / 2 / max(len(jobs), 1)
    steps = [alone for job in jobs if (alone := job.measured(each)) is not None]
    return Headroom(found.now, _compared(steps), seconds)


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

    def measured(self, seconds: float) -> Alone | None:
        found = rows_a_second(self.work, self.width, seconds) * self.factor
        if not found:
            return None
        scaled = self.processes > 0
        times = min(self.processes, Machine.here().cpus) if scaled else 1
        return Alone(self.label, self.stage, self.resource, found * times, scaled=scaled)


class _Jobs:
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
            case physical.ChunkedFeed():
                came = above.stats.rows_in if above is not None else self._found.rows
                yield from _reading(plan, self._found.rows / max(came, 1))
            case physical.Segment() | physical.BatchSegment() if lane is not None:
                yield from self._stage(plan, lane)
            case physical.Batch(input=physical.Segment() as below):
                yield from self._batch(plan, below)

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
            work = _batching(replayed.blocks, node.spec.size or _BATCH, node.spec.pad)
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
    units = [u for u in range(feed.source.units()) if may_hold(feed.source, u, feed.conditions)]

    def work(turn: int, worker: Worker) -> Iterator[int]:
        for run in feed.source.open(units[turn % len(units)], 0, feed.columns):
            yield len(next(iter(run.values())))

    if units:
        label = f"read {', '.join(feed.columns)} in chunks"
        yield _Job(label, None, "readers", work, min(_READERS, len(units)), factor)


def _batching(blocks: list[Block], size: int, pad: Any) -> Work:
    """What the consumer's own thread does: cutting blocks into batches."""

    def work(turn: int, worker: Worker) -> Iterator[int]:
        block = blocks[turn % len(blocks)]
        if fast_arrays(block) is None:
            for at in range(0, len(block), size):
                batch_value(block.slice(at, at + size), pad)
        yield len(block)

    return work


def _compared(steps: list[Alone]) -> tuple[Alone, ...]:
    """From the slowest to the fastest, with what each would bring."""
    times = [1 / step.rows_per_second for step in steps]
    whole = _slowest(steps, times) or 1.0
    found = [
        replace(
            step,
            share=spent / (sum(times) or 1.0),
            gain=whole / max(_slowest(steps, [*times[:i], 0.0, *times[i + 1 :]]), 1e-12),
        )
        for i, (step, spent) in enumerate(zip(steps, times, strict=True))
    ]
    return tuple(sorted(found, key=lambda step: step.rows_per_second))


def _slowest(steps: list[Alone], times: list[float]) -> float:
    """Seconds for a row: steps of one resource add up, and the resource that takes longest
    counts."""
    spent: dict[str, float] = {}
    for step, seconds in zip(steps, times, strict=True):
        spent[step.resource] = spent.get(step.resource, 0.0) + seconds
    return max(spent.values(), default=0.0)
