"""What was measured of each stage, step and operator, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silva.insight.stats import lane_backend, lane_reason
from silva.insight.steps import stage_steps, step_labels
from silva.insight.words import tidy
from silva.physical.steps import Keep
from silva.profile.costs import Cost
from silva.run.lane import Lane


@dataclass(frozen=True)
class OperatorFacts:
    name: str
    share: float
    """Of its step's time."""
    seconds: float
    """A row."""


@dataclass(frozen=True)
class StepFacts:
    """Times and bytes are for each row that comes in."""

    label: str
    share: float
    """Of its stage's time."""
    seconds: float
    cpu: float
    rows_in: int
    rows_out: int
    nbytes: float
    """That it writes."""
    filters: bool
    operators: tuple[OperatorFacts, ...]
    by_byte: float | None = None
    """Seconds more for each byte that it reads; None where rows were all of one size."""

    @property
    def waits(self) -> float:
        """Seconds a row without a CPU: for a disk, a network, a lock, or a core."""
        return max(self.seconds - self.cpu, 0.0)

    @property
    def keeps(self) -> float:
        return self.rows_out / self.rows_in if self.rows_in else 1.0


@dataclass(frozen=True)
class ForecastFacts:
    predicted: float
    """Rows a second, said when the stage was given its place."""
    limit: str
    """What was expected to end first."""
    measured: float | None
    """Rows a second since then."""
    limits: bool
    """The stage was what limited; otherwise it was asked for less than it could do."""
    error: float | None
    """How much too high, as a share of what was measured; None where nothing contradicts it."""


@dataclass(frozen=True)
class StageFacts:
    """Times and bytes are for each row that comes in, of a stage of batches for each batch."""

    name: str
    backend: str
    """`first → second` where the stage is cut in two."""
    workers: int
    width: int
    """Of the workers, those that are needed to meet the demand."""
    reason: str
    blocks: int
    rows_in: int
    rows_out: int
    seconds: float
    cpu: float
    bytes_in: float
    bytes_out: float
    from_disk: float
    from_network: float
    """Bytes a row that came from outside; what the system still had in memory is not among them."""
    queue_fill: float
    """Blocks that were done and waiting when the consumer came, on average."""
    elapsed: float
    """Seconds in which the stage was being read."""
    waited: float
    """Share of them in which the consumer waited for the stage."""
    blocked: int
    """Times that memory held it back."""
    earlier: float | None
    """Seconds a row took when the stage's steps were other or in another order."""
    forecast: ForecastFacts | None
    steps: tuple[StepFacts, ...]

    @property
    def waits(self) -> float:
        """Seconds a row without a CPU."""
        return max(self.seconds - self.cpu, 0.0)


def stage_facts(lane: Lane) -> StageFacts:
    """Everything that is known of a stage that has run."""
    stats, rows = lane.stats, max(lane.stats.rows_in, 1)
    now = lane.average()
    return StageFacts(
        name=lane.name,
        backend=lane_backend(lane),
        workers=0 if lane.backend == "inline" else lane.workers,
        width=0 if lane.backend == "inline" else lane.width.now,
        reason=lane_reason(lane),
        blocks=stats.blocks,
        rows_in=stats.rows_in,
        rows_out=stats.rows_out,
        seconds=now.seconds,
        cpu=now.cpu,
        bytes_in=_bytes_in(lane),
        bytes_out=stats.bytes_out / rows,
        from_disk=stats.came.disk / rows,
        from_network=stats.came.network.nbytes / rows,
        queue_fill=stats.queue_fill,
        elapsed=stats.elapsed,
        waited=min(stats.starved / stats.elapsed, 1.0) if stats.elapsed else 0.0,
        blocked=stats.blocked,
        earlier=None if lane.earlier is None else lane.earlier.seconds,
        forecast=_forecast(lane),
        steps=tuple(_steps(lane)),
    )


def _bytes_in(lane: Lane) -> float:
    """What is read or handed to the stage, late or at once."""
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
    )


def _steps(lane: Lane) -> list[StepFacts]:
    labels, costs = step_labels(lane.stage), lane.stats.steps
    if len(labels) != len(costs):
        return _alone(lane)
    ran: list[Any] = [None, *getattr(lane.stage, "steps", ())]
    ran += [None] * (len(labels) - len(ran))
    shown = [(label, c, r) for label, c, r in zip(labels, costs, ran, strict=True) if label]
    late = lane.stats.late
    if late.rows:
        shown.append((f"read late {', '.join(late.columns)}", late, None))
    total = sum(cost.seconds for _, cost, _ in shown) or 1.0
    return [_step(label, cost, total, isinstance(r, Keep)) for label, cost, r in shown]


def _alone(lane: Lane) -> list[StepFacts]:
    """Of a stage of one step that keeps no time of its own: the stage's."""
    stats = lane.stats
    took = Cost(rows=stats.rows_in, kept=stats.rows_out, seconds=stats.busy, cpu=stats.cpu)
    shown = [s.label for s in stage_steps(lane.stage, stats) if s.seconds is not None]
    return [_step(label, took, took.seconds or 1.0, False) for label in shown]


def _step(label: str, cost: Cost, total: float, filters: bool) -> StepFacts:
    return StepFacts(
        label=tidy(label),
        share=cost.seconds / total,
        seconds=cost.seconds_a_row,
        cpu=cost.cpu_a_row,
        rows_in=cost.rows,
        rows_out=cost.kept,
        nbytes=sum(cost.columns.values()) / max(cost.rows, 1),
        by_byte=cost.by_size.slope if cost.by_size.varied else None,
        filters=filters,
        operators=tuple(
            OperatorFacts(name, share, share * cost.seconds_a_row)
            for name, share in sorted(cost.shares().items(), key=lambda found: -found[1])
        ),
    )
