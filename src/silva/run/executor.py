"""Keeps stages busy: a window of tasks per stage, in order, within the memory that there is."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any

from silva.columns.bed import Bed, Spot
from silva.errors import DeadlineError, LoaderError
from silva.io.paths import local_files_of
from silva.optimize.model import Backend
from silva.physical import plan as physical
from silva.physical.call import Worker
from silva.physical.context import Context
from silva.physical.stage import Result
from silva.profile.disk import Disk
from silva.run.cut_pool import CutPool
from silva.run.cutting import ChosenCut
from silva.run.flows.places import PlacesInput
from silva.run.freed import keep_freed_memory
from silva.run.lane import Lane
from silva.run.offload import Offload
from silva.run.open_store import cached_source, open_store
from silva.run.processes import ProcessPool
from silva.run.reading import UnitReader
from silva.run.rowstore import MemoryStore, Room, RowStore
from silva.run.task import Pool, Task, execute
from silva.run.threads import PAUSE, InlinePool, ThreadPool
from silva.run.window import Flight, Window

if TYPE_CHECKING:
    from silva.run.cluster import Cluster

nobody_waits: ContextVar[bool] = ContextVar("nobody_waits", default=False)
"""Whether batches are being made before the trainer asks for them: time that passes is not its own.
"""
_START_SECONDS = 60.0
"""Time that worker processes have to start, whatever the deadline of a step."""


class _Beds:
    """Which batch each block of a stage lies in, where blocks are smaller than batches."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._rows = 0
        self._number = 0
        """Of the batch that the bed is for."""
        self._bed = Bed(batch)

    def fitting(self, rows: int) -> int:
        """At most so many rows that a block which begins within a batch ends with it."""
        begun = self._rows % self._batch
        left = self._batch - begun
        return min(rows, left) if begun or rows < self._batch else rows

    def spot(self, rows: int) -> Spot | None:
        """The place of the next block, of so many rows; None where it is a batch or more."""
        number, start = divmod(self._rows, self._batch)
        self._rows += rows
        if number != self._number:
            self._number, self._bed = number, Bed(self._batch)
        fits = rows < self._batch and start + rows <= self._batch
        return Spot(self._bed, start, rows) if fits else None


class Executor:
    """Owns the pools of a loader. Stages share them; they live until the loader is closed."""

    def __init__(
        self,
        *,
        backend: Backend | None,
        workers: int,
        memory: int,
        deadline: float,
        ordered: bool = True,
        cluster: Cluster | None = None,
    ) -> None:
        """`workers` are this machine's; `cluster` knows how many there are elsewhere."""
        self.backend = backend
        self.workers = workers
        self.cluster = cluster
        self._memory = memory
        self._deadline = deadline
        self._ordered = ordered
        self._closings = 0
        self._ready_at = 0.0
        """When worker processes were last seen starting: a deadline counts from then on."""
        self._inline = InlinePool()
        self._pools: dict[str, Pool] = {}
        self.lanes: dict[str, Lane] = {}
        self._here = Worker(shares_generators=False)
        self._stores: dict[tuple[str | None, str, int], RowStore] = {}
        self._room = Room(memory // 2)
        self.slow_seconds = 5.0
        self.slow_times = 20.0
        """A task that takes this many times the usual, and at least `slow_seconds`, is raced."""
        self._process = os.getpid()
        self.sizes: Iterator[int] | None = None
        """Block sizes to use instead of the lanes' own choice: tests move block borders by it."""
        self.cutting: Callable[[Lane], ChosenCut | None] | None = None
        """Cuts to use instead of the lanes' own choice: tests cut stages anywhere by it."""
        self.keep: Callable[[Any, Any], None] | None = None
        """Is shown every input of every stage: who replays them keeps some."""
        self.witness: Callable[[Any, Any, Context, list[Result]], bool] | None = None
        """Sees the first blocks, as long as it wants more, to check other plans on."""
        self.endings = 0
        """How often the input of a stage has come to its end: what is left is being made."""
        self.epochs: int | None = None
        """Epochs that there will be, where somebody said so."""
        self.segments = 1
        """Segments that run at once (stages × shards): memory is shared among them."""

    def lane(self, node: physical.Segment | physical.BatchSegment) -> Lane:
        """What is known of a stage; it outlives the physical plan that the stage was made for."""
        lane = self.lanes.get(node.name)
        if lane is None:
            memory = self._memory // 2 if self._stores else self._memory  # caches hold the rest
            budget = max(memory // max(self.segments, 1), 1 << 16)
            workers = self.workers
            if self.backend == "ray" and self.cluster is not None:
                workers = self.cluster.width
            lane = Lane(node.stage, node.name, self.backend, workers, budget)
            files = [local_files_of(source) for source in physical.sources(node)]
            lane.disk = next((Disk(one) for one in files if one is not None), None)
            if self.cluster is not None and self.backend is None:
                lane.offload = Offload(self.cluster)
            self.lanes[node.name] = lane
        lane.follow(node.stage)
        lane.may_cut = isinstance(node, physical.Segment) and node.may_cut
        return lane

    def run(self, node: Any, source: Any, context: Context) -> Iterator[tuple[Any, list[Result]]]:
        """Results of each input in order, with its trail, for as long as `source` has any."""
        lane = self.lane(node)
        lane.begin(source.left(), context.epoch & 0xFFFFFFFF, self.epochs)
        window = Window()
        ended, failed, ready = False, None, 0
        closings = self._closings
        unordered = not self._ordered and isinstance(source, PlacesInput)
        wake = threading.Event() if unordered else None
        beds = _Beds(lane.blocks.align)
        try:
            while True:
                while not ended and _admits(lane, window):
                    wanted = (
                        next(self.sizes) if self.sizes else beds.fitting(lane.blocks.next_rows())
                    )
                    try:
                        found = source.next(wanted)
                    except Exception as error:
                        if not window:
                            raise
                        ended, failed = True, error  # after the rows before it
                        break
                    if found is None:
                        ended = True
                        self.endings += 1
                        break
                    payload, trail = found
                    if self.keep is not None:
                        self.keep(node, payload)
                    task = Task(node.stage, payload, context)
                    task.wake, task.landed = wake, window.landed
                    task.spot = beds.spot(len(payload))
                    pool = self._pool(lane)
                    pool.submit(task)
                    window.add(Flight(trail, task, pool, len(payload)))
                if not window and failed is not None:
                    raise failed
                if not window:
                    return
                fill = lane.stats.queue_fill
                lane.stats.queue_fill += (window.done - fill) / (lane.stats.blocks + 1)
                if wake is not None:
                    self._bring_forward(window, wake)
                flight = window.take()
                trail, task, pool, rows = flight.trail, flight.task, flight.pool, flight.rows
                results = self._results(lane, task, pool, closings)
                if unordered:
                    trail = source.overtaking(trail, rows, window.trails())
                for result in results:
                    lane.learn(result, rows if len(results) == 1 else result.size_in)
                if self.witness and not self.witness(node, task.payload, context, results):
                    self.witness = None
                if lane.rows_left is not None:
                    lane.rows_left -= rows
                window.look()
                ready += lane.ready(window.ready - ready)
                lane.decide()
                given = monotonic()
                self._adjust(lane, given)
                yield trail, results
                lane.returned(
                    given, starting=not (pool.ready and self._pool_of(lane.backend).ready)
                )
        finally:
            lane.ready(-ready)
            window.cancel()

    def _adjust(self, lane: Lane, now: float) -> None:
        """Uses as many workers as the trainer's demand needs; stages on one pool share them."""
        if lane.backend == "inline" or lane.workers < 2:
            return
        pools = {b: self._pools[b] for b in lane.backends if b in self._pools}
        complete = all(pool.complete for pool in pools.values())
        lane.width.look(now, lane.stats.starved, lane.stats.busy, complete=complete)
        for backend, pool in pools.items():
            self._share(backend, pool)

    def _share(self, backend: Backend, pool: Pool) -> None:
        used = sum(lane.width.now for lane in self.lanes.values() if backend in lane.backends)
        if used:  # by none where it is only for the meantime
            pool.use(min(pool.width, used))

    def _pool(self, lane: Lane) -> Pool:
        """Where the next task of a stage goes."""
        whole = self._pool_of(lane.backend)
        if lane.meanwhile is not None and not whole.ready:
            return self._pool_of(lane.meanwhile)
        chosen = lane.cutting.chosen if self.cutting is None else self.cutting(lane)
        if chosen is None:
            return whole
        first, second = map(self._pool_of, chosen.backends)
        return CutPool(chosen.cut, first, second, whole)

    def _pool_of(self, backend: Backend) -> Pool:
        if backend == "inline":
            return self._inline
        if self._process != os.getpid():  # in a forked child: those workers are the parent's
            self._process, self._pools = os.getpid(), {}
        if backend not in self._pools:
            keep_freed_memory()
            self._pools[backend] = pool = self._new_pool(backend)
            self._share(backend, pool)  # at once: actors that nobody needs are not even started
        return self._pools[backend]

    def _new_pool(self, backend: Backend) -> Pool:
        if backend == "ray":
            from silva.run.ray import RayPool

            assert self.cluster is not None
            return RayPool(self.cluster, self.cluster.width)
        kind = ThreadPool if backend == "threads" else ProcessPool
        return kind(max(self.workers, 1))

    def _bring_forward(self, window: Window, wake: threading.Event) -> None:
        """Puts a task that is done first, where any order will do."""
        began = monotonic()
        while monotonic() - began < PAUSE and window.first.pool is not self._inline:
            wake.clear()
            if window.bring_forward():
                return
            wake.wait(PAUSE / 4)

    def _results(self, lane: Lane, task: Task, pool: Pool, closings: int) -> list[Result]:
        began = monotonic()
        if pool is self._inline:
            with lane.watch() or contextlib.nullcontext():
                pool.wait(task, lambda waited: None)
        else:
            if lane.forced is None:  # never where processes were asked for: a step that crashes
                pool.help(task, self._here)  # must not take the trainer with it
            pool.wait(task, lambda waited: self._check(lane, task, pool, waited, closings))
            if not nobody_waits.get():
                lane.stats.starved += monotonic() - began
        if task.error is not None:
            raise task.error
        assert task.results is not None
        if any(result.moved for result in task.results):
            return self._seeded(lane, task)
        return task.results

    def _seeded(self, lane: Lane, task: Task) -> list[Result]:
        """A global generator moved while a thread ran the stage: by the stage, or by the trainer.
        Only doing it again here, with the generators watched, can tell."""
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
        stats = lane.stats
        usual = stats.busy / stats.blocks if stats.blocks else 0.0
        ran = 0.0 if task.started is None else monotonic() - task.started
        if max(waited, ran) > max(self.slow_seconds, self.slow_times * usual):
            pool.race(task)
        starting = not pool.ready
        if starting:
            self._ready_at = monotonic()
        waited = waited if starting else min(waited, monotonic() - self._ready_at)
        if waited > (_START_SECONDS if starting else self._deadline):
            raise DeadlineError(
                f"no result from `{lane.stage.label}` for {waited:.0f} s "
                f"(deadline={self._deadline:g}), on {task.describe()}.\n{pool.stacks()}"
            )

    def run_here(self, node: Any, payload: Any, context: Context) -> list[Result]:
        return execute(node.stage, payload, context, self._here)

    def row_store(self, node: physical.CacheRows) -> RowStore:
        """The rows that a cache keeps, for as long as the loader lives: a plan that is lowered
        again finds them. Two sources are two, even where their fingerprints say little."""
        key = (node.spec.folder, node.fingerprint, id(cached_source(node)))
        if key not in self._stores:
            self._stores[key] = open_store(node, self._room)
        return self._stores[key]

    def read_units(self, feed: physical.ChunkedFeed, runs: list[Any]) -> Iterator[Any]:
        source, columns = feed.read.source, feed.read.columns
        if self.backend == "inline" or self.workers == 0:
            return ((run, iter(source.open(run[1], run[2], columns))) for run in runs)
        return iter(UnitReader(source, columns, runs, min(self.workers, 2), self._deadline))

    @property
    def keeps_rows(self) -> bool:
        """Some cache is in use."""
        return bool(self._stores)

    @property
    def room(self) -> int:
        """Bytes that caches may hold in memory, with what they hold."""
        kept = [store for store in self._stores.values() if isinstance(store, MemoryStore)]
        return self._room.left + sum(store.nbytes for store in kept)

    def processes(self) -> list[int]:
        """The process numbers of all workers."""
        pool = self._pools.get("processes")
        return pool.processes() if isinstance(pool, ProcessPool) else []

    @property
    def has_workers(self) -> bool:
        """Some stage runs beside the consumer."""
        return bool(self._pools)

    def close(self) -> None:
        """Ends every worker. The executor can be used again; it then starts new ones."""
        for store in self._stores.values():
            store.close()
        self._closings += 1
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()
        if self.cluster is not None:
            self.cluster.leave()


def _admits(lane: Lane, window: Window) -> bool:
    """Whether one more block of a stage may go ahead."""
    window.look()
    width = 0 if lane.backend == "inline" else lane.width.now
    return lane.blocks.admits(
        len(window), window.rows, window.done_bytes, window.running_rows, width, lane.width.ahead
    )
