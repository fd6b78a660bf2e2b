"""The facts about a loader at one moment, as frozen data. Every renderer reads these and no more.

Times and bytes of a stage or a step are per row that comes in, unless a field says otherwise; in a
stage of batches, a row is a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silva.cost.experiment import LIMITS
from silva.cost.model import CONSUMER, Backend, Placed, Prediction, Work, loop_work, predict
from silva.errors import PlanError
from silva.facts.formatting import percent
from silva.facts.loop import LoopFacts
from silva.physical.plan import PhysicalNode
from silva.physical.stage.context import Failure
from silva.plan.decision import Decision
from silva.plan.node import Node

READ = "read"
"""The id of the steps that read from a source."""


@dataclass(frozen=True)
class OperatorFacts:
    """One operator of an expression."""

    name: str
    share: float
    """Share of its step's time."""
    seconds: float


@dataclass(frozen=True)
class StepFacts:
    """One step of a stage that has run."""

    label: str
    """The step as plans show it, with the file and line of its function."""
    share: float
    """Share of its stage's time."""
    seconds: float
    cpu: float
    rows_in: int
    rows_out: int
    nbytes: float
    """Bytes that it writes."""
    filters: bool
    operators: tuple[OperatorFacts, ...]
    by_byte: float | None = None
    """Additional seconds per byte that it reads; None where all rows had the same size."""
    busy: float = 0.0
    """Worker seconds since the stage has its present steps."""
    id: str = ""
    """The id of the step as written, or `read`; empty where it cannot be named."""
    writes: tuple[str, ...] = ()
    uncertainty: float = 0.0
    """Standard error of `seconds`, as a share of it."""

    @property
    def waits(self) -> float:
        """Seconds without a CPU: waiting for a disk, a network, a lock or a core."""
        return max(self.seconds - self.cpu, 0.0)

    @property
    def selectivity(self) -> float:
        """Share of the rows that it passes on."""
        return self.rows_out / self.rows_in if self.rows_in else 1.0


@dataclass(frozen=True)
class ForecastFacts:
    """What was predicted when a stage was placed, and what was measured since."""

    predicted: float
    """Rows per second."""
    limit: str
    """The resource that was expected to limit the stage."""
    measured: float | None
    """Rows per second."""
    limits: bool
    """Whether the consumer waited for the stage; otherwise it could have been faster."""
    error: float | None
    """How much too high the prediction was, as a share of the measurement; None where the consumer
    did not need more than was measured."""
    interval: float = 0.0
    """The error, as a share, within which the measurement does not contradict the prediction."""

    @property
    def wrong(self) -> bool:
        """Whether the measurement contradicts the prediction."""
        return self.error is not None and abs(self.error) > self.interval


@dataclass(frozen=True)
class StageTotals:
    """Counters of a stage since the loader began."""

    blocks: int
    rows_in: int
    rows_out: int
    bytes_out: int
    busy: float
    """Worker seconds."""
    cpu: float
    """CPU seconds of the workers."""
    elapsed: float
    """Seconds in which the stage was read, including the consumer's own time."""
    starved: float
    """Seconds in which the consumer waited for the stage."""
    blocked: int
    """How often the stage had to wait because its share of memory was full."""
    queue_fill: float
    """Finished blocks that were waiting when the consumer asked for one, on average."""

    @property
    def waited(self) -> float:
        """Share of the time in which the consumer waited for the stage."""
        return min(self.starved / self.elapsed, 1.0) if self.elapsed else 0.0


@dataclass(frozen=True)
class StageFacts:
    """One stage of the plan that has run."""

    name: str
    backend: Backend
    workers: int
    width: int
    """Workers in use: as many as the demand needs."""
    asked_for: bool
    """Whether the backend was given by the user."""
    reason: str
    """Why the stage runs on this backend."""
    totals: StageTotals
    load: Work
    """What a row costs since the stage runs where it runs."""
    alone: Work | None
    """What a row cost before the stage was given to workers, when nothing ran beside it."""
    earlier: float | None
    """Seconds per row when the stage had other steps, or the same in another order."""
    bytes_in: float
    from_disk: float
    from_network: float
    """Bytes from a disk or an object store; those in the operating system's cache not included."""
    forecast: ForecastFacts | None
    errors: tuple[float, ...]
    """The errors of all predictions that could be compared with a measurement."""
    steps: tuple[StepFacts, ...]
    """Empty where the present steps have not been measured yet."""
    decisions: tuple[Decision, ...] = ()
    """Its backend and those that it was compared with, its width, and whether the cluster runs
    it."""
    block_rows: int = 0
    """Rows of its next block; 0 where that is not known."""
    epoch_rows: int | None = None
    """Rows of an epoch, at whose end its workers run dry; None where that is not known, or where
    the next epoch begins before."""
    all_rows: int | None = None
    """Rows that it has had and will have, in all announced epochs; None where that is not known."""
    shares_generators: bool = False
    """Whether its functions draw from global random generators, which threads would share."""
    settled: bool = True
    """Whether its place is chosen, nothing is being compared, and its workers were measured."""

    @property
    def waits(self) -> float:
        """Seconds without a CPU."""
        return max(self.load.seconds - self.load.cpu, 0.0)

    @property
    def bytes_out(self) -> float:
        return self.totals.bytes_out / max(self.totals.rows_in, 1)


@dataclass(frozen=True)
class ConsumerFacts:
    """What the consumer of a loader received so far, from all stages together."""

    rows: int
    seconds: float
    waited: float
    """Seconds in which it waited."""
    own: float
    """Seconds per row that it takes itself: batching, and the body of the loop."""
    stages: tuple[Placed, ...]
    steady: float | None = None
    """Rows per second since the present workers have settled; None where that is not known."""
    own_cpu: float = 0.0
    """CPU seconds per row of `own`."""
    own_queued: float = 0.0
    """Seconds per row of `own` that its thread waited for a core."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def present_rate(self) -> float:
        """Rows per second, without the start of the workers where that can be told apart."""
        return self.steady or self.rows_per_second

    @property
    def wait_share(self) -> float:
        """Share of the time in which it waited for rows."""
        return self.waited / self.seconds if self.seconds else 0.0

    @property
    def is_limited_by_stages(self) -> bool:
        """Whether the stages limit the throughput, and not the loop that reads them."""
        return self.waited > LIMITS * self.seconds

    def model(self, cores: int) -> Prediction:
        """What the cost model predicts for the measured loads."""
        return predict(self.stages, cores, loop_work(self.own, self.own_cpu))


@dataclass(frozen=True)
class PlanningFacts:
    """What planning took while the run went on, in CPU seconds.

    >>> PlanningFacts(plans=0.5, backends=0.25, checks=0.25, cpu=99.0).share
    0.01
    """

    plans: float = 0.0
    """Of comparing costs, and of looking for a better order and for caches."""
    backends: float = 0.0
    """Of choosing where stages run."""
    checks: float = 0.0
    """Of computing rows once more, to check rewrites."""
    cpu: float = 0.0
    """What the run took beside that: the stages, and the consumer's own work."""

    @property
    def seconds(self) -> float:
        return self.plans + self.backends + self.checks

    @property
    def share(self) -> float:
        """Its share of all CPU seconds of the run."""
        return self.seconds / (self.seconds + self.cpu) if self.seconds else 0.0


@dataclass(frozen=True)
class Limit:
    """What keeps the trainer from getting more rows per second.

    >>> str(Limit("the threads", "stage 1", 0.93))
    'the threads, stage 1'
    """

    resource: str
    stage: str | None
    """The stage that uses most of it; None for the trainer's own loop."""
    share: float
    """The share of the time that it is in use, 0 to 1."""

    def __str__(self) -> str:
        return self.resource if self.stage is None else f"{self.resource}, {self.stage}"

    @property
    def with_share(self) -> str:
        """The limit, and how much of the time it is in use."""
        return f"{self}, in use {percent(self.share)} of the time"


@dataclass(frozen=True)
class RunFacts:
    """A loader's plan, how it came about, and what was measured so far."""

    written: Node
    """The plan as written."""
    plan: PhysicalNode
    """The plan as run."""
    decisions: tuple[Decision, ...]
    """Why the two differ."""
    history: tuple[Decision, ...]
    """How the plan changed while it ran, the latest last."""
    backend: Backend | None
    """The backend that was asked for; None where silva chooses."""
    workers: int
    """The number of workers on this machine."""
    cores: int
    stages: tuple[StageFacts, ...]
    """The stages of the plan that have run, from the sources up."""
    consumer: ConsumerFacts | None
    """None before the first row came out."""
    empty_filter: str | None
    """A sentence about the first filter that saw rows and kept none."""
    loop: LoopFacts
    epoch: int
    failures: tuple[Failure, ...]
    """The first failed rows."""
    failed: int
    """How many rows failed."""
    planning: PlanningFacts = PlanningFacts()

    def stage(self, name: str) -> StageFacts | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def need_consumer(self, advice: str) -> ConsumerFacts:
        """What the consumer received; raises an error with the reason if that is nothing."""
        if self.consumer is None:
            reason = f"no row came out: {self.empty_filter}"
            raise PlanError(reason if self.empty_filter else advice)
        return self.consumer

    @property
    def model(self) -> Prediction | None:
        """What the cost model predicts for the measured loads."""
        return None if self.consumer is None else self.consumer.model(self.cores)

    @property
    def limit(self) -> Limit | None:
        """What limits the throughput that the trainer sees; None before the first row came out.
        Where the trainer hardly waits, it is its own loop; otherwise the resource that the cost
        model finds to be the scarcest."""
        found, model = self.consumer, self.model
        if found is None or model is None:
            return None
        if not found.is_limited_by_stages:
            return Limit(CONSUMER, None, 1 - found.wait_share)
        share = min(found.present_rate / model.rows_per_second, 1.0)
        return Limit(model.limit, model.stage, share)


def pick(facts: object, names: str) -> dict[str, Any]:
    """Some fields of facts, as plain data.

    >>> pick(OperatorFacts("decode", 0.5, 1e-3), "name share")
    {'name': 'decode', 'share': 0.5}
    """
    return {name: getattr(facts, name) for name in names.split()}
