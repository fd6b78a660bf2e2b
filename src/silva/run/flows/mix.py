"""Rows of several flows in given proportions; see `order.mixing` for who comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.order.mixing import Chooser
from silva.physical import plan as physical
from silva.run.flows.sequence import Open, fetch_children
from silva.run.flows.trail import Flow, Joined, Mark, Piece, Reader, State
from silva.run.session import Session

_ROWS = 1024
"""Rows in a mixed block; borders do not show."""


@dataclass(frozen=True, eq=False)
class MixTrail:
    given: tuple[int, ...]
    """Rows given by each child before this block."""
    picks: np.ndarray
    """The child of each row."""
    rows: tuple[Joined | None, ...]
    begin: tuple[State, ...]
    """Each child's state before this block."""
    passes: tuple[int, ...]

    def after(self, row: int) -> State:
        counts = np.bincount(self.picks[: row + 1], minlength=len(self.given)).tolist()
        states = []
        for child, count in enumerate(counts):
            joined = self.rows[child]
            states.append(
                self.begin[child] if not count or joined is None else joined.after(count - 1)
            )
        state: dict[str, Any] = {
            "given": [g + c for g, c in zip(self.given, counts, strict=True)],
            "each": states,
        }
        if any(self.passes):
            state["passes"] = list(self.passes)
        return state

    def mark(self, row: int) -> Mark:
        child = int(self.picks[row])
        joined = self.rows[child]
        assert joined is not None
        before = int((self.picks[:row] == child).sum())
        return [child, joined.mark(before)]


class MixFlow:
    def __init__(self, node: physical.Mix, session: Session, open_flow: Open, state: State) -> None:
        self._node, self._session, self._open = node, session, open_flow
        count = len(node.many)
        self._passes = [0] * count
        self._begin: list[State] = [None] * count
        given = [0] * count
        if state is not None:
            given = [int(g) for g in state["given"]]
            self._begin = list(state["each"])
            self._passes = [int(p) for p in state.get("passes", self._passes)]
        context = session.context
        key = (node.spec.seed, context.seed, context.epoch, session.shard)
        self._chooser = Chooser(node.spec.schedule, given, key)

    def _child(self, child: int, state: State) -> Flow:
        session = self._session
        if self._passes[child]:
            session = session.in_epoch(session.context.epoch + (self._passes[child] << 32))
        return self._open(self._node.many[child], session, state)

    def pieces(self) -> Iterator[Piece]:
        many = range(len(self._node.many))
        readers = [Reader(self._child(i, self._begin[i]).pieces()) for i in many]
        live = [True for _ in many]
        while any(live):
            given, begin = tuple(self._chooser.given), tuple(self._begin)
            passes = tuple(self._passes)
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
            yield Piece(
                _interleave(blocks, order), MixTrail(given, order, tuple(rows), begin, passes)
            )
            for i, joined in enumerate(rows):
                if joined is not None:
                    self._begin[i] = joined.after(counts[i] - 1)

    def _pick(self, readers: list[Reader], live: list[bool]) -> tuple[list[int], int | None]:
        """The children of the next rows; or, if the next one has no more rows, which that is.

        A child counts as exhausted when it is chosen and has nothing left, never earlier, so that
        where blocks end cannot be seen.
        """
        picks: list[int] = []
        wanted = [0] * len(readers)
        ready = [-1] * len(readers)
        while len(picks) < _ROWS:
            child = self._chooser.next(live)
            if ready[child] < 0:
                ready[child] = readers[child].available()
            if wanted[child] == ready[child]:
                return picks, (child if not picks else None)
            picks.append(child)
            wanted[child] += 1
            self._chooser.take(child)
        return picks, None

    def _restart(self, child: int, readers: list[Reader], live: list[bool]) -> bool:
        """What happens when a child has no more rows; False ends the mix."""
        stop = self._node.spec.stop
        if stop == "first":
            return False
        if stop == "repeat":
            self._passes[child] += 1
            if all(self._passes):
                return False
            self._begin[child] = None
            readers[child] = Reader(self._child(child, None).pieces())
            live[child] = readers[child].available() > 0  # an empty pipeline repeats nothing
        else:
            live[child] = False
        return any(live)

    def fetch(self, marks: list[Mark]) -> Block:
        return fetch_children(self._node.many, self._session, self._open, marks)


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
