"""Rows into batches: so many from each shard, or as many as a budget of tokens allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from silva.columns import Array, Block
from silva.errors import ColumnError
from silva.plan import node as logical
from silva.run.flows.trail import Flow, Reader, State


class ShardReader:
    """One shard's rows, with the state after the last that was taken."""

    def __init__(self, shard: int, flow: Flow, state: State) -> None:
        self.shard = shard
        self.flow = flow
        self.reader = Reader(flow.pieces())
        self._last: tuple[Any, int] | None = None
        self._state = state

    def gather(self, count: int) -> list[Block]:
        blocks, runs = self.reader.gather(count)
        if runs:
            trail, start, size = runs[-1]
            self._last = (trail, start + size - 1)
        return blocks

    def snapshot(self) -> Callable[[], State]:
        last, state = self._last, self._state
        return lambda: state if last is None else last[0].after(last[1])


def batches(
    spec: logical.Batch, shards: list[ShardReader], share: int, pad: Any
) -> Iterator[tuple[Block, list[int]]]:
    """Blocks of one batch each: `share` rows of every shard, in the order of the shards, and how
    many rows each shard gave."""
    while True:
        blocks: list[Block] = []
        counts: list[int] = []
        for shard in shards:
            got = shard.gather(share)
            blocks += got
            counts.append(sum(len(b) for b in got))
        if not blocks:
            return
        yield Block.concat(blocks), counts


def token_batches(spec: logical.Batch, shard: ShardReader) -> Iterator[Block]:
    """Batches in which rows × the longest `by` stay within `tokens`; a longer row stands alone."""
    assert spec.tokens is not None
    assert spec.by is not None
    held: list[Block] = []
    longest, count = 0, 0
    while shard.reader.available():
        block, trail, start = shard.reader.take(256)
        lengths = item_lengths(block, spec.by)
        begin = 0
        for i, length in enumerate(lengths):
            if count and max(longest, length) * (count + 1) > spec.tokens:
                held.append(block.slice(begin, i))
                yield Block.concat([b for b in held if len(b)])
                held, longest, count, begin = [], 0, 0, i
            longest, count = max(longest, length), count + 1
            shard._last = (trail, start + i)
        held.append(block.slice(begin, len(block)))
    if count:
        yield Block.concat([b for b in held if len(b)])


def item_lengths(block: Block, name: str) -> list[int]:
    """The length of each row of a column: a number stands for itself, a sequence for its length."""
    column = block.columns[name]
    if isinstance(column, Array) and column.data.ndim == 1:
        if column.data.dtype.kind not in "iu":
            raise ColumnError(f"{name!r} must hold lengths (whole numbers) or sequences")
        lengths: list[int] = column.data.tolist()
        return lengths
    return [x if isinstance(x, int) else len(x) for x in column.rows()]


def fast_arrays(block: Block) -> dict[str, np.ndarray] | None:
    """The columns as writable arrays that can simply be sliced, or None where rows decide."""
    out: dict[str, np.ndarray] = {}
    for name, column in block.columns.items():
        if not isinstance(column, Array) or column.valid is not None:
            return None
        data = column.data
        out[name] = data if data.flags.writeable else data.copy()
    return out
