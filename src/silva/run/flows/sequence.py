"""Flows that see rows in order and change only which come when: windows, take, concat, zip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.errors import SilvaError
from silva.order.permutation import permute
from silva.order.shards import share
from silva.physical import plan as physical
from silva.run.flows.trail import Flow, Joined, Mark, Piece, Reader, State, Trail
from silva.run.session import Session

Open = Callable[[Any, Session, State], Flow]
"""Opens a physical node at a state."""


@dataclass(frozen=True, eq=False, slots=True)
class WindowTrail:
    """Rows of one window: resume reads the window again and drops what was given."""

    window: int
    begin: State
    end: State
    size: int
    rows: Joined
    order: np.ndarray | None

    def after(self, row: int) -> State:
        if row + 1 >= self.size:
            return {"window": self.window + 1, "from": self.end, "given": 0}
        return {"window": self.window, "from": self.begin, "given": row + 1}

    def mark(self, row: int) -> Mark:
        return self.rows.mark(row if self.order is None else int(self.order[row]))


class WindowsFlow:
    """Windows of `width` rows, each shuffled by itself where there is a seed."""

    def __init__(
        self, node: physical.Windows, session: Session, open_flow: Open, state: State
    ) -> None:
        self._node, self._session = node, session
        self._window, inner, self._given = 0, None, 0
        if state is not None:
            self._window, inner = int(state["window"]), state["from"]
            self._given = int(state["given"])
        self._begin = inner
        self._flow = open_flow(node.input, session, inner)

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
                from silva.run.flows.trail import Offset

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

    def fetch(self, marks: list[Mark]) -> Block:
        return self._flow.fetch(marks)


@dataclass(frozen=True, eq=False, slots=True)
class CountTrail:
    """A trail with a count of rows beside it."""

    inner: Trail
    start: int
    name: str
    count: int
    counts: bool

    def after(self, row: int) -> State:
        inner = self.inner.after(self.start + row)
        return {self.name: self.count + (row + 1 if self.counts else 0), "of": inner}

    def mark(self, row: int) -> Mark:
        return self.inner.mark(self.start + row)


class TakeFlow:
    def __init__(
        self, node: physical.Take, session: Session, open_flow: Open, state: State
    ) -> None:
        self._limit = share(node.count, session.shards, session.shard)
        self._taken = 0 if state is None else int(state["taken"])
        self._flow = open_flow(node.input, session, None if state is None else state["of"])

    def pieces(self) -> Iterator[Piece]:
        if self._taken >= self._limit:
            return
        for piece in self._flow.pieces():
            left = self._limit - self._taken
            block = piece.block.slice(0, left) if len(piece.block) > left else piece.block
            yield Piece(block, CountTrail(piece.trail, 0, "taken", self._taken, True))
            self._taken += len(block)
            if self._taken >= self._limit:
                return

    def fetch(self, marks: list[Mark]) -> Block:
        return self._flow.fetch(marks)


class SkipFlow:
    def __init__(
        self, node: physical.Skip, session: Session, open_flow: Open, state: State
    ) -> None:
        count = share(node.count, session.shards, session.shard)
        self._left = count if state is None else count - int(state["skipped"])
        self._count = count
        self._flow = open_flow(node.input, session, None if state is None else state["of"])

    def pieces(self) -> Iterator[Piece]:
        for piece in self._flow.pieces():
            start = min(self._left, len(piece.block))
            self._left -= start
            if start < len(piece.block):
                block = piece.block.slice(start, len(piece.block))
                yield Piece(block, CountTrail(piece.trail, start, "skipped", self._count, False))

    def fetch(self, marks: list[Mark]) -> Block:
        return self._flow.fetch(marks)


@dataclass(frozen=True, eq=False, slots=True)
class ChildTrail:
    inner: Trail
    child: int

    def after(self, row: int) -> State:
        return {"child": self.child, "of": self.inner.after(row)}

    def mark(self, row: int) -> Mark:
        return [self.child, self.inner.mark(row)]


class ConcatFlow:
    def __init__(
        self, node: physical.Concat, session: Session, open_flow: Open, state: State
    ) -> None:
        self._node, self._session, self._open = node, session, open_flow
        self._child = 0 if state is None else int(state["child"])
        self._state = None if state is None else state["of"]

    def pieces(self) -> Iterator[Piece]:
        state = self._state
        for child in range(self._child, len(self._node.many)):
            flow = self._open(self._node.many[child], self._session, state)
            for piece in flow.pieces():
                yield Piece(piece.block, ChildTrail(piece.trail, child))
            state = None

    def fetch(self, marks: list[Mark]) -> Block:
        return fetch_children(self._node.many, self._session, self._open, marks)


def fetch_children(
    many: tuple[Any, ...], session: Session, open_flow: Open, marks: list[Mark]
) -> Block:
    """Rows marked as [child, mark], from whichever child they are of."""
    blocks: list[Block] = []
    for child, mark in marks:
        blocks.append(open_flow(many[child], session, None).fetch([mark]))
    return Block.concat(blocks)


@dataclass(frozen=True, eq=False, slots=True)
class ZipTrail:
    parts: tuple[tuple[Trail, int], ...]

    def after(self, row: int) -> State:
        return {"each": [trail.after(start + row) for trail, start in self.parts]}

    def mark(self, row: int) -> Mark:
        return [trail.mark(start + row) for trail, start in self.parts]


class ZipFlow:
    def __init__(self, node: physical.Zip, session: Session, open_flow: Open, state: State) -> None:
        states = [None] * len(node.many) if state is None else state["each"]
        self._flows = [
            open_flow(child, session, s) for child, s in zip(node.many, states, strict=True)
        ]
        self._strict = node.stop == "strict"

    def pieces(self) -> Iterator[Piece]:
        readers = [Reader(flow.pieces()) for flow in self._flows]
        rows = 0
        while True:
            ready = [reader.available() for reader in readers]
            if not all(ready):
                if self._strict and any(ready):
                    ended = [i for i, n in enumerate(ready) if not n]
                    raise SilvaError(
                        f"zip: pipeline {ended[0]} ended while pipeline "
                        f"{next(i for i, n in enumerate(ready) if n)} had more rows; use "
                        "sv.zip(…, stop='shortest') if that is meant"
                    )
                return
            count = min(ready)
            taken = [reader.take(count) for reader in readers]
            columns = {n: c for block, _, _ in taken for n, c in block.columns.items()}
            first = taken[0][0]
            yield Piece(
                Block(columns, first.ids, first.places),
                ZipTrail(tuple((trail, start) for _, trail, start in taken)),
            )
            rows += count

    def fetch(self, marks: list[Mark]) -> Block:
        blocks = [flow.fetch([mark[i] for mark in marks]) for i, flow in enumerate(self._flows)]
        columns = {n: c for block in blocks for n, c in block.columns.items()}
        return Block(columns, blocks[0].ids, blocks[0].places)
