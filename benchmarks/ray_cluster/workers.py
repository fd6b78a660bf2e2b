"""What giving out a block costs the driver, by how many workers there are: 1, 10, 100, 1,000.

A thousand processes do not fit on this machine. So everything on the driver's side is silva's own
(executor, window, width, pool), and what is beyond the calls to Ray is a stand-in: one thread that
answers for all actors, each of which does a block in so many milliseconds as there are workers. So
the driver gives out a thousand blocks a second, however many workers share them. What the stand-in
itself takes is left out; what Ray takes for a call is not in it, see `blocks`.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any

import silva as sv
from silva.cost.model import Placed, Work
from silva.run.placement.measured import Counters
from silva.run.placement.offload import Offload
from silva.run.ray.actor import Actor
from silva.run.ray.cluster import Cluster
from silva.run.ray.pool import RayPool
from silva.testing import cut_blocks

WORKERS = (1, 10, 100, 1000)
_BLOCK_SECONDS = 1e-3
"""Between two results of all workers together."""
_SECONDS = 4.0
_PLANS = 1000


class Nodes:
    """The cluster's side: a thread that does what actors are asked for, when they would have."""

    def __init__(self, workers: int) -> None:
        self._seconds = workers * _BLOCK_SECONDS
        self._actor = Actor([])
        self._due: list[tuple[float, int, Any]] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._over = False
        self.cpu = 0.0
        """Seconds that the thread has taken."""
        self._thread = threading.Thread(target=self._run, name="stand-in", daemon=True)
        self._thread.start()

    def at(self, due: float, do: Any) -> None:
        with self._changed:
            heapq.heappush(self._due, (due, next(self._numbers), do))
            self._changed.notify()

    def remote(self, path: list[str]) -> Any:
        """A new actor, as `ray.remote(Actor)` gives them."""
        return _Handle(self, self._actor, self._seconds)

    def _run(self) -> None:
        while not self._over:
            with self._changed:
                now = time.monotonic()
                left = self._due[0][0] - now if self._due else 1.0
                if left > 0:
                    self._changed.wait(left)
                    continue
                _, _, do = heapq.heappop(self._due)
            do()
            self.cpu = time.thread_time()

    def close(self) -> None:
        self._over = True
        with self._changed:
            self._changed.notify()
        self._thread.join()


class _Method:
    def __init__(self, call: Any) -> None:
        self.remote = call


class _Answer:
    """What a call gives: a result that is not there yet."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self._future


class _Handle:
    """An actor: does one block after the other, each in its time."""

    def __init__(self, nodes: Nodes, actor: Actor, seconds: float) -> None:
        self._nodes, self._actor, self._seconds = nodes, actor, seconds
        self._free_at = 0.0
        self.where = _Method(lambda: self._answer(0.0, lambda: ("node", 0, None)))
        self.draining = _Method(lambda: self._answer(0.0, set))
        self.learn = _Method(self._learn)
        self.run = _Method(self._run)

    def _learn(self, number: int, pickled: bytes) -> None:
        self._actor._stages.setdefault(number, pickled)

    def _run(self, number: int, message: Any, freed: None) -> _Answer:
        self._free_at = max(time.monotonic(), self._free_at) + self._seconds
        return self._answer(self._free_at, partial(self._actor.run, number, message))

    def _answer(self, due: float, make: Any) -> _Answer:
        answer = _Answer()
        self._nodes.at(due, lambda: answer.future().set_result(make()))
        return answer


class StandInCluster(Cluster):
    """Of so many workers that nobody has to be connected to."""

    connected = True

    def join(self, given_up: Any = None) -> None: ...

    node = None

    def lease_bytes(self) -> int:
        return 1 << 20


class StandInPool(RayPool):
    """silva's pool, but for the calls to Ray."""

    def __init__(self, cluster: Cluster, width: int, nodes: Nodes) -> None:
        self._nodes = nodes
        super().__init__(cluster, width)

    @property
    def _actor(self) -> Any:
        return self._nodes

    def _stage(self, number: int) -> Any:
        return self._stages[number][1]

    def _kill(self, seat: Any) -> None:
        seat.alive = False


def scheduling(count: int) -> tuple[float, float]:
    """CPU seconds of the driver for each block, and blocks a second."""
    rows = sv.from_columns({"x": range(1_000_000)}).derive(y=lambda x: x).batch(1)
    loader = cut_blocks(rows.loader(backend="ray", cluster="auto", workers=count), [1])
    executor: Any = loader._executor
    executor.cluster = StandInCluster("auto", count)
    with closing(Nodes(count)) as nodes, loader:
        executor._pools["ray"] = StandInPool(executor.cluster, count, nodes)
        batches: Iterator[Any] = iter(loader)
        for _ in range(500 + 3 * count):
            next(batches)
        began, cpu, blocks = time.perf_counter(), time.process_time() - nodes.cpu, 0
        while time.perf_counter() - began < _SECONDS:
            next(batches)
            blocks += 1
        spent, used = time.perf_counter() - began, time.process_time() - nodes.cpu - cpu
    return used / blocks, blocks / spent


def planning(count: int) -> float:
    """CPU seconds to decide whether a stage goes to so many workers."""
    stage = Placed("stage 1", Work(seconds=0.02, cpu=0.02, back=1e-6), "threads", 2)
    made = [Offload(StandInCluster("auto", count)) for _ in range(_PLANS)]
    for offload in made:
        offload._has_answered()
        assert offload._asking is not None
        offload._asking.join()
    now = Counters(200, 2.0, 1.9, 2.0, 2.0, blocks=200)
    began = time.thread_time()
    for offload in made:
        offload.propose(now, stage, waited=1.9, cores=2, full=True)
    return (time.thread_time() - began) / _PLANS


def workers() -> None:
    for count in WORKERS:
        cpu, pace = scheduling(count)
        print(f"{count:5} workers: {cpu * 1e6:4.0f} µs CPU of the driver a block", end=" ")
        print(f"at {pace:.0f} blocks/s, {planning(count) * 1e6:.0f} µs to plan a stage")
