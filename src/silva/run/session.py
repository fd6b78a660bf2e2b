"""One shard of one epoch being read: what flows may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from silva.physical import plan as physical
from silva.physical.context import Context
from silva.physical.stage import Result
from silva.run.failures import Failures

if TYPE_CHECKING:
    from silva.run.executor import Executor


@dataclass(frozen=True, eq=False)
class Session:
    context: Context
    shards: int
    shard: int
    executor: Executor
    failures: Failures

    def in_epoch(self, epoch: int) -> Session:
        """The same, in another epoch: what a repeated pipeline of a mix sees."""
        return replace(self, context=replace(self.context, epoch=epoch))

    def run_segment(
        self, node: physical.Segment, source: Any
    ) -> Iterator[tuple[Any, list[Result]]]:
        """Results of the segment's stage on each input in order, with the input's trail."""
        return self.executor.run(node, source, self.context)

    def run_here(self, node: physical.Segment, payload: Any) -> list[Result]:
        """The stage on one input, on this thread."""
        return self.executor.run_here(node, payload, self.context)

    def read_units(
        self, feed: physical.ChunkedFeed, runs: list[tuple[int, int, int, int | None]]
    ) -> Iterator[tuple[tuple[int, int, int, int | None], Iterator[Any]]]:
        """Each run (place, unit, first row, end) with its blocks, read ahead by threads."""
        return self.executor.read_units(feed, runs)
