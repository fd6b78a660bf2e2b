"""Keeps stages busy: a window of tasks per stage, in order, within the memory that there is."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from time import monotonic
from typing import Any

from silva.errors import DeadlineError
from silva.physical import plan as physical
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.stage import Result
from silva.run.lane import Backend, Lane
from silva.run.processes import ProcessPool
from silva.run.reading import UnitReader
from silva.run.task import Pool, Task, execute
from silva.run.threads import InlinePool, ThreadPool

_SLOW_SECONDS = 5.0
_SLOW_TIMES = 20
"""A task that takes this many times the usual, and at least `_SLOW_SECONDS`, is raced."""


class Executor:
    """Owns the pools of a loader. Stages share them; they live until the loader is closed."""

    def __init__(
        self, *, backend: Backend | None, workers: int, memory: int, deadline: float
    ) -> None:
        self.backend = backend
        self.workers = workers
        self._memory = memory
        self._deadline = deadline
        self._inline = InlinePool()
        self._pools: dict[str, Pool] = {}
        self.lanes: dict[int, Lane] = {}
        self._here = Worker(shares_generators=False)
        self.segments = 1
        """Segments that run at once (stages × shards): memory is shared among them."""

    def lane(self, node: physical.Segment | physical.BatchSegment) -> Lane:
        key = id(node)
        if key not in self.lanes:
            budget = max(self._memory // max(self.segments, 1), 1 << 16)
            lane = Lane(node.stage, node.name, self.backend, self.workers, budget)
            if isinstance(node.input, physical.IndexedFeed):
                lane.rows_left = node.input.size
            self.lanes[key] = lane
        return self.lanes[key]

    def run(self, node: Any, source: Any, context: Context) -> Iterator[tuple[Any, Result]]:
        """Results in order, each with the trail of its input, for as long as `source` has any."""
        lane = self.lane(node)
        window: deque[tuple[Any, Task, Pool, int]] = deque()
        ended = False
        try:
            while True:
                while not ended and self._admits(lane, window):
                    found = source.next(lane.next_rows())
                    if found is None:
                        ended = True
                        break
                    payload, trail = found
                    task = Task(node.stage, payload, context)
                    pool = self._pool(lane)
                    pool.submit(task)
                    window.append((trail, task, pool, len(payload)))
                if not window:
                    return
                waiting = sum(t.finished.is_set() for _, t, _, _ in window)
                lane.stats.queue_fill += (waiting - lane.stats.queue_fill) / (lane.stats.blocks + 1)
                trail, task, pool, rows = window.popleft()
                result = self._result(lane, task, pool)
                lane.learn(result, rows)
                if lane.rows_left is not None:
                    lane.rows_left -= rows
                lane.decide()
                yield trail, result
        finally:
            for _, task, _, _ in window:
                task.cancelled = True

    def _admits(self, lane: Lane, window: deque[tuple[Any, Task, Pool, int]]) -> bool:
        done, running, rows = 0, 0, 0
        for _, task, _, count in window:
            rows += count
            if task.result is not None:
                done += task.result.block.nbytes
            else:
                running += count
        return lane.admits(len(window), rows, done, running)

    def _pool(self, lane: Lane) -> Pool:
        if lane.backend == "inline":
            return self._inline
        if lane.backend not in self._pools:
            kind = ThreadPool if lane.backend == "threads" else ProcessPool
            self._pools[lane.backend] = kind(max(self.workers, 1))
        return self._pools[lane.backend]

    def _result(self, lane: Lane, task: Task, pool: Pool) -> Result:
        began = monotonic()
        if pool is self._inline:
            probe = lane.probe if not lane.decided else contextlib.nullcontext()
            with probe:
                pool.wait(task, lambda waited: None)
        else:
            if isinstance(pool, ProcessPool) and self._may_help(lane, pool) and pool.claim(task):
                task.finish(execute(task.stage, task.payload, task.context, self._here))
            pool.wait(task, lambda waited: self._check(lane, task, pool, waited))
            lane.stats.starved += monotonic() - began
        if task.error is not None:
            raise task.error
        assert task.result is not None
        if task.result.moved:
            return self._seeded(lane, task)
        return task.result

    def _may_help(self, lane: Lane, pool: ProcessPool) -> bool:
        """While workers start, the consumer does the first blocks; never where processes were
        asked for, since a step that crashes must not take the trainer with it."""
        return lane.forced is None and not pool.ready

    def _seeded(self, lane: Lane, task: Task) -> Result:
        """A global generator moved while a thread ran the stage: by the stage, or by the trainer.
        Only doing it again here, with the generators watched, can tell."""
        result = execute(task.stage, task.payload, task.context, self._here)
        if lane.forced is None:
            lane.backend = "processes"
            lane.reason = "uses global random generators, which threads would share"
        return result

    def _check(self, lane: Lane, task: Task, pool: Pool, waited: float) -> None:
        stats = lane.stats
        usual = stats.busy / stats.blocks if stats.blocks else 0.0
        if isinstance(pool, ProcessPool) and task.started is not None:
            slow = max(_SLOW_SECONDS, _SLOW_TIMES * usual)
            if monotonic() - task.started > slow:
                pool.race(task)
        if waited > self._deadline:
            raise DeadlineError(
                f"no result from `{lane.stage.label}` for {waited:.0f} s "
                f"(deadline={self._deadline:g}), on {task.describe()}.\n{pool.stacks()}"
            )

    def run_here(self, node: Any, payload: Any, context: Context) -> Result:
        return execute(node.stage, payload, context, self._here)

    def read_units(self, feed: physical.ChunkedFeed, runs: list[Any]) -> Iterator[Any]:
        if self.backend == "inline" or self.workers == 0:
            return (
                (run, iter(feed.source.open(run[1], run[2], feed.columns))) for run in runs
            )
        return iter(UnitReader(feed.source, feed.columns, runs, min(self.workers, 2)))

    def processes(self) -> list[int]:
        """The process numbers of all workers."""
        pool = self._pools.get("processes")
        return pool.processes() if isinstance(pool, ProcessPool) else []

    def close(self) -> None:
        """Ends every worker. The executor can be used again; it then starts new ones."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
