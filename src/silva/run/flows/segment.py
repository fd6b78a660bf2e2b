"""Applies a stage to the blocks of a flow in order, and handles rows that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from silva.columns import Block
from silva.errors import StateError
from silva.physical import plan as physical
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.stage import Result
from silva.run.failures import DeferredFailures
from silva.run.flows.flow import (
    Cursor,
    Fetched,
    Mark,
    Position,
    Session,
    Trail,
    TrailedBlock,
    trail_from,
)
from silva.run.flows.inputs import BlocksInput, Input, PlacesInput
from silva.run.flows.units import UnitsFlow, UnitsInput
from silva.run.flows.windows import fetch_windows
from silva.run.pools.task import RowsPayload


@dataclass(frozen=True, eq=False, slots=True)
class SegmentTrail:
    """The trail from a stage's output rows to the position of its input.

    The input's cursor passes through unchanged, unless the stage may stop in the middle of an input
    row (explode) or chunk: then it is wrapped as `order.cursors.Parts` or `Chunks` say, always.
    """

    parent: Trail
    before: Position
    """The position before the first input row."""
    result: Result
    explodes: bool
    whole: bool
    """The input is a fixed chunk: resume runs all of it again, and drops the rows that were
    given."""
    failed: int
    """The rows that failed here before this block, since the flow was opened."""
    stop: int | None = None
    """The input row that fails next, or before which a row failed below; no cursor is past it."""

    def after(self, row: int) -> Position:
        result = self.result
        last = row >= len(result.block) - 1
        if self.whole:
            done = last and self.stop is None
            return self._position(result.size_in) if done else self._position(0, given=row + 1)
        # Not past rows that were dropped after this one, which another block might not hold, nor
        # past one that failed: it fails again when the state is loaded.
        origin = row if result.origin is None else int(result.origin[row])
        if result.subs:
            assert result.origin is not None
            following = self.stop if last else int(result.origin[row + 1])
            if origin in (following, self.stop):
                return self._position(origin, done=self._parts(row))
        return self._position(origin + 1)

    def _parts(self, row: int) -> tuple[int, ...]:
        return tuple(int(part[row]) for part in self.result.subs)

    def _position(self, rows: int, done: tuple[int, ...] = (), given: int = 0) -> Position:
        """The position after `rows` input rows, and some parts or rows of the next one."""
        cursor, failed, seen = self.parent.after(rows - 1) if rows else self.before
        if self.whole:
            cursor = {"in": cursor, "given": given}
        elif self.explodes:
            cursor = {"in": cursor, "done": list(done)}
        for failure in self.result.failures:
            within = bool(done) and failure.row == rows and failure.parts <= done
            failed += failure.row < rows or within
        return Position(cursor, self.failed + failed, seen)

    def mark(self, row: int) -> Mark:
        origin = row if self.result.origin is None else int(self.result.origin[row])
        if self.whole:
            return [self.before.cursor, origin]
        mark = self.parent.mark(origin)
        return [mark, *self._parts(row)] if self.explodes else mark


class StageRunner(Protocol):
    """Runs the stage of a segment: the executor, or a cache that has it run what it lacks."""

    def run(
        self, node: physical.Segment, source: Input, context: Context
    ) -> Iterator[tuple[Trail, list[Result]]]:
        """The results of each input in order, with the input's trail."""

    def run_here(
        self, node: physical.Segment, payload: RowsPayload, context: Context
    ) -> list[Result]:
        """The results of one input, computed on this thread."""


def open_segment(node: physical.Segment, session: Session, cursor: Cursor) -> SegmentFlow:
    """A segment whose stage the executor runs, continuing from its cursor."""
    return SegmentFlow(node, session, session.executor, node, cursor)


def _open_input(node: physical.Segment, session: Session, cursor: Cursor) -> Input:
    """The input of a segment: what its worker reads itself, or the blocks of another flow."""
    if isinstance(node.input, physical.IndexedFeed):
        return PlacesInput(node.input, session, cursor)
    if isinstance(node.input, physical.ChunkedFeed) and node.stage.read is not None:
        return UnitsInput(UnitsFlow(node.input, session, cursor))
    deferred = DeferredFailures(session.failures)
    flow = session.for_reading_ahead(deferred).open(node.input, cursor)
    return BlocksInput(flow.blocks(), flow.fetch, node.whole, deferred)


class SegmentFlow:
    def __init__(
        self,
        node: physical.Segment,
        session: Session,
        runner: StageRunner,
        first: physical.Segment,
        cursor: Cursor,
    ) -> None:
        """`runner` runs the stage. `first` is the segment that reads the input: the node itself, or
        the one below a cache that `runner` fills."""
        self._node, self._session, self._runner = node, session, runner
        self._below = first.input
        own = cursor if cursor is not None else {}
        wraps = node.whole or node.stage.explodes
        begin = own["in"] if own and wraps else cursor
        self._input = _open_input(first, session, begin)
        self._begin = Position(begin)
        self._done = tuple(own["done"]) if node.stage.explodes and own else ()
        self._given: int = own["given"] if node.whole and own else 0
        self._failed = self._seen = 0
        """The rows that failed here, and the input rows, before the present block."""
        self._last: tuple[Trail, int] | None = None
        """The trail of the last input and the number of its rows."""

    def blocks(self) -> Iterator[TrailedBlock]:
        runs = self._runner.run(self._node, self._input, self._session.context)
        for trail, result in one_by_one(runs):
            yield from self._blocks(trail, result)
        for _, failure in self._failed_below(None):
            self._session.handle(failure)

    @property
    def rows_read(self) -> int:
        """See `CountsRows`."""
        if self._last is None or isinstance(self._input, PlacesInput | UnitsInput):
            return self._seen
        trail, rows = self._last
        return trail.after(rows - 1).seen

    def _blocks(self, trail: Trail, result: Result) -> Iterator[TrailedBlock]:
        node, before = self._node, self._before(trail)
        self._last = trail, result.size_in
        if self._done:
            result = _without_done(result, self._done)
            self._done = ()
        piece_trail = SegmentTrail(
            trail, before, result, node.stage.explodes, node.whole, self._failed
        )
        start, self._given = self._given, 0
        for row, parts, failure in self._failures(result):
            stop = _rows_before(result, row, parts)
            if stop > start:  # a failure is handled when the row after it is asked for
                yield _from(result.block, replace(piece_trail, stop=row), start, stop)
                start = stop
            self._session.handle(failure)
        if start < len(result.block):
            yield _from(result.block, piece_trail, start, len(result.block))
        self._failed += len(result.failures)
        self._seen += result.size_in

    def _before(self, trail: Trail) -> Position:
        """The position before an input. A flow below may have dropped rows between two blocks, or
        within one: the position is before these rows, wherever blocks end. Places of a source and
        windows know where they begin."""
        if self._input.deferred is None or self._node.whole:
            return trail.after(-1)
        if self._last is None:
            return self._begin
        last, rows = self._last
        return last.after(rows - 1)

    def _failures(self, result: Result) -> list[tuple[int, tuple[int, ...], Failure]]:
        """The failures of a block and of the steps below, in order: (input row, parts, failure).
        A row that failed below stands before the input row of its number."""
        below = [
            (place - self._seen, (), failure)
            for place, failure in self._failed_below(self._seen + result.size_in)
        ]
        own = [(failure.row, failure.parts, failure) for failure in result.failures]
        return sorted(below + own, key=lambda found: found[0]) if below else own

    def _failed_below(self, before: int | None) -> list[tuple[int, Failure]]:
        """The rows that failed below while input rows up to `before` were read ahead."""
        return [] if self._input.deferred is None else self._input.deferred.take(before)

    def fetch(self, marks: list[Mark]) -> Fetched:
        if self._node.whole:
            again = self._session.for_reading_again()
            return fetch_windows(lambda at: again.open(self._below, at), marks, self._chunk_rows)
        explodes = self._node.stage.explodes
        found = self._input.fetch([mark[0] if explodes else mark for mark in marks])
        if not found.which:
            return found
        parts = [tuple(marks[i][1:]) if explodes else () for i in found.which]
        rows = self._rows(found.rows, list(enumerate(parts)))
        return Fetched(rows.rows, [found.which[i] for i in rows.which])

    def _chunk_rows(self, chunk: Block, rows: list[int]) -> Fetched:
        return self._rows(chunk, [(row, ()) for row in rows])

    def _rows(self, payload: RowsPayload, wanted: list[tuple[int, tuple[int, ...]]]) -> Fetched:
        """The output rows of the stage for some rows of its input, and which of these have any."""
        context = self._session.context.computing_every_row()
        (result,) = self._runner.run_here(self._node, payload, context)
        count = len(result.block)
        origin = range(count) if result.origin is None else result.origin.tolist()
        keys = zip(origin, *(part.tolist() for part in result.subs), strict=True)
        places = {key: at for at, key in enumerate(keys)}
        picked, which = [], []
        for number, (row, parts) in enumerate(wanted):
            at = places.get((row, *parts))
            if at is None:
                self._missing(result, row, parts)
                continue
            picked.append(at)
            which.append(number)
        return Fetched(result.block.take(np.array(picked, dtype=np.int64)), which)

    def _missing(self, result: Result, row: int, parts: tuple[int, ...]) -> None:
        """Handles a waiting row that fails when it is read again."""
        for failure in result.failures:
            if failure.row == row and failure.parts == parts[: len(failure.parts)]:
                self._session.handle(failure)
                return
        raise StateError(
            "the state names a row that waits in a bucket and that does not come out of "
            f"`{self._node.stage.label}`: it does not fit this pipeline, or is damaged"
        )


def one_by_one(runs: Iterator[tuple[Trail, list[Result]]]) -> Iterator[tuple[Trail, Result]]:
    """Each result with the trail of its own input rows."""
    for trail, results in runs:
        start = 0
        for result in results:
            yield trail_from(trail, start), result
            start += result.size_in


def _from(block: Block, trail: Trail, start: int, stop: int) -> TrailedBlock:
    """Rows `start` to `stop` of a block, with their trail."""
    return TrailedBlock(block.slice(start, stop), trail_from(trail, start))


def _rows_before(result: Result, row: int, parts: tuple[int, ...]) -> int:
    """The number of output rows before a part of input row `row`."""
    if result.origin is None:
        return min(row, len(result.block))
    before = int(np.searchsorted(result.origin, row, side="left"))
    here = slice(before, int(np.searchsorted(result.origin, row, side="right")))
    less, equal = np.zeros(here.stop - before, bool), np.ones(here.stop - before, bool)
    for sub, part in zip(result.subs, parts, strict=False):
        less |= equal & (sub[here] < part)
        equal &= sub[here] == part
    return before + int(less.sum())


def _without_done(result: Result, done: tuple[int, ...]) -> Result:
    """The result without the parts of the first input row that were given before the state was
    saved."""
    failures = tuple(f for f in result.failures if f.row > 0 or not f.parts or f.parts > done)
    if result.origin is None:
        return replace(result, failures=failures)
    count = int(np.searchsorted(result.origin, 0, side="right"))
    first = zip(*(part[:count].tolist() for part in result.subs), strict=True)
    skip = sum(parts <= done for parts in first)
    keep = np.arange(skip, len(result.block))
    return replace(
        result,
        block=result.block.slice(skip, len(result.block)),
        origin=result.origin[keep],
        subs=tuple(part[keep] for part in result.subs),
        failures=failures,
    )
