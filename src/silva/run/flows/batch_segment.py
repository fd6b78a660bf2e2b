"""Flows over batches: steps on whole batches, and `take` of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from silva.physical import plan as physical
from silva.physical.stage.context import Failure
from silva.run.executor import TaskSource
from silva.run.failures import DeferredFailures
from silva.run.flows.batch import BatchFlow, BlockBatches, Made, OneBatch
from silva.run.flows.flow import Positions, RankSession

After = tuple[Callable[[], Positions], list[Failure]]
"""The positions after a batch, and the rows that failed while it was made."""


class BatchSegmentFlow:
    def __init__(
        self,
        node: physical.BatchSegment,
        session: RankSession,
        batches: BatchFlow,
        deferred: DeferredFailures,
    ) -> None:
        """`deferred` are the failures of `batches`, which are made ahead."""
        self._node, self._session, self._deferred = node, session, deferred
        self._source = _BatchInput(batches, deferred)

    def batches(self) -> Iterator[BlockBatches]:
        session, failed = self._session, 0
        results = session.executor.run(self._node, self._source, session.context)
        for (after, below), (result,) in results:
            for failure in (*below, *result.failures):
                session.failures.handle(failure)
            failed += len(result.failures)
            for batch in result.block.columns["batch"].rows():
                yield OneBatch(batch, self._counted(after, failed) if failed else after)
        for _, failure in self._deferred.take():
            session.failures.handle(failure)

    def _counted(self, after: Callable[[], Positions], failed: int) -> Callable[[], Positions]:
        """Batches that failed belong to several shards; they are counted with the rank's first."""
        first = str(self._session.rank.mine[0])

        def positions() -> Positions:
            found = after()
            return {**found, first: found[first].plus(failed, 0)}

        return positions


class _BatchInput(TaskSource[After]):
    """Batches one by one, as the input of a stage."""

    def __init__(self, batches: BatchFlow, deferred: DeferredFailures) -> None:
        self._batches = (
            (batch, functools.partial(some.positions, given))
            for some in batches.batches()
            for given, batch in enumerate(some.made(), 1)
        )
        self._deferred = deferred

    def next(self, rows: int) -> tuple[Made, After] | None:
        found = next(self._batches, None)
        if found is None:
            return None
        batch, after = found
        return batch, (after, [failure for _, failure in self._deferred.take()])


class TakeBatchesFlow:
    """The first batches of an epoch."""

    def __init__(self, count: int, batches: BatchFlow) -> None:
        self._left, self._batches = count, batches

    def batches(self) -> Iterator[BlockBatches]:
        batches = self._batches.batches()
        while self._left > 0 and (some := next(batches, None)) is not None:
            first = some.first(self._left)
            self._left -= first.count
            yield first
