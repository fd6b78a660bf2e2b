"""Rows gathered by length: into batches of like lengths, or into batches within a token budget.

Rows wait in their bucket until it is full. The state names each waiting row by its mark (at most a
few bytes), and a restored stream reads those rows again, wherever they are.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import numpy as np

from silva.columns import Array, Block, Lists
from silva.errors import ColumnError, PlanError, StateError
from silva.physical import plan as physical
from silva.physical.stage.batch_value import batch_value
from silva.physical.stage.context import key_at
from silva.plan import node as logical
from silva.run.flows.batch import BlockBatches, Made, OneBatch, ShardReader, positions_of
from silva.run.flows.flow import (
    Cursor,
    Mark,
    Position,
    Positions,
    RankSession,
    Reader,
    Session,
    Trail,
)

_TOKEN_ROWS = 64
"""Rows that a batch of a token budget is expected to take; blocks are sized by it."""
_READ_ROWS = 256
"""Rows whose lengths are looked at together."""


def item_lengths(block: Block, name: str, axis: int | None) -> Iterable[int]:
    """The length of each row of a column, along `axis` where it has several dimensions: a number
    stands for itself, a sequence for its length. A row that has none is an error when its turn
    comes, whatever block it is in."""
    column = block.columns[name]
    if axis is None and isinstance(column, Array | Lists) and column.valid is None:
        lengths = np.diff(column.offsets) if isinstance(column, Lists) else column.data
        if lengths.ndim == 1 and lengths.dtype.kind in "iu":
            found: list[int] = lengths.tolist()
            return found
    return (
        _length(row, axis, functools.partial(_where, block, name, i))
        for i, row in enumerate(column.rows())
    )


def _where(block: Block, name: str, row: int) -> str:
    return f"row {key_at(block.ids, block.places, row)} of column {name!r}"


def _length(row: Any, axis: int | None, where: Callable[[], str]) -> int:
    if type(row) is int and axis is None:
        return row
    shape = getattr(row, "shape", None)
    if shape is None and isinstance(row, Sized) and not isinstance(row, dict):
        shape = (len(row),)
    if not shape:
        hint = ""
        if isinstance(row, float):
            hint = "; round up first, derive(frames=lambda seconds: math.ceil(seconds * 100))"
        raise ColumnError(
            f"{where()} must be a length (a whole number) or a sequence, not {row!r:.60}{hint}"
        )
    if axis is None and len(shape) > 1:
        raise ColumnError(
            f"{where()} has the shape {tuple(shape)}: say which axis is its length, e.g. axis=-1 "
            "for the last one"
        )
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise ColumnError(f"{where()} has the shape {tuple(shape)}, and no axis {axis}")
    return int(shape[axis or 0])


class TokenBatchFlow:
    """Batches in which rows × the longest row stay within a budget; a row that is longer by itself
    is a batch of its own."""

    def __init__(self, node: physical.Batch, session: RankSession) -> None:
        self._node, self._session = node, session

    def batches(self) -> Iterator[BlockBatches]:
        rank, spec = self._session.rank, self._node.spec
        if len(rank.mine) > 1 or rank.world > 1:
            raise PlanError("batch(tokens=…) works on one shard; use batch(n) with several ranks")
        assert spec.tokens is not None
        assert spec.by is not None
        shard = ShardReader(self._node, self._session, rank.mine[0], _TOKEN_ROWS)
        waiting: list[Block] = []
        longest, count = 0, 0
        while shard.available():
            block = shard.take(_READ_ROWS)
            begin = 0
            for i, length in enumerate(item_lengths(block, spec.by, spec.axis)):
                if count and max(longest, length) * (count + 1) > spec.tokens:
                    waiting.append(block.slice(begin, i))
                    if i:
                        shard.end_at(i - 1)
                    yield OneBatch(self._make(waiting), positions_of([shard]))
                    waiting, longest, count, begin = [], 0, 0, i
                longest, count = max(longest, length), count + 1
            shard.end_at(len(block) - 1)
            waiting.append(block.slice(begin, len(block)))
        if count:
            yield OneBatch(self._make(waiting), positions_of([shard]))

    def _make(self, blocks: list[Block]) -> Made:
        spec = self._node.spec
        block = Block.concat([block for block in blocks if len(block)])
        return block if spec.collate is not None else batch_value(block, spec.pad, spec.grouped)


class BucketFlow:
    """Batches of rows of like lengths. Buckets fill within a shard; shards take turns."""

    def __init__(self, node: physical.Bucket, session: RankSession) -> None:
        self._node, self._session = node, session

    def batches(self) -> Iterator[BlockBatches]:
        session, rank, spec = self._session, self._session.rank, self._node.spec
        for longest, rows in spec.sizes:
            if rows % rank.shards:
                raise PlanError(
                    f"bucket: {rows} rows of length up to {longest} cannot be shared equally by "
                    f"{rank.shards} shards: each shard fills batches of its own, of "
                    "size / shards rows, so choose multiples"
                )
        buckets = {
            shard: _ShardBuckets(self._node, session.of_shard(shard), session.start_of(shard))
            for shard in rank.mine
        }
        live = {shard: own.batches() for shard, own in buckets.items() if own.phase != "ended"}
        turn = sum(own.given for own in buckets.values())
        while live:
            shard = list(live)[turn % len(live)]
            block = next(live[shard], None)
            if block is None:
                del live[shard]
                continue
            turn += 1
            after: Positions = {str(shard): own.position() for shard, own in buckets.items()}
            yield OneBatch(batch_value(block, spec.pad), functools.partial(dict, after))


class _ShardBuckets:
    """The rows of one shard, handed out bucket by bucket."""

    def __init__(self, node: physical.Bucket, session: Session, start: Position) -> None:
        self._tally = session.tally
        self._spec: logical.Bucket = node.spec
        self._shards = session.shards
        self._last: tuple[Trail, int] | None = None
        self._before = start
        """The position, with its counts, at which the flow was opened."""
        cursor: Cursor = start.cursor or {"given": 0, "phase": "filling", "of": None}
        self._inner = cursor["of"]
        self._flow = session.open(node.input, self._inner)
        self._reader = Reader(self._flow.blocks())
        self.given: int = cursor["given"]
        """Batches that were handed out."""
        self.phase: str = cursor["phase"]
        self._marks: list[list[Mark]] = cursor.get("waiting", [[] for _ in node.spec.sizes])
        """The marks of waiting rows in the state, until they are fetched."""
        self._waiting: list[list[tuple[Block, Mark]]] = []

    def batches(self) -> Iterator[Block]:
        self._waiting = [self._fetched(marks) for marks in self._marks]
        named = {json.dumps(mark) for marks in self._marks for mark in marks}
        while self.phase == "filling" and self._reader.available():
            block, trail, start = self._reader.take(_READ_ROWS)
            for i, length in enumerate(item_lengths(block, self._spec.by, self._spec.axis)):
                bucket, mark = self._bucket(block, i, length), trail.mark(start + i)
                if named and json.dumps(mark) in named:
                    raise StateError(
                        f"the state is damaged: a row that waits in a bucket comes again: {mark}"
                    )
                self._waiting[bucket].append((block.slice(i, i + 1), mark))
                self._last = (trail, start + i)
                if len(self._waiting[bucket]) >= self._spec.sizes[bucket][1] // self._shards:
                    yield self._given(bucket)
        if self.phase == "filling":
            self.phase = "draining"
        for bucket, rows in enumerate(self._waiting):
            if rows and not self._spec.drop_last:
                yield self._given(bucket)
        self.phase = "ended"

    def _fetched(self, marks: list[Mark]) -> list[tuple[Block, Mark]]:
        if not marks:
            return []
        found = self._flow.fetch(marks)
        return [(found.rows.slice(i, i + 1), marks[number]) for i, number in enumerate(found.which)]

    def _given(self, bucket: int) -> Block:
        rows, self._waiting[bucket] = self._waiting[bucket], []
        self.given += 1
        return Block.concat([block for block, _ in rows])

    def _bucket(self, block: Block, row: int, length: int) -> int:
        for i, (longest, _) in enumerate(self._spec.sizes):
            if length <= longest:
                return i
        raise ColumnError(
            f"bucket: row {key_at(block.ids, block.places, row)} has the length {length} in "
            f"{self._spec.by!r}, longer than the last bucket "
            f"({self._spec.sizes[-1][0]}); filter or truncate such rows, or add a bucket"
        )

    def position(self) -> Position:
        """The position of the shard after the batch that was handed out last."""
        inner = Position(self._inner)
        if self._last is not None:
            trail, row = self._last
            inner = trail.after(row)
        if self.phase != "filling":  # the rest is not read again: rows that failed last count too
            inner = Position(inner.cursor, self._tally.failed, inner.seen)
        waiting = [[mark for _, mark in rows] for rows in self._waiting] or self._marks
        cursor = {"of": inner.cursor, "waiting": waiting, "given": self.given, "phase": self.phase}
        before = self._before
        return Position(cursor, before.failed + inner.failed, before.seen + inner.seen)
