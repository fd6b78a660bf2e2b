"""Flows that select or combine rows and change none: take, skip, concat, zip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from silva.columns import Block
from silva.errors import SilvaError
from silva.order.shards import share
from silva.physical import plan as physical
from silva.run.flows.flow import (
    CountsRows,
    Cursor,
    Fetched,
    Flow,
    Mark,
    Position,
    Reader,
    Session,
    Trail,
    TrailedBlock,
)


@dataclass(frozen=True, eq=False, slots=True)
class CountTrail:
    """A trail with a count of rows beside it."""

    inner: Trail
    start: int
    name: str
    count: int
    counts: bool

    def after(self, row: int) -> Position:
        inner, failed, seen = self.inner.after(self.start + row)
        count = self.count + (row + 1 if self.counts else 0)
        return Position({self.name: count, "of": inner}, failed, seen)

    def mark(self, row: int) -> Mark:
        return self.inner.mark(self.start + row)


class TakeFlow:
    def __init__(self, node: physical.Take, session: Session, cursor: Cursor) -> None:
        self._limit = share(node.count, session.shards, session.shard)
        self._taken = 0 if cursor is None else cursor["taken"]
        self._flow = session.open(node.input, cursor and cursor["of"])
        self.fetch = self._flow.fetch

    def blocks(self) -> Iterator[TrailedBlock]:
        if self._taken >= self._limit:
            return
        for trailed in self._flow.blocks():
            left = self._limit - self._taken
            block = trailed.block.slice(0, left) if len(trailed.block) > left else trailed.block
            yield TrailedBlock(block, CountTrail(trailed.trail, 0, "taken", self._taken, True))
            self._taken += len(block)
            if self._taken >= self._limit:
                return


class SkipFlow:
    def __init__(self, node: physical.SkipRows, session: Session, cursor: Cursor) -> None:
        count = share(node.count, session.shards, session.shard)
        self._left = count if cursor is None else count - cursor["skipped"]
        self._count = count
        self._flow = session.open(node.input, cursor and cursor["of"])
        self.fetch = self._flow.fetch

    def blocks(self) -> Iterator[TrailedBlock]:
        for trailed in self._flow.blocks():
            start = min(self._left, len(trailed.block))
            self._left -= start
            if start < len(trailed.block):
                block = trailed.block.slice(start, len(trailed.block))
                yield TrailedBlock(
                    block, CountTrail(trailed.trail, start, "skipped", self._count, False)
                )


@dataclass(frozen=True, eq=False, slots=True)
class ChildTrail:
    """The trail of a block of one of the concatenated pipelines."""

    inner: Trail
    child: int
    failed: int
    seen: int
    """Rows that failed and rows that were read in the pipelines before this one."""

    def after(self, row: int) -> Position:
        inner, failed, seen = self.inner.after(row)
        cursor = {"child": self.child, "of": inner}
        return Position(cursor, self.failed + failed, self.seen + seen)

    def mark(self, row: int) -> Mark:
        return [self.child, self.inner.mark(row)]


class ConcatFlow:
    def __init__(self, node: physical.Concat, session: Session, cursor: Cursor) -> None:
        self._node, self._session = node, session
        own = cursor or {"child": 0, "of": None}
        self._child, self._cursor = own["child"], own["of"]
        self.rows_read = 0

    def blocks(self) -> Iterator[TrailedBlock]:
        cursor, failed, seen = self._cursor, 0, 0
        for child in range(self._child, len(self._node.many)):
            session = self._session.for_branch()
            last = None
            flow = session.open(self._node.many[child], cursor)
            for trailed in flow.blocks():
                yield TrailedBlock(trailed.block, ChildTrail(trailed.trail, child, failed, seen))
                last = trailed
            failed += session.tally.failed
            if isinstance(flow, CountsRows):
                seen += flow.rows_read
            elif last is not None:
                seen += last.trail.after(len(last.block) - 1).seen
            cursor = None
        self.rows_read = seen

    def fetch(self, marks: list[Mark]) -> Fetched:
        whose = [((child,), mark) for child, mark in marks]
        return fetch_children(whose, lambda child: self._session.open(self._node.many[child], None))


def fetch_children(
    whose: Sequence[tuple[tuple[int, ...], Mark]], open_child: Callable[..., Flow]
) -> Fetched:
    """Rows of several children, each child opened once: (which child, its mark)."""
    children: dict[tuple[int, ...], list[int]] = {}
    for number, (child, _) in enumerate(whose):
        children.setdefault(child, []).append(number)
    parts = [
        (numbers, open_child(*child).fetch([whose[number][1] for number in numbers]))
        for child, numbers in children.items()
    ]
    return Fetched.joined(parts)


@dataclass(frozen=True, eq=False, slots=True)
class ZipTrail:
    """The trail of a block of zipped rows."""

    parts: tuple[tuple[Trail, int], ...]

    def after(self, row: int) -> Position:
        found = [trail.after(start + row) for trail, start in self.parts]
        return joined_position({"each": [at.cursor for at in found]}, found)

    def mark(self, row: int) -> Mark:
        return [trail.mark(start + row) for trail, start in self.parts]


def joined_position(cursor: Cursor, parts: list[Position]) -> Position:
    """A position with the failure counts of several."""
    return Position(cursor, sum(p.failed for p in parts), sum(p.seen for p in parts))


class ZipFlow:
    def __init__(self, node: physical.Zip, session: Session, cursor: Cursor) -> None:
        each = [None] * len(node.many) if cursor is None else cursor["each"]
        self._flows = [session.open(child, c) for child, c in zip(node.many, each, strict=True)]
        self._strict = node.stop == "strict"

    def blocks(self) -> Iterator[TrailedBlock]:
        readers = [Reader(flow.blocks()) for flow in self._flows]
        while True:
            ready = self._ready(readers)
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
            yield TrailedBlock(
                Block(columns, first.ids, first.places),
                ZipTrail(tuple((trail, start) for _, trail, start in taken)),
            )

    def _ready(self, readers: list[Reader]) -> list[int]:
        """The rows that each pipeline has available. If the shortest pipeline ends the zip, those
        after it are not read any more."""
        ready: list[int] = []
        for reader in readers:
            if self._strict or all(ready):
                ready.append(reader.available())
        return ready

    def fetch(self, marks: list[Mark]) -> Fetched:
        found = [flow.fetch([mark[i] for mark in marks]) for i, flow in enumerate(self._flows)]
        there = sorted(set.intersection(*(set(each.which) for each in found)))
        blocks = [
            each.rows.take(np.searchsorted(each.which, there).astype(np.int64)) for each in found
        ]
        columns = {n: c for block in blocks for n, c in block.columns.items()}
        return Fetched(Block(columns, blocks[0].ids, blocks[0].places), there)
