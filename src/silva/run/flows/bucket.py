"""Rows gathered by length into batches of like lengths.

Rows wait in their bucket until it is full. The state names each waiting row by its mark (at most a
few bytes), and a restored stream reads those rows again, wherever they are.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

from silva.columns import Block
from silva.errors import ColumnError, PlanError, StateError
from silva.physical import plan as physical
from silva.physical.stage.batch_value import batch_value
from silva.physical.stage.context import key_at
from silva.plan import node as logical
from silva.run.flows.batches import BatchRun, OneBatch
from silva.run.flows.lengths import item_lengths
from silva.run.flows.trail import Cursor, Mark, OpenFlow, Position, Reader, Trail
from silva.run.session import Positions, RankSession, Session


class BucketFlow:
    """Batches of rows of like lengths. Buckets fill within a shard; shards take turns."""

    def __init__(self, node: physical.Bucket, session: RankSession, open_flow: OpenFlow) -> None:
        self._node, self._session, self._open = node, session, open_flow

    def runs(self) -> Iterator[BatchRun]:
        session, rank, spec = self._session, self._session.rank, self._node.spec
        for longest, rows in spec.sizes:
            if rows % rank.shards:
                raise PlanError(
                    f"bucket: {rows} rows of length up to {longest} cannot be shared equally by "
                    f"{rank.shards} shards: each shard fills batches of its own, of "
                    "size / shards rows, so choose multiples"
                )
        buckets = {
            shard: _ShardBuckets(
                self._node, session.of_shard(shard), self._open, session.start_of(shard)
            )
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

    def __init__(
        self, node: physical.Bucket, session: Session, open_flow: OpenFlow, start: Position
    ) -> None:
        self._tally = session.tally
        self._spec: logical.Bucket = node.spec
        self._shards = session.shards
        self._flow = open_flow(node.input, session, start.cursor and start.cursor["of"])
        self._reader = Reader(self._flow.pieces())
        self._last: tuple[Trail, int] | None = None
        self._before = start
        """The position, with its counts, at which the flow was opened."""
        cursor: Cursor = start.cursor or {"given": 0, "phase": "filling", "of": None}
        self._inner = cursor["of"]
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
            block, trail, start = self._reader.take(256)
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
