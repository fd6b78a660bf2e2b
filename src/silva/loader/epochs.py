"""Reads the epochs of one rank, one after the other, each from any position in it.

The plan may change after any batch: the rest of the epoch is then opened again, with the new plan,
at the position after that batch. Where more epochs will follow, the next one begins while the
trainer still has the last batches of this one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from silva.errors import LoaderError, PlanError, SilvaError
from silva.loader.position import StreamPosition
from silva.options import LoaderOptions
from silva.order.length import equal_steps
from silva.order.shards import shards_of_rank
from silva.physical.plan import PhysicalNode, count_segments, has_cache, report_reads
from silva.physical.stage.context import Context
from silva.plan.node import Node
from silva.planner.planner import Planner
from silva.run.executor import Executor
from silva.run.failures import Failures, Skip, Substitute
from silva.run.flows.flow import RankShards
from silva.run.memory import MemoryBudget
from silva.run.stream import NextEpoch, Stream

Batches = Iterator[Any]
"""Batches as dicts of columns, or as blocks."""


class EpochReader:
    """The position of a loader in its stream, and the way on from there."""

    def __init__(
        self,
        plan: Node,
        options: LoaderOptions,
        *,
        seed: int,
        shards: int,
        planner: Planner,
        executor: Executor,
        memory: MemoryBudget,
        failures: Failures,
    ) -> None:
        self._plan, self._options, self._seed = plan, options, seed
        self._rank, self._world = options.rank or 0, options.world
        self.shards = shards
        """The number of shards of all ranks."""
        self._planner, self._executor, self._failures = planner, executor, failures
        self._memory = memory
        self._start = StreamPosition(0)
        """Where the present stream was opened, or the next one will be."""
        self._stream: Stream | None = None
        self._agreed: _AgreedSteps | None = None
        self._ended: StreamPosition | None = None
        """The position at which the last loop ended."""
        self._next: NextEpoch | None = None
        """The next epoch, if it has begun."""
        self._as_blocks = False
        self._is_fresh = True
        """Whether the next loop begins at `start`, and not with the epoch after it."""
        self._is_live = False

    # Where it is.

    @property
    def epoch(self) -> int:
        return self._start.epoch

    @property
    def step(self) -> int:
        """Batches of the epoch before the present stream."""
        return self._start.step

    @property
    def has_begun_next(self) -> bool:
        """Whether the next epoch has begun."""
        return self._next is not None

    def position(self) -> StreamPosition:
        """The position after the batch that was handed out last."""
        return self._now() if self._is_live else self._ended or self._start

    def _now(self) -> StreamPosition:
        if self._agreed is not None:
            return self._agreed.position
        return self._read_position()

    def _read_position(self) -> StreamPosition:
        """The position after the batch that was read last, whether or not it was handed out."""
        if self._stream is None:
            return self._start
        step = self._start.step + self._stream.count
        return StreamPosition(self.epoch, self._stream.positions(), step)

    def check_movable(self) -> None:
        if self._is_live:
            raise LoaderError(
                "a loader cannot be moved while it is being iterated: finish (or close) the loop"
            )

    def move_to(self, position: StreamPosition, shards: int | None = None) -> None:
        """The next loop begins here."""
        self._drop_next()
        if shards is not None:
            self.shards = shards
            self._planner.forget()
        self._start, self._ended, self._is_fresh = position, None, True

    # Reading.

    def check_free(self) -> None:
        if self._is_live:
            raise LoaderError(
                "this loader is already being iterated; make a second loader, or finish (or close) "
                "the first loop"
            )

    def read(
        self,
        *,
        as_blocks: bool = False,
        watch: Callable[[Batches], Batches] | None = None,
        on_empty: Callable[[], None] | None = None,
    ) -> Generator[Any]:
        """Yields the batches of the next epoch. `watch` sees them on their way; `on_empty` is
        called if the very first epoch has none."""
        self.check_free()  # again: only the first batch begins an epoch
        self._begin_epoch(as_blocks)
        complete = False
        try:
            begun, self._next = self._next, None
            self._planner.start(self.epoch, whole=not self._start.shards)
            stream = begun.stream if begun else self.open(self._start)
            self._stream = stream
            report_reads(self._planner.physical(), self.epoch)
            batches = begun.batches() if begun else iter(stream)
            if not self._planner.settled:
                batches = self._replanned(batches)
            if self._may_overlap():
                batches = self._overlapped(batches)
            if self._options.group is not None and self._world > 1 and not self._options.eval:
                self._agreed = _AgreedSteps(self._start, self._options.group)
                batches = self._agreed.batches(batches, self._read_position)
            if watch is not None:
                batches = watch(batches)
            yield from batches if self._options.steps is None else self._counted(batches)
            complete = True
            if on_empty and not (stream.count or self._start.step or self.epoch):
                on_empty()
        finally:
            self._is_live = False
            self._ended = StreamPosition(self.epoch + 1) if complete else self._now()
            self._stream = self._agreed = None
            self._planner.end(complete)
            if complete:
                self._begin_next()
            else:
                self.close()

    def _begin_epoch(self, as_blocks: bool) -> None:
        start = self._start if self._is_fresh else StreamPosition(self.epoch + 1)
        epochs = self._options.epochs
        if epochs is not None and start.epoch >= epochs:
            raise LoaderError(f"all {epochs} epochs of this loader are done")
        if as_blocks != self._as_blocks:
            self._drop_next()  # it has begun in the other form
        self._start, self._as_blocks = start, as_blocks
        self._ended, self._is_fresh, self._is_live = None, False, True

    def open(self, at: StreamPosition) -> Stream:
        """The rest of an epoch."""
        plan = self.physical()
        options = self._options
        most: int | None = None
        alone = self._world > 1 and options.steps is None and options.group is None
        if alone and isinstance(options.on_error, Skip):
            raise PlanError(
                f"with world={self._world}, one rank may skip more rows than another, and then "
                "take fewer steps: give steps=…, group='auto' to agree over torch.distributed, or "
                "on_error=Substitute(…)"
            )
        if self._world > 1 and not options.eval and options.steps is None:
            agree = options.group is not None
            most = equal_steps(self._plan, self.shards, self._world, agree)
        self._failures.start(sum(position.failed for position in at.shards.values()))
        own = shards_of_rank(self.shards, self._rank, self._world)
        return Stream(
            plan,
            self._executor,
            self.context(at.epoch),
            RankShards(self.shards, own, self._world, options.eval),
            self._failures,
            at.shards,
            step=at.step,
            most=most,
            as_blocks=self._as_blocks,
        )

    def physical(self) -> PhysicalNode:
        """The plan as it is run."""
        plan: PhysicalNode = self._planner.physical()
        self._memory.divide(self.shards // self._world * count_segments(plan))
        return plan

    def context(self, epoch: int) -> Context:
        policy = self._options.on_error
        if isinstance(policy, Substitute):
            return Context(self._seed, epoch, "substitute", policy.value)
        return Context(self._seed, epoch, "skip" if isinstance(policy, Skip) else "raise")

    def _counted(self, batches: Batches) -> Batches:
        steps = self._options.steps
        assert steps is not None
        for step in range(self._start.step, steps):
            batch = next(batches, None)
            if batch is None:
                raise SilvaError(
                    f"rank {self._rank} ran out of rows after {step} of the {steps} steps that "
                    "were asked for: lower steps="
                )
            yield batch

    # Plans that change.

    def _replanned(self, batches: Batches) -> Batches:
        """The batches, by a better plan as soon as there is one."""
        planner = self._planner
        while not planner.settled:
            for batch in batches:
                yield batch
                # blocks of the next epoch are of the present plan
                if self._next is None and planner.due():
                    break
            else:
                return
            if planner.look(self.epoch) and not self._failures.total:
                batches = self._reopened(batches)
        yield from batches

    def _reopened(self, batches: Batches) -> Batches:
        """The rest of the epoch, by the present plan."""
        self._start = self._read_position()
        close = getattr(batches, "close", None)
        if close is not None:
            close()
        self._stream = self.open(self._start)
        return iter(self._stream)

    # The next epoch.

    def _has_next(self) -> bool:
        epochs = self._options.epochs
        return epochs is not None and self.epoch + 1 < epochs

    def _begin_next(self) -> None:
        """Begins the next epoch, if there is one and there are workers to begin it."""
        if self._has_next() and self._next is None and self._executor.has_workers:
            following = self.epoch + 1
            self._next = NextEpoch(following, self.open(StreamPosition(following)))

    def _may_overlap(self) -> bool:
        """Whether the next epoch may begin before the trainer has the last batches of this one:
        not where failures are counted per epoch, nor where rows are cached, which one thread does
        at a time."""
        if not self._has_next() or self._options.on_error != "raise":
            return False
        return not (self._executor.keeps_rows or has_cache(self._planner.physical()))

    def _overlapped(self, batches: Batches) -> Batches:
        """The batches; the next epoch begins once all input of this one is with the workers."""
        inputs = self.shards // self._world * count_segments(self._planner.physical())
        before = self._executor.endings
        for batch in batches:
            yield batch
            if self._executor.endings - before >= inputs:
                if self._may_overlap():
                    self._begin_next()
                break
        yield from batches

    def _drop_next(self) -> bool:
        """Drops the next epoch; returns whether it had begun."""
        begun, self._next = self._next, None
        if begun is not None:
            begun.drop()
        return begun is not None

    def close(self) -> None:
        """Ends all workers, and the next epoch if it has begun."""
        end_workers(self._executor, self._planner)  # so that dropping it does not wait for them
        if self._drop_next():
            self._executor.close()  # it may have started workers in between


def end_workers(executor: Executor, planner: Planner) -> None:
    executor.close()
    planner.checking.close()


class _AgreedSteps:
    """Keeps ranks in step: each reads one batch ahead and asks whether all others have one too."""

    def __init__(self, start: StreamPosition, group: Any) -> None:
        self.position = start
        """The position after the batch that was handed out, not after the one read ahead."""
        self._group = group

    def batches(self, batches: Batches, now: Callable[[], StreamPosition]) -> Batches:
        from silva.feed.ranks import all_have_one

        ahead, after = next(batches, None), now()
        while all_have_one(ahead is not None, self._group):
            batch, self.position = ahead, after
            ahead, after = next(batches, None), now()
            yield batch
