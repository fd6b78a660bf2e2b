"""Runs stages: keeps tasks in flight for each, in order and within the memory budget."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from silva.cache.row_store import RowStore
from silva.columns.allocation import BatchBuffer, BatchSlot
from silva.cost.model import Backend
from silva.errors import DeadlineError, LoaderError
from silva.io.file_source import local_files_of
from silva.lifetime import Closable
from silva.physical import plan as physical
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.stage import Result
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane
from silva.run.pools.task import Flight, Payload, Pool, Task, TasksInFlight, execute
from silva.run.pools.threads import PAUSE, InlinePool, ThreadPool
from silva.run.seams import Seams
from silva.run.shared.allocator import keep_freed_memory

if TYPE_CHECKING:
    from silva.run.ray.cluster import Cluster

nobody_waits: ContextVar[bool] = ContextVar("nobody_waits", default=False)
"""Whether batches are made before the trainer asks for them; such time does not count as waiting.
"""
_START_SECONDS = 60.0
"""Time that worker processes have to start, whatever the deadline of a step."""


class _BatchSlots:
    """Assigns blocks that are smaller than a batch to buffers that hold one batch each."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._rows = 0
        self._number = 0
        """The batch that the buffer is for."""
        self._buffer = BatchBuffer(batch)

    def rows_of_next(self, rows: int) -> int:
        """The rows of the next block, at most `rows`: a block that begins within a batch ends with
        it."""
        begun = self._rows % self._batch
        left = self._batch - begun
        return min(rows, left) if begun or rows < self._batch else rows

    def next_slot(self, rows: int) -> BatchSlot | None:
        """The slot of the next block in its batch; None for a block of a batch or more."""
        number, start = divmod(self._rows, self._batch)
        self._rows += rows
        if number != self._number:
            self._number, self._buffer = number, BatchBuffer(self._batch)
        fits = rows < self._batch and start + rows <= self._batch
        return BatchSlot(self._buffer, start, rows) if fits else None


Node = physical.Segment | physical.BatchSegment
T = TypeVar("T")
"""The trail that comes with an input."""
Observe = Callable[[Node, Payload, Context, list[Result]], None]


class TaskSource(Protocol[T]):
    """The inputs of a stage, in order."""

    @property
    def overtaking(self) -> Callable[[T, int, list[T]], T] | None:
        """Finds the trail of a result that is handed on before those of pending inputs, given its
        trail, its rows and their trails. None where results must stay in order."""
        return None

    def next(self, rows: int) -> tuple[Payload, T] | None:
        """The input of one task, of about so many rows, and its trail; None at the end."""

    def left(self) -> int | None:
        """Rows still to come, where that is known."""
        return None


class Executor:
    """Owns the pools of a loader. Stages share them; they live until the loader is closed."""

    def __init__(
        self,
        *,
        backend: Backend | None,
        workers: int,
        most_threads: int = 0,
        memory: MemoryBudget,
        deadline: float,
        ordered: bool = True,
        cluster: Cluster | None = None,
        epochs: int | None = None,
        lanes: dict[str, Lane] | None = None,
        observe: Observe | None = None,
        seams: Seams | None = None,
    ) -> None:
        """`workers` are this machine's; a stage whose rows mostly wait may have `most_threads`, if
        these are more. `cluster` knows how many workers there are elsewhere. `epochs` is
        how many there will be, where that is known. New lanes are added to `lanes`. `observe` is
        called with every block that is done."""
        self.backend = backend
        self.workers = workers
        self._most_threads = max(most_threads, workers)
        self.cluster = cluster
        self.memory = memory
        self.deadline = deadline
        self._ordered = ordered
        self._closings = 0
        self._ready_at = 0.0
        """When worker processes were last seen starting; deadlines count from then on."""
        self._inline = InlinePool()
        self._pools: dict[Backend, Pool] = {}
        self.lanes: dict[str, Lane] = {} if lanes is None else lanes
        self._here = Worker(shares_generators=False)
        self._stores: dict[tuple[str | None, str, int], RowStore] = {}
        self._readers: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._process = os.getpid()
        self._epochs = epochs
        self._observe = observe
        self._seams = seams or Seams()
        sizes = self._seams.block_sizes
        self._sizes = None if sizes is None else itertools.cycle(sizes)
        self._lent: list[Pool] = []
        self._keep_input: Callable[[Node, Payload], None] | None = None
        self.endings = 0
        """How many inputs of stages have ended; all that is left of those is in flight."""

    def lane(self, node: Node) -> Lane:
        """The lane of a stage; it outlives the physical plan that the stage was made for."""
        lane = self.lanes.get(node.name)
        if lane is None:
            workers = self.workers
            if self.backend == "ray" and self.cluster is not None:
                workers = self.cluster.width
            lane = Lane(node.stage, node.name, self.backend, workers, self.memory, self._seams)
            lane.growth.most = self._most_threads
            files = (local_files_of(source) for source in physical.sources(node))
            lane.files = next((one for one in files if one is not None), None)
            if self.cluster is not None and self.backend is None:
                from silva.run.placement.offload import Offload

                lane.offload = Offload(self.cluster)
            self.lanes[node.name] = lane
        lane.follow(node.stage)
        return lane

    @contextlib.contextmanager
    def showing_inputs(self, keep: Callable[[Node, Payload], None]) -> Iterator[None]:
        """Calls `keep` with the node and the input of every task."""
        self._keep_input = keep
        try:
            yield
        finally:
            self._keep_input = None

    def run(
        self, node: Node, source: TaskSource[T], context: Context
    ) -> Iterator[tuple[T, list[Result]]]:
        """Yields the results of each input in order, with its trail."""
        lane = self.lane(node)
        lane.begin(source.left(), context.epoch & 0xFFFFFFFF, self._epochs)
        overtaking = None if self._ordered else source.overtaking
        wake = None if overtaking is None else threading.Event()
        flights: TasksInFlight[T] = TasksInFlight()
        slots = _BatchSlots(lane.blocks.align)
        failed: Exception | None = None
        ended, ready, closings = False, 0, self._closings

        def held() -> float:
            return flights.held(lane.blocks.bytes_per_row, at_once=_at_once(lane))

        def to_come() -> float:
            pool = self._pools.get(lane.backend, self._inline)
            return flights.to_come(lane.blocks.bytes_per_row, pool.given * _at_once(lane))

        self.memory.hold(held, to_come)
        try:
            while True:
                flights.look()
                lane.stats.idle += 0 < len(flights) < flights.done + lane.width.now
                while not ended and _admits(lane, flights):
                    rows = slots.rows_of_next(lane.blocks.next_rows())
                    try:
                        found = source.next(next(self._sizes) if self._sizes else rows)
                    except Exception as error:  # noqa: BLE001  raised after the rows before it
                        ended, failed = True, error
                        break
                    if found is None:
                        ended = True
                        self.endings += 1
                        break
                    payload, trail = found
                    task = Task(node.stage, payload, context, flights.landed, wake)
                    task.slot = slots.next_slot(len(payload))
                    flights.add(self._submit(node, lane, task, trail))
                if not flights:
                    if failed is not None:
                        raise failed
                    return
                lane.stats.see_queue(flights.done)
                if wake is not None:
                    self._bring_forward(flights, wake)
                flight = flights.take()
                trail, task, pool, rows = flight.trail, flight.task, flight.pool, flight.rows
                results = self._results(lane, task, pool, closings)
                if overtaking is not None:
                    trail = overtaking(trail, rows, flights.trails())
                for result in results:
                    lane.learn(result, rows if len(results) == 1 else result.size_in)
                if self._observe is not None:
                    self._observe(node, task.payload, context, results)
                flights.look()
                lane.stats.ready += flights.ready - ready
                ready = flights.ready
                lane.decide(rows)
                self.memory.release_free(list(self._pools.values()))
                given = self._seams.clock()
                self._adjust(lane, given)
                yield trail, results
                starting = not (pool.ready and self._pool_of(lane.backend).ready)
                lane.returned(given, starting)
        finally:
            lane.stats.ready -= ready
            flights.cancel()
            self.memory.release(held)

    def _submit(self, node: Node, lane: Lane, task: Task, trail: T) -> Flight[T]:
        if self._keep_input is not None:
            self._keep_input(node, task.payload)
        pool = self._pool(lane)
        pool.submit(task)
        return Flight(trail, task, pool, len(task.payload))

    def _adjust(self, lane: Lane, now: float) -> None:
        """Sets the number of workers by the trainer's demand; stages on one pool share them."""
        if lane.backend == "inline" or lane.workers < 2:
            return
        pool = self._pools.get(lane.backend)
        complete = pool is None or pool.complete
        stats = lane.stats
        lane.width.look(now, stats.starved, stats.busy, stats.idle, complete=complete)
        lane.grow()
        if pool is not None:
            self._share(lane.backend, pool)

    def _share(self, backend: Backend, pool: Pool) -> None:
        used = sum(lane.width.now for lane in self.lanes.values() if backend == lane.backend)
        if used:  # by none where it is only for the meantime
            pool.use(min(pool.width, used))

    def _pool(self, lane: Lane) -> Pool:
        """The pool that gets the next task of a stage."""
        pool = self._pool_of(lane.backend)
        if lane.meanwhile is not None and not pool.ready:
            return self._pool_of(lane.meanwhile)
        return pool

    def _pool_of(self, backend: Backend) -> Pool:
        if backend == "inline":
            return self._inline
        if self._process != os.getpid():  # in a forked child: those workers are the parent's
            self._process, self._pools = os.getpid(), {}
        pool = self._pools.get(backend)
        if pool is None:
            keep_freed_memory()
            lent = self._seams.pool(backend)
            self._pools[backend] = pool = lent or self._new_pool(backend)
            if lent is None:
                pool.start()  # after it is known here: Ctrl-C may come while it starts
            else:
                self._lent.append(lent)
            self._share(backend, pool)  # at once: actors that nobody needs are not even started
        return pool

    def _new_pool(self, backend: Backend) -> Pool:
        """A pool that has not been started."""
        if backend == "ray":
            from silva.run.ray.pool import RayPool

            assert self.cluster is not None
            return RayPool(self.cluster, self.cluster.width)
        if backend == "processes":
            from silva.run.pools.processes import ProcessPool

            return ProcessPool(max(self.workers, 1))
        return ThreadPool(max(self.workers, 1), max(self._most_threads, 1))

    def _bring_forward(self, flights: TasksInFlight[T], wake: threading.Event) -> None:
        """Moves a finished task to the front, where results may come in any order."""
        began = monotonic()
        while monotonic() - began < PAUSE and flights.first.pool is not self._inline:
            wake.clear()
            if flights.bring_forward():
                return
            wake.wait(PAUSE / 4)

    def _results(self, lane: Lane, task: Task, pool: Pool, closings: int) -> list[Result]:
        began = self._seams.clock()
        lane.end_own()
        if pool is self._inline:
            with lane.watch() or contextlib.nullcontext():
                pool.wait(task, lambda waited: None)
        else:
            if lane.forced is None:  # never where processes were asked for: a step that crashes
                pool.help(task, self._here)  # must not take the trainer with it
            pool.wait(task, lambda waited: self._check(lane, task, pool, waited, closings))
            if not nobody_waits.get():
                lane.stats.starved += self._seams.clock() - began
        lane.begin_own()
        if task.error is not None:
            raise task.error
        results = task.take()
        if pool is self._inline:
            lane.stats.inline += sum(result.seconds for result in results)
        if any(result.moved for result in results):
            return self._seeded(lane, task)
        return results

    def _seeded(self, lane: Lane, task: Task) -> list[Result]:
        """Runs a task again on this thread, with the global generators watched: one of them moved
        while a thread ran the stage, and either the stage or the trainer may have moved it."""
        results = execute(task.stage, task.payload, task.context, self._here)
        if any(result.seeded is not None for result in results):
            lane.move(
                "processes" if lane.forced is None else "inline",
                "uses global random generators, which threads would share",
            )
        return results

    def _check(self, lane: Lane, task: Task, pool: Pool, waited: float, closings: int) -> None:
        if closings != self._closings:
            raise LoaderError("the loader was closed while it was being read")
        stats, slow = lane.stats, self._seams.slow
        usual = stats.busy / stats.blocks if stats.blocks else 0.0
        ran = 0.0 if task.started is None else monotonic() - task.started
        if max(waited, ran) > max(slow.seconds, slow.times * usual):
            pool.race(task)
        starting = not pool.ready
        if starting:
            self._ready_at = monotonic()
        waited = waited if starting else min(waited, monotonic() - self._ready_at)
        if waited > (_START_SECONDS if starting else self.deadline):
            raise DeadlineError(
                f"no result from `{lane.stage.label}` for {waited:.0f} s "
                f"(deadline={self.deadline:g}), on {task.describe()}.\n{pool.stacks()}"
            )

    def run_here(self, node: Node, payload: Payload, context: Context) -> list[Result]:
        """The results of one input, computed on this thread."""
        return execute(node.stage, payload, context, self._here)

    def row_store(self, node: physical.CacheRows) -> RowStore:
        """The store of a cache. It lives as long as the loader, so that a new plan finds its rows.
        Different sources have different stores, even if their fingerprints are equal."""
        from silva.cache.open_store import cached_source, open_store

        key = (node.spec.folder, node.fingerprint, id(cached_source(node)))
        if key not in self._stores:
            self._stores[key] = open_store(node, self.memory.caches)
            self.memory.add_cache(self._stores[key])
        return self._stores[key]

    @property
    def may_prefetch(self) -> bool:
        """Whether threads may read ahead for the consumer."""
        return self.backend != "inline" and self.workers > 0

    def close_too(self, reader: Closable) -> None:
        """Closes a reader, unless it is gone by then, when the executor is closed."""
        self._readers.add(reader)

    @property
    def keeps_rows(self) -> bool:
        """Whether a cache is in use."""
        return bool(self._stores)

    def processes(self) -> list[int]:
        """The process ids of all workers."""
        return [process for pool in self._pools.values() for process in pool.processes()]

    @property
    def has_workers(self) -> bool:
        """Whether any worker pool was started."""
        return bool(self._pools)

    def close(self) -> None:
        """Ends all workers and threads. The executor starts new ones if it is used again."""
        for store in self._stores.values():
            store.close()
        self._closings += 1
        pools, self._pools = self._pools, {}
        for reader in list(self._readers):
            reader.close()
        for pool in pools.values():
            if pool not in self._lent:  # its owner closes it
                pool.close()
        for lane in self.lanes.values():
            lane.close()
        if self.cluster is not None:
            self.cluster.leave()


def _admits(lane: Lane, flights: TasksInFlight[Any]) -> bool:
    """Whether one more block of a stage may be submitted."""
    flights.look()
    width = 0 if lane.backend == "inline" else lane.width.now
    return lane.blocks.admits(flights, width, lane.width.ahead, _at_once(lane))


def _at_once(lane: Lane) -> int:
    """Tasks of a stage that run at once in the memory of this machine."""
    match lane.backend:
        case "ray":
            return 0
        case "inline":
            return 1
    return lane.width.now
