"""Where the next gain is: how fast each step is alone, and what it would bring if it were free.

The pipeline is run for a while, and the latest inputs of each stage are kept. Then each step is run
alone on what reached it, on as many workers as its stage has: its stage rate. All rates are in rows
that come out of the pipeline, so that steps before and after a filter compare. What a free step
would bring to the trainer is predicted by `what_if`, from the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from html import escape
from typing import Any, Literal

from silva.columns import Block
from silva.errors import PlanError
from silva.facts.formatting import percent, rate, tidy, times, wrapped
from silva.facts.model import READ, ConsumerFacts, Limit, RunFacts, StageFacts, StepFacts
from silva.facts.plans import Segment, node_line
from silva.facts.text import bar, short
from silva.insight import html
from silva.insight.replay import (
    KeptInputs,
    StageReplay,
    Work,
    measure_rate,
    repeat,
    replay_stage,
)
from silva.insight.what_if import RecordedRun
from silva.io.source import may_hold
from silva.physical import plan as physical
from silva.physical.stage.batch_value import batch_value
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.plan import node as logical
from silva.run.flows.batch import fast_arrays

_ROUNDS = 3
"""Each step is measured in each round, and its best rate counts: other work on the machine only
makes a step slower."""
_READERS = 2
"""Threads that read a chunked source."""
_SCALED = (
    "Steps in processes were measured in one process, and multiplied by the number of processes."
)
_MEASURED = (
    "Stage rates are those of each step alone, on inputs of the run. Shares were measured in the "
    "run, and gains are predicted from it, as by what_if(…=0)."
)
_NO_STEPS = "No step could be run alone, because none was run: the rows came from a cache"
_BATCH = 64
"""Rows of a batch that does not have a fixed number of them."""

Resource = Literal["workers", "consumer", "readers"]
"""Steps on one resource run one after the other, those on different resources side by side."""


@dataclass(frozen=True)
class StepHeadroom:
    """A step measured alone."""

    label: str
    stage: str | None
    resource: Resource
    rows_per_second: float
    """Its stage rate: rows that come out of the pipeline, if all other steps were free."""
    share: float | None = None
    """Share of the workers' time in the run; None where it was not measured there."""
    gain: float | None = None
    """The speed-up that the trainer would see if only this step were free, as `what_if` predicts
    it; None where it was not measured in the run."""
    scaled: bool = False
    """Whether it was measured on one worker and multiplied by the number of processes."""


@dataclass(frozen=True)
class Headroom:
    """All steps of a pipeline, from the slowest to the fastest."""

    now: float
    """The rows per second that the trainer got."""
    limit: Limit
    """What limits them."""
    steps: tuple[StepHeadroom, ...]
    """Empty if no step has run: all rows came from a cache."""
    seconds: float
    """The time that the measurement took."""

    @property
    def lowest(self) -> StepHeadroom:
        """The slowest step: the next gain is here."""
        if not self.steps:
            raise PlanError(_NO_STEPS)
        return self.steps[0]

    def __str__(self) -> str:
        now = f"{rate(self.now)} now (limit: {self.limit.with_share})."
        if not self.steps:
            return "\n".join(wrapped(f"{now} {_NO_STEPS}."))
        lines = [
            *wrapped(f"{now} Each step alone:"),
            "",
            f"  {'stage rate':>12}  {'share of time':<17}  if free",
        ]
        for step in self.steps:
            share = f"{'':17}"
            if step.share is not None:
                share = f"{bar(step.share)} {percent(step.share):>6}"
            gain = "" if step.gain is None else times(step.gain)
            first = f"  {step.rows_per_second:>12,.0f}  {share}  {gain:>7}  "
            lines += wrapped(step.label, first, " " * (len(first) + 4))
        lines += ["", *wrapped(self._next), *wrapped(_MEASURED)]
        if any(step.scaled for step in self.steps):
            lines += wrapped(_SCALED)
        return "\n".join(lines)

    @property
    def _next(self) -> str:
        """A sentence about the next gain."""
        named, gain = short(self.lowest.label), self.lowest.gain
        if gain is None:
            return f"The slowest step is `{named}`."
        faster = f"{times(gain)} as fast" if gain > 1.005 else "no faster"
        return f"The next gain is in `{named}`: if it were free, the pipeline would be {faster}."

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "limit": str(self.limit),
            "share": self.limit.share,
            "seconds": self.seconds,
            "steps": [asdict(step) for step in self.steps],
            "lowest": self.lowest.label if self.steps else None,
        }

    def _repr_html_(self) -> str:
        rows = [
            (
                f"<code>{escape(step.label)}</code>",
                "" if step.share is None else html.bar(step.share),
                "" if step.share is None else percent(step.share),
                f"{step.rows_per_second:,.0f}",
                "" if step.gain is None else times(step.gain),
            )
            for step in self.steps
        ]
        head = ("step alone", "share of time", "", "stage rate", "if it were free")
        table = html.table(head, rows, measured=True)
        now = f"{rate(self.now)} now (limit: {self.limit.with_share})"
        note = _MEASURED if self.steps else f"{_NO_STEPS}."
        return html.fragment(html.panel("Headroom", table, now) + html.note(note))


def measure_headroom(
    facts: RunFacts, inputs: KeptInputs, context: Context, seconds: float
) -> Headroom:
    """Measures each step on the inputs that were kept of a run; takes half of `seconds`, the run
    took the other half."""
    consumer = facts.need_consumer(
        f"no row came out in {seconds / 2:g} s: allow more time with seconds=…"
    )
    tasks = _StepTasks(facts, consumer, inputs, context).of(facts.plan)
    each = seconds / 2 / max(len(tasks), 1) / _ROUNDS
    rounds = [[task.measure(each, facts.cores) for task in tasks] for _ in range(_ROUNDS)]
    best = [max(rates) for rates in zip(*rounds, strict=True)]
    steps = [task.headroom(rate) for task, rate in zip(tasks, best, strict=True) if rate]
    run = RecordedRun(facts)
    found = [in_run(step, facts, run) for step in steps]
    ordered = tuple(sorted(found, key=lambda step: step.rows_per_second))
    return Headroom(consumer.present_rate, run.limit, ordered, seconds)


def in_run(step: StepHeadroom, facts: RunFacts, run: RecordedRun) -> StepHeadroom:
    """The step with its share of the workers' time, and what it would bring if it were free."""
    stage = None if step.stage is None else facts.stage(step.stage)
    same = None if stage is None else _same_step(stage, step.label)
    if stage is None or same is None:
        return step
    total = sum(stage.totals.busy for stage in facts.stages) or 1.0
    share = same.share * stage.totals.busy / total
    return replace(step, share=share, gain=run.gain_if_free(stage, same))


def _same_step(stage: StageFacts, label: str) -> StepFacts | None:
    """The step of this label as it was measured in the run; reading has other labels there."""
    named = [step for step in stage.steps if step.label == label]
    reads = [step for step in stage.steps if step.id == READ and label.startswith("read ")]
    return next(iter(named + reads), None)


@dataclass(frozen=True, eq=False)
class _StepTask:
    """A step to be measured."""

    label: str
    stage: str | None
    resource: Resource
    work: Work
    threads: int
    factor: float
    """Rows that come out of the pipeline per row that reaches the step."""
    processes: int = 0

    def measure(self, seconds: float, cores: int) -> float:
        """Rows per second that come out of the pipeline."""
        times = min(self.processes, cores) if self.processes else 1
        return measure_rate(self.work, self.threads, seconds) * self.factor * times

    def headroom(self, rate: float) -> StepHeadroom:
        return StepHeadroom(self.label, self.stage, self.resource, rate, scaled=self.processes > 0)


class _StepTasks:
    """The steps of a plan, from the sources up."""

    def __init__(
        self, facts: RunFacts, consumer: ConsumerFacts, inputs: KeptInputs, context: Context
    ) -> None:
        self._facts, self._rows = facts, consumer.rows
        self._inputs, self._context = inputs, context
        self._replays: dict[str, StageReplay] = {}

    def of(self, plan: physical.PhysicalNode) -> list[_StepTask]:
        return list(self._of(plan, None))

    def _of(self, plan: physical.PhysicalNode, above: StageFacts | None) -> Iterator[_StepTask]:
        """`above` is the next stage above, which has counted its rows."""
        stage = self._facts.stage(plan.name) if isinstance(plan, Segment) else None
        for child in plan.inputs:
            yield from self._of(child, stage or above)
        match plan:
            case physical.ChunkedFeed() if above is None or self._receives_blocks(above):
                read = above.totals.rows_in if above is not None else self._rows
                yield from _reading(plan, self._rows / max(read, 1))
            case physical.Segment() | physical.BatchSegment() if stage is not None:
                yield from self._stage(plan, stage)
            case physical.Batch(input=physical.Segment() as below):
                yield from self._batch(plan, below)

    def _receives_blocks(self, stage: StageFacts) -> bool:
        """Whether the stage is given rows, and does not read them itself."""
        kept = self._inputs.of(stage.name)
        return not kept or isinstance(kept[0], Block)

    def _replay(self, node: Segment) -> StageReplay | None:
        kept = self._inputs.of(node.name)
        if kept and node.name not in self._replays:
            self._replays[node.name] = replay_stage(node.stage, kept, self._context)
        return self._replays.get(node.name)

    def _stage(self, node: Segment, stage: StageFacts) -> Iterator[_StepTask]:
        replay = self._replay(node)
        if replay is None:
            return
        of_batches = isinstance(node, physical.BatchSegment)
        onward = 1.0 if of_batches else self._rows / max(stage.totals.rows_out, 1)
        for step in replay.steps:
            if step.rows:
                yield _StepTask(
                    tidy(step.label),
                    stage.name,
                    "consumer" if stage.backend == "inline" else "workers",
                    step.work,
                    stage.workers if stage.backend == "threads" else 1,
                    replay.rows / step.rows * onward,
                    stage.workers if stage.backend == "processes" else 0,
                )

    def _batch(self, node: physical.Batch, below: physical.Segment) -> Iterator[_StepTask]:
        replay = self._replay(below)
        if replay is not None and replay.rows:
            work = repeat(replay.blocks, partial(_cut, node.spec))
            yield _StepTask(node_line(node), None, "consumer", work, 1, 1.0)


def _reading(feed: physical.ChunkedFeed, factor: float) -> Iterator[_StepTask]:
    source, columns = feed.read.source, feed.read.columns
    units = [u for u in range(source.units()) if may_hold(source, u, feed.conditions)]

    def work(turn: int, worker: Worker) -> Iterator[int]:
        for run in source.open(units[turn % len(units)], 0, columns):
            yield len(next(iter(run.values())))

    if units:
        label = f"read {', '.join(columns)} in chunks"
        yield _StepTask(label, None, "readers", work, min(_READERS, len(units)), factor)


def _cut(spec: logical.Batch, block: Block, worker: Worker) -> None:
    """Cuts a block into batches, as the consumer's thread does."""
    size = spec.size or _BATCH
    if spec.grouped or fast_arrays(block) is None:
        for at in range(0, len(block), size):
            batch_value(block.slice(at, at + size), spec.pad, spec.grouped)
