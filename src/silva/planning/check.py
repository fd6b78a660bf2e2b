"""Rewrites that rest on numbers, checked on rows of the run before they are used.

The first blocks are served by the plan without them. On the same inputs the plan with them is then
run beside the loop, and compared bit by bit. Where a row differs, the rewrite responsible is found
by halving the list of those applied, and left out. This is a tripwire, not a proof: the proof is
each law's own test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from silva.columns import Block
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.stage import Stage
from silva.physical.steps import Call, CallColumns, Evaluate, Keep, Project
from silva.physical.twins import segments
from silva.plan.traits import step_reads
from silva.planning.compare import Difference, differences
from silva.run.task import execute

_ROWS = 16
_BLOCKS = 4
"""Of each stage: enough to see that a rewrite is wrong, few enough to cost little."""
_LEAST_ROWS = 4
_SHARE = 1 / 64
"""Of the rows of a run: what is compared is done once more in each of two ways."""


@dataclass(frozen=True, eq=False)
class Witness:
    """Rows that a stage was given."""

    name: str
    stage: Stage
    payload: Any
    context: Context

    @staticmethod
    def of(name: str, stage: Stage, payload: Any, context: Context, most: int) -> Witness:
        """A few of the rows are enough."""
        few = payload.slice(0, most) if len(payload) > most else payload
        return Witness(name, stage, few, context)


class Witnesses:
    """The first blocks of a run of so many rows, kept until there are enough of every stage."""

    def __init__(self, rows: int | None = None) -> None:
        self.most = _ROWS if rows is None else min(max(int(_SHARE * rows), _LEAST_ROWS), _ROWS)
        """Rows of a stage that are enough."""
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
    """What a check found."""

    refuted: dict[str, str]
    """By the name of a rule or law: how it differed."""
    rows: int
    apart: tuple[Difference, ...] = ()
    """How far the close rewrites are from the plan as written."""


class Check(threading.Thread):
    """Compares plans on witnesses. `plan_without(names)` is the plan that the rules make without
    some of them; `suspects` are the rewrites to be checked, in the order in which they ran; `close`
    those that are used although they differ, by how much is measured."""

    def __init__(
        self,
        witnesses: Sequence[Witness],
        suspects: Sequence[str],
        close: Sequence[str],
        plan_without: Callable[[frozenset[str]], Any],
    ) -> None:
        super().__init__(name="silva-check", daemon=True)
        self._witnesses = witnesses
        self._suspects = list(suspects)
        self._close = list(close)
        self._plan_without = plan_without
        self._worker = Worker(shares_generators=True)
        self.verdict: Verdict | None = None

    def run(self) -> None:
        """A plan that cannot even be run is none to use."""
        try:
            self.verdict = self._verdict()
        except Exception as error:  # noqa: BLE001  whatever a rewrite has done, the run goes on
            failed = f"{type(error).__name__}: {error}"
            rows = sum(len(witness.payload) for witness in self._witnesses)
            self.verdict = Verdict(dict.fromkeys(self._suspects, failed), rows)

    def _verdict(self) -> Verdict:
        refuted: dict[str, str] = {}
        rows = sum(len(witness.payload) for witness in self._witnesses)
        while apart := self._apart(frozenset(refuted)):
            culprit = self._culprit(refuted)
            if culprit is None:  # no single rewrite is to blame: none of them is used
                refuted |= {name: str(apart[0]) for name in self._suspects}
                break
            refuted[culprit] = str(apart[0])
        exact = self._apart(frozenset([*self._suspects, *self._close])) if self._close else []
        return Verdict(refuted, rows, worst(exact))

    def _culprit(self, refuted: dict[str, str]) -> str | None:
        """The first suspect with which the plan is wrong, though it is right with those before."""
        left = [name for name in self._suspects if name not in refuted]
        low, high = 0, len(left)  # right with the first `low`, wrong with the first `high`
        while high - low > 1:
            middle = (low + high) // 2
            wrong = self._apart(frozenset([*refuted, *left[middle:]]))
            low, high = (low, middle) if wrong else (middle, high)
        return left[high - 1] if high else None

    def _apart(self, without: frozenset[str]) -> list[Difference]:
        """How the plan without these rewrites differs from what was served."""
        return apart(self._witnesses, self._plan_without(without), self._worker)


def apart(witnesses: Sequence[Witness], plan: Any, worker: Worker) -> list[Difference]:
    """How the plan that was served differs from another one, in the columns that are derived in
    another way."""
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
    """Of each column, where it differs most."""
    most: dict[str, Difference] = {}
    for one in found:
        before = most.get(one.column)
        if before is None or (one.largest or 0.0) > (before.largest or 0.0):
            most[one.column] = one
    return tuple(most.values())


def only_what_differs(stage: Stage, other: Stage) -> Stage:
    """The stage with only the steps that lead to columns which `other` derives in another way:
    functions of the user's (a model, a connection) need not be called for the rest. The whole stage
    where rows are not one to one or columns are renamed."""
    *steps, last = stage.steps
    plain = all(isinstance(step, Call | CallColumns | Evaluate | Keep) for step in steps)
    if not plain or not isinstance(last, Project) or any(old != new for old, new in last.names):
        return stage
    same = [step for step in steps if step in other.steps]
    if any(isinstance(step, Keep) for step in steps if step not in same):
        return stage
    wanted = {name for step in steps if step not in same for name in _writes(step)}
    needed, kept = set(wanted), []
    for step in reversed(steps):
        if needed & set(_writes(step)):
            needed |= _reads(step)
            kept.append(step)
    names = tuple(pair for pair in last.names if pair[0] in wanted)
    return replace(stage, steps=(*reversed(kept), Project(names)))


def _writes(step: Any) -> tuple[str, ...]:
    return getattr(step, "into", ())


def _reads(step: Any) -> set[str]:
    return set(step_reads(getattr(step, "term", None) or step.function))
