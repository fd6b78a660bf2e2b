"""Rows gathered by length into batches of like lengths.

Rows wait in their bucket until it is full. The state names each waiting row by its mark (at most a
few bytes), and a restored stream reads those rows again, wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from silva.columns import Block
from silva.errors import ColumnError
from silva.plan import node as logical
from silva.run.flows.batch import item_lengths
from silva.run.flows.trail import Flow, Mark, Reader, State


class BucketReader:
    """One shard's rows, handed out bucket by bucket."""

    def __init__(self, spec: logical.Bucket, flow: Flow, share: int, state: State) -> None:
        self._spec = spec
        self._share = share
        self._waiting: list[list[tuple[Block, Mark]]] = [[] for _ in spec.sizes]
        self._state = None
        self._draining = False
        if state is not None:
            self._state = state["of"]
            self._draining = bool(state.get("draining"))
            for bucket, marks in enumerate(state["waiting"]):
                if marks:
                    rows = flow.fetch(marks)
                    self._waiting[bucket] = [
                        (rows.slice(i, i + 1), mark) for i, mark in enumerate(marks)
                    ]
        self._reader = Reader(flow.pieces())

    def batches(self) -> Iterator[Block]:
        while not self._draining and self._reader.available():
            block, trail, start = self._reader.take(256)
            for i, length in enumerate(item_lengths(block, self._spec.by)):
                bucket = self._bucket(length)
                self._waiting[bucket].append((block.slice(i, i + 1), trail.mark(start + i)))
                size = self._spec.sizes[bucket][1] // self._share
                if len(self._waiting[bucket]) >= size:
                    rows, self._waiting[bucket] = self._waiting[bucket], []
                    self._last = (trail, start + i)
                    self._state = None
                    yield Block.concat([b for b, _ in rows])
                else:
                    self._last = (trail, start + i)
                    self._state = None
        self._draining = True
        for bucket, rows in enumerate(self._waiting):
            if rows and not self._spec.drop_last:
                self._waiting[bucket] = []
                yield Block.concat([b for b, _ in rows])

    def _bucket(self, length: int) -> int:
        for i, (longest, _) in enumerate(self._spec.sizes):
            if length <= longest:
                return i
        raise ColumnError(
            f"bucket: a row of length {length} is longer than the last bucket "
            f"({self._spec.sizes[-1][0]}); filter or truncate such rows, or add a bucket"
        )

    def state(self) -> State:
        if self._state is None and hasattr(self, "_last"):
            trail, row = self._last
            inner: Any = trail.after(row)
        else:
            inner = self._state
        state = {"of": inner, "waiting": [[m for _, m in rows] for rows in self._waiting]}
        if self._draining:
            state["draining"] = True
        return state
