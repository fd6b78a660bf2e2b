"""A stage applied to the blocks of a flow, in order, with rows that failed handled on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.stage import Result
from silva.run.flows.inputs import Input
from silva.run.flows.trail import Mark, Offset, Piece, State, Trail
from silva.run.session import Session


@dataclass(frozen=True, eq=False, slots=True)
class SegmentTrail:
    """From a stage's output rows to the state of its input.

    The input's state passes through unchanged, unless the stage may stop in the middle of an input
    row (explode) or chunk, or failures are counted: then it is wrapped as {"in": state, …},
    always.
    """

    parent: Trail
    result: Result
    wraps: bool
    whole: bool
    """The input is a fixed chunk: it is done again as a whole, and what was given is dropped."""
    counts: tuple[int, int] | None
    """Rows failed and rows seen before this block, where they are counted."""
    stop: int | None = None
    """The input row that ends the stream by failing: no state is past it."""

    def after(self, row: int) -> State:
        result = self.result
        if self.stop is not None and row >= 0 and not self.whole:
            return self._before_stop(row, self.stop)
        if row >= len(result.block) - 1:
            return self._state(self.parent.after(result.size_in - 1), result.size_in)
        if row < 0:
            return self._state(self.parent.after(-1), 0)
        if self.whole:
            return self._state(self.parent.after(-1), 0, given=row + 1)
        origin = row if result.origin is None else int(result.origin[row])
        if result.subs and int(result.origin[row + 1]) == origin:  # type: ignore[index]
            done = [int(part[row]) for part in result.subs]
            return self._state(self.parent.after(origin - 1), origin, done=done)
        return self._state(self.parent.after(origin), origin + 1)

    def _before_stop(self, row: int, stop: int) -> State:
        """After a row, where one that is still to come ends the stream: it does so again when the
        state is loaded."""
        result, following = self.result, stop
        origin = row if result.origin is None else int(result.origin[row])
        if row + 1 < len(result.block):
            after = row + 1 if result.origin is None else int(result.origin[row + 1])
            following = min(stop, after)
        if result.subs and following == origin:
            done = [int(part[row]) for part in result.subs]
            return self._state(self.parent.after(origin - 1), origin, done=done)
        return self._state(self.parent.after(following - 1), following)

    def _state(self, inner: State, seen: int, **more: Any) -> State:
        if not self.wraps:
            return inner
        state = {"in": inner, **more}
        if self.counts is not None:
            failed = sum(f.row < seen for f in self.result.failures)
            state["failed"] = [self.counts[0] + failed, self.counts[1] + seen]
        return state

    def mark(self, row: int) -> Mark:
        result = self.result
        mark = self.parent.mark(row if result.origin is None else int(result.origin[row]))
        return [mark, *(int(part[row]) for part in result.subs)] if result.subs else mark


class SegmentFlow:
    def __init__(
        self, node: physical.Segment, session: Session, source: Input, state: State
    ) -> None:
        """`source` is already opened at the inner state."""
        self._node = node
        self._session = session
        self._input = source
        self._wraps = wraps(node, session)
        own = state if self._wraps and state is not None else {}
        self._done: list[int] | None = own.get("done")
        self._given = int(own.get("given", 0))
        failed, seen = own.get("failed", (0, 0))
        self._counts = (int(failed), int(seen))
        session.failures.resume(*self._counts)

    def pieces(self) -> Iterator[Piece]:
        for trail, results in self._session.run_segment(self._node, self._input):
            start = 0
            for result in results:
                yield from self._pieces(Offset(trail, start) if start else trail, result)
                start += result.size_in

    def _pieces(self, trail: Trail, result: Result) -> Iterator[Piece]:
        failures = self._session.failures
        if self._done is not None:
            result = _without_done(result, self._done)
            self._done = None
        counts = self._counts if failures.counts else None
        piece_trail = SegmentTrail(trail, result, self._wraps, self._node.whole, counts)
        given, self._given = self._given, 0
        if result.failures:
            yield from self._with_failures(result, piece_trail, given)
        elif given < len(result.block):
            yield _from(result.block, piece_trail, given, len(result.block))
        failed, seen = self._counts
        self._counts = (failed + len(result.failures), seen + result.size_in)
        failures.saw(result.size_in)

    def _with_failures(self, result: Result, trail: SegmentTrail, start: int) -> Iterator[Piece]:
        """Rows up to a failure that ends the stream first: what came before it is handed out."""
        failures = self._session.failures
        for failure in result.failures:
            stop = _rows_before(result, failure.row, failure.part)
            if stop > start and not failures.forgives(failure.row + 1):
                yield _from(result.block, replace(trail, stop=failure.row), start, stop)
                start = stop
            failures.handle(failure, failure.row + 1)
        if start < len(result.block):
            yield _from(result.block, trail, start, len(result.block))

    def fetch(self, marks: list[Mark]) -> Block:
        explodes = self._node.stage.explodes
        payload = self._input.fetch([mark[0] if explodes else mark for mark in marks])
        (result,) = self._session.run_here(self._node, payload)
        if not explodes:
            return result.block
        wanted = []
        assert result.origin is not None
        for i, (_, *parts) in enumerate(marks):
            same = result.origin == i
            for part, value in zip(result.subs, parts, strict=True):
                same = same & (part == value)
            wanted.append(int(np.flatnonzero(same)[0]))
        return result.block.take(np.array(wanted))


def wraps(node: physical.Segment, session: Session) -> bool:
    """Whether the segment's state holds more than its input's."""
    return node.whole or node.stage.explodes or session.failures.counts


def inner_state(node: physical.Segment, session: Session, state: State) -> State:
    """The state of a segment's input, given the segment's."""
    return state["in"] if state is not None and wraps(node, session) else state


def _from(block: Block, trail: Trail, start: int, stop: int) -> Piece:
    """Rows `start` to `stop` of a block, with their trail."""
    return Piece(block.slice(start, stop), Offset(trail, start) if start else trail)


def _rows_before(result: Result, row: int, part: int) -> int:
    """How many output rows come before part `part` of input row `row`."""
    if result.origin is None:
        return min(row, len(result.block))
    before = int(np.searchsorted(result.origin, row, side="left"))
    if result.subs:
        here = slice(before, int(np.searchsorted(result.origin, row, side="right")))
        before += int((result.subs[0][here] < part).sum())
    return before


def _without_done(result: Result, done: list[int]) -> Result:
    """Without the parts of the first input row that were handed out before the state was saved."""
    if result.origin is None:
        return result
    count = int(np.searchsorted(result.origin, 0, side="right"))
    first = zip(*(part[:count].tolist() for part in result.subs), strict=True)
    skip = sum(parts <= tuple(done) for parts in first)
    keep = np.arange(skip, len(result.block))
    return replace(
        result,
        block=result.block.slice(skip, len(result.block)),
        origin=result.origin[keep],
        subs=tuple(part[keep] for part in result.subs),
        failures=tuple(f for f in result.failures if f.row > 0 or f.part > done[0]),
    )
