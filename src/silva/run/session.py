"""What the flows of one epoch ask for: the flows of one shard's rows, and those of a rank's
batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from silva.order.cursor_checks import pass_epoch
from silva.order.cursors import Position
from silva.physical.stage.context import Context, Failure
from silva.run.failures import DeferredFailures, Failures, Skip, Tally

if TYPE_CHECKING:
    from silva.run.executor import Executor

Positions = dict[str, Position]
"""The position of each shard, by its number as text; shards that have not started are left out."""


@dataclass(frozen=True, eq=False)
class Session:
    """One shard of one epoch."""

    executor: Executor
    context: Context
    shards: int
    """The number of shards that the epoch is divided into."""
    shard: int
    failures: Failures | DeferredFailures
    tally: Tally
    """Counts the rows that failed in the flows of this session."""

    def for_branch(self, passes: int = 0) -> Self:
        """A session for one pipeline of a mix or concat: it counts its failures by itself. Each
        pass of a pipeline that repeats is an epoch of its own."""
        context = replace(self.context, epoch=pass_epoch(self.context.epoch, passes))
        return replace(self, context=context, tally=Tally(self.tally))

    def for_reading_again(self) -> Self:
        """A session for rows that were read before: their failures are not counted again."""
        context = self.context.computing_every_row()
        return replace(self, context=context, failures=Failures(Skip(), None), tally=Tally())

    def for_reading_ahead(self, deferred: DeferredFailures) -> Self:
        """A session for rows that are read before they are asked for."""
        return replace(self, failures=deferred, tally=Tally())

    def handle(self, failure: Failure) -> None:
        """Counts a failure that has been reached in stream order; raises if the policy says so."""
        self.tally.add()
        self.failures.handle(failure)


@dataclass(frozen=True)
class RankShards:
    """The shards of an epoch that one rank reads."""

    shards: int
    """The number of shards of all ranks."""
    mine: range
    world: int = 1
    """The number of ranks."""
    pads: bool = False
    """Evaluation: short batches are padded, and a mask column marks the real rows."""


@dataclass(frozen=True, eq=False)
class RankSession:
    """One epoch of one rank, which may read several shards."""

    executor: Executor
    context: Context
    rank: RankShards
    failures: Failures | DeferredFailures
    start: Positions
    """Where the shards begin."""
    done: int = 0
    """Batches of the epoch that were handed out before `start`."""

    def start_of(self, shard: int) -> Position:
        return self.start.get(str(shard), Position(None))

    def of_shard(self, shard: int) -> Session:
        return Session(self.executor, self.context, self.rank.shards, shard, self.failures, Tally())
