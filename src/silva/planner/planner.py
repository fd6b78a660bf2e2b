"""The plan of one loader: what the rules made of it, what measurements suggest, and when it
changes.

A plan may change between any two batches, since a state belongs to the pipeline as written: the new
plan is opened at the state after the batch that was yielded last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from silva.cost.experiment import ENOUGH, MARGIN, Experiment, Progress
from silva.cost.model import duration
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
from silva.plan.node import Cache, Filter, Node, option, transform
from silva.planner.cache_gains import Epochs
from silva.planner.cache_locations import CacheLocation
from silva.planner.known_costs import CostSource, Measured, MeasuredCosts
from silva.planner.movable_runs import StepRun, step_runs
from silva.planner.self_check import CheckedNode, Checking, Payload
from silva.rewrite.rule import Outcome
from silva.rewrite.rules import filter_before_explode
from silva.rewrite.runner import COUNTS, optimize
from silva.run.placement.lane import Lane

if TYPE_CHECKING:
    from silva.planner.check_rewrites import Verdict
    from silva.planner.compare_blocks import Difference

_WORTH_KEEPING = 0.1
"""Seconds of work from which measurements are saved: less is soon measured again."""
_DECODED = 8
"""Bytes of a decoded photo for each byte of its file, roughly."""
_MANY_TIMES = 20
"""A new plan repeats the rows in flight: so many times as many rows must still be to come."""
_FAILING = 0.2
"""The share of blocks repeated in the order written above which moving steps does not pay."""


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
    ) -> None:
        """`locations`: returns where rows may be cached. `substitutes`: bad rows are replaced.
        `counts`: they do not end the run, but are counted; then steps stay in the order written,
        whatever they cost, because an earlier filter would change which rows fail. `masks`: batches
        may get a mask. `costs`: what steps cost; by default, what the lanes and earlier runs
        measured."""
        self._written = transform(written, _keyed)
        self._weights_of = weights_of
        self._rights = RightSides(read_columns)
        self._lanes = lanes
        self._costs = costs or MeasuredCosts(lanes)
        self._epochs = epochs
        self._workers = workers
        self._locations = locations
        self._substitutes = substitutes
        self._counts = counts
        self._masks = masks
        self._optimizes = bool(option(written, "optimize", True))
        self._disabled = frozenset(option(written, "disable", ()))
        self.choices: tuple[Decision, ...] = ()
        self._filled_in: int | None = None
        """The epoch in which a cache was chosen; None without one."""
        self.rejected: list[Decision] = []
        self.refuted: dict[str, str] = {}
        """Rules and laws that computed other values on real rows, and the difference."""
        self.deviations: tuple[Difference, ...] = ()
        """How far close laws are from the plan as written, on real rows."""
        self._left_out: frozenset[str] = frozenset()
        """Rules that are not used: laws that would prevent a cache, and close rewrites that were
        not in use when a loaded state was saved."""
        self._looks: list[float] = []
        self._since = self._progress
        """When the plan began."""
        self._experiment: Experiment[str] | None = None
        """Compares an order with the one before it."""
        self._work = Epochs(lanes, workers)
        self._kept_at = 0.0
        """Seconds of work that had been done when measurements were last saved."""
        self._plan()

    def _plan(self) -> None:
        """Makes a plan of the pipeline as written, by the rules."""
        self._runs: list[StepRun] = []
        self._known: list[Measured] = []
        self._started = False
        full, self.outcomes = self._optimized(frozenset())
        if held_back := self._held_back():
            self._left_out |= held_back
            full, self.outcomes = self._optimized(frozenset())
        applied = [o.rule for o in self.outcomes if o.applied and o.rule.numeric]
        self._unproven = [rule.name for rule in applied if rule.exact]
        self.close = tuple(sorted(rule.name for rule in applied if not rule.exact))
        """Names of the rewrites in use that do not keep every bit."""
        self.checking = Checking(
            self._unproven, self.close, self._plan_without, self._workers > 0, self._rows_in_all
        )
        base = self._optimized(frozenset(self._unproven))[0] if self._unproven else full
        self._begin(base)
        may_reorder = self._optimizes and "order" not in self._disabled
        if self._counts and may_reorder and any(map(_has_orders, self._runs)):
            self.rejected = []
            self._reject(COUNTS)
        may_choose = self._optimizes and self._may_choose()
        self._looks = self._costs.looks_after(0.0) if may_choose else []

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

    def _named(self) -> Node:
        """The plan with the steps as written, so that errors name what the user wrote."""
        changed = [o.rule for o in self.outcomes if o.applied and o.rule.exact]
        names = [r.name for r in changed if r.numeric or r.merges or r.renames]
        return self._optimized(frozenset(names))[0]

    def _begin(self, base: Node) -> None:
        """Makes plans of `base` from now on. Measured costs of steps that are in it are kept."""
        before = {
            step.id: (step.step, known.steps[step.id])
            for run, known in zip(self._runs, self._known, strict=True)
            for step in run.steps
            if step.id in known.steps
        }
        reads = [(known.read, known.late, known.pace, known.loop) for known in self._known]
        self._ruled = self.plan = base
        self._plain = base if self._counts or not self._optimizes else self._named()
        """The plan whose steps are named, and fail, as written."""
        self._twins: tuple[Node, ...] = (self._plain,)
        """Plans in which a block that fails is repeated; the first that fits the plan is used."""
        self._runs = list(step_runs(base))
        self._known = [Measured() for _ in self._runs]
        for number, (run, known) in enumerate(zip(self._runs, self._known, strict=True)):
            if number < len(reads):
                known.read, known.late, known.pace, known.loop = reads[number]
            for step in run.steps:
                was, cost = before.get(step.id, (None, None))
                if cost is not None and was == step.step:
                    known.steps[step.id] = cost
        self._physical: PhysicalNode | None = None

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

    # Choosing.

    @property
    def settled(self) -> bool:
        """Whether the plan will not change any more."""
        pending = self._looks or self.checking.pending
        return not pending and (not self._is_reordered or bool(self.rejected))

    @property
    def _is_reordered(self) -> bool:
        return any(choice.what == "order" for choice in self.choices)

    @property
    def _caches(self) -> bool:
        return any(choice.what == "cache" for choice in self.choices)

    @property
    def unchecked(self) -> frozenset[str]:
        """Rules and laws that are not used until they have passed their check."""
        return frozenset(self._unproven) if self.checking.pending else frozenset()

    def _may_choose(self) -> bool:
        """Whether measurements could change anything."""
        caches = self._keeps_rows and any(run.at_source for run in self._runs)
        orders = "order" not in self._disabled and not self._counts
        return caches or (orders and any(map(_has_orders, self._runs)))

    def _rows_in_all(self) -> int | None:
        """Rows of all announced epochs together; None where the number is not known."""
        rows = plan_rows(self._written)
        return None if rows is None else rows * (self._epochs or 1)

    def start(self, epoch: int, whole: bool = True) -> None:
        """Called when a loop begins, at the start of an epoch (`whole`) or within it. Measurements
        of earlier runs may be enough to choose a plan at once."""
        self.checking.resume()
        self._first_choice(epoch)
        self._work.begin(self.plan, whole)

    def end(self, complete: bool) -> None:
        """Called when a loop ends. The trainer waits for the next one, so measurements are saved
        only if much of them is new."""
        self._work.end(self.plan, complete)
        if self._busy() >= 2 * self._kept_at:
            self.write_down()

    @property
    def cache_gain(self) -> Experiment[str] | None:
        """The predicted and the measured gain of a cache; None if there is none to report."""
        made = self._work.experiment if len(self._runs) == 1 else None
        return None if made is None or made.measured_gain is None else made

    def _first_choice(self, epoch: int) -> None:
        if self._started or not self._looks:
            return
        self._started = True
        for number, run in enumerate(self._runs):
            self._known[number] = self._costs.before(run)
        self._choose(epoch)

    def due(self) -> bool:
        """Whether it is time to reconsider the plan."""
        if self.checking.verdict is not None and self._may_change():
            return True
        if self._looks and self._busy() >= self._looks[0]:
            return True
        return self._is_reordered and not self.rejected and self._fails()

    def _may_change(self) -> bool:
        """Whether the rows in flight, which a new plan repeats, are few beside those to come."""
        lanes = [lane for lane in self._lanes.values() if lane.rows_left is not None]
        return all(lane.rows_to_come >= _MANY_TIMES * lane.rows_ahead for lane in lanes)

    def _busy(self) -> float:
        return sum(lane.stats.busy for lane in self._lanes.values())

    def look(self, epoch: int) -> bool:
        """Reconsiders the plan by what was measured and checked; returns whether it changed."""
        plan = self.plan
        spent = self._busy()
        self._looks = self._costs.looks_after(spent) if self._looks else []
        self._collect()
        self._judge()
        verdict = self.checking.take_verdict() if self._may_change() else None
        if verdict is not None:
            self._conclude(verdict)
        self._choose(epoch)
        return self.plan != plan

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

    def _collect(self) -> None:
        for number, run in enumerate(self._runs):
            before = self._known[number]
            self._known[number] = now = self._costs.now(run, before)
            if self._caches:  # which works on the loop's thread: the loop was measured before
                now.loop = before.loop

    def _choose(self, epoch: int) -> None:
        from silva.planner.choose import choose

        # the epoch that fills the cache counts as well
        since = epoch if self._filled_in is None else self._filled_in
        left = 1 if self._epochs is None else max(self._epochs - since, 1)
        chosen = choose(
            self._ruled,
            self._known,
            epochs=left,
            workers=self._workers,
            locations=() if "cache" in self._disabled else self._locations(),
            reorders="order" not in self._disabled and not self._counts and not self._fails(),
        )
        self.choices = chosen.choices
        self._filled_in = since if self._caches else None
        rows = plan_rows(self._runs[0].below) if len(self._runs) == 1 else None
        self._work.promise(chosen.plan, chosen.choices, rows or 0)
        if chosen.plan != self.plan:
            self._begin_experiment()
            self.plan, self._physical = chosen.plan, None
            self._twins = (chosen.twin,) if self._caches else (self._plain, chosen.twin)

    def _begin_experiment(self) -> None:
        """Compares a new order with the plan before it, if that was measured. A plan with a cache
        is not compared: it is slower at first, while the cache is filled."""
        now, since = self._progress, self._since
        pace = now.pace(since)
        gains = [one.predicted_gain or 1.0 for one in self.choices if one.what == "order"]
        self._since, self._experiment = now, None
        if gains and pace and now.seconds - since.seconds >= ENOUGH and not self._caches:
            promised = {"order": pace * max(gains)}
            self._experiment = Experiment("before", pace, promised, "order", now, margin=1 / MARGIN)

    def _judge(self) -> None:
        """Gives up an order that turns out slower than the one before it."""
        tried = self._experiment
        if tried is None or self.rejected:
            return
        found = tried.judge(self._progress)
        if found == "before":
            now, before = (duration(1 / tried.seen[name]) for name in ("order", "before"))
            self._reject(f"it takes {now} per row, and the order before it took {before}")
        elif found == "order":
            tried.begin(self._progress)  # it is compared again when more is measured

    @property
    def _progress(self) -> Progress:
        """The rows that entered the plan, over all epochs, and the seconds of work for them, all of
        which count."""
        rows = max((lane.stats.rows_in for lane in self._lanes.values()), default=0)
        return Progress(rows, self._busy(), waited=self._busy())

    def _fails(self) -> bool:
        """Whether moved steps fail on rows that a filter would have dropped before them."""
        if not self.rejected and any(_often_repeats(lane) for lane in self._lanes.values()):
            self._reject("steps fail on rows that a filter before them would have dropped")
        return bool(self.rejected)

    def _reject(self, why: str) -> None:
        """Moves no step any more."""
        from silva.planner.choose import WHY

        self.rejected.append(Decision("order", WHY["order"], why_not=why))

    # Remembering.

    def write_down(self) -> None:
        """Saves measurements for later runs, if the work took long enough to matter."""
        if not self._optimizes or self._busy() < _WORTH_KEEPING or sys.is_finalizing():
            return
        self._kept_at = self._busy()
        self._collect()
        self._costs.keep(self._runs, self._known)


def _often_repeats(lane: Lane) -> bool:
    return lane.stats.again >= 3 and lane.stats.again > _FAILING * lane.stats.followed


def _keyed(node: Node) -> Node:
    """A cache with its key taken from the pipeline as written, however the plan changes."""
    return replace(node, key=fingerprint(node.input)) if isinstance(node, Cache) else node


def _may_fit(run: StepRun, room: int) -> bool:
    """Whether the decoded rows of a source may fit into `room` bytes; True where that is
    unknown."""
    assert run.source is not None
    rows, sizes = plan_rows(run.below), run.source.source.row_bytes().values()
    return rows is None or rows * sum(sizes) * _DECODED < room


def _has_orders(run: StepRun) -> bool:
    """Whether a filter of the run could change places with another step."""
    before = run.before()
    return len(run.steps) > 1 and any(
        isinstance(step, Filter) and before[i] != (1 << i) - 1 for i, step in enumerate(run.steps)
    )
