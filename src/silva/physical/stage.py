"""A stage: a fused chain of steps that turns a block, or a run of places in an order, into a
block."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from silva.columns import Block, Column, Values, concat
from silva.io.source import runs_user_code
from silva.operators.meter import Metered, metering
from silva.order.draws import Draw, stream_key
from silva.order.positions import Map, order_rows
from silva.physical.call import Worker, watched
from silva.physical.context import Context, Failure
from silva.physical.globals import seeding
from silva.physical.rows import Rows
from silva.physical.steps import Call, CallColumns, Evaluate, Keep, Spread, Step
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.operator import adopt_operators, is_built_in, operator
from silva.plan.traits import step_reads
from silva.profile.costs import StepUse

TAG_SHIFT = np.uint64(56)
"""A row's identity holds its source in the top 8 bits."""


@dataclass(frozen=True, eq=False)
class Places:
    """Input of a stage that reads an indexed source: places in the order."""

    start: int
    stop: int
    picked: np.ndarray | None = None
    """These places instead of a run, where rows are fetched again by identity."""

    def __len__(self) -> int:
        return self.stop - self.start if self.picked is None else len(self.picked)

    def positions(self) -> np.ndarray:
        return np.arange(self.start, self.stop) if self.picked is None else self.picked


@dataclass(frozen=True, eq=False)
class Read:
    """Reads rows of an indexed source at places of an order."""

    source: Any
    columns: tuple[str, ...]
    maps: tuple[Map, ...]
    tag: int
    identity_by_place: bool
    """Rows drawn more than once are told apart by their place in the order."""

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def index(self, places: Places, context: Context) -> np.ndarray:
        """The source's rows at these places."""
        length = self.source.length()
        return order_rows(self.maps, places.positions(), length, context.seed, context.epoch)

    def ids(self, places: Places, index: np.ndarray) -> np.ndarray:
        """The identities of the rows at these places."""
        identity = places.positions() if self.identity_by_place else index
        words = identity.view(np.uint64)  # rows are not negative: the same bits
        return words | (np.uint64(self.tag) << TAG_SHIFT) if self.tag else words

    def rows(
        self, places: Places, context: Context, worker: Worker, late: tuple[str, ...] = ()
    ) -> Rows:
        """The rows at these places, without the columns in `late`, which `fetch` reads. A source
        may call code that draws from global generators (a dataset with random transforms): it is
        then read row by row, seeded."""
        index = self.index(places, context)
        ids = self.ids(places, index)
        names = tuple(n for n in self.columns if n not in late)

        def attempt(seeded: frozenset[str]) -> Rows:
            rows = Rows(context, {}, ids, None, len(places), index=index if late else None)
            seeds: Iterator[None] | None = None
            if seeded:
                key = stream_key(context.seed, context.epoch, self.label)
                seeds = seeding(seeded, Draw(key, ids).seeds().tolist())
                rows.columns = self._read_one_by_one(rows, index, names, None, seeds)
                return rows
            try:
                rows.columns = self._read(places, index, names)
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                rows.columns = self._read_one_by_one(rows, index, names, error, None)
            return rows

        if not runs_user_code(self.source):
            return attempt(frozenset())
        return watched(self.source, worker, attempt)

    def fetch(self, rows: Rows, late: tuple[str, ...]) -> None:
        """Reads the columns that were left for later, of the rows that are still there."""
        assert rows.index is not None
        try:
            found = dict(self.source.read(rows.index, late)) if len(rows) else {}
        except Exception as error:  # noqa: BLE001  any error is the row's failure
            found = self._read_one_by_one(rows, rows.index, late, error, None)
        found = found or {name: Values([]) for name in late}
        own = {n: c for n, c in rows.columns.items() if n not in self.columns}
        first = {n: found[n] if n in late else rows.columns[n] for n in self.columns}
        rows.columns, rows.index = {**first, **own}, None

    def _read(self, places: Places, index: np.ndarray, names: tuple[str, ...]) -> dict[str, Column]:
        run = getattr(self.source, "read_run", None)  # quicker, where rows are in memory in order
        if run is not None and not self.maps and places.picked is None:
            return dict(run(places.start, places.stop, names))
        return dict(self.source.read(index, names))

    def _read_one_by_one(
        self,
        rows: Rows,
        index: np.ndarray,
        names: tuple[str, ...],
        whole_error: Exception | None,
        seeds: Iterator[None] | None,
    ) -> dict[str, Column]:
        good = np.ones(len(rows), dtype=bool)
        failed = len(rows.failures)
        parts: list[dict[str, Column]] = []
        substitute = rows.context.on_error == "substitute"
        for i in range(len(index)):
            if seeds is not None:
                next(seeds)
            try:
                parts.append(self.source.read(index[i : i + 1], names))
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                rows.fail(i, self.label, error)
                if substitute:
                    parts.append({n: Values([rows.context.substitute]) for n in names})
                    continue
                good[i] = False
                if rows.context.on_error == "raise":
                    good[i:] = False
                    break
        if len(rows.failures) == failed and whole_error is not None:
            raise whole_error
        rows.keep(good)
        return {n: concat([p[n] for p in parts]) if parts else Values([]) for n in names}


def _reads(step: Step) -> set[str] | None:
    """The columns that a step reads; None where it needs all of them in their place."""
    match step:
        case Call() | CallColumns():
            return set(step.function.reads)
        case Evaluate():
            return set(expr.columns_read(step.term))
        case Keep():
            return set(step_reads(step.step))
    return None


@dataclass(frozen=True, eq=False)
class Result:
    """What a stage made of one input."""

    block: Block
    size_in: int
    origin: np.ndarray | None
    subs: tuple[np.ndarray, ...]
    failures: tuple[Failure, ...]
    seconds: float
    cpu: float
    uses: tuple[StepUse, ...] = ()
    """What reading took, and then each step."""
    late: StepUse | None = None
    """What reading took of columns that were left until after a filter."""
    again: bool = False
    """A row failed, and the block was done again in the order written."""
    moved: bool = False
    """A global generator moved on a thread where it could not be seeded: do it again elsewhere."""
    seeded: str | None = None
    """The step that draws from a global generator, which was seeded for each row and epoch."""


class _Meter:
    """Keeps the time of a stage's steps; the first entry is what reading took."""

    def __init__(self, rows: Rows, started: float, cpu_started: float) -> None:
        self.at, self.cpu_at = started, cpu_started
        self.count = len(rows)
        self.uses: list[StepUse] = []
        self.late: StepUse | None = None
        self.step(rows, tuple(rows.columns), None)

    def step(self, rows: Rows, into: tuple[str, ...], operators: Metered | None) -> None:
        seconds, cpu = self._lap()
        written = tuple((n, rows.columns[n].nbytes) for n in into if n in rows.columns)
        use = StepUse(seconds, cpu, self.count, len(rows), written, operators or None)
        self.uses.append(use)
        self.count = len(rows)

    def fetched(self, rows: Rows, late: tuple[str, ...]) -> None:
        """Columns were read that had been left for later."""
        seconds, cpu = self._lap()
        written = tuple((n, rows.columns[n].nbytes) for n in late if n in rows.columns)
        self.late = StepUse(seconds, cpu, self.count, len(rows), written)

    def _lap(self) -> tuple[float, float]:
        at, cpu_at = time.perf_counter(), time.thread_time()
        seconds, cpu = at - self.at, cpu_at - self.cpu_at
        self.at, self.cpu_at = at, cpu_at
        return seconds, cpu


class Runs(Protocol):
    """Anything that maps a stage's input to a result: a row stage or a batch stage."""

    @property
    def label(self) -> str: ...

    def run(self, payload: Any, context: Context, worker: Worker) -> Result: ...


@dataclass(frozen=True, eq=False)
class Stage:
    steps: tuple[Step, ...]
    read: Read | None = None
    lazy: bool = False
    """Columns that cost much are read after the filters."""
    written: Stage | None = None
    """The steps in the order written. A block in which a row fails is done again by it: a step that
    relies on a filter before it must not fail for having been moved."""

    def __getstate__(self) -> dict[str, Any]:
        """With the operators that a worker cannot find by their names."""
        terms = [getattr(s, "term", None) or getattr(s, "step", None) for s in self.steps]
        calls = [c for t in terms if isinstance(t, expr.Call) for c in expr.walk(t)]
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
        """Every row in gives one row out (unless it fails)."""
        return not any(isinstance(s, Keep | Spread) for s in self.steps)

    @property
    def explodes(self) -> bool:
        """One row in may give several out."""
        return any(isinstance(s, Spread) for s in self.steps)

    @functools.cached_property
    def _late(self) -> tuple[tuple[str, ...], int]:
        """Costly columns that no step needs before the first filter, and the number of the step
        before which they are read: what the filter drops is never fetched."""
        if self.read is None or not self.lazy:
            return (), -1
        late = set(getattr(self.read.source, "costly", ())) & set(self.read.columns)
        filtered = False
        for number, step in enumerate(self.steps):
            reads = _reads(step)
            if reads is None or late & reads:
                if not filtered:
                    return (), -1
                return tuple(sorted(late)), number
            filtered = filtered or isinstance(step, Keep)
        return (tuple(sorted(late)), len(self.steps)) if filtered and late else ((), -1)

    def run(self, payload: Places | Block, context: Context, worker: Worker) -> Result:
        result = self._run(payload, context, worker)
        if result.failures and self.written is not None:
            again = self.written.run(payload, context, worker)
            return replace(again, uses=(), late=None, again=True)
        return result

    def _run(self, payload: Places | Block, context: Context, worker: Worker) -> Result:
        started, cpu_started = time.perf_counter(), time.thread_time()
        worker.moved = False
        if isinstance(payload, Places):
            assert self.read is not None
            rows = self.read.rows(payload, context, worker, self._late[0])
        else:
            rows = Rows(context, dict(payload.columns), payload.ids, payload.places, len(payload))
        meter = _Meter(rows, started, cpu_started)
        late, at = self._late if rows.index is not None else ((), -1)
        for number, step in enumerate(self.steps):
            if number == at and self.read is not None:
                self.read.fetch(rows, late)
                meter.fetched(rows, late)
            with metering() as operators:
                step.apply(rows, worker)
            meter.step(rows, getattr(step, "into", ()), operators)
        if at == len(self.steps) and self.read is not None:
            self.read.fetch(rows, late)
            meter.fetched(rows, late)
        return Result(
            block=rows.block(),
            size_in=rows.size_in,
            origin=rows.origin,
            subs=tuple(rows.subs),
            failures=tuple(sorted(rows.failures, key=lambda f: (f.row, f.part))),
            seconds=meter.at - started,
            cpu=meter.cpu_at - cpu_started,
            uses=tuple(meter.uses),
            late=meter.late,
            moved=worker.moved,
            seeded=self._seeded(worker),
        )

    def _seeded(self, worker: Worker) -> str | None:
        """A step whose function is known to draw from a global generator."""
        if self.read is not None and worker.seeds_for(self.read.source):
            return self.read.label
        for step in self.steps:
            function = getattr(step, "function", getattr(step, "step", None))
            if isinstance(function, Function) and worker.seeded(function):
                return step.label
        return None
