"""Collects the facts about a loader: the only place that reads them from planner and executor."""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace

from silva.cost.costs import Cost
from silva.cost.experiment import Experiment
from silva.cost.machine import Machine
from silva.cost.model import Backend, Placed, most_rows, predict
from silva.cost.trace import Span, Trace
from silva.facts.formatting import plural, tidy
from silva.facts.loop import LoopFacts
from silva.facts.model import (
    READ,
    ConsumerFacts,
    ForecastFacts,
    OperatorFacts,
    PlanningFacts,
    RunFacts,
    StageFacts,
    StageTotals,
    StepFacts,
    pick,
)
from silva.facts.plans import late_label, segments, shown_labels, step_labels, steps_of
from silva.physical.plan import PhysicalNode, Segment
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import Keep, RowStep, Spread
from silva.plan.decision import Decision, Quantity
from silva.plan.function import Function
from silva.plan.node import Derive, Filter, MapRows, Node
from silva.planner.compare_blocks import Difference
from silva.planner.planner import Planner
from silva.rewrite.rule import Outcome
from silva.run.executor import Executor
from silva.run.failures import Failures
from silva.run.placement.lane import Lane

_TOTALS = " ".join(field.name for field in fields(StageTotals))
_EXCLUDED: dict[Backend, str] = {
    "inline": "not compared",
    "threads": "not possible: a function draws from a global random generator",
    "processes": "not tried: their start takes longer than they could save",
}
"""Why no rate was predicted for a backend."""
_DIFFERENCES = (
    "the difference between the plan as run and the plan as written, on rows that were compared"
)


def collect_facts(
    written: Node,
    planner: Planner,
    executor: Executor,
    *,
    loop: LoopFacts,
    epoch: int,
    failures: Failures,
) -> RunFacts:
    """Collects what is known at this moment."""
    plan = planner.physical()
    lanes = _lanes(plan, executor)
    changes = [*planner.chooser.history, *(move for lane in lanes for move in lane.changes)]
    return RunFacts(
        written=written,
        plan=plan,
        decisions=_decisions(planner, lanes),
        history=tuple(sorted(changes, key=lambda change: change.after)),
        backend=executor.backend,
        workers=executor.workers,
        cores=Machine.here().cpus,
        stages=tuple(map(stage_facts, lanes)),
        consumer=_consumer(plan, lanes),
        empty_filter=_empty_filter(lanes),
        loop=loop,
        epoch=epoch,
        failures=tuple(failures.kept),
        failed=failures.total,
        planning=_planning(planner, lanes),
    )


def _planning(planner: Planner, lanes: list[Lane]) -> PlanningFacts:
    stats = [lane.stats for lane in lanes]
    own = max((one.own_cpu for one in stats), default=0.0)
    spent = sum(one.cpu for one in stats) + own
    return PlanningFacts(**planner.planning._asdict(), cpu=spent)


def _lanes(plan: PhysicalNode, executor: Executor) -> list[Lane]:
    """The lanes of the plan's stages that have run, from the sources up."""
    found = (executor.lanes.get(segment.name) for segment in segments(plan))
    return [lane for lane in found if lane is not None and lane.stats.blocks]


def _decisions(planner: Planner, lanes: list[Lane]) -> tuple[Decision, ...]:
    gains = [
        lane.earlier.seconds / lane.average().seconds
        for lane in lanes
        if lane.earlier is not None and lane.average().seconds
    ]
    made, checked = planner.outcomes, (planner.unchecked, planner.deviations)
    choices, rejected = planner.chooser.present.choices, planner.chooser.rejected
    return decisions(made, choices, rejected, gains, *checked, planner.chooser.cache_gain)


# Why the plan as run differs from the plan as written.


def decisions(
    outcomes: Iterable[Outcome],
    choices: Iterable[Decision],
    rejected: Iterable[Decision],
    gains: Sequence[float] = (),
    unchecked: Collection[str] = (),
    differences: Iterable[Difference] = (),
    cache_gain: Experiment[str] | None = None,
) -> tuple[Decision, ...]:
    """All decisions about a plan.

    `gains` are the measured speed-ups of stages whose steps changed while they ran. `unchecked`
    are rules whose result is still to be compared with the plan as written, `differences` what that
    comparison found for close rules. `cache_gain` is the speed-up by a cache.
    """
    found = [_rule(outcome, unchecked) for outcome in outcomes]
    measured = gains[0] if len(gains) == 1 else None
    found += [_choice(choice, measured, cache_gain) for choice in choices]
    lines = tuple(map(str, differences))
    if lines:
        found.append(Decision("close", _DIFFERENCES, kind="check", notes=lines))
    return (*found, *rejected)


def _rule(outcome: Outcome, unchecked: Collection[str]) -> Decision:
    rule, why = outcome.rule, outcome.why
    pending = outcome.applied and rule.name in unchecked
    if pending:
        why = "it is checked on real rows first"
    notes = tuple(map(tidy, outcome.notes))
    return Decision(rule.name, rule.reason, kind="rule", notes=notes, why_not=why, pending=pending)


def _choice(
    choice: Decision, order_gain: float | None, cache_gain: Experiment[str] | None
) -> Decision:
    """A choice of the search, with what was measured."""
    made = replace(choice, notes=tuple(map(tidy, choice.notes)))
    if made.default is None:
        return made
    base = made.default.value
    if made.what == "order" and order_gain is not None:
        return replace(made, measured=Quantity(base * order_gain))
    measured = None if cache_gain is None else cache_gain.measured_gain
    if made.what != "cache" or cache_gain is None or measured is None:
        return made
    predicted = Quantity(base * cache_gain.predicted_gain)
    return replace(made, predicted=predicted, measured=Quantity(base * measured))


# All stages together.


def _consumer(plan: PhysicalNode, lanes: list[Lane]) -> ConsumerFacts | None:
    top = set(_top_stages(plan))
    rows = sum(lane.stats.rows_out for lane in lanes if lane.name in top)
    if not rows:
        return None
    seconds = max(lane.stats.elapsed for lane in lanes)
    waited = sum(lane.stats.starved + lane.stats.inline for lane in lanes)
    stages = tuple(
        Placed(lane.name, lane.average(), lane.backend, _count(lane), lane.stats.rows_in / rows)
        for lane in lanes
    )
    own = max(seconds - waited, 0.0) / rows
    loop = lanes[-1].stats  # the consumer of the others is the stage after them
    own_cpu = min(loop.own_cpu / rows, own)
    queued = min(loop.own_queued / rows, own - own_cpu)
    waited, steady = min(waited, seconds), _steady(lanes, rows)
    return ConsumerFacts(rows, seconds, waited, own, stages, steady, own_cpu, queued)


def run_trace(plan: PhysicalNode, executor: Executor) -> Trace:
    """The latest blocks of each stage, and what the loop did between them, from 0 s on."""
    lanes = _lanes(plan, executor)
    spans = [
        Span(f"{plural(block.rows, 'row')}", f"{lane.name} ({block.backend})", *block[:3])
        for lane in lanes
        for block in lane.worked
    ]
    if lanes:
        spans += [Span("the loop", "the loop", *times) for times in lanes[-1].looped]
    zero = min((span.start for span in spans), default=0.0)
    moved = (s._replace(start=s.start - zero, end=s.end - zero) for s in spans)
    return Trace(tuple(sorted(moved, key=lambda span: span.start)))


def _top_stages(plan: PhysicalNode) -> Iterator[str]:
    """The stage of rows nearest to the consumer, of each branch."""
    if isinstance(plan, Segment):
        yield plan.name
        return
    for child in plan.inputs:
        yield from _top_stages(child)


def _steady(lanes: list[Lane], rows: int) -> float | None:
    top = max(lanes, key=lambda lane: lane.stats.elapsed)
    pace = top.steady_pace
    return None if pace is None else pace * rows / max(top.stats.rows_in, 1)


# One stage.


def stage_facts(lane: Lane) -> StageFacts:
    """Everything that is known about one stage."""
    stats, rows = lane.stats, max(lane.stats.rows_in, 1)
    inline = lane.backend == "inline"
    return StageFacts(
        name=lane.name,
        backend=lane.backend,
        workers=0 if inline else _count(lane),
        width=0 if inline else lane.width.now,
        asked_for=lane.forced is not None,
        reason=_reason(lane),
        totals=StageTotals(**pick(stats, _TOTALS)),
        load=lane.average(),
        alone=lane.alone,
        earlier=None if lane.earlier is None else lane.earlier.seconds,
        bytes_in=_bytes_in(lane),
        from_disk=stats.came.disk / rows,
        from_network=stats.came.network.nbytes / rows,
        forecast=_forecast(lane),
        errors=tuple(lane.forecasts.errors(lane.counters)),
        steps=tuple(_steps(lane)),
        decisions=tuple(_placements(lane)),
        block_rows=lane.blocks.next_rows(),
        epoch_rows=lane.epoch_rows,
        all_rows=None if lane.rows_left is None else stats.rows_in + lane.rows_to_come,
        shares_generators=lane.shares_generators,
        settled=lane.settled,
    )


def _placements(lane: Lane) -> Iterator[Decision]:
    """Where a stage runs and how wide, and what that was compared with."""
    yield from _backends(lane)
    if lane.backend != "inline":
        width = f"{lane.width.now} of {_count(lane)} workers"
        why = lane.growth.note or "as many as the demand of the loop needs"
        yield Decision(width, why, kind="width")
    if lane.offload is not None:
        where = "ray" if lane.backend == "ray" else "local"
        yield Decision(where, lane.offload.status, kind="cluster")


def _backends(lane: Lane) -> Iterator[Decision]:
    """The backend in use, and those that it was compared with."""
    cores, work = Machine.here().cpus, lane.alone or lane.average()
    alone = predict([Placed(lane.name, work, "inline", 0)], cores).rows_per_second
    made, tried = _forecast(lane), lane.compared
    predicted, measured = (None, None) if made is None else (made.predicted, made.measured)
    if tried is not None:
        alone = tried.seen[tried.default]
    if tried is not None and lane.backend != "ray":  # of which the forecast alone knows
        predicted = tried.promised.get(lane.backend)
        measured = tried.seen.get(lane.backend, measured)
    used = Decision(
        lane.backend,
        _reason(lane),
        predicted=_quantity(predicted),
        measured=_quantity(measured),
        bound=Quantity(most_rows(work, cores)),
        default=Quantity(alone),
        kind="backend",
    )
    yield used
    if tried is None:
        return
    every: tuple[Backend, ...] = ("inline", "threads", "processes")
    for backend in every:
        if backend == lane.backend:
            continue
        predicted, measured = tried.promised.get(backend), tried.seen.get(backend)
        why_not = _EXCLUDED[backend]
        if measured is not None:
            why_not = "slower"
        elif predicted is not None:
            why_not = "not tried: it was not expected to be faster"
        yield replace(
            used,
            what=backend,
            why="another backend for the stage",
            predicted=_quantity(predicted),
            measured=_quantity(measured),
            why_not=why_not,
        )


def _quantity(rows_per_second: float | None) -> Quantity | None:
    return None if rows_per_second is None else Quantity(rows_per_second)


def _reason(lane: Lane) -> str:
    if lane.forced is None and lane.workers == 0:
        return "no workers were requested"
    if not lane.decided:
        return "too few rows have been measured to choose"
    more = [lane.growth.note, "" if lane.offload is None else lane.offload.status]
    return "; ".join([lane.reason, *filter(None, more)])


def _count(lane: Lane) -> int:
    """The workers that the stage may use."""
    return lane.growth.now if lane.backend == "threads" else lane.workers


def _bytes_in(lane: Lane) -> float:
    """Bytes per row that are read by the stage or passed to it."""
    first = lane.stats.steps[0] if lane.stats.steps else Cost()
    late = lane.stats.late
    return (sum(first.columns.values()) + sum(late.columns.values())) / max(first.rows, 1)


def _forecast(lane: Lane) -> ForecastFacts | None:
    made, now = lane.forecasts.first, lane.counters
    if made is None:
        return None
    seen = made.seen(now)
    return ForecastFacts(
        predicted=made.prediction.rows_per_second,
        limit=made.prediction.limit,
        measured=None if seen is None else seen.rows_per_second,
        limits=seen is not None and seen.limits,
        error=made.error(now),
        interval=made.uncertainty(now, _spread(lane)),
    )


def _spread(lane: Lane) -> float:
    """The standard deviation of the seconds per row between blocks, as a share. Blocks are slow
    together when the machine is busy: the deviations of their steps add up."""
    costs = [cost for cost in lane.stats.steps if cost.blocks > 1 and cost.rows]
    total = sum(cost.seconds for cost in costs) or 1.0
    return sum(
        cost.seconds / total * cost.uncertainty * math.sqrt(cost.blocks - 1) for cost in costs
    )


# The steps of a stage.


def _steps(lane: Lane) -> list[StepFacts]:
    stats, late = lane.stats, lane.stats.late
    labels = step_labels(lane.stage)
    if len(labels) != len(stats.steps):
        return _only_step(lane)
    reads = isinstance(lane.stage, Stage) and lane.stage.read is not None
    ran = [None, *steps_of(lane.stage)]
    shown = [(label, c, s) for label, c, s in zip(labels, stats.steps, ran, strict=True) if label]
    if late.rows:
        shown.append((late_label(late.columns), late, None))
    total = sum(cost.seconds for _, cost, _ in shown) or 1.0
    return [
        _step(label, cost, total, step, READ if step is None and reads else "")
        for label, cost, step in shown
    ]


def _only_step(lane: Lane) -> list[StepFacts]:
    """The step of a stage that has one and does not measure it apart: it takes the stage's time."""
    stats, labels = lane.stats, shown_labels(lane.stage)
    if len(labels) != 1 or not stats.blocks:
        return []
    took = Cost(rows=stats.rows_in, kept=stats.rows_out, seconds=stats.busy, cpu=stats.cpu)
    return [_step(labels[0], took, took.seconds or 1.0)]


def _step(
    label: str, cost: Cost, total: float, step: RowStep | Node | None = None, step_id: str = ""
) -> StepFacts:
    if isinstance(step, RowStep | Derive | Filter | MapRows):
        step_id = step.id
    return StepFacts(
        label=tidy(label),
        share=cost.seconds / total,
        seconds=cost.seconds_a_row,
        cpu=cost.cpu_a_row,
        rows_in=cost.rows,
        rows_out=cost.kept,
        nbytes=sum(cost.columns.values()) / max(cost.rows, 1),
        by_byte=cost.by_size.slope if cost.by_size.varied else None,
        filters=isinstance(step, Keep | Filter),
        operators=tuple(
            OperatorFacts(name, share, share * cost.seconds_a_row)
            for name, share in sorted(cost.shares().items(), key=lambda found: -found[1])
        ),
        busy=cost.seconds,
        id=step_id,
        writes=() if step is None else step.writes,
        uncertainty=cost.uncertainty if cost.blocks and cost.rows else 0.0,
    )


# A run without rows.


def _empty_filter(lanes: list[Lane]) -> str | None:
    """A sentence about the first filter that saw rows and kept none of them."""
    for lane in lanes:
        labels, costs = step_labels(lane.stage)[1:], lane.stats.steps[1:]
        rows: int | None = lane.stats.rows_in  # as long as every step passes all rows on
        for step, label, cost in zip(steps_of(lane.stage), labels, costs, strict=False):
            if isinstance(step, Keep | Filter) and cost.rows and not cost.kept:
                noun = "batch" if isinstance(step, Filter) else "row"
                sentence = f"`{label}` kept none of {plural(rows or cost.rows, noun)}"
                if isinstance(step.step, Function) and _returns_nothing(step.step.fn):
                    sentence += ": its function always returns None, a `return` may be missing"
                return sentence
            if isinstance(step, Keep | Filter | Spread):
                rows = None
    return None


def _returns_nothing(function: Callable[..., object]) -> bool:
    """Whether a function has no `return` with a value.

    >>> def forgets(x): x > 3
    >>> _returns_nothing(forgets), _returns_nothing(lambda x: x > 3)
    (True, False)
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
        loads_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if instruction.opname == "RETURN_VALUE" and not loads_none:
            return False
        before = instruction
    return True
