"""Whether a stage is better off as two parts in different places: proposed, tried, judged.

A proposal rests on what its steps cost and on who of them holds Python's lock (`optimize.cutting`).
It is tried only after the stage has run in one piece for a while and was what limited; what came of
it is then compared with that, and a cut that does not pay is undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from silva.optimize.cutting import WAYS, Crossing, Proposal, StepLoad, propose, told
from silva.optimize.model import OPERATORS_SHARE, Backend, Load, Prediction
from silva.optimize.system import Loaded, throughput
from silva.physical.cut import Cut, cut, live, places, written
from silva.physical.stage import Stage
from silva.physical.steps import Evaluate, Keep, Step
from silva.profile.costs import Cost
from silva.run.forecast import Counters
from silva.run.lane_stats import LaneStats
from silva.run.trial import MOSTLY, SECONDS

_KNOWN_BLOCKS = 5
"""By then the costs of steps are about the stage as it is."""
_MORE = 4
"""Times as many blocks until the next look, where nothing was proposed."""


@dataclass(frozen=True, eq=False)
class ChosenCut:
    """A stage in two parts, and where they run."""

    cut: Cut
    backends: tuple[Backend, Backend]


class Cutting:
    def __init__(self) -> None:
        self.chosen: ChosenCut | None = None
        """None while the stage is in one piece."""
        self.proposal: Proposal | None = None
        self.reason = ""
        self.gain: float | None = None
        """Measured: times as fast as in one piece."""
        self.refused: str | None = None
        """Why what was tried was given up."""
        self.since = Counters(0, 0.0, 0.0, 0.0, 0.0, 0)
        self.least = 0.0
        """Rows a second that it must do, since the consumer did so many alone."""
        self._settling = self._settled_at = 0
        """Blocks that are left out after a cut: those in flight are still in one piece."""
        self._look_at = _KNOWN_BLOCKS
        """Blocks after which it is considered next: the first rows are often slow, and mislead."""
        self._whole: float | None = None
        """Rows a second in one piece."""
        self._locks: dict[str, float] = {}
        """Shares of the lock that were seen of steps, by their label: a step has it in any order.
        """

    def due(self, blocks: int) -> bool:
        """Whether enough is known of the stage, of which so many blocks are done."""
        idle = self.proposal is None and self.refused is None
        return idle and blocks >= self._look_at

    def consider(
        self,
        stage: Any,
        stats: LaneStats,
        load: Load,
        *,
        lock_share: float | None,
        stretch: float,
        workers: int,
        cores: int,
        consumer: float,
        block_rows: int,
        left: float,
        since: Counters,
    ) -> None:
        """Looks for a cut. `lock_share` is what was seen of the whole stage, if anybody looked, and
        `stretch` the seconds for each of its CPU seconds while nobody was in its way; how fast it
        is in one piece is measured from `since` on."""
        self._look_at, self.since = _MORE * max(stats.followed, _KNOWN_BLOCKS), since
        self._settling = 2 * workers + 1
        if not isinstance(stage, Stage) or lock_share is None:
            return
        self._see_locks(stage, stats.steps)
        loads = self._loads(stage, stats, lock_share, stretch)
        found = {at: crossing(stage, stats, at) for at in places(stage)} if loads else {}
        crossings = {at: one for at, one in found.items() if one is not None}
        if not crossings:
            return
        seconds, lock = sum(s.seconds for s in loads), sum(s.lock for s in loads)
        whole = replace(
            load,
            seconds=seconds,
            cpu=sum(s.cpu for s in loads),
            lock_share=min(lock / max(seconds, 1e-12), 1.0),
        )
        self.proposal = propose(
            loads,
            crossings,
            whole,
            workers=workers,
            cores=cores,
            consumer=consumer,
            block_rows=block_rows,
            left=left,
        )
        if self.proposal is not None:
            made = cut(stage, self.proposal.at)
            self._next = ChosenCut(made, self.proposal.backends)
            self.reason = told(self.proposal, _name(stage.steps[self.proposal.at - 1]))

    def looked(self, now: Counters) -> bool:
        """Cuts the stage, or judges the cut, when it is time; whether it is another now."""
        if now.blocks < self._settled_at:
            self.since = now
        if self.proposal is None or now.elapsed - self.since.elapsed < SECONDS:
            return False
        since, self.since = self.since, now
        pace = now.pace(since)
        if pace is None or now.starved - since.starved < MOSTLY * (now.elapsed - since.elapsed):
            return False  # something else limits: a cut would not show
        if self.chosen is None:
            self.chosen, self._whole = self._next, max(pace, self.least)
            self._settled_at = now.blocks + self._settling
            return True
        if self._whole is None:  # judged before
            return False
        whole, self._whole = self._whole, None
        self.gain = pace / whole
        if self.gain >= 1.0:
            return False
        self.refused = f"{pace:,.0f} rows/s cut in two, {whole:,.0f} in one piece"
        self.give_up()
        return True

    def give_up(self) -> None:
        """The stage is in one piece from now on."""
        self.chosen = self.proposal = self._whole = None

    def forget(self, stage: Any, steps: list[Cost]) -> None:
        """The stage becomes another."""
        if isinstance(stage, Stage):
            self._see_locks(stage, steps)
        self.give_up()
        self._look_at, self.gain, self.refused = _KNOWN_BLOCKS, None, None

    def parts(self, stats: LaneStats) -> tuple[Load, Load] | None:
        """What a row costs in each part, as measured; None where there are none."""
        proposal, chosen = self.proposal, self.chosen
        if proposal is None or chosen is None:
            return None
        costs, rows = stats.steps, stats.steps[0].rows if stats.steps else 0
        if not rows:
            return proposal.first, proposal.second
        at = chosen.cut.at + 1
        return (
            _measured(proposal.first, [*costs[:at], stats.late], rows),
            _measured(proposal.second, costs[at:], rows),
        )

    def prediction(self, stats: LaneStats, workers: int, cores: int) -> Prediction | None:
        """How fast the stage will be in two; None where it is in one piece."""
        loads, chosen = self.parts(stats), self.chosen
        if loads is None or chosen is None:
            return None
        parts = [
            Loaded(f"part {i + 1}", load, backend, workers)
            for i, (load, backend) in enumerate(zip(loads, chosen.backends, strict=True))
        ]
        found = throughput(parts, cores)
        return Prediction(found.rows_per_second, sum(load.cpu for load in loads), found.limit)

    def _see_locks(self, stage: Stage, steps: list[Cost]) -> None:
        for step, cost in zip(stage.steps, steps[1:], strict=False):
            if cost.lock_share is not None:
                self._locks[step.label] = cost.lock_share

    def _loads(
        self, stage: Stage, stats: LaneStats, lock_share: float, stretch: float
    ) -> list[StepLoad]:
        """Of reading and of each step, for a row that comes into the stage, without the time that
        workers wait for each other."""
        if len(stats.steps) != len(stage.steps) + 1 or not stats.steps[0].rows:
            return []
        rows, reading = stats.steps[0].rows, stats.steps[0]
        found = [_load(reading, rows, _share(reading.lock_share, OPERATORS_SHARE), stretch)]
        for step, cost in zip(stage.steps, stats.steps[1:], strict=True):
            usual = OPERATORS_SHARE if isinstance(step, Evaluate) else lock_share
            found.append(_load(cost, rows, self._locks.get(step.label, usual), stretch))
        late, at = stats.late, stage.late_at
        if late.rows and at >= 0:
            here, there = found[min(at, len(stage.steps) - 1) + 1], _load(late, rows, 0.0, stretch)
            found[min(at, len(stage.steps) - 1) + 1] = StepLoad(
                here.seconds + there.seconds, here.cpu + there.cpu, here.lock
            )
        return found


def _share(seen: float | None, usual: float) -> float:
    return usual if seen is None else seen


def _load(cost: Cost, rows: int, share: float, stretch: float) -> StepLoad:
    seconds = min(cost.seconds, stretch * cost.cpu) / rows
    return StepLoad(seconds, cost.cpu / rows, seconds * share)


def _measured(planned: Load, costs: list[Cost], rows: int) -> Load:
    return replace(
        planned,
        seconds=sum(cost.seconds for cost in costs) / rows,
        cpu=sum(cost.cpu for cost in costs) / rows,
    )


def crossing(stage: Stage, stats: LaneStats, at: int) -> Crossing | None:
    """What crosses a cut; None where a column was never seen."""
    made = cut(stage, at)
    handed = [_column(stats, name, at) for name in live(stage, at)]
    sent = [_column(stats, name, at) for name in made.sent]
    after = stage.steps[at:-1]
    ours = {name for step in after for name in written(step)}
    names = [old for old, _ in made.names]
    last = len(stage.steps) - 1
    gives = [_column(stats, name, last) for name in names if name in ours]
    stays = [_column(stats, name, last) for name in names if name not in ours]
    if any(one is None for one in (*handed, *sent, *gives, *stays)):
        return None
    ways = tuple(
        way
        for way, through in zip(WAYS, ((*sent, *gives), handed), strict=True)
        if not any(one is not None and one[1] for one in through)
    )
    filters = any(isinstance(step, Keep) for step in after)
    return Crossing(
        _total(handed), _total(sent), _total(gives), _total(stays) if filters else 0.0, ways
    )


def _total(found: list[tuple[float, bool] | None]) -> float:
    return sum(one[0] for one in found if one is not None)


def _column(stats: LaneStats, name: str, at: int) -> tuple[float, bool] | None:
    """Bytes of a column after `at` steps for a row that comes into the stage, and whether it holds
    Python objects; None where it was never seen."""
    costs = stats.steps
    for cost in (*reversed(costs[1 : at + 1]), stats.late, costs[0]):
        if name in cost.columns:
            left = costs[at].kept / max(cost.kept, 1)
            return cost.columns[name] / costs[0].rows * left, name in cost.objects
    return None


def _name(step: Step) -> str:
    return f"`{', '.join(written(step)) or step.label}`"
