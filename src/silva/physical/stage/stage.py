"""A stage: a fused chain of steps that turns a block, or rows that it reads itself, into a
block."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from silva.columns import Block
from silva.cost.costs import StepUse
from silva.cost.pickling_cost import holds_objects
from silva.io.incoming import LEDGER, NOTHING, Incoming, fetched_here
from silva.operators.meter import Metered, metering
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.read import Places, ReadPlaces, ReadUnits, UnitRows
from silva.physical.stage.repeated import Repeat, find_repeats, run_repeated
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Keep, Project, Spread, Step
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.operator import adopt_operators, is_built_in, operator


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a stage for one input, or for a part of it that was read as one block."""

    block: Block
    size_in: int
    origin: np.ndarray | None
    subs: tuple[np.ndarray, ...]
    failures: tuple[Failure, ...]
    seconds: float
    cpu: float
    uses: tuple[StepUse, ...] = ()
    """The cost of reading, and then of each step."""
    late: StepUse | None = None
    """The cost of reading columns that are read after the first filter."""
    again: bool = False
    """Whether a row failed, so that the block was run again in the order written."""
    moved: bool = False
    """Whether a global generator moved on a thread where it cannot be seeded: run the block again
    elsewhere."""
    seeded: str | None = None
    """The step that draws from a global generator, which was seeded for each row and epoch."""
    bytes_in: int = 0
    """Bytes of the columns that the steps began with."""
    came: Incoming = NOTHING
    """Bytes that other threads have fetched meanwhile."""
    queued: float = 0.0
    """Seconds that the worker waited for a core."""
    began: float = 0.0
    """The start, on the clock of the machine that ran it; 0 where that is not known."""

    @property
    def waited(self) -> float:
        """Seconds that the worker waited while reading."""
        reads = self.uses[:1] if self.late is None else (*self.uses[:1], self.late)
        return float(sum(max(use.seconds - use.cpu, 0.0) for use in reads))


class Clocks(NamedTuple):
    """The clocks of the thread that runs a stage, at one moment."""

    wall: float
    cpu: float
    disk: int
    """Bytes that were fetched from disks for it."""

    @staticmethod
    def now() -> Clocks:
        return Clocks(time.perf_counter(), time.thread_time(), fetched_here())


class _Meter:
    """Measures the steps of a stage; the first entry is the cost of reading."""

    def __init__(self, rows: Rows, started: Clocks) -> None:
        self.at, self.cpu_at, self.disk_at = started
        self.count = len(rows)
        self.uses: list[StepUse] = []
        self.late: StepUse | None = None
        self.step(rows, tuple(rows.columns), None, 0)

    def step(
        self, rows: Rows, into: tuple[str, ...], operators: Metered | None, bytes_in: int
    ) -> None:
        began = self.at
        seconds, cpu, disk = self._lap()
        made = {n: rows.columns[n] for n in into if n in rows.columns}
        use = StepUse(
            seconds,
            cpu,
            self.count,
            len(rows),
            tuple((name, column.nbytes) for name, column in made.items()),
            operators or None,
            began,
            bytes_in,
            tuple(name for name, column in made.items() if holds_objects(column)),
            disk,
        )
        self.uses.append(use)
        self.count = len(rows)

    def fetched(self, rows: Rows, late: tuple[str, ...]) -> None:
        """Records the cost of columns that were read after the first filter."""
        seconds, cpu, disk = self._lap()
        written = tuple((n, rows.columns[n].nbytes) for n in late if n in rows.columns)
        self.late = StepUse(seconds, cpu, self.count, len(rows), written, disk=disk)

    def _lap(self) -> tuple[float, float, int]:
        at, cpu_at, disk_at = Clocks.now()
        seconds, cpu, disk = at - self.at, cpu_at - self.cpu_at, disk_at - self.disk_at
        self.at, self.cpu_at, self.disk_at = at, cpu_at, disk_at
        if disk:
            LEDGER.note(disk)
        return seconds, cpu, disk


class Runs(Protocol):
    """Anything that maps a stage's input to results: a row stage or a batch stage."""

    @property
    def label(self) -> str: ...

    def run(self, payload: Any, context: Context, worker: Worker) -> Iterator[Result]:
        """One result, or one for each block that it reads itself."""


@dataclass(frozen=True, eq=False)
class Stage:
    """Steps that run on a block one after the other."""

    steps: tuple[Step, ...]
    read: ReadPlaces | ReadUnits | None = None
    """How a worker reads the rows that an input names; None if inputs are blocks."""
    lazy: bool = False
    """Whether costly columns are read after the first filter."""
    written: Stage | None = None
    """The stage with its steps in the order written, which runs a block again if a row fails: a
    step that was moved before a filter must not fail for that."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the operators that a worker cannot import along with the stage."""
        from silva.plan.turn import every_part  # the first batch of most loops needs no worker

        terms = [step.runs for step in self.steps]
        calls = [c for t in terms if isinstance(t, expr.Call) for c in every_part(t)]
        used = {c.op: operator(c.op) for c in calls if isinstance(c, expr.Call)}
        foreign = tuple(found for found in used.values() if not is_built_in(found))
        own = {"steps": self.steps, "read": self.read, "lazy": self.lazy, "written": self.written}
        return {**own, "operators": foreign}

    def __setstate__(self, state: dict[str, Any]) -> None:
        adopt_operators(state.pop("operators"))
        self.__dict__.update(state)

    @functools.cached_property
    def label(self) -> str:
        parts = [self.read.label] if self.read else []
        return " → ".join([*parts, *(s.label for s in self.steps if s.label)]) or "pass"

    @property
    def one_to_one(self) -> bool:
        """Whether every input row gives one output row, unless it fails."""
        return not any(isinstance(s, Keep | Spread) for s in self.steps)

    @property
    def explodes(self) -> bool:
        """Whether one input row may give several output rows."""
        return any(isinstance(s, Spread) for s in self.steps)

    @functools.cached_property
    def _late(self) -> tuple[tuple[str, ...], int]:
        """Costly columns that no step needs before the first filter, and the number of the step
        before which they are read: what the filter drops is never fetched."""
        if not isinstance(self.read, ReadPlaces) or not self.lazy:
            return (), -1
        late = set(self.read.source.costly) & set(self.read.columns)
        filtered = False
        for number, step in enumerate(self.steps):
            reads = step.reads
            if not filtered:
                late = set() if reads is None else late - reads
                filtered = isinstance(step, Keep)
            elif late and (reads is None or late & reads):
                return tuple(sorted(late)), number
        return (tuple(sorted(late)), len(self.steps)) if filtered and late else ((), -1)

    @functools.cached_property
    def _last(self) -> int:
        """The number of the last step that computes."""
        numbers = (n for n, step in enumerate(self.steps) if not isinstance(step, Project))
        return max(numbers, default=-1)

    @functools.cached_property
    def _repeats(self) -> dict[int, Repeat]:
        """The steps whose function runs more than once on the same columns, by their number."""
        return find_repeats(self.steps)

    @property
    def late(self) -> tuple[str, ...]:
        """The columns that are read only of rows that the first filter keeps."""
        return self._late[0]

    @property
    def late_at(self) -> int:
        """The number of the step before which costly columns are read; -1 without such columns."""
        return self._late[1]

    def run(
        self, payload: Places | UnitRows | Block, context: Context, worker: Worker
    ) -> Iterator[Result]:
        worker.moved = False
        started = Clocks.now()
        if self._moved_filters:  # both forms must get to the rows that fail in either
            context = context.computing_every_row()
        for rows, once_more in self.begin(payload, context, worker):
            result = self._run(rows, worker, started)
            drew_early = self._drew_early(worker)
            if self.written is not None and (result.failures or drew_early):
                again = self.written._run(once_more(), worker, started)
                if self._moved_filters and not drew_early:
                    # what fails as written alone is a row that the moved filter drops
                    there = {failure.row for failure in result.failures}
                    there.update(() if result.origin is None else result.origin.tolist())
                    kept = tuple(one for one in again.failures if one.row in there)
                    again = replace(again, failures=kept)
                result = replace(again, uses=(), late=None, again=True)
            yield result
            worker.moved = False
            started = Clocks.now()

    def begin(
        self, payload: Places | UnitRows | Block, context: Context, worker: Worker
    ) -> Iterator[tuple[Rows, Callable[[], Rows]]]:
        """The rows that the steps begin with: a block, or blocks that are read; and the same once
        more, for the stage as written."""
        if isinstance(payload, Places):
            yield (
                self._read(payload, context, worker),
                lambda: (self.written or self)._read(payload, context, worker),
            )
            return
        blocks: Iterable[Block] = (payload,) if isinstance(payload, Block) else ()
        if isinstance(payload, UnitRows):
            assert isinstance(self.read, ReadUnits)
            blocks = self.read.blocks(payload)
        for block in blocks:
            begin = functools.partial(_begin, block, context)
            yield begin(), begin

    def _read(self, places: Places, context: Context, worker: Worker) -> Rows:
        assert isinstance(self.read, ReadPlaces)
        return self.read.rows(places, context, worker, self.late)

    def _run(self, rows: Rows, worker: Worker, started: Clocks) -> Result:
        meter = _Meter(rows, started)
        bytes_in = sum(column.nbytes for column in rows.columns.values())
        late, at = self._late if rows.index is not None else ((), -1)
        for number, step in enumerate((*self.steps, None)):
            if number == at and isinstance(self.read, ReadPlaces):
                self.read.fetch(rows, late)
                meter.fetched(rows, late)
            if step is not None:
                reads = step.reads or ()
                read = sum(rows.columns[name].nbytes for name in reads if name in rows.columns)
                rows.at_last = number == self._last
                with metering() as operators:
                    if (repeat := self._repeats.get(number)) is None:
                        step.apply(rows, worker)
                    else:
                        run_repeated(step, repeat, rows, worker)
                meter.step(rows, step.writes, operators, read)
        return Result(
            block=rows.block(),
            size_in=rows.size_in,
            origin=rows.origin,
            subs=tuple(rows.subs),
            failures=tuple(sorted(rows.failures, key=lambda f: (f.row, f.parts))),
            seconds=meter.at - started.wall,
            cpu=meter.cpu_at - started.cpu,
            uses=tuple(meter.uses),
            late=meter.late,
            moved=worker.moved,
            seeded=self._seeded(worker),
            bytes_in=bytes_in,
            came=LEDGER.rest(),
            began=started.wall,
        )

    @functools.cached_property
    def _moved_filters(self) -> frozenset[str]:
        """The ids of filters that were written after an explode and run before it."""
        if self.written is None or not self.explodes:
            return frozenset()
        late = {step.id for step in _after_explode(self.written.steps) if isinstance(step, Keep)}
        late -= {step.id for step in _after_explode(self.steps) if isinstance(step, Keep)}
        return frozenset(late)

    @functools.cached_property
    def _early_filters(self) -> tuple[Function, ...]:
        """The functions of these filters."""
        late = self._moved_filters
        moved = [step.step for step in self.steps if isinstance(step, Keep) and step.id in late]
        return tuple(step for step in moved if isinstance(step, Function))

    def _drew_early(self, worker: Worker) -> bool:
        """Whether a filter ran before an explode, and it turned out that it draws from a global
        generator: its draws belong to the parts of a row, and not to the row."""
        return any(worker.seeded(function) for function in self._early_filters)

    def _seeded(self, worker: Worker) -> str | None:
        """A step whose function is known to draw from a global generator."""
        if self.read is not None and worker.seeds_for(self.read.source):
            return self.read.label
        for step in self.steps:
            if isinstance(step.runs, Function) and worker.seeded(step.runs):
                return step.label
        return None


def _after_explode(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps after the first explode."""
    first = next((n for n, step in enumerate(steps) if isinstance(step, Spread)), len(steps))
    return steps[first:]


def _begin(block: Block, context: Context) -> Rows:
    return Rows(context, dict(block.columns), block.ids, block.places, len(block))
