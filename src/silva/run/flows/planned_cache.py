"""A cache that the planner has put into a stage: it keeps the rows after the stage's first steps.

The cache splits the stage in two. The results of both halves are joined into what the whole stage
would have returned. So failures of either half are handled in the order of the rows and counted
once, and states do not change. The cache does not keep rows that failed: they fail again, and are
counted again, in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.stage import Result
from silva.run.executor import Executor, TaskSource
from silva.run.flows.cache import CachedRunner
from silva.run.flows.flow import Cursor, Flow, Session, Trail, trail_from
from silva.run.flows.inputs import Input
from silva.run.flows.segment import SegmentFlow, one_by_one
from silva.run.pools.task import RowsPayload


def open_planned_cache(
    node: physical.Segment, cache: physical.CacheRows, session: Session, cursor: Cursor
) -> Flow:
    """A segment over a cache that the planner has put below it, continuing from its cursor."""
    runner = _BothStages(cache, session.executor)
    return SegmentFlow(node, session, runner, cache.input, cursor)


class _BothStages:
    """Runs the stage below the cache for the rows that it lacks, and then the stage above it."""

    def __init__(self, cache: physical.CacheRows, executor: Executor) -> None:
        self._executor = executor
        self._before = cache.input
        self._cached = CachedRunner(cache, executor)

    def run(
        self, node: physical.Segment, source: Input, context: Context
    ) -> Iterator[tuple[Trail, list[Result]]]:
        kept = _Kept(self._cached.run(self._before, source, context))
        for (trail, first), results in self._executor.run(node, kept, context):
            (second,) = results
            yield trail, [joined(first, second)]

    def run_here(
        self, node: physical.Segment, payload: RowsPayload, context: Context
    ) -> list[Result]:
        (first,) = self._cached.run_here(self._before, payload, context)
        (second,) = self._executor.run_here(node, first.block, context)
        return [joined(first, second)]


class _Kept(TaskSource[tuple[Trail, Result]]):
    """The results of the first stage as inputs of the second, in blocks of the size that is asked
    for, each with its trail and its result."""

    def __init__(self, results: Iterator[tuple[Trail, list[Result]]]) -> None:
        self._results = one_by_one(results)
        self._now: tuple[Trail, Result] | None = None

    def next(self, rows: int) -> tuple[Block, tuple[Trail, Result]] | None:
        found = self._now or next(self._results, None)
        if found is None:
            return None
        trail, result = found
        self._now = None
        if len(result.block) > rows:
            border = rows if result.origin is None else int(result.origin[rows])
            self._now = trail_from(trail, border), _rows_from(result, rows, border)
            result = _rows_before(result, rows, border)
        return result.block, (trail, result)


def _rows_before(result: Result, row: int, border: int) -> Result:
    """The part of a result for the input rows before `border`: the first `row` output rows."""
    return replace(
        result,
        block=result.block.slice(0, row),
        size_in=border,
        origin=None if result.origin is None else result.origin[:row],
        failures=tuple(f for f in result.failures if f.row < border),
    )


def _rows_from(result: Result, row: int, border: int) -> Result:
    """The part of a result for the input rows from `border` on: the output rows from `row` on."""
    return replace(
        result,
        block=result.block.slice(row, len(result.block)),
        size_in=result.size_in - border,
        origin=None if result.origin is None else result.origin[row:] - border,
        failures=tuple(replace(f, row=f.row - border) for f in result.failures if f.row >= border),
    )


def joined(first: Result, second: Result) -> Result:
    """Joins the results of two consecutive stages into one."""
    return Result(
        block=second.block,
        size_in=first.size_in,
        origin=_origin(first.origin, second.origin),
        subs=second.subs,
        failures=_failures(first, second),
        seconds=first.seconds + second.seconds,
        cpu=first.cpu + second.cpu,
        late=first.late,
        again=first.again or second.again,
        moved=first.moved or second.moved,
        seeded=first.seeded or second.seeded,
        bytes_in=first.bytes_in,
        came=first.came.plus(second.came),
        began=second.began and second.began - first.seconds,
    )


def _origin(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    if first is None or second is None:
        return first if second is None else second
    found: np.ndarray = first[second]
    return found


def _failures(first: Result, second: Result) -> tuple[Failure, ...]:
    """The failures of both stages, each with its row in the input of the first."""
    origin = first.origin
    later = second.failures
    if origin is not None:
        later = tuple(replace(failure, row=int(origin[failure.row])) for failure in later)
    return tuple(sorted((*first.failures, *later), key=lambda f: (f.row, f.parts)))
