"""Checks rewrites that depend on numbers on rows of the run, before they are used.

The first blocks are computed by the plan without these rewrites. The plan with them then runs on
the same inputs, on another thread, and the results are compared bit by bit. Where a row differs,
bisection finds the rewrite responsible, which is left out. This is a tripwire, not a proof: the
proof is each law's own test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from silva.columns import Block
from silva.lifetime import Thread, join_all
from silva.physical.plan import PhysicalNode
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.raised import in_words
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import Call, CallColumns, Evaluate, Keep, Project
from silva.physical.written_form import segments
from silva.planner.compare_blocks import Difference, differences
from silva.planner.known_costs import PLANNING_SHARE
from silva.run.placement.sizing import FIRST_ROWS
from silva.run.pools.task import execute

_ROWS = 16
"""Rows of each stage: enough to see that a rewrite is wrong, few enough to cost little."""
_BLOCKS = _ROWS // FIRST_ROWS
"""Blocks of each stage: as many as have these rows, if they are as large as the first."""


@dataclass(frozen=True, eq=False)
class Witness:
    """An input of a stage, kept to run other plans on it."""

    name: str
    stage: Stage
    payload: Any
    context: Context

    @staticmethod
    def of(name: str, stage: Stage, payload: Any, context: Context, most: int) -> Witness:
        """The first rows of an input, at most `most` of them."""
        few = payload.slice(0, most) if len(payload) > most else payload
        return Witness(name, stage, few, context)


class Witnesses:
    """The first inputs of every stage, gathered until there are enough; `rows` are those of the
    run."""

    def __init__(self, rows: int | None = None) -> None:
        # each is computed twice more, and the rest of planning may take as much
        share = _ROWS if rows is None else int(PLANNING_SHARE * rows / (2 * 2))
        self.most = min(max(share, FIRST_ROWS), _ROWS)
        """The number of rows of a stage that is enough."""
        self.kept: list[Witness] = []
        self._rows: dict[str, int] = {}
        self._blocks: dict[str, int] = {}

    def note(self, witness: Witness) -> None:
        if not self.wants(witness.name):
            return
        self.kept.append(witness)
        self._rows[witness.name] = self._rows.get(witness.name, 0) + len(witness.payload)
        self._blocks[witness.name] = self._blocks.get(witness.name, 0) + 1

    def wants(self, name: str) -> bool:
        return self._rows.get(name, 0) < self.most and self._blocks.get(name, 0) < _BLOCKS

    def enough_of(self, names: Sequence[str]) -> bool:
        return bool(names) and not any(map(self.wants, names))


@dataclass(frozen=True)
class Verdict:
    """The result of a check."""

    refuted: dict[str, str]
    """The difference that each wrong rule or law made, by its name."""
    rows: int
    deviations: tuple[Difference, ...] = ()
    """How far the close rewrites are from the plan as written."""


class Check:
    """Compares plans on witnesses.

    `plan_without(names)` is the plan that the rules make without some of them; `unproven` names the
    rewrites to be checked, in the order in which they ran; `close` those that are used although
    they change values, by how much is measured.
    """

    def __init__(
        self,
        witnesses: Sequence[Witness],
        unproven: Sequence[str],
        close: Sequence[str],
        plan_without: Callable[[frozenset[str]], PhysicalNode],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`clock`: CPU seconds of the thread that asks."""
        self._clock = clock
        self.seconds = 0.0
        """CPU seconds that it took."""
        self._witnesses = witnesses
        self._unproven = list(unproven)
        self._close = list(close)
        self._plan_without = plan_without
        self._worker = Worker(shares_generators=True)
        self.verdict: Verdict | None = None
        self.thread: Thread | None = None
        self._cancelled = threading.Event()

    def start(self) -> None:
        """Runs the check on a thread of its own, until it is closed."""
        self.thread = Thread(self.run, "check")
        self.thread.start()

    def close(self) -> None:
        """Cancels the check, unless it has a verdict."""
        self._cancelled.set()
        if self.thread is not None:
            join_all([self.thread])

    def run(self) -> None:
        """Runs the check. If a plan cannot be run at all, no rewrite has passed."""
        began, verdict = self._clock(), None
        try:
            verdict = self._verdict()
        except (_Cancelled, KeyboardInterrupt):
            return
        except BaseException as error:  # noqa: BLE001  whatever a rewrite does, the run goes on
            failed = in_words(error)
            rows = sum(len(witness.payload) for witness in self._witnesses)
            verdict = Verdict(dict.fromkeys(self._unproven, failed), rows)
        finally:
            self.seconds = self._clock() - began
            self.verdict = verdict

    def _verdict(self) -> Verdict:
        refuted: dict[str, str] = {}
        rows = sum(len(witness.payload) for witness in self._witnesses)
        while found := self._differences(frozenset(refuted)):
            culprit = self._culprit(refuted)
            if culprit is None:  # no single rewrite is responsible: none of them is used
                refuted |= {name: str(found[0]) for name in self._unproven}
                break
            refuted[culprit] = str(found[0])
        exact = self._differences(frozenset([*self._unproven, *self._close])) if self._close else []
        return Verdict(refuted, rows, worst(exact))

    def _culprit(self, refuted: dict[str, str]) -> str | None:
        """The first rewrite with which the plan is wrong, though it is right with those before
        it."""
        left = [name for name in self._unproven if name not in refuted]
        low, high = 0, len(left)  # right with the first `low`, wrong with the first `high`
        while high - low > 1:
            middle = (low + high) // 2
            wrong = self._differences(frozenset([*refuted, *left[middle:]]))
            low, high = (low, middle) if wrong else (middle, high)
        return left[high - 1] if high else None

    def _differences(self, without: frozenset[str]) -> list[Difference]:
        """How the plan without these rewrites differs from the one that ran."""
        return differences_of_plans(self._still_wanted(), self._plan_without(without), self._worker)

    def _still_wanted(self) -> Iterator[Witness]:
        for witness in self._witnesses:
            if self._cancelled.is_set():
                raise _Cancelled
            yield witness


class _Cancelled(Exception):
    """The check was cancelled: nothing waits for its verdict any more."""


def differences_of_plans(
    witnesses: Iterable[Witness], plan: PhysicalNode, worker: Worker
) -> list[Difference]:
    """How another plan differs from the one that ran, in the columns that it derives in another
    way."""
    stages = {s.name: s.stage for s in segments(plan)}
    found: list[Difference] = []
    for witness in witnesses:
        stage = stages.get(witness.name)
        if not isinstance(stage, Stage) or stage.steps == witness.stage.steps:
            continue
        served = _made(only_what_differs(witness.stage, stage), witness, worker)
        other = _made(only_what_differs(stage, witness.stage), witness, worker)
        names = [name for name in served.columns if name in other.columns]
        found += differences(
            served.with_columns({name: served.columns[name] for name in names}), other
        )
    return found


def _made(stage: Stage, witness: Witness, worker: Worker) -> Block:
    results = execute(replace(stage, written=None), witness.payload, witness.context, worker)
    return Block.concat([result.block for result in results])


def worst(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """The largest difference of each column."""
    most: dict[str, Difference] = {}
    for one in found:
        before = most.get(one.column)
        if before is None or (one.largest or 0.0) > (before.largest or 0.0):
            most[one.column] = one
    return tuple(most.values())


def only_what_differs(stage: Stage, other: Stage) -> Stage:
    """The stage with only the steps that lead to columns which `other` derives in another way, so
    that the user's functions (a model, a connection) are not called for the rest. The whole stage
    where it changes the number of rows or renames columns."""
    *steps, last = stage.steps
    plain = all(isinstance(step, Call | CallColumns | Evaluate | Keep) for step in steps)
    if not plain or not isinstance(last, Project) or any(old != new for old, new in last.names):
        return stage
    same = [step for step in steps if step in other.steps]
    if any(isinstance(step, Keep) for step in steps if step not in same):
        return stage
    wanted = {name for step in steps if step not in same for name in step.writes}
    needed, kept = set(wanted), []
    for step in reversed(steps):
        if needed & set(step.writes):
            needed |= step.reads or set()
            kept.append(step)
    names = tuple(pair for pair in last.names if pair[0] in wanted)
    return replace(stage, steps=(*reversed(kept), Project(names)))
