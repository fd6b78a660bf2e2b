"""The plan of one loader: what the rules made of it, what measurements suggest, and when it
changes.

A plan may change between any two batches, since a state belongs to the pipeline as written: the new
plan is opened at the state after the batch that was yielded last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from silva.errors import StateError
from silva.order.length import plan_rows
from silva.physical.lower import Lowering, WeightsOf
from silva.physical.plan import PhysicalNode
from silva.physical.right_sides import ReadColumns, RightSides
from silva.physical.stage.context import Context
from silva.physical.stage.stage import Result
from silva.physical.written_form import with_written
from silva.plan.decision import Decision
from silva.plan.fingerprint import digest, fingerprint
from silva.plan.law import LAWS
from silva.plan.node import Cache, Node, option, transform
from silva.planner.cache_locations import CacheLocation
from silva.planner.chooser import Chooser, has_orders
from silva.planner.chosen import WHY
from silva.planner.known_costs import CostSource, MeasuredCosts
from silva.planner.movable_runs import StepRun, step_runs
from silva.planner.self_check import CheckedNode, Checking, Payload
from silva.rewrite.rule import Outcome
from silva.rewrite.rules import filter_before_explode
from silva.rewrite.runner import COUNTS, optimize
from silva.run.placement.lane import Lane

if TYPE_CHECKING:
    from silva.planner.check_rewrites import Verdict
    from silva.planner.compare_blocks import Difference

_DECODED = 8
"""Bytes of a decoded photo for each byte of its file, roughly."""


class PlanningSeconds(NamedTuple):
    """CPU seconds of planning while a run goes on."""

    plans: float = 0.0
    """Of comparing costs, and of looking for a better order and for caches."""
    backends: float = 0.0
    """Of choosing where stages run."""
    checks: float = 0.0
    """Of computing rows once more, to check rewrites."""


class Planner:
    """Makes the plan of a loader, and changes it when measurements or checks say so."""

    def __init__(
        self,
        written: Node,
        *,
        weights_of: WeightsOf,
        read_columns: ReadColumns,
        lanes: Mapping[str, Lane],
        epochs: int | None,
        workers: int,
        locations: Callable[[], tuple[CacheLocation, ...]],
        substitutes: bool = False,
        counts: bool = False,
        masks: bool = True,
        costs: CostSource | None = None,
        clock: Callable[[], float] = thread_time,
    ) -> None:
        """`locations`: returns where rows may be cached. `substitutes`: bad rows are replaced.
        `counts`: they do not end the run, but are counted; then steps stay in the order written,
        whatever they cost, because an earlier filter would change which rows fail. `masks`: batches
        may get a mask. `costs`: what steps cost; by default, what the lanes and earlier runs
        measured. `clock`: CPU seconds of the thread that asks."""
        self._clock, self._lanes = clock, lanes
        self._written = transform(written, _keyed)
        self._weights_of = weights_of
        self._rights = RightSides(read_columns)
        self._epochs = epochs
        self._workers = workers
        self._locations = locations
        self._substitutes = substitutes
        self._counts = counts
        self._masks = masks
        self._optimizes = bool(option(written, "optimize", True))
        self._disabled = frozenset(option(written, "disable", ()))
        may_move = self._optimizes and "order" not in self._disabled
        self.chooser = Chooser(
            lanes,
            costs=costs or MeasuredCosts(lanes),
            epochs=epochs,
            workers=workers,
            locations=locations,
            moves=may_move and not counts,
            caches=self._keeps_rows,
            clock=clock,
            elsewhere=lambda: self.planning.backends + self.planning.checks,
        )
        self._may_move = may_move
        self.refuted: dict[str, str] = {}
        """Rules and laws that computed other values on real rows, and the difference."""
        self.deviations: tuple[Difference, ...] = ()
        """How far close laws are from the plan as written, on real rows."""
        self._left_out: frozenset[str] = frozenset()
        """Rules that are not used: laws that would prevent a cache, and close rewrites that were
        not in use when a loaded state was saved."""
        self._plan()

    def _plan(self) -> None:
        """Makes a plan of the pipeline as written, by the rules."""
        full, self.outcomes = self._optimized(frozenset())
        if held_back := self._held_back():
            self._left_out |= held_back
            full, self.outcomes = self._optimized(frozenset())
        applied = [o.rule for o in self.outcomes if o.applied and o.rule.numeric]
        self._unproven = [rule.name for rule in applied if rule.exact]
        self.close = tuple(sorted(rule.name for rule in applied if not rule.exact))
        """Names of the rewrites in use that do not keep every bit."""
        self.checking = Checking(
            self._unproven,
            self.close,
            self._plan_without,
            self._workers > 0,
            self._rows_in_all,
            self._clock,
        )
        base = self._optimized(frozenset(self._unproven))[0] if self._unproven else full
        self._begin(base)
        runs = self.chooser.runs
        if self._counts and self._may_move and any(map(has_orders, runs)):
            self.chooser.rejected = [Decision("order", WHY["order"], why_not=COUNTS)]

    def _held_back(self) -> frozenset[str]:
        """Rules that are not used where rows may be cached between epochs: laws that compute
        something for one reader only, which may be better cached whole; and a filter before an
        explode, which could not be repeated as written with a cache between them."""
        if not self._keeps_rows:
            return frozenset()
        applied = {outcome.rule.name for outcome in self.outcomes if outcome.applied}
        largest = max((location.nbytes for location in self._locations()), default=0)
        explode = {filter_before_explode.RULE.name} if largest else set()
        last = {law.name for law in LAWS.values() if law.last}
        runs = (run for run in step_runs(self._written) if run.source is not None)
        if not applied & last or not any(_may_fit(run, largest) for run in runs):
            last = set()
        return frozenset(applied & (last | explode))

    @property
    def _keeps_rows(self) -> bool:
        """Whether rows may be cached between epochs."""
        many = self._epochs is not None and self._epochs > 1
        return self._optimizes and many and "cache" not in self._disabled

    def use_close(self, names: Sequence[str]) -> None:
        """Uses only these close rewrites, like the run that saved the loaded state."""
        missing = sorted(set(names) - set(self.close))
        if missing:
            raise StateError(
                f"the state was saved by a run that used the rewrite {missing[0]!r}, which this "
                "pipeline does not use, so the rows would differ: set options(fidelity=…, "
                "disable=…) as they were then"
            )
        if set(names) != set(self.close):
            self._left_out |= frozenset(self.close) - set(names)
            self.checking.close()
            self._plan()

    def _optimized(self, without: frozenset[str]) -> tuple[Node, list[Outcome]]:
        return optimize(
            self._written,
            without | self._left_out,
            counts=self._counts,
            substitutes=self._substitutes,
        )

    def _named(self, base: Node) -> Node:
        """`base` with the steps as written, so that errors name what the user wrote."""
        changed = [o.rule for o in self.outcomes if o.applied and o.rule.exact]
        names = {r.name for r in changed if r.numeric or r.merges or r.renames}
        if not names:  # no rule has changed a step: running them again would delay the first batch
            return base
        return self._optimized(frozenset(names | self.refuted.keys()))[0]

    def _begin(self, base: Node) -> None:
        """Makes plans of `base` from now on."""
        self.plan = base
        self._plain = base if self._counts or not self._optimizes else self._named(base)
        """The plan whose steps are named, and fail, as written."""
        self._twins: tuple[Node, ...] = (self._plain,)
        """Plans in which a block that fails is repeated; the first that fits the plan is used."""
        self._physical: PhysicalNode | None = None
        self.chooser.begin(base)

    # The plan.

    def physical(self) -> PhysicalNode:
        """The physical plan."""
        if self._physical is None:
            lowered = self._physical = self._lower(self.plan)
            for twin in self._twins:
                if twin == self.plan:
                    break
                self._physical = with_written(lowered, self._lower(twin))
                if self._physical is not lowered:
                    break
        return self._physical

    def _lower(self, plan: Node) -> PhysicalNode:
        variant = f"-{digest(self.close)[:8]}" if self.close else ""
        lowered: PhysicalNode = Lowering(
            self._weights_of,
            self._rights,
            frugal=self._optimizes or self._counts,
            as_written=self._counts,
            variant=variant,
            masks=self._masks,
        ).lower(plan)
        return lowered

    def forget(self) -> None:
        """Drops the physical plan: it must be lowered again."""
        self._physical = None

    # Looking.

    @property
    def planning(self) -> PlanningSeconds:
        """What planning has cost so far."""
        backends = sum(lane.planning_seconds for lane in self._lanes.values())
        return PlanningSeconds(self.chooser.planning_seconds, backends, self.checking.seconds)

    @property
    def settled(self) -> bool:
        """Whether the plan will not change any more."""
        return not (self.chooser.open or self.checking.pending)

    @property
    def unchecked(self) -> frozenset[str]:
        """Rules and laws that are not used until they have passed their check."""
        return frozenset(self._unproven) if self.checking.pending else frozenset()

    def _rows_in_all(self) -> int | None:
        """Rows of all announced epochs together; None where the number is not known."""
        rows = plan_rows(self._written)
        return None if rows is None else rows * (self._epochs or 1)

    def start(self, epoch: int, whole: bool = True) -> None:
        """Called when a loop begins, at the start of an epoch (`whole`) or within it. Measurements
        of earlier runs may be enough to choose a plan at once."""
        self.checking.resume()
        self.chooser.first(epoch)
        self._follow()
        self.chooser.work.begin(self.plan, whole)

    def end(self, complete: bool) -> None:
        """Called when a loop ends."""
        self.chooser.end(complete, keep=self._optimizes)

    def due(self) -> bool:
        """Whether it is time to reconsider the plan."""
        due = self.chooser.due()
        return due or (self.checking.verdict is not None and self.chooser.switching.may_check())

    def look(self, epoch: int) -> bool:
        """Reconsiders the plan by what was measured and checked; returns whether it changed."""
        plan = self.plan
        verdict = self.checking.take_verdict() if self.chooser.switching.may_check() else None
        if verdict is not None:
            self._conclude(verdict)
        self.chooser.look(epoch, fresh=verdict is not None)
        self._follow()
        return self.plan != plan

    def _follow(self) -> None:
        """Uses the plan that was chosen."""
        chosen = self.chooser.present
        if chosen.plan != self.plan:
            self.plan, self._physical = chosen.plan, None
            cached = any(choice.what == "cache" for choice in chosen.choices)
            self._twins = (chosen.twin,) if cached else (self._plain, chosen.twin)

    # Checking.

    def note(
        self, node: CheckedNode, payload: Payload, context: Context, results: list[Result]
    ) -> None:
        """Receives a block of the run, for the check of rewrites."""
        if self.checking.pending:
            self.checking.note(self.physical(), node, payload, context, results)

    def _plan_without(self, names: frozenset[str]) -> PhysicalNode:
        return self._lower(self._optimized(names)[0])

    def _conclude(self, verdict: Verdict) -> None:
        """Uses the rewrites that passed their check."""
        self.refuted, self.deviations = verdict.refuted, verdict.deviations
        base, outcomes = self._optimized(frozenset(self.refuted))
        self.outcomes = [
            replace(o, why=f"its values differ on these rows: {self.refuted[o.rule.name]}")
            if o.rule.name in self.refuted
            else o
            for o in outcomes
        ]
        self._begin(base)


def _keyed(node: Node) -> Node:
    """A cache with its key taken from the pipeline as written, however the plan changes."""
    return replace(node, key=fingerprint(node.input)) if isinstance(node, Cache) else node


def _may_fit(run: StepRun, room: int) -> bool:
    """Whether the decoded rows of a source may fit into `room` bytes; True where that is
    unknown."""
    assert run.source is not None
    rows, sizes = plan_rows(run.below), run.source.source.row_bytes().values()
    return rows is None or rows * sum(sizes) * _DECODED < room
