"""The plan of one loader: what the rules made of it, what measurements suggest, and when to change.

A plan may change at the border of any batch, since a state is tied to the pipeline as written: the
new plan is opened at the state after the batch that was handed out last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from silva.errors import StateError
from silva.optimize.model import duration
from silva.optimize.runner import Outcome, optimize
from silva.optimize.runs import Run, runs
from silva.order.length import plan_rows
from silva.physical.context import Context
from silva.physical.lower import Lowering, WeightsOf
from silva.physical.right_sides import ReadColumns, RightSides
from silva.physical.stage import Result
from silva.physical.twins import with_written
from silva.plan.fingerprint import digest, fingerprint
from silva.plan.law import known_laws
from silva.plan.node import Cache, Filter, Node, option, transform
from silva.planning.check import Verdict
from silva.planning.checking import Checking
from silva.planning.choose import Choice, choose
from silva.planning.compare import Difference
from silva.planning.gains import CacheGain, Epochs
from silva.planning.measured import Measured, from_book, from_lanes, write_down
from silva.planning.units import Room
from silva.profile.book import Book
from silva.run.lane import Lane

_LOOKS = (0.15, 0.8, 5.0, 30.0)
"""Seconds of work after which the plan is looked at again: soon, and when more is known."""
_WORTH_KEEPING = 0.1
"""Seconds of work: what takes less is measured again soon enough."""
_ENOUGH = 0.25
"""Seconds of work by which plans are compared."""
_SLOWER = 1.05
_DECODED = 8
"""Bytes that a photo has for each byte of its file, about."""
_MANY_TIMES = 20
"""As much must be left as is in flight, for a law to be worth another plan."""
_FAILING = 0.2
"""Of the blocks, done again in the order written: moving steps does not pay."""


@dataclass(frozen=True)
class _Pace:
    """How much work a row was before a plan began, and where the counters stood then."""

    busy: float
    rows: int
    before: float | None

    def so_far(self, busy: float, rows: int) -> float | None:
        """Seconds of work a row since then; None where too little was done to tell."""
        if busy - self.busy < _ENOUGH or rows <= self.rows:
            return None
        return (busy - self.busy) / (rows - self.rows)


class Planner:
    def __init__(
        self,
        written: Node,
        *,
        weights_of: WeightsOf,
        read_columns: ReadColumns,
        lanes: Mapping[str, Lane],
        epochs: int | None,
        workers: int,
        rooms: Callable[[], tuple[Room, ...]],
        substitutes: bool = False,
        lenient: bool = False,
    ) -> None:
        """`substitutes`: something is put in the place of bad rows; `lenient`: they do not end the
        run."""
        self._written = transform(written, _keyed)
        self._weights_of = weights_of
        self._rights = RightSides(read_columns)
        self._lanes = lanes
        self._epochs = epochs
        self._workers = workers
        self._rooms = rooms
        self._substitutes = substitutes
        self._lenient = lenient
        self._optimizes = bool(option(written, "optimize", True))
        self._disabled = frozenset(option(written, "disable", ()))
        self.choices: tuple[Choice, ...] = ()
        self.rejected: list[str] = []
        self.refuted: dict[str, str] = {}
        """Rules and laws that gave something else on real rows, and what."""
        self.apart: tuple[Difference, ...] = ()
        """How far close laws are from the plan as written, on real rows."""
        self._book = Book()
        self._left_out: frozenset[str] = frozenset()
        """Rules that are not used: laws that stand in the way of a cache, and close rewrites that a
        state was saved without."""
        self._looks: list[float] = []
        self._pace = _Pace(0.0, 0, None)
        self._work = Epochs(lanes, workers)
        self._kept_at = 0.0
        """Seconds of work that were done when what was measured was written down."""
        self._plan()

    def _plan(self) -> None:
        """Lets the rules make a plan of what was written."""
        self._runs: list[Run] = []
        self._known: list[Measured] = []
        self._started = False
        full, self.outcomes = self._optimized(frozenset())
        if held_back := self._held_back():
            self._left_out |= held_back
            full, self.outcomes = self._optimized(frozenset())
        applied = [o.rule for o in self.outcomes if o.applied and o.numeric]
        self._suspects = [rule.name for rule in applied if rule.exact]
        self.close = tuple(sorted(rule.name for rule in applied if not rule.exact))
        """Rewrites in use that do not keep every bit."""
        self.checking = Checking(
            self._suspects, self.close, self._plan_without, self._workers > 0, self._rows_in_all
        )
        base = self._optimized(frozenset(self._suspects))[0] if self._suspects else full
        self._begin(base)
        self._looks = list(_LOOKS) if self._optimizes and self._may_choose() else []

    def _held_back(self) -> frozenset[str]:
        """Laws by which something is made for one reader alone, where it may be better to keep it
        whole between epochs."""
        last = {law.name for law in known_laws() if law.last}
        used = frozenset(o.rule.name for o in self.outcomes if o.applied and o.rule.name in last)
        if not used or not self._keeps_rows:
            return frozenset()
        room = max((room.nbytes for room in self._rooms()), default=0)
        fits = [_may_fit(run, room) for run in runs(self._written) if run.source is not None]
        return used if any(fits) else frozenset()

    @property
    def _keeps_rows(self) -> bool:
        """Whether rows may be kept between epochs."""
        many = self._epochs is not None and self._epochs > 1
        return self._optimizes and many and "cache" not in self._disabled

    def use_close(self, names: Sequence[str]) -> None:
        """Uses just these close rewrites, as the run did whose state is loaded."""
        missing = sorted(set(names) - set(self.close))
        if missing:
            raise StateError(
                f"the state was saved by a plan that used {missing[0]!r}, which this one does not "
                "(see options(fidelity=…, disable=…)): the rows would not be the same"
            )
        if set(names) != set(self.close):
            self._left_out |= frozenset(self.close) - set(names)
            self._plan()

    def _optimized(self, without: frozenset[str]) -> tuple[Node, list[Outcome]]:
        return optimize(self._written, without | self._left_out, self._substitutes)

    def _named(self) -> Node:
        """The plan with steps as they were written: an error shall name what the user wrote."""
        changed = [o.rule for o in self.outcomes if o.applied and o.rule.exact]
        names = [rule.name for rule in changed if rule.numeric or rule.merges]
        return self._optimized(frozenset(names))[0]

    def _begin(self, base: Node) -> None:
        """From now on plans are made of `base`; what is known of steps that are in it stays."""
        before = {
            step.id: (step.step, known.steps[step.id])
            for run, known in zip(self._runs, self._known, strict=True)
            for step in run.steps
            if step.id in known.steps
        }
        reads = [(known.read, known.late) for known in self._known]
        self._ruled = self.plan = base
        self._twin = base if self._lenient or not self._optimizes else self._named()
        self._runs = list(runs(base))
        self._known = [Measured() for _ in self._runs]
        for number, (run, known) in enumerate(zip(self._runs, self._known, strict=True)):
            if number < len(reads):
                known.read, known.late = reads[number]
            for step in run.steps:
                was, cost = before.get(step.id, (None, None))
                if cost is not None and was == step.step:
                    known.steps[step.id] = cost
        self._physical: Any = None

    # The plan.

    def physical(self) -> Any:
        """The plan as it runs."""
        if self._physical is None:
            self._physical = self._lower(self.plan)
            if self._twin != self.plan:
                self._physical = with_written(self._physical, self._lower(self._twin))
        return self._physical

    def _lower(self, plan: Node) -> Any:
        variant = f"-{digest(self.close)[:8]}" if self.close else ""
        return Lowering(
            self._weights_of,
            self._rights,
            frugal=self._optimizes,
            variant=variant,
            may_cut=self._optimizes and "cut" not in self._disabled,
        ).lower(plan)

    def forget(self) -> None:
        """The plan must be lowered again."""
        self._physical = None

    # Choosing.

    @property
    def settled(self) -> bool:
        """Nothing more will change."""
        pending = self._looks or self.checking.pending
        return not pending and (not self._is_reordered or bool(self.rejected))

    @property
    def _is_reordered(self) -> bool:
        return any(choice.name == "order" for choice in self.choices)

    @property
    def _caches(self) -> bool:
        return any(choice.name == "cache" for choice in self.choices)

    @property
    def unchecked(self) -> frozenset[str]:
        """Rules and laws that are not used yet: the check of them is still to come."""
        return frozenset(self._suspects) if self.checking.pending else frozenset()

    def _may_choose(self) -> bool:
        """Whether there is anything to choose."""
        caches = self._keeps_rows and any(run.at_source for run in self._runs)
        orders = "order" not in self._disabled and any(map(_has_orders, self._runs))
        return caches or orders

    def _rows_in_all(self) -> int | None:
        """Rows of the epochs that are known of; None where nobody can tell."""
        rows = plan_rows(self._written)
        return None if rows is None else rows * (self._epochs or 1)

    def start(self, epoch: int, whole: bool = True) -> None:
        """A loop begins, at the start of an epoch or within: what earlier runs measured may be all
        that is needed."""
        self._first_choice(epoch)
        self._work.begin(self.plan, whole)

    def end(self, complete: bool) -> None:
        """A loop has ended. The trainer waits for the next one: what was measured is written down
        only where much of it is new."""
        self._work.end(self.plan, complete)
        if self._busy() >= 2 * self._kept_at:
            self.write_down()

    @property
    def cache_gain(self) -> CacheGain | None:
        """What was expected of a cache, and what came of it."""
        return self._work.gain(self.choices) if len(self._runs) == 1 else None

    def _first_choice(self, epoch: int) -> None:
        if self._started or not self._looks:
            return
        self._started = True
        for number, run in enumerate(self._runs):
            if run.source is not None:
                self._known[number] = from_book(self._book, run.source, run.steps)
        self._choose(epoch)

    def due(self) -> bool:
        """Whether it is time to look at the plan again."""
        if self.checking.verdict is not None and self._may_change():
            return True
        if self._looks and self._busy() >= self._looks[0]:
            return True
        return self._is_reordered and not self.rejected and self._fails()

    def _may_change(self) -> bool:
        """Whether what is in flight, which a new plan does again, is little beside what is left."""
        lanes = [lane for lane in self._lanes.values() if lane.rows_left is not None]
        return all(lane.rows_to_come >= _MANY_TIMES * lane.rows_ahead for lane in lanes)

    def _busy(self) -> float:
        return sum(lane.stats.busy for lane in self._lanes.values())

    def look(self, epoch: int) -> bool:
        """Takes in what was measured and checked; whether the plan is another now."""
        plan = self.plan
        spent = self._busy()
        self._looks = [at for at in self._looks if at > spent]
        self._collect()
        self._judge()
        verdict = self.checking.take_verdict() if self._may_change() else None
        if verdict is not None:
            self._conclude(verdict)
        self._choose(epoch)
        return self.plan != plan

    # Checking.

    def note(self, node: Any, payload: Any, context: Context, results: list[Result]) -> bool:
        """Sees a block of the run; whether more are wanted."""
        if not self.checking.pending:
            return False
        return self.checking.note(self.physical(), node, payload, context, results)

    def _plan_without(self, names: frozenset[str]) -> Any:
        return self._lower(self._optimized(names)[0])

    def _conclude(self, verdict: Verdict) -> None:
        """Uses what has passed."""
        self.refuted, self.apart = verdict.refuted, verdict.apart
        base, outcomes = self._optimized(frozenset(self.refuted))
        self.outcomes = [
            replace(o, why=f"differs on these rows: {self.refuted[o.rule.name]}")
            if o.rule.name in self.refuted
            else o
            for o in outcomes
        ]
        self._begin(base)

    def _collect(self) -> None:
        lanes = list(self._lanes.values())
        for number, run in enumerate(self._runs):
            seen = from_lanes(lanes, run.steps)
            self._known[number] = self._known[number].updated(seen)

    def _choose(self, epoch: int) -> None:
        left = 1 if self._epochs is None else max(self._epochs - epoch, 1)
        left += self._caches  # its first is behind it
        chosen = choose(
            self._ruled,
            self._known,
            epochs=left,
            workers=self._workers,
            rooms=() if "cache" in self._disabled else self._rooms(),
            reorders="order" not in self._disabled and not self._fails(),
        )
        self.choices = chosen.choices
        self._work.promise(chosen.plan, chosen.choices)
        if chosen.plan != self.plan:
            busy, rows = self._busy(), self._rows()
            self._pace = _Pace(busy, rows, self._pace.so_far(busy, rows))
            self.plan, self._twin, self._physical = chosen.plan, chosen.twin, None

    def _judge(self) -> None:
        """An order that turns out to be slower than what was before it is given up. (A cache is
        slower at first: it is being filled.)"""
        if not self._is_reordered or self.rejected or self._caches:
            return
        now = self._pace.so_far(self._busy(), self._rows())
        if self._pace.before and now and now > _SLOWER * self._pace.before:
            self.rejected.append(
                f"order: {duration(now)} of work a row, {duration(self._pace.before)} before it"
            )

    def _rows(self) -> int:
        """Rows that have come in, over all epochs."""
        return max((lane.stats.rows_in for lane in self._lanes.values()), default=0)

    def _fails(self) -> bool:
        """Whether steps that were moved fail on rows that a filter would have dropped."""
        if not self.rejected and any(_often_again(lane) for lane in self._lanes.values()):
            self.rejected.append(
                "order: steps fail on rows that a filter before them would have dropped"
            )
        return bool(self.rejected)

    # Remembering.

    def write_down(self) -> None:
        """Keeps what was measured for later runs, where it took long enough to matter."""
        if not self._optimizes or self._busy() < _WORTH_KEEPING or sys.is_finalizing():
            return
        self._kept_at = self._busy()
        self._collect()
        for run, known in zip(self._runs, self._known, strict=True):
            if run.source is not None:
                write_down(self._book, run.source, run.steps, known)
        self._book.tidy()


def _often_again(lane: Lane) -> bool:
    return lane.stats.again >= 3 and lane.stats.again > _FAILING * lane.stats.followed


def _keyed(node: Node) -> Node:
    """A cache that knows its rows by what was written, whatever becomes of the plan."""
    return replace(node, key=fingerprint(node.input)) if isinstance(node, Cache) else node


def _may_fit(run: Run, room: int) -> bool:
    """Whether there may be room for what is decoded of a source; where nobody knows, there may."""
    assert run.source is not None
    tells, rows = getattr(run.source.source, "row_bytes", None), plan_rows(run.below)
    return tells is None or rows is None or rows * sum(tells().values()) * _DECODED < room


def _has_orders(run: Run) -> bool:
    """Whether a filter could come before a step that it now comes after, or the other way round."""
    before = run.before()
    return len(run.steps) > 1 and any(
        isinstance(step, Filter) and before[i] != (1 << i) - 1 for i, step in enumerate(run.steps)
    )
