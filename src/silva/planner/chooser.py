"""Looks at what is measured while a run goes on, and says when another plan pays.

A look is due at a batch border when a cost has drifted (`drift`), when four times as much has been
measured as for the look before it, which halves the error, or when the present plan is measured to
be slower than the one before it (`switching`).
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import thread_time

from silva.cost.costs import Cost
from silva.cost.drift import Drift
from silva.cost.experiment import Experiment, Progress
from silva.cost.model import GAIN
from silva.order.length import plan_rows
from silva.plan.decision import Decision
from silva.plan.function import show_step
from silva.plan.node import Batch, Filter, Node, walk
from silva.planner.cache_gains import Epochs
from silva.planner.cache_locations import CacheLocation
from silva.planner.chosen import WHY, Chosen
from silva.planner.known_costs import LATE, LOOP, READ, CostSource, Measured
from silva.planner.movable_runs import StepNode, StepRun, step_runs
from silva.planner.switching import Switching, words
from silva.run.placement.lane import Lane

_WORTH_KEEPING = 0.1
"""Seconds of work from which measurements are saved: less is soon measured again."""
_TIMES = 4
"""The factor of measured work at which the plan is looked at again: it halves the error."""
_SET_SECONDS = 1e-5
"""Seconds of a look for each set of steps, about, until one was measured."""
_LEAST_STEPS = 7
"""Steps whose sets take as long as the rest of a look."""
_SEARCH = "silva.planner.choose"
"""The module that searches, which the first look of a process imports."""
_FAILING = 0.2
"""The share of blocks repeated in the order written above which moving steps does not pay."""


class Chooser:
    """Chooses the form of a plan by measured costs, and chooses again when they change."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        *,
        costs: CostSource,
        epochs: int | None,
        workers: int,
        locations: Callable[[], tuple[CacheLocation, ...]],
        moves: bool,
        caches: bool,
        clock: Callable[[], float] = thread_time,
        elsewhere: Callable[[], float] = float,
    ) -> None:
        """`locations`: returns where rows may be cached. `moves`: steps may change places.
        `caches`: rows may be cached between epochs. `clock`: CPU seconds of the thread that asks.
        `elsewhere`: CPU seconds of all other planning."""
        self._clock, self._elsewhere = clock, elsewhere
        self._lanes, self._costs = lanes, costs
        self._epochs, self._workers = epochs, workers
        self._locations, self._moves, self._caches = locations, moves, caches
        self.rejected: list[Decision] = []
        self.switching = Switching(lanes)
        self.work = Epochs(lanes, workers)
        """What epochs cost with a cache."""
        self.runs: list[StepRun] = []
        self.known: list[Measured] = []
        """What the steps of each run cost."""
        self._drifts: list[Drift] = []
        self._filled_in: int | None = None
        """The epoch in which a cache was chosen; None without one."""
        self._started = False
        self._next = costs.effort.stretch
        """Seconds of work at which costs are compared again."""
        self._looked_at = 0.0
        """Seconds of work that had been measured at the latest look."""
        self._news: list[str] = []
        """What has changed since the latest look."""
        self._slower: str | None = None
        """Why the present plan is left for the one before it."""
        self._given_up: str | None = None
        """Why the present plan is left for another one of its kind."""
        self._marks: deque[Progress] = deque(maxlen=3)
        """The latest comparisons of costs: a drift takes about so many to be seen."""
        self.planning_seconds = 0.0
        """CPU seconds of looks and of comparing costs so far."""
        self._look_seconds = 0.0
        """CPU seconds of the longest look, without what it imported."""
        self._importing = 0.0
        """CPU seconds of the import of the search, which only one look of a process takes."""
        self._kept_at = 0.0
        """Seconds of work that had been done when measurements were last saved."""

    def begin(self, base: Node) -> None:
        """Chooses among the forms of `base` from now on. Measured costs of steps that are in it are
        kept."""
        before = {
            step.id: (step.step, known.steps[step.id])
            for run, known in zip(self.runs, self.known, strict=True)
            for step in run.steps
            if step.id in known.steps
        }
        reads = [replace(known, steps={}) for known in self.known]
        self.base, self.present = base, Chosen(base, base)
        self.runs = list(step_runs(base))
        self.known = [*reads, *(Measured() for _ in self.runs)][: len(self.runs)]
        self._drifts = [
            Drift(_NOT_STEPS | {step.id: name_of(step) for step in run.steps}) for run in self.runs
        ]
        for run, known in zip(self.runs, self.known, strict=True):
            for step in run.steps:
                was, cost = before.get(step.id, (None, None))
                if cost is not None and was == step.step:
                    known.steps[step.id] = cost
        self.switching.begin()
        orders = self._moves and any(map(has_orders, self.runs))
        self.open = orders or (self._caches and any(run.at_source for run in self.runs))
        """Whether measurements could change anything."""

    # When to look.

    def first(self, epoch: int) -> None:
        """Chooses a plan before the first row, by measurements of earlier runs, unless the trainer
        would wait too long for it."""
        if self._started or not self.open:
            return
        self._started, began = True, self._clock()
        self.known = [self._costs.before(run) for run in self.runs]
        knows, effort = any(known.steps for known in self.known), self._costs.effort
        ends = began + effort.first * self._first_batch()
        if knows and self._may_plan(ends - self._clock(), 1.0):
            self._use(self._choose(epoch, ends), epoch)
            self._count_look(began)
        else:
            self.planning_seconds += self._clock() - began

    def due(self) -> bool:
        """Whether it is time for a look; called after each batch."""
        self.switching.count_batch()
        if self._fails():
            return True
        spent = self.switching.busy
        if not self.open or spent < self._next:
            return False
        self._next, began = spent + self._costs.effort.stretch, self._clock()
        self._collect()
        self._slower = self.switching.judge()
        self._given_up = self._given_up or self._cache_is_slower()
        self._marks.append(self.switching.progress)
        self.planning_seconds += self._clock() - began
        if self._slower or self._given_up:
            return True
        more = spent >= _TIMES * self._looked_at
        return (more or bool(self._news)) and self._may_plan(math.inf, 1.0)

    def _may_plan(self, work: float, share: float) -> bool:
        """Whether one more look takes at most this share of some seconds of `work`, and planning
        its share of all work."""
        looks = self._look_seconds
        if not looks:
            longest = max((len(run.steps) for run in self.runs), default=0)
            looks = _SET_SECONDS * 2.0 ** max(longest, _LEAST_STEPS)
        most = self._costs.effort.share
        if most == math.inf:
            return True
        # importing the search takes as long as a thousand sets, but only once in a process
        imports = 0.0 if _SEARCH in sys.modules else 1000 * _SET_SECONDS
        spent = self.planning_seconds + self._elsewhere()
        return looks + imports <= share * work and spent + looks <= most * self._work_in_all()

    def _count_look(self, began: float) -> None:
        took = self._clock() - began
        self.planning_seconds += took
        self._look_seconds = max(self._look_seconds, took - self._importing)
        self._importing = 0.0

    def _work_in_all(self) -> float:
        """Seconds of work of the whole run, as far as they are known."""
        done = self.switching.progress
        if done.rows:
            return done.seconds * (1 + self.switching.rows_to_come / done.rows)
        rows = [plan_rows(run.below) for run in self.runs]
        if None in rows:
            return math.inf
        return sum((count or 0) * self._source_row(n)[0] for n, count in enumerate(rows))

    def _first_batch(self) -> float:
        """Seconds of work for the first batch, as far as they are known."""
        sizes = (node.size or node.per_rank for node in walk(self.base) if isinstance(node, Batch))
        rows = max(filter(None, sizes), default=1)
        every = map(self._source_row, range(len(self.runs)))
        batch = sum(rows * seconds / max(kept, 1e-9) for seconds, kept in every)
        return min(batch, self._work_in_all())

    def _source_row(self, number: int) -> tuple[float, float]:
        """Seconds for a row of the source in the order written, and the share of rows that is
        kept."""
        known, kept = self.known[number], 1.0
        seconds = known.read.seconds_a_row + known.late.seconds_a_row
        for step in self.runs[number].steps:
            cost = known.steps.get(step.id, _NOT_KNOWN)
            seconds += kept * cost.seconds_a_row
            kept *= cost.selectivity if isinstance(step, Filter) else 1.0
        return seconds, kept

    def _fails(self) -> bool:
        """Whether moved steps fail on rows that a filter would have dropped before them."""
        reorders = self._moves and any(choice.what == "order" for choice in self.present.choices)
        if not reorders or not any(map(_often_repeats, self._lanes.values())):
            return False
        self._given_up = "steps fail on rows that a filter before them would have dropped"
        self._moves = False
        return True

    def _cache_is_slower(self) -> str | None:
        """Why a cache is given up; None if it is not."""
        made = self.cache_gain
        if not self._caches or made is None or (made.measured_gain or 1.0) * GAIN > 1.0:
            return None
        self._caches = False
        return f"epochs that read it were measured {made.measured_gain:.1f}× as fast as without it"

    # What to do.

    def look(self, epoch: int, fresh: bool = False) -> None:
        """Changes to another plan, if one pays by what was measured; `fresh`: a new base plan is
        opened anyway."""
        began = self._clock()
        self._collect()
        if self._slower or self._given_up:
            self._go_back(epoch)
        elif fresh:
            self._use(self._choose(epoch), epoch)
        else:
            self._weigh(self._choose(epoch), epoch)
        self._news, self._slower, self._given_up = [], None, None
        self._looked_at = self.switching.busy
        self._count_look(began)

    def _collect(self) -> None:
        """Takes over what was measured, and notes what has drifted."""
        drifted: list[str] = []
        for number, (run, drift) in enumerate(zip(self.runs, self._drifts, strict=True)):
            before, found = self.known[number], self._costs.now(run)
            costs = found.costs()
            drifted += map(str, drift.compare(costs))
            recent = {name: drift.present(name, cost) for name, cost in costs.items()}
            self.known[number] = now = before.updated(found.with_costs(recent))
            if self._filled_in is not None:  # a cache works on the loop's thread
                now.loop = before.loop
        if drifted:
            self._news += drifted
            self.switching.begin()

    def _choose(self, epoch: int, ends: float = math.inf) -> Chosen:
        """`ends`: when the search must end, on the clock of planning."""
        began = self._clock()
        from silva.planner.choose import choose
        from silva.planner.search import Deadline

        self._importing = self._clock() - began
        # the epoch that fills the cache counts as well
        since = epoch if self._filled_in is None else self._filled_in
        return choose(
            self.base,
            self.known,
            epochs=1 if self._epochs is None else max(self._epochs - since, 1),
            workers=self._workers,
            locations=self._locations() if self._caches else (),
            reorders=self._moves,
            deadline=Deadline(ends, self._clock),
        )

    def _use(self, chosen: Chosen, epoch: int) -> None:
        self.present = chosen
        cached = any(choice.what == "cache" for choice in chosen.choices)
        if not cached:
            self._filled_in = None
        elif self._filled_in is None:
            self._filled_in = epoch
        rows = plan_rows(self.runs[0].below) if len(self.runs) == 1 else None
        self.work.promise(chosen.plan, chosen.choices, rows or 0)

    def _weigh(self, chosen: Chosen, epoch: int) -> None:
        """Uses a plan if it pays, or if it is the present one, with its present predictions."""
        if chosen.plan != self.present.plan:
            now, then = (self._price(one, epoch) for one in (self.present, chosen))
            known = now is not None and then is not None
            if known and not self.switching.pays(chosen.plan, then or 0.0, now or 0.0):
                return
            gain = now / then if now and then else None
            why = words(self._news, first=not self._looked_at)
            self.switching.change(self.present, chosen, why, gain, self._since())
            if self._filled_in is not None and chosen.forms != self.present.forms:
                self._filled_in = None  # another cache is filled anew
        self._use(chosen, epoch)

    def _price(self, chosen: Chosen, epoch: int) -> float | None:
        """Seconds per row, in all epochs to come; None where that is not known any more."""
        from silva.planner.choose import price

        left = 1 if self._epochs is None else max(self._epochs - epoch, 1)
        full = chosen is self.present and self._filled_in is not None and self._filled_in < epoch
        seconds = price(
            self.base, self.known, chosen.forms, epochs=left, workers=self._workers, warm=full
        )
        return None if seconds is None else seconds / left

    def _since(self) -> Progress | None:
        """When the costs began that hold now; None for the beginning of the plan."""
        return self._marks[0] if self._news and self._marks else None

    def _go_back(self, epoch: int) -> None:
        """Leaves the present plan for good."""
        why = self._slower or self._given_up or ""
        whats = [choice.what for choice in self.present.choices] or ["order"]
        self.rejected += [Decision(what, WHY[what], why_not=why) for what in whats]
        before = self.switching.go_back(self.present) if self._slower else None
        chosen = before or self._choose(epoch)
        if chosen.plan != self.present.plan:
            self.switching.change(self.present, chosen, why, None, None)
        self._use(chosen, epoch)

    # What became of it.

    @property
    def cache_gain(self) -> Experiment[str] | None:
        """The predicted and the measured gain of a cache; None if there is none to report."""
        made = self.work.experiment if len(self.runs) == 1 else None
        return None if made is None or made.measured_gain is None else made

    @property
    def history(self) -> tuple[Decision, ...]:
        """The changes of the plan while it ran."""
        made = self.cache_gain
        return self.switching.history(None if made is None else made.measured_gain)

    def end(self, complete: bool, keep: bool) -> None:
        """Called when a loop ends. The trainer waits for the next one, so measurements are saved
        for later runs only if much of them is new; with `keep`, if at all."""
        self.work.end(self.present.plan, complete)
        busy = self.switching.busy
        if not keep or busy < max(_WORTH_KEEPING, 2 * self._kept_at) or sys.is_finalizing():
            return
        self._kept_at = busy
        self._collect()
        self._costs.keep(self.runs, self.known)


def _often_repeats(lane: Lane) -> bool:
    return lane.stats.again >= 3 and lane.stats.again > _FAILING * lane.stats.followed


def has_orders(run: StepRun) -> bool:
    """Whether a filter of the run could change places with another step."""
    before = run.before()
    return len(run.steps) > 1 and any(
        isinstance(step, Filter) and before[i] != (1 << i) - 1 for i, step in enumerate(run.steps)
    )


def name_of(step: StepNode) -> str:
    """A short name of a step."""
    return f"filter {show_step(step.step)}" if isinstance(step, Filter) else ", ".join(step.into)


_NOT_KNOWN = Cost()
_NOT_STEPS = {READ: "reading", LATE: "reading after the filters", LOOP: "the loop"}
"""What costs that are not those of a step are called in words."""
