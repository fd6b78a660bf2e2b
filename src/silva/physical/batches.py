"""The steps that come after `batch`, where the row *is* the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Array, Block, Column, Values
from silva.columns.grouped_batch import Grouped
from silva.errors import ColumnError
from silva.order.draws import Draw, stream_key
from silva.physical.batch_value import BatchValue, nbytes_of
from silva.physical.call import Worker, watched
from silva.physical.context import Context, Failure, row_key
from silva.physical.evaluate import evaluate
from silva.physical.globals import seeding
from silva.physical.rows import user_traceback
from silva.physical.stage import Result
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Function
from silva.plan.show import show_node
from silva.profile.costs import StepUse


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
        uses = [StepUse(0.0, 0.0, 1, 1)]
        batch: BatchValue | None = payload
        for node in self.nodes:
            assert batch is not None
            given: BatchValue = batch
            before, cpu_before = time.perf_counter(), time.thread_time()
            try:
                batch = _apply(node, given, context, worker)
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, it is a failure
                failures += (_failure(payload, node, error),)
                batch = _substituted(node, given, context)
            spent, spent_cpu = time.perf_counter() - before, time.thread_time() - cpu_before
            made = {} if batch is None else batch.values
            into = getattr(node, "into", ())
            written = tuple((name, nbytes_of(made[name])) for name in into if name in made)
            uses.append(StepUse(spent, spent_cpu, 1, int(batch is not None), written))
            if batch is None:
                break
        kept = [] if batch is None else [batch]
        functions = [getattr(n, "step", None) for n in self.nodes]
        uses += [StepUse(0.0, 0.0, 0, 0)] * (len(self.nodes) + 1 - len(uses))
        result = _result(kept, failures, started, cpu, worker, functions, self.label)
        yield replace(result, uses=tuple(uses))


def _substituted(node: logical.Node, batch: BatchValue, context: Context) -> BatchValue | None:
    """The batch with substitutes for what `node` should have derived; None where it is dropped."""
    if context.on_error != "substitute" or not isinstance(node, logical.Derive):
        return None
    values = dict.fromkeys(node.into, context.substitute)
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
    )


def _failure(payload: BatchValue, node: logical.Node, error: BaseException) -> Failure:
    return Failure(
        row=0,
        part=0,
        key=row_key(payload.id, payload.place),
        step=show_node(node),
        error=f"{type(error).__name__}: {error}",
        traceback=user_traceback(error),
        cause=error,
    )


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
            row = replace(batch, values={**batch.values, "row": dict(batch.values)})
            made = _value(node.step, node.id, row, context, worker)
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
    step: expr.Term | Function, id: str, batch: BatchValue, context: Context, worker: Worker
) -> Any:
    ids = np.array([batch.id], dtype=np.uint64)
    places = None if batch.place is None else np.array([batch.place], dtype=np.uint64)
    key = (context.seed, context.epoch, id)
    if not isinstance(step, Function):
        return _evaluate_batch(step, batch, key)
    fn: Callable[..., Any] = worker.callable(step)
    draw = Draw(stream_key(*key), ids, places)

    def attempt(seeded: frozenset[str]) -> Any:
        given = [_argument(batch.values[n], n in step.marks.owns) for n in step.reads]
        positional = given[: len(given) - len(step.keywords)]
        named = dict(zip(step.keywords, given[len(positional) :], strict=True))
        if step.takes_rng:
            named["rng"] = next(draw.generators())
        if seeded:
            next(seeding(seeded, draw.seeds().tolist()))
        return fn(*positional, **named)

    return watched(step.fn, worker, attempt)


def _argument(value: Any, owned: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if owned:
        return value.copy()
    view = value.view()
    view.flags.writeable = False
    return view


def _evaluate_batch(term: expr.Term, batch: BatchValue, key: tuple[int | str, ...]) -> Any:
    columns: dict[str, Column] = {}
    for name in expr.columns_read(term):
        value = batch.values[name]
        if isinstance(value, Grouped):
            value = value.expand()
        columns[name] = Array(value) if isinstance(value, np.ndarray) else Values(list(value))
    ids = np.arange(batch.rows, dtype=np.uint64) + np.uint64(batch.id)
    return evaluate(term, columns, ids, None, key).batch()


@dataclass(frozen=True, eq=False)
class CollateStage:
    """A function of the user's that makes a batch of its rows, given as a list of dicts."""

    function: Function
    read = None

    @property
    def label(self) -> str:
        return f"collate {self.function.name}  [{self.function.where}]"

    def run(self, payload: Block, context: Context, worker: Worker) -> Iterator[Result]:
        started, cpu = time.perf_counter(), time.thread_time()
        names = list(payload.columns)
        rows = [
            dict(zip(names, values, strict=True))
            for values in zip(*(payload.columns[n].rows() for n in names), strict=True)
        ]
        place = None if payload.places is None else int(payload.places[0])
        batch = BatchValue({}, len(payload), int(payload.ids[0]), place)
        failures: tuple[Failure, ...] = ()
        kept: list[BatchValue] = []
        worker.moved = False
        fn = worker.callable(self.function)

        def attempt(seeded: frozenset[str]) -> Any:
            if seeded:
                key = stream_key(context.seed, context.epoch, "collate")
                next(seeding(seeded, Draw(key, payload.ids[:1]).seeds().tolist()))
            return fn(rows)

        try:
            made = watched(self.function.fn, worker, attempt)
            kept = [replace(batch, values=made if isinstance(made, dict) else {"batch": made})]
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, it is that batch's
            failures = (replace(_failure(batch, logical.Node(), error), step=self.label),)
        yield _result(kept, failures, started, cpu, worker, [self.function], self.label)
