"""A stage: a fused chain of steps that turns a block, or a run of places in an order, into a
block."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from silva.columns import Block, Column, Values, concat
from silva.io.source import runs_user_code
from silva.order.draws import Draw, stream_key
from silva.order.positions import Map, order_rows
from silva.physical.call import Worker, watched
from silva.physical.context import Context, Failure
from silva.physical.globals import seeding
from silva.physical.rows import Rows
from silva.physical.steps import Step
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.operator import adopt_operators, is_built_in, operator

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

    def rows(self, places: Places, context: Context, worker: Worker) -> Rows:
        """The rows at these places. A source may call code that draws from global generators (a
        dataset with random transforms): it is then read row by row, seeded."""
        index = self.index(places, context)
        ids = self.ids(places, index)

        def attempt(seeded: frozenset[str]) -> Rows:
            rows = Rows(context, {}, ids, None, len(places))
            seeds: Iterator[None] | None = None
            if seeded:
                key = stream_key(context.seed, context.epoch, self.label)
                seeds = seeding(seeded, Draw(key, ids).seeds().tolist())
                self._read_one_by_one(rows, index, None, seeds)
                return rows
            try:
                rows.columns = self._read(places, index)
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                self._read_one_by_one(rows, index, error, None)
            return rows

        if not runs_user_code(self.source):
            return attempt(frozenset())
        return watched(self.source, worker, attempt)

    def _read(self, places: Places, index: np.ndarray) -> dict[str, Column]:
        run = getattr(self.source, "read_run", None)  # quicker, where rows are in memory in order
        if run is not None and not self.maps and places.picked is None:
            return dict(run(places.start, places.stop, self.columns))
        return dict(self.source.read(index, self.columns))

    def _read_one_by_one(
        self,
        rows: Rows,
        index: np.ndarray,
        whole_error: Exception | None,
        seeds: Iterator[None] | None,
    ) -> None:
        good = np.ones(len(rows), dtype=bool)
        parts: list[dict[str, Column]] = []
        substitute = rows.context.on_error == "substitute"
        for i in range(len(index)):
            if seeds is not None:
                next(seeds)
            try:
                parts.append(self.source.read(index[i : i + 1], self.columns))
            except Exception as error:  # noqa: BLE001  any error is the row's failure
                rows.fail(i, self.label, error)
                if substitute:
                    parts.append({n: Values([rows.context.substitute]) for n in self.columns})
                    continue
                good[i] = False
                if rows.context.on_error == "raise":
                    good[i:] = False
                    break
        if not rows.failures and whole_error is not None:
            raise whole_error
        rows.keep(good)
        rows.columns = {
            n: concat([p[n] for p in parts]) if parts else Values([]) for n in self.columns
        }


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
    step_seconds: tuple[float, ...] = ()
    moved: bool = False
    """A global generator moved on a thread where it could not be seeded: do it again elsewhere."""
    seeded: str | None = None
    """The step that draws from a global generator, which was seeded for each row and epoch."""


class Runs(Protocol):
    """Anything that maps a stage's input to a result: a row stage or a batch stage."""

    @property
    def label(self) -> str: ...

    def run(self, payload: Any, context: Context, worker: Worker) -> Result: ...


@dataclass(frozen=True, eq=False)
class Stage:
    steps: tuple[Step, ...]
    read: Read | None = None

    def __getstate__(self) -> dict[str, Any]:
        """With the operators that a worker cannot find by their names."""
        terms = [getattr(s, "term", None) or getattr(s, "step", None) for s in self.steps]
        calls = [c for t in terms if isinstance(t, expr.Call) for c in expr.walk(t)]
        used = {c.op: operator(c.op) for c in calls if isinstance(c, expr.Call)}
        foreign = tuple(found for found in used.values() if not is_built_in(found))
        return {"steps": self.steps, "read": self.read, "operators": foreign}

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
        from silva.physical.steps import Keep, Spread

        return not any(isinstance(s, Keep | Spread) for s in self.steps)

    @property
    def explodes(self) -> bool:
        """One row in may give several out."""
        from silva.physical.steps import Spread

        return any(isinstance(s, Spread) for s in self.steps)

    def run(self, payload: Places | Block, context: Context, worker: Worker) -> Result:
        started, cpu_started = time.perf_counter(), time.thread_time()
        worker.moved = False
        if isinstance(payload, Places):
            assert self.read is not None
            rows = self.read.rows(payload, context, worker)
        else:
            rows = Rows(context, dict(payload.columns), payload.ids, payload.places, len(payload))
        spent = [time.perf_counter() - started]
        for step in self.steps:
            before = time.perf_counter()
            step.apply(rows, worker)
            spent.append(time.perf_counter() - before)
        return Result(
            block=rows.block(),
            size_in=rows.size_in,
            origin=rows.origin,
            subs=tuple(rows.subs),
            failures=tuple(sorted(rows.failures, key=lambda f: (f.row, f.part))),
            seconds=time.perf_counter() - started,
            cpu=time.thread_time() - cpu_started,
            step_seconds=tuple(spent),
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
