"""A cache that the planner has put into a stage: rows are kept after its first steps, and nothing
else changes.

The stage was one and is now two, with a store in between. What both make of a run of rows is joined
into the result of the one, so that failures of either are handled in the order of the rows, are
counted once, and states are those of the stage as it was. Rows that failed are in no store: they
fail again, and are counted again, in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.cut import joined
from silva.physical.stage import Result
from silva.run.flows.cache import CachedSession, cached_session
from silva.run.flows.input_of import open_input
from silva.run.flows.segment import SegmentFlow, inner_state
from silva.run.flows.trail import Flow, Offset, State, Trail
from silva.run.session import Session


def has_planned_cache(node: physical.Segment) -> bool:
    """Whether a segment goes on with what a cache of the planner's has kept."""
    return isinstance(node.input, physical.CacheRows) and node.input.spec.planned


def PlannedCacheFlow(
    node: physical.Segment, session: Session, open_flow: Any, state: State
) -> Flow:
    cache: physical.CacheRows = node.input
    inner = inner_state(node, session, state)
    source = open_input(cache.input, session, open_flow, inner)
    both = _BothParts(
        session.context,
        session.shards,
        session.shard,
        session.executor,
        session.failures,
        cache.input,
        cached_session(cache, session),
    )
    return SegmentFlow(node, both, source, state)


@dataclass(frozen=True, eq=False)
class _BothParts(Session):
    """Runs what is kept or must be, and then the rest of the stage."""

    before: physical.Segment
    cached: CachedSession

    def run_segment(
        self, node: physical.Segment, source: Any
    ) -> Iterator[tuple[Any, list[Result]]]:
        kept = _Kept(self.cached.run_segment(self.before, source))
        for (trail, first), results in self.executor.run(node, kept, self.context):
            (second,) = results
            yield trail, [joined(first, second)]

    def run_here(self, node: physical.Segment, payload: Any) -> list[Result]:
        (first,) = self.cached.run_here(self.before, payload)
        (second,) = super().run_here(node, first.block)
        return [joined(first, second)]


class _Kept:
    """What comes of the first steps, in blocks of the size that is asked for; each with its trail
    and the result that it is of."""

    slack = 1

    def __init__(self, results: Iterator[tuple[Trail, list[Result]]]) -> None:
        self._results = _one_by_one(results)
        self._now: tuple[Trail, Result] | None = None

    def next(self, rows: int) -> tuple[Block, tuple[Trail, Result]] | None:
        found = self._now or next(self._results, None)
        if found is None:
            return None
        trail, result = found
        self._now = None
        if len(result.block) > rows:
            border = rows if result.origin is None else int(result.origin[rows])
            self._now = Offset(trail, border), _rows_from(result, rows, border)
            result = _rows_before(result, rows, border)
        return result.block, (trail, result)

    def left(self) -> None:
        return None


def _one_by_one(results: Iterator[tuple[Trail, list[Result]]]) -> Iterator[tuple[Trail, Result]]:
    for trail, several in results:
        start = 0
        for result in several:
            yield (Offset(trail, start) if start else trail), result
            start += result.size_in


def _rows_before(result: Result, row: int, border: int) -> Result:
    """What came of the input rows before `border`: the first `row` output rows."""
    return replace(
        result,
        block=result.block.slice(0, row),
        size_in=border,
        origin=None if result.origin is None else result.origin[:row],
        failures=tuple(f for f in result.failures if f.row < border),
    )


def _rows_from(result: Result, row: int, border: int) -> Result:
    """What came of the input rows from `border` on: the output rows from `row` on."""
    return replace(
        result,
        block=result.block.slice(row, len(result.block)),
        size_in=result.size_in - border,
        origin=None if result.origin is None else result.origin[row:] - border,
        failures=tuple(replace(f, row=f.row - border) for f in result.failures if f.row >= border),
    )
