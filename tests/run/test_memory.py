"""Blocks in flight and rows in caches share one memory budget, whenever they begin."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.cache.row_store import MemoryStore
from silva.columns import Block, allocation, empty
from silva.run import executor
from silva.run.memory import MemoryBudget
from silva.run.pools.task import Flight, Task, TasksInFlight
from silva.run.pools.threads import InlinePool

MEMORY = 8 << 20
ROW = 32 << 10


def large(x: int) -> np.ndarray:
    return np.full(ROW, x % 251, np.uint8)


def rows(count: int = 400) -> Any:
    return sv.from_columns({"x": range(count)}).derive(y=large)


def later_cache() -> Any:
    """The cache is opened when the first pipeline has ended."""
    return sv.concat([rows(), rows(401).cache()])


def two_caches() -> Any:
    return sv.concat([rows(), rows(401).cache(), rows(402).cache()])


def a_stage_behind_a_cache() -> Any:
    return rows().cache().derive(z=lambda y: y + 1)


PIPELINES = {"later": later_cache, "two": two_caches, "behind": a_stage_behind_a_cache}


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[TasksInFlight[Any]]:
    """The tasks in flight of every stage."""
    found: list[TasksInFlight[Any]] = []

    class Recorded(TasksInFlight[Any]):
        def __init__(self) -> None:
            super().__init__()
            found.append(self)

    monkeypatch.setattr(executor, "TasksInFlight", Recorded)
    return found


def in_flight(stages: list[TasksInFlight[Any]]) -> int:
    """The bytes of the inputs and results of all tasks in flight, when all of them are done."""
    total = 0
    for task in [flight.task for stage in stages for flight in stage._all]:
        assert task.cancelled or task.finished.wait(60)
        total += sum(result.block.nbytes for result in task.results or ())
        total += task.payload.nbytes if isinstance(task.payload, Block) else 0
    return total


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_blocks_in_flight_and_cached_rows_stay_within_the_memory_together(
    pipeline: str, stages: list[TasksInFlight[Any]]
) -> None:
    batches = PIPELINES[pipeline]().batch(4)
    most = kept = 0
    with batches.loader(backend="threads", workers=8, memory=MEMORY, epochs=2) as loader:
        for _ in range(2):
            for _ in loader:
                stores = loader._executor._stores.values()
                kept = sum(s.nbytes for s in stores if isinstance(s, MemoryStore))
                most = max(most, in_flight(stages) + kept)
    assert MEMORY // 4 < kept <= MEMORY // 2
    assert most <= MEMORY


def test_a_lane_that_was_there_before_leaves_room_for_a_later_cache() -> None:
    with later_cache().batch(4).loader(backend="threads", workers=2, memory=MEMORY) as loader:
        batches = iter(loader)
        next(batches)
        memory = loader._epochs._memory
        assert memory.lane_bytes() == MEMORY // 2  # two stages
        for _ in batches:
            pass
        assert memory.lane_bytes() == MEMORY // 4


def test_a_cache_takes_nothing_that_blocks_in_flight_hold() -> None:
    memory = MemoryBudget(100_000)

    def held() -> float:
        return 70_000.0

    memory.hold(held)
    assert memory.caches.take(30_000)
    assert not memory.caches.take(1)
    memory.release(held)
    assert memory.caches.take(20_000)
    assert not memory.caches.take(1), "half of the memory is all that caches get"


def test_recycled_memory_has_what_caches_and_blocks_in_flight_leave() -> None:
    allocation._free.clear()
    arrays = [empty((4 << 20,), np.uint8) for _ in range(4)]
    del arrays
    memory = MemoryBudget(16 << 20)
    memory.release_free()
    assert allocation.free_bytes() == 16 << 20
    memory.hold(lambda: 4.0 * (1 << 20))
    assert memory.caches.take(1 << 20)
    memory.release_free()
    assert allocation.free_bytes() == 8 << 20


def test_segments_of_two_epochs_at_once_share_the_memory() -> None:
    memory = MemoryBudget(1 << 20)
    memory.hold(lambda: 900_000.0)
    assert memory.lane_bytes() == 1 << 20
    memory.hold(lambda: 10_000.0)  # the next epoch has begun
    assert memory.lane_bytes(own=10_000.0) == (1 << 20) - 900_000


def shared_bytes(loader: Any) -> int:
    """Bytes of the shared memory that worker processes have open."""
    total = 0
    for pid in loader._executor.processes():
        for entry in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(entry.path).startswith("/memfd:silva ("):
                total += os.stat(entry.path).st_blocks * 512
    return total


def test_the_shared_memory_of_processes_shrinks_when_memory_is_scarce() -> None:
    batches = rows(200).batch(4)
    with batches.loader(backend="processes", workers=2, memory=MEMORY) as loader:
        for _ in loader:
            pass
        memory, pools = loader._executor.memory, list(loader._executor._pools.values())
        before = shared_bytes(loader)
        waits = sum(pool.free_bytes() for pool in pools)
        assert 0 < waits <= before
        with memory.holding(lambda: 2.0 * MEMORY):
            memory.release_free(pools)
        assert sum(pool.free_bytes() for pool in pools) == 0
        assert shared_bytes(loader) <= before - waits
        assert [int(b["y"][0][0]) for b in loader] == [4 * i % 251 for i in range(50)]


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_rows_that_wait_for_the_rest_of_their_batch_count(backend: str) -> None:
    most = 0.0

    def noted(x: int) -> np.ndarray:
        nonlocal most
        most = max(most, loader._executor.memory.in_flight())
        return large(x)

    # a pipeline of two, so that blocks do not end where batches do
    whole = sv.concat([sv.from_columns({"x": range(n)}).derive(y=noted) for n in (255, 1)])
    loader = whole.batch(256).loader(backend=backend, workers=1, memory=MEMORY)
    with loader:
        for batch in loader:
            assert len(batch["y"]) == 256
    assert most > 200 * ROW, "most of the batch, and no more than one block in flight"


def test_a_running_task_counts_its_rows_and_its_columns() -> None:
    flights: TasksInFlight[int] = TasksInFlight()
    for number in range(4):
        task: Any = Task(None, None, None)  # type: ignore[arg-type]
        flights.add(Flight(number, task, InlinePool(), 10))
    assert flights.held(1.0) == 40
    assert flights.held(1.0, at_once=2) == 60
    assert flights.held(1.0, 10, at_once=2) == 70
    assert flights.held(1.0, at_once=8) == 80
    assert flights.to_come(1.0, at_once=1) == 30
    assert flights.to_come(1.0, at_once=8) == 0


def test_free_memory_is_there_for_the_results_to_come() -> None:
    allocation._free.clear()
    arrays = [empty((4 << 20,), np.uint8) for _ in range(4)]
    del arrays
    memory = MemoryBudget(16 << 20)
    memory.hold(lambda: 12.0 * (1 << 20), to_come=lambda: 8.0 * (1 << 20))
    memory.release_free()
    assert allocation.free_bytes() == 12 << 20


def test_the_first_batch_of_a_later_epoch_is_not_held() -> None:
    with rows(40).batch(4).loader(backend="threads", workers=2, epochs=2) as loader:
        for _ in loader:
            pass
        assert loader._epochs._next is not None
        batches = iter(loader)
        first = weakref.ref(next(batches)["y"])
        next(batches)
        next(batches)
        assert first() is None
