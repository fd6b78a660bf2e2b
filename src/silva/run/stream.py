"""One epoch of one rank: its shards' flows, joined into batches, with the state after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Block
from silva.errors import PlanError, SilvaError, StateError
from silva.physical import plan as physical
from silva.physical.batch_value import BatchValue, batch_value
from silva.physical.context import Context
from silva.plan import node as logical
from silva.run.executor import Executor
from silva.run.failures import Failures
from silva.run.flows.batch import ShardReader, batches, fast_arrays, token_batches
from silva.run.flows.bucket import BucketReader
from silva.run.flows.open import open_flow
from silva.run.flows.trail import Flow, State
from silva.run.session import Session

MASK = "mask"
"""The column of evaluation batches that is False where a row was padded."""

States = dict[str, State]
"""Shard → state; shards that have not started are left out."""


@dataclass(frozen=True)
class Part:
    """Which part of the job this rank does."""

    shards: int
    mine: range
    world: int = 1
    pads: bool = False
    """Evaluation: short batches are padded, and a mask says where."""


class Stream:
    """Iterates over the batches (or rows) of an epoch; `state()` is valid after each."""

    def __init__(
        self,
        plan: Any,
        executor: Executor,
        context: Context,
        part: Part,
        failures: Failures,
        states: States,
        *,
        as_blocks: bool = False,
    ) -> None:
        """`as_blocks`: batches are given as the blocks that they are made of."""
        self._plan = plan
        self._as_blocks = as_blocks
        self._executor = executor
        self._context = context
        self._part = part
        self._failures = failures
        self._states = states
        self._state: Callable[[], States] = lambda: states
        self._trail: Any = None
        self._row = -1
        self._done = 0
        self._run: tuple[int, int] | None = None
        """(first row, batch size) while slices of one block are handed out."""

    @property
    def count(self) -> int:
        """Batches (or rows) handed out so far."""
        if self._run is None:
            return self._done
        start, size = self._run
        return self._done + (self._row + 1 - start) // size

    def state(self) -> States:
        """The state after what was handed out last."""
        # No closure over self: a cycle would keep the last block until the garbage is collected.
        if self._trail is None:
            return self._state()
        return {str(self._part.mine[0]): self._trail.after(self._row)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        plan = self._plan
        if self._as_blocks and not (
            isinstance(plan, physical.Batch) and self._is_simple(plan.spec)
        ):
            raise PlanError("blocks are given of rows in batches of one size, on one rank")
        if isinstance(plan, physical.Batch) and self._is_simple(plan.spec):
            return self._plain_batches(plan)
        return self._batch_values(plan) if _is_batched(plan) else self._rows(plan)

    def _is_simple(self, spec: logical.Batch) -> bool:
        return len(self._part.mine) == 1 and spec.tokens is None and not self._part.pads

    # Opening.

    def _session(self, shard: int) -> Session:
        return Session(self._context, self._part.shards, shard, self._executor, self._failures)

    def _flow(self, plan: Any, shard: int, state: State) -> Flow:
        try:
            return open_flow(plan, self._session(shard), state)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            if state is None or isinstance(error, SilvaError):
                raise
            raise StateError(
                f"the state of shard {shard} does not fit this pipeline ({error!r}): {state!r:.200}"
            ) from error

    def _reader(self, plan: Any, shard: int, share: int) -> ShardReader:
        state = self._states.get(str(shard))
        self._hint(plan, share)
        return ShardReader(shard, self._flow(plan, shard, state), state)

    def _hint(self, plan: Any, share: int) -> None:
        """Tells the stage below how many rows a batch takes of it."""
        if isinstance(plan, physical.Segment):
            blocks = self._executor.lane(plan).blocks
            blocks.need_rows = share
            if plan.stage.one_to_one:
                blocks.align = share

    def _share(self, spec: logical.Batch) -> int:
        """Rows of a batch that each shard gives."""
        if spec.per_rank is not None:
            return -(-spec.per_rank // len(self._part.mine))
        assert spec.size is not None
        if spec.size % self._part.shards:
            raise PlanError(
                f"a global batch of {spec.size} rows cannot be shared equally by "
                f"{self._part.shards} shards: choose a multiple, or batch(per_rank=…)"
            )
        return spec.size // self._part.shards

    # Batches of one shard: slices of blocks, with accounting per block.

    def _plain_batches(self, plan: physical.Batch) -> Iterator[dict[str, Any]]:
        spec = plan.spec
        size = self._share(spec) if spec.per_rank is None else spec.per_rank
        shard = self._part.mine[0]
        state = self._states.get(str(shard))
        self._hint(plan.input, size)
        flow = self._flow(plan.input, shard, state)
        held: list[Block] = []
        count = 0
        for piece in flow.pieces():
            block, start, last = piece.block, 0, piece
            if count:
                start = min(size - count, len(block))
                held.append(block.slice(0, start))
                count += start
                if count < size:
                    continue
                self._trail, self._row = piece.trail, start - 1
                self._done += 1
                yield self._shown(Block.concat(held), spec)
                held, count = [], 0
            whole = start + (len(block) - start) // size * size
            if whole > start:
                yield from self._slices(block, piece.trail, start, whole, size, spec)
            if whole < len(block):
                held, count = [block.slice(whole, len(block))], len(block) - whole
        if count and not spec.drop_last:
            self._trail, self._row = last.trail, len(last.block) - 1
            self._done += 1
            yield self._shown(Block.concat(held), spec)

    def _shown(self, block: Block, spec: logical.Batch) -> Any:
        return block if self._as_blocks else batch_value(block, spec.pad, spec.grouped).values

    def _slices(
        self, block: Block, trail: Any, start: int, stop: int, size: int, spec: logical.Batch
    ) -> Iterator[dict[str, Any]]:
        arrays = None if self._as_blocks or spec.grouped else fast_arrays(block)
        self._trail, self._row, self._run = trail, start - 1, (start, size)
        if arrays is None:
            for at in range(start, stop, size):
                self._row = at + size - 1
                yield self._shown(block.slice(at, at + size), spec)
        elif len(arrays) == 1:
            ((name, array),) = arrays.items()
            for at in range(start, stop, size):
                end = at + size
                self._row = end - 1
                yield {name: array[at:end]}
        else:
            for at in range(start, stop, size):
                end = at + size
                self._row = end - 1
                yield {name: array[at:end] for name, array in arrays.items()}
        self._done += (stop - start) // size
        self._run = None

    # Batches of any kind, each with its state.

    def _batch_values(self, plan: Any) -> Iterator[dict[str, Any]]:
        for value, state in self._values(plan):
            self._state = state
            self._done += 1
            yield value.values

    def _values(self, plan: Any) -> Iterator[tuple[BatchValue, Callable[[], States]]]:
        match plan:
            case physical.Take():
                yield from self._take_batches(plan)
            case physical.BatchSegment():
                yield from self._mapped(plan)
            case physical.Bucket():
                yield from self._buckets(plan)
            case _:
                for block, state in self._blocks(plan):
                    yield self._value(block, plan.spec), state

    def _take_batches(
        self, plan: physical.Take
    ) -> Iterator[tuple[BatchValue, Callable[[], States]]]:
        taken = int(self._states.get("taken", 0))
        if taken >= plan.count:
            return
        for value, state in self._values(plan.input):
            taken += 1
            yield value, _with(state, "taken", taken)
            if taken >= plan.count:
                return

    def _value(self, block: Block, spec: logical.Batch | logical.Bucket) -> BatchValue:
        if self._part.pads and isinstance(spec, logical.Batch) and spec.size is not None:
            size = spec.size // self._part.world
            real = len(block)
            picked = np.minimum(np.arange(size), real - 1)
            block = block.take(picked)
            mask = Array(np.arange(size) < real)
            block = block.with_columns({**block.columns, MASK: mask})
        grouped = spec.grouped if isinstance(spec, logical.Batch) else ()
        return batch_value(block, spec.pad, grouped)

    def _blocks(self, plan: physical.Batch) -> Iterator[tuple[Block, Callable[[], States]]]:
        spec = plan.spec
        if spec.tokens is not None:
            yield from self._token_blocks(plan)
            return
        share = self._share(spec)
        readers = [self._reader(plan.input, s, share) for s in self._part.mine]
        for block, counts in batches(spec, readers, share, spec.pad):
            if spec.drop_last and min(counts) < share:
                return
            yield block, _snapshot(readers)

    def _token_blocks(self, plan: physical.Batch) -> Iterator[tuple[Block, Callable[[], States]]]:
        if len(self._part.mine) > 1 or self._part.world > 1:
            raise PlanError("batch(tokens=…) works on one shard; use batch(n) with several ranks")
        reader = self._reader(plan.input, self._part.mine[0], 64)
        for block in token_batches(plan.spec, reader):
            yield block, _snapshot([reader])

    def _buckets(self, plan: physical.Bucket) -> Iterator[tuple[BatchValue, Callable[[], States]]]:
        """Buckets fill within a shard; shards take turns."""
        readers = {}
        for shard in self._part.mine:
            state = self._states.get(str(shard))
            inner = None if state is None else state["of"]
            flow = self._flow(plan.input, shard, inner)
            readers[shard] = BucketReader(plan.spec, flow, self._part.shards, state)
        live = {shard: reader.batches() for shard, reader in readers.items()}
        turn = int(self._states.get("turn", 0))
        while live:
            shards = list(live)
            shard = shards[turn % len(shards)]
            block = next(live[shard], None)
            if block is None:
                del live[shard]
                continue
            turn += 1
            states = {str(s): reader.state() for s, reader in readers.items()}
            if len(readers) > 1:
                states["turn"] = turn
            yield batch_value(block, plan.spec.pad), _constant(states)

    def _mapped(
        self, plan: physical.BatchSegment
    ) -> Iterator[tuple[BatchValue, Callable[[], States]]]:
        """Batches through a stage of batch steps, in order."""
        collates = isinstance(plan.input, physical.Batch) and plan.input.spec.collate is not None
        source = _BatchInput(self._blocks(plan.input) if collates else self._values(plan.input))
        key = f"failed in {plan.name}"
        failed = int(self._states.get(key, 0))
        self._failures.resume(failed, 0)
        for state, (result,) in self._executor.run(plan, source, self._context):
            for failure in result.failures:
                self._failures.handle(failure)
                failed += 1
            for value in result.block.columns["batch"].rows():
                yield value, _with(state, key, failed) if failed else state

    # Rows, where nothing batches them.

    def _rows(self, plan: Any) -> Iterator[dict[str, Any]]:
        if len(self._part.mine) > 1 or self._part.world > 1:
            raise SilvaError("several shards need batch(n): a row alone belongs to one shard")
        shard = self._part.mine[0]
        state = self._states.get(str(shard))
        flow = self._flow(plan, shard, state)
        for piece in flow.pieces():
            names = list(piece.block.columns)
            columns = [c.rows() for c in piece.block.columns.values()]
            self._trail = piece.trail
            rows = zip(*columns, strict=True) if columns else iter([()] * len(piece.block))
            for i, values in enumerate(rows):
                self._row = i
                self._done += 1
                yield dict(zip(names, values, strict=True))


class _BatchInput:
    """Batches one by one, as the input of a stage."""

    def __init__(self, values: Iterator[tuple[Any, Callable[[], States]]]) -> None:
        self._values = values

    def next(self, rows: int) -> tuple[Any, Callable[[], States]] | None:
        return next(self._values, None)

    def left(self) -> None:
        return None


def _is_batched(plan: Any) -> bool:
    if isinstance(plan, physical.Take):
        return _is_batched(plan.input)
    return isinstance(plan, physical.Batch | physical.Bucket | physical.BatchSegment)


def _constant(states: States) -> Callable[[], States]:
    return lambda: states


def _snapshot(readers: list[ShardReader]) -> Callable[[], States]:
    taken = {str(r.shard): r.snapshot() for r in readers}
    return lambda: {shard: state() for shard, state in taken.items()}


def _with(state: Callable[[], States], key: str, count: int) -> Callable[[], States]:
    return lambda: {**state(), key: count}
