"""Windows of rows: their trail, and the flow that shuffles each window by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from silva.columns import Block
from silva.errors import StateError
from silva.order.permutation import permute
from silva.physical import plan as physical
from silva.run.flows.trail import (
    Cursor,
    Fetched,
    Flow,
    Joined,
    Mark,
    Offset,
    OpenFlow,
    Piece,
    Position,
    Reader,
)
from silva.run.session import Session


@dataclass(frozen=True, eq=False, slots=True)
class WindowTrail:
    """The trail of one window: resume reads the window again and drops the rows that were given."""

    window: int
    begin: Position
    end: Position
    size: int
    rows: Joined | None
    """The trail of the rows below; None if each row is made of the whole window."""
    order: np.ndarray | None = None

    def after(self, row: int) -> Position:
        if row + 1 >= self.size:
            cursor, failed, seen = self.end
            return Position({"window": self.window + 1, "from": cursor, "given": 0}, failed, seen)
        cursor, failed, seen = self.begin
        return Position({"window": self.window, "from": cursor, "given": row + 1}, failed, seen)

    def mark(self, row: int) -> Mark:
        if self.rows is None:
            return [{"window": self.window, "from": self.begin.cursor, "given": 0}, row]
        return self.rows.mark(row if self.order is None else int(self.order[row]))


def fetch_windows(
    open_at: Callable[[Cursor], Flow],
    marks: list[Mark],
    rows_of: Callable[[Block, list[int]], Fetched],
) -> Fetched:
    """Reads rows marked as [cursor before the window, row in it]; each window is read once."""
    windows: dict[str, list[int]] = {}
    for number, (begin, _) in enumerate(marks):
        windows.setdefault(json.dumps(begin), []).append(number)
    parts: list[tuple[list[int], Fetched]] = []
    for begin, numbers in windows.items():
        piece = next(iter(open_at(json.loads(begin)).pieces()), None)
        rows = [marks[number][1] for number in numbers]
        if piece is None or max(rows) >= len(piece.block):
            raise StateError("the state names a row of a window that is shorter")
        parts.append((numbers, rows_of(piece.block, rows)))
    return Fetched.joined(parts)


class WindowsFlow:
    """Windows of `width` rows, each shuffled by itself where there is a seed."""

    def __init__(
        self, node: physical.Windows, session: Session, open_flow: OpenFlow, cursor: Cursor
    ) -> None:
        self._node, self._session = node, session
        own = cursor or {"window": 0, "from": None, "given": 0}
        self._window, self._given = own["window"], own["given"]
        self._begin = Position(own["from"])
        self._flow = open_flow(node.input, session, own["from"])

    def pieces(self) -> Iterator[Piece]:
        reader = Reader(self._flow.pieces())
        begin = self._begin
        while True:
            blocks, runs = reader.gather(self._node.width)
            if not blocks:
                return
            block, rows = Block.concat(blocks), Joined(runs)
            order = self._order(len(block))
            end = rows.after(len(block) - 1)
            if order is not None:
                block = block.take(order)
            trail = WindowTrail(self._window, begin, end, len(block), rows, order)
            given, self._given = self._given, 0
            if given < len(block):
                rest = block.slice(given, len(block)) if given else block
                yield Piece(rest, Offset(trail, given) if given else trail)
            self._window += 1
            begin = end

    def _order(self, size: int) -> np.ndarray | None:
        if self._node.seed is None:
            return None
        context = self._session.context
        key = (self._node.seed, context.seed, context.epoch, self._session.shard, self._window)
        return permute(np.arange(size), size, "window", *key)

    def fetch(self, marks: list[Mark]) -> Fetched:
        return self._flow.fetch(marks)
