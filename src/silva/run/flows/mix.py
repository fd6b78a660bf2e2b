"""Rows of several flows in given proportions; `order.mixing` decides which comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.errors import StateError
from silva.order.mixing import Chooser, could_have_given
from silva.physical import plan as physical
from silva.run.flows.flow import (
    Cursor,
    Fetched,
    Flow,
    Joined,
    Mark,
    Position,
    Reader,
    Session,
    TrailedBlock,
)
from silva.run.flows.sequence import fetch_children, joined_position

_ROWS = 1024
"""Rows of a mixed block; the stream does not depend on it."""


@dataclass(frozen=True, eq=False)
class MixTrail:
    """The trail of a block of mixed rows."""

    given: tuple[int, ...]
    """The rows that each child gave before this block."""
    picks: np.ndarray
    """The child of each row."""
    rows: tuple[Joined | None, ...]
    begin: tuple[Position, ...]
    """Each child's position before this block."""
    before: Position
    """The counts of earlier passes."""
    passes: tuple[int, ...]
    repeats: bool

    def after(self, row: int) -> Position:
        counts = np.bincount(self.picks[: row + 1], minlength=len(self.given)).tolist()
        each = []
        for child, count in enumerate(counts):
            joined = self.rows[child]
            each.append(
                self.begin[child] if not count or joined is None else joined.after(count - 1)
            )
        cursor: dict[str, Any] = {
            "given": [g + c for g, c in zip(self.given, counts, strict=True)],
            "each": [at.cursor for at in each],
        }
        if self.repeats:
            cursor["passes"] = list(self.passes)
        return joined_position(cursor, [*each, self.before])

    def mark(self, row: int) -> Mark:
        child = int(self.picks[row])
        joined = self.rows[child]
        assert joined is not None
        before = int((self.picks[:row] == child).sum())
        return [child, self.passes[child], joined.mark(before)]


class MixFlow:
    def __init__(self, node: physical.Mix, session: Session, cursor: Cursor) -> None:
        self._node, self._session = node, session
        nothing = [0] * len(node.many)
        own = cursor or {"given": nothing, "each": [None] * len(node.many)}
        self._repeats = node.spec.stop == "repeat"
        self._passes = list(own.get("passes", nothing))
        self._begin = [Position(inner) for inner in own["each"]]
        self._before = Position(None)
        self._sessions = [session] * len(node.many)
        context = session.context
        key = (node.spec.seed, context.seed, context.epoch, session.shard)
        self._chooser = Chooser(node.spec.schedule, list(own["given"]), key)

    def _child(self, child: int, cursor: Cursor) -> Flow:
        self._sessions[child] = session = self._session.for_branch(self._passes[child])
        return session.open(self._node.many[child], cursor)

    def blocks(self) -> Iterator[TrailedBlock]:
        many = range(len(self._node.many))
        readers = [Reader(self._child(i, self._begin[i].cursor).blocks()) for i in many]
        # A pass that has not given a row yet may be empty: such a pipeline repeats nothing.
        fresh = [self._passes[i] > 0 and self._begin[i].cursor is None for i in many]
        live = [not fresh[i] or readers[i].available() > 0 for i in many]
        if any(fresh) and not could_have_given(self._node.spec.schedule, self._chooser.given, live):
            raise StateError(
                "the pipelines of a mix cannot have given so many rows each as the state says: it "
                "does not fit this pipeline, or is damaged"
            )
        while any(live):
            given, begin = tuple(self._chooser.given), tuple(self._begin)
            passes, before = tuple(self._passes), self._before
            picks, exhausted = self._pick(readers, live)
            if exhausted is not None:
                if not self._restart(exhausted, readers, live):
                    return
                continue
            counts = np.bincount(picks, minlength=len(readers)).tolist()
            blocks: list[Block | None] = []
            rows: list[Joined | None] = []
            for i, count in enumerate(counts):
                block, trail, start = readers[i].take(count) if count else (None, None, 0)
                blocks.append(block)
                rows.append(None if trail is None else Joined([(trail, start, count)]))
            order = np.array(picks)
            trail = MixTrail(given, order, tuple(rows), begin, before, passes, self._repeats)
            yield TrailedBlock(_interleave(blocks, order), trail)
            for i, joined in enumerate(rows):
                if joined is not None:
                    self._begin[i] = joined.after(counts[i] - 1)

    def _pick(self, readers: list[Reader], live: list[bool]) -> tuple[list[int], int | None]:
        """The children of the next rows; or, if the next child has no more rows, that child.

        A child counts as exhausted when it is chosen and has nothing left, never earlier, so that
        where blocks end cannot be seen.
        """
        picks: list[int] = []
        wanted = [0] * len(readers)
        ready = [-1] * len(readers)
        while len(picks) < _ROWS:
            child = self._chooser.next(live)
            if ready[child] < 0:
                if picks and not readers[child].rows_at_hand:
                    return picks, None  # rows that failed must not be met before these are given
                ready[child] = readers[child].available()
            if wanted[child] == ready[child]:
                return picks, (child if not picks else None)
            picks.append(child)
            wanted[child] += 1
            self._chooser.take(child)
        return picks, None

    def _restart(self, child: int, readers: list[Reader], live: list[bool]) -> bool:
        """Handles a child that has no more rows; False ends the mix."""
        stop = self._node.spec.stop
        if stop == "first":
            return False
        if stop == "repeat":
            self._passes[child] += 1
            if all(n or not self._chooser.comes(i) for i, n in enumerate(self._passes)):
                return False
            failed, seen = self._sessions[child].tally.failed, self._begin[child].seen
            self._before = self._before.plus(failed, seen)
            self._begin[child] = Position(None)
            readers[child] = Reader(self._child(child, None).blocks())
            live[child] = readers[child].available() > 0  # an empty pipeline repeats nothing
        else:
            live[child] = False
        return any(live)

    def fetch(self, marks: list[Mark]) -> Fetched:
        whose = [((child, passes), mark) for child, passes, mark in marks]
        return fetch_children(whose, self._opened)

    def _opened(self, child: int, passes: int) -> Flow:
        return self._session.for_branch(passes).open(self._node.many[child], None)


def _interleave(blocks: list[Block | None], picks: np.ndarray) -> Block:
    """The blocks' rows in the order of `picks`."""
    present = [b for b in blocks if b is not None]
    order = np.empty(len(picks), dtype=np.int64)
    start = 0
    for child, block in enumerate(blocks):
        if block is not None:
            order[picks == child] = np.arange(start, start + len(block))
            start += len(block)
    names = list(present[0].columns)
    aligned = [b.with_columns({n: b.columns[n] for n in names}) for b in present]
    joined = Block.concat(aligned)
    return joined if len(present) == 1 else joined.take(order)
