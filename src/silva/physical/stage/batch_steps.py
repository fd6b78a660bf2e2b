"""The steps after `batch`, each of which handles a whole batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Block, Column, Lists, Ragged, Values
from silva.columns.column import is_masked_array
from silva.columns.ragged import Grouped
from silva.cost.costs import StepUse
from silva.errors import ColumnError
from silva.order.draws import Draw, stream_key
from silva.physical.stage.batch_value import BatchValue, nbytes_of, writable
from silva.physical.stage.call import Worker, call_columns, watched
from silva.physical.stage.checks import InputsChanged, as_argument
from silva.physical.stage.context import Context, Failure, row_key
from silva.physical.stage.evaluate import evaluate
from silva.physical.stage.global_generators import seeding
from silva.physical.stage.rows import row_dicts
from silva.physical.stage.stage import Result
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Function, Marks
from silva.plan.show import show_node


@dataclass(frozen=True, eq=False)
class BatchStage:
    """Steps on whole batches: functions see a batch's columns as arrays."""

    nodes: tuple[logical.Node, ...]

    @property
    def label(self) -> str:
        return " → ".join(show_node(n) for n in self.nodes)

    @property
    def read(self) -> None:
        return None

    def run(self, payload: BatchValue, context: Context, worker: Worker) -> Iterator[Result]:
        started, cpu = time.perf_counter(), time.thread_time()
        failures: tuple[Failure, ...] = ()
        worker.moved = False
        for step in (node.runs for node in self.nodes):
            if isinstance(step, Function):
                worker.callable(step)  # a class that cannot be built is no failure of a batch
        uses = [StepUse(0.0, 0.0, 1, 1)]
        batch: BatchValue | None = payload
        for node in self.nodes:
            assert batch is not None
            given: BatchValue = batch
            before, cpu_before = time.perf_counter(), time.thread_time()
            try:
                batch = _apply(node, given, context, worker)
            except (KeyboardInterrupt, InputsChanged):
                raise
            except BaseException as error:  # noqa: BLE001  whatever it is, it is a failure
                failures += (_failure(payload, node, error),)
                batch = _substituted(node, given, context)
            spent, spent_cpu = time.perf_counter() - before, time.thread_time() - cpu_before
            made = {} if batch is None else batch.values
            into = node.writes
            written = tuple((name, nbytes_of(made[name])) for name in into if name in made)
            uses.append(StepUse(spent, spent_cpu, 1, int(batch is not None), written))
            if batch is None:
                break
        kept = [] if batch is None else [_writable(batch)]
        functions = [n.runs for n in self.nodes]
        uses += [StepUse(0.0, 0.0, 0, 0)] * (len(self.nodes) + 1 - len(uses))
        result = _result(kept, failures, started, cpu, worker, functions, self.label)
        yield replace(result, uses=tuple(uses))


def _writable(batch: BatchValue) -> BatchValue:
    """The batch with writable arrays, even if a function returned its input."""
    return replace(batch, values={name: writable(v) for name, v in batch.values.items()})


def _substituted(node: logical.Node, batch: BatchValue, context: Context) -> BatchValue | None:
    """The batch with substitutes for what `node` should have derived; None if it is dropped."""
    if context.on_error != "substitute" or not isinstance(node, logical.Derive):
        return None
    values = {name: context.substituted() for name in node.into}
    return replace(batch, values={**batch.values, **values})


def _result(
    kept: list[BatchValue],
    failures: tuple[Failure, ...],
    started: float,
    cpu_started: float,
    worker: Worker,
    functions: list[Any],
    label: str,
) -> Result:
    seeded = any(isinstance(f, Function) and worker.seeded(f) for f in functions)
    return Result(
        block=Block({"batch": Values(kept)}, np.zeros(len(kept), np.uint64)),
        size_in=1,
        origin=None,
        subs=(),
        failures=failures,
        seconds=time.perf_counter() - started,
        cpu=time.thread_time() - cpu_started,
        moved=worker.moved,
        seeded=label if seeded else None,
        began=started,
    )


def _failure(payload: BatchValue, node: logical.Node, error: BaseException) -> Failure:
    return Failure.of(error, key=row_key(payload.id, payload.place), step=show_node(node))


def _apply(
    node: logical.Node, batch: BatchValue, context: Context, worker: Worker
) -> BatchValue | None:
    match node:
        case logical.Derive():
            made = _derive(node, batch, context, worker)
            return replace(batch, values={**batch.values, **made})
        case logical.Filter():
            kept = _value(node.step, node.id, batch, context, worker)
            return batch if bool(np.all(kept)) else None
        case logical.Select():
            return replace(batch, values={n: batch.values[n] for n in node.names})
        case logical.Rename():
            new = dict(node.names)
            return replace(batch, values={new.get(n, n): v for n, v in batch.values.items()})
        case logical.MapRows():
            made = _value(node.step, node.id, batch, context, worker, whole=True)
            return replace(batch, values={n: made[n] for n in node.into})
    raise ColumnError(f"`{show_node(node)}` cannot follow batch")


def _derive(
    node: logical.Derive, batch: BatchValue, context: Context, worker: Worker
) -> dict[str, Any]:
    made = _value(node.step, node.id, batch, context, worker)
    if len(node.into) == 1:
        return {node.into[0]: made}
    if isinstance(made, dict):
        return {name: made[name] for name in node.into}
    return dict(zip(node.into, made, strict=True))


def _value(
    step: expr.Term | Function,
    id: str,
    batch: BatchValue,
    context: Context,
    worker: Worker,
    whole: bool = False,
) -> Any:
    """The result of a step for a batch; a function of the `whole` batch gets a dict of its own."""
    ids = np.array([batch.id], dtype=np.uint64)
    places = None if batch.place is None else np.array([batch.place], dtype=np.uint64)
    key = (context.seed, context.epoch, id)
    if not isinstance(step, Function):
        return _evaluate_batch(step, batch, key)
    fn: Callable[..., Any] = worker.callable(step)
    draw = Draw(stream_key(*key), ids, places)

    trial = worker.trial(step)
    reading = step
    if whole:
        owns = frozenset(batch.values) if "row" in step.marks.owns else step.marks.owns
        reading = replace(step, reads=tuple(batch.values), marks=Marks(owns=owns))

    def attempt(seeded: frozenset[str]) -> Any:
        given = [as_argument(n, batch.values[n], reading, trial) for n in reading.reads]
        if whole:
            given = [dict(zip(reading.reads, given, strict=True))]
        if seeded:
            next(seeding(seeded, draw.seeds().tolist()))
        made = call_columns(fn, step, given, draw)
        if trial is not None:
            trial.check()
        return made

    return watched(step.fn, worker, attempt)


def _evaluate_batch(term: expr.Term, batch: BatchValue, key: tuple[int | str, ...]) -> Any:
    columns = {name: _column(name, batch.values[name]) for name in expr.columns_read(term)}
    ids = np.arange(batch.rows, dtype=np.uint64) + np.uint64(batch.id)
    return evaluate(term, columns, ids, None, key).batch()


def _column(name: str, value: Any) -> Column:
    """A column of a batch for expressions; missing values stay missing."""
    from silva.io.arrays.memory import as_column, missing_rows

    if isinstance(value, Grouped):
        value = value.expand()
    if isinstance(value, Ragged):
        return Lists(_column(name, value.values), value.offsets)
    if is_masked_array(value) and value.ndim > 1 and missing_rows(value)[1].any():
        return Values(list(value))  # of some rows a part is missing
    return as_column(name, value) if isinstance(value, np.ndarray) else Values(list(value))


@dataclass(frozen=True, eq=False)
class CollateStage:
    """Collates a batch by a user's function of its rows, which are given as a list of dicts."""

    function: Function
    read = None

    @property
    def label(self) -> str:
        return f"collate {self.function.name}  [{self.function.where}]"

    def run(self, payload: Block, context: Context, worker: Worker) -> Iterator[Result]:
        started, cpu = time.perf_counter(), time.thread_time()
        place = None if payload.places is None else int(payload.places[0])
        batch = BatchValue({}, len(payload), int(payload.ids[0]), place)
        failures: tuple[Failure, ...] = ()
        kept: list[BatchValue] = []
        worker.moved = False
        fn = worker.callable(self.function)
        trial = worker.trial(self.function)

        def attempt(seeded: frozenset[str]) -> Any:
            if seeded:
                key = stream_key(context.seed, context.epoch, "collate")
                next(seeding(seeded, Draw(key, payload.ids[:1]).seeds().tolist()))
            made = fn(row_dicts(self.function, payload.columns, len(payload), trial))
            if trial is not None:
                trial.check()
            return made

        try:
            made = watched(self.function.fn, worker, attempt)
            values = made if isinstance(made, dict) else {"batch": made}
            kept = [_writable(replace(batch, values=values))]
        except (KeyboardInterrupt, InputsChanged):
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is that batch's
            failures = (replace(_failure(batch, logical.Node(), error), step=self.label),)
        yield _result(kept, failures, started, cpu, worker, [self.function], self.label)
