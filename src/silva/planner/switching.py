"""Weighs a change of plan, and follows what came of it.

A change costs what is in flight, which is repeated, and what workers take to start: estimated
before the first change, and measured by how much longer than usual the loop then waits for a batch.
It pays if the plan saves more than that over the rows to come. Each time that a plan has been left,
it must be 10 % better to be used again, so that plans do not alternate. A plan that is measured to
be slower than the one before it is left for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from silva.cost.experiment import ENOUGH, MARGIN, Experiment, Progress
from silva.cost.model import GAIN, duration
from silva.plan.decision import Decision, Quantity
from silva.plan.node import Node
from silva.planner.chosen import Chosen
from silva.run.placement.lane import Lane


class Switching:
    """The changes of one plan."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes = lanes
        self._batches = 0
        self._began: float | None = None
        """Seconds that the loop had waited when the plan changed, until the batch after that."""
        self._measured = 0.0
        """Seconds that the latest change made the loop wait, beyond the usual."""
        self._since = Progress()
        """When the present plan began."""
        self._experiment: Experiment[str] | None = None
        """Compares the present plan with the one before it."""
        self._before: Chosen | None = None
        """The plan before the present one."""
        self._left: list[Node] = []
        """Plans that were in use before, once for each time."""
        self._refused: list[Node] = []
        """Plans that were measured to be slower than the one before them."""
        self._history: list[Decision] = []

    # What was done so far.

    @property
    def busy(self) -> float:
        """Seconds of work."""
        return sum(lane.stats.busy for lane in self._lanes.values())

    @property
    def progress(self) -> Progress:
        """The rows that entered the plan, over all epochs, and the seconds of work for them, all of
        which count, without those in line for a core: other programs do not make a plan slower."""
        rows = max((lane.stats.rows_in for lane in self._lanes.values()), default=0)
        worked = sum(lane.stats.worked for lane in self._lanes.values())
        return Progress(rows, worked, waited=worked)

    @property
    def rows_to_come(self) -> int:
        """Rows that are still to come; where that is not known, as many as have come."""
        known = [lane for lane in self._lanes.values() if lane.rows_left is not None]
        return max((lane.rows_to_come for lane in known), default=int(self.progress.rows))

    # Whether to change.

    def may_check(self) -> bool:
        """Whether a rewrite that passed its check, and saves what makes it worth a change, saves
        more than the rows in flight."""
        lanes = [lane for lane in self._lanes.values() if lane.rows_left is not None]
        return all(lane.rows_to_come * (1 - 1 / GAIN) >= lane.rows_ahead for lane in lanes)

    @property
    def cost(self) -> float:
        """Seconds that a change is expected to cost."""
        spent = 0.0
        for lane in self._lanes.values():
            again = lane.rows_ahead + lane.blocks.next_rows()
            a_row = lane.stats.worked / max(lane.stats.rows_in, 1)
            spent += again * a_row / lane.width.now
        return max(spent, self._measured)

    def pays(self, plan: Node, seconds: float, now: float) -> bool:
        """Whether a plan that takes so many `seconds` per row saves more than the change costs,
        where a row takes `now`."""
        if plan in self._refused:
            return False
        needed = GAIN ** (1 + self._left.count(plan))
        return now >= needed * seconds and (now - seconds) * self.rows_to_come > self.cost

    def change(
        self, before: Chosen, after: Chosen, why: str, gain: float | None, since: Progress | None
    ) -> None:
        """Notes a change that is made now, and the predicted gain. `since`: when the costs began
        that hold now."""
        self._settle()
        now = self.progress
        pace = now.pace(since or self._since)
        enough = now.seconds - (since or self._since).seconds >= ENOUGH
        self._left.append(before.plan)
        self._before, self._since, self._experiment = before, now, None
        self._began = self._waited
        if gain is not None and pace and enough and not _caches(after):
            promised = {"after": pace * gain}
            self._experiment = Experiment("before", pace, promised, "after", now, margin=1 / MARGIN)
        what = " and ".join(choice.what for choice in after.choices) or "the steps as written"
        predicted = None if gain is None else Quantity((pace or 1.0) * gain)
        self._history.append(
            Decision(
                what,
                why,
                predicted,
                default=Quantity(pace or 1.0),
                kind="change",
                notes=(f"after {int(now.rows):,} rows",),
                after=int(now.rows),
            )
        )

    # What came of it.

    def count_batch(self) -> None:
        """A batch came; the first one after a change shows what that cost."""
        self._batches += 1
        if self._began is not None:
            usual = self._began / self._batches
            self._measured = max(self._waited - self._began - usual, 0.0)
            self._began = None

    @property
    def _waited(self) -> float:
        """Seconds that the loop waited for rows."""
        stats = [lane.stats for lane in self._lanes.values()]
        return sum(one.starved + one.inline for one in stats)

    def begin(self) -> None:
        """There is another base plan, or a cost has changed: paces are not compared any more."""
        self._settle()
        self._experiment = None

    def judge(self) -> str | None:
        """Why the present plan is slower than the one before it; None if it is not, or if that is
        open."""
        tried = self._experiment
        if tried is None or tried.judge(self.progress) != "before":
            return None
        now, before = (duration(1 / tried.seen[name]) for name in ("after", "before"))
        return f"it takes {now} per row, and the plan before it took {before}"

    def go_back(self, present: Chosen) -> Chosen | None:
        """The plan before the present one, which is left for good."""
        self._refused.append(present.plan)
        return self._before

    def history(self, cache_gain: float | None = None) -> tuple[Decision, ...]:
        """The changes, each with its predicted and its measured gain; `cache_gain` is that of a
        cache in the present plan."""
        if not self._history:
            return ()
        *earlier, last = self._history
        return (*earlier, _measured(last, self._gain() or cache_gain))

    def _gain(self) -> float | None:
        """How many times as fast the present plan is as the one before it, as measured."""
        tried, now = self._experiment, self.progress
        if tried is None:
            return None
        pace = tried.seen.get("after")
        if pace is None and now.seconds - tried.since.seconds >= ENOUGH:
            pace = now.pace(tried.since)
        return None if pace is None else pace / tried.seen["before"]

    def _settle(self) -> None:
        """Keeps the measured gain of the latest change."""
        if self._history and self._experiment is not None:
            self._history[-1] = _measured(self._history[-1], self._gain())


def _measured(change: Decision, gain: float | None) -> Decision:
    if gain is None or change.default is None or change.measured is not None:
        return change
    return replace(change, measured=Quantity(change.default.value * gain))


def _caches(chosen: Chosen) -> bool:
    return any(choice.what == "cache" for choice in chosen.choices)


def words(news: Sequence[str], first: bool) -> str:
    """Why a plan is changed, as a clause."""
    if news:
        return "; ".join(news)
    return "its first rows are measured" if first else "more rows are measured"
