"""Where stages run: chosen by measuring, forced when asked, and never seen in the stream."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.columns import Array
from silva.cost.costs import Cost
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane
from silva.run.placement.measured import LaneStats
from silva.run.placement.sizing import Blocks, RecentRow
from silva.run.pools.task import Flight, Task, TasksInFlight
from silva.run.pools.threads import InlinePool
from silva.testing import stream


def lane(rows_left: int | None, *, workers: int = 2, share: float = 1.0) -> Lane:
    made = Lane(_stage(), "stage", None, workers, MemoryBudget(1 << 30))
    made.rows_left = rows_left
    made.probe._held, made.probe._free, made.probe.seconds = share, 1.0 - share, 1.0
    return made


def _stage() -> object:
    rows = sv.from_columns({"x": range(3)}).derive(y=lambda x: x)
    return rows.loader(backend="inline")._lowered().stage


def decide(made: Lane, *, per_row: float, bytes_per_row: float = 8, consumer: float = 0.0) -> str:
    made.stats.busy, made.stats.blocks, made.stats.rows_in = 1.0, 1, round(1 / per_row)
    made.own = Cost(rows=made.stats.rows_in, seconds=consumer)
    made._recent = RecentRow(per_row, per_row)
    made.blocks._bytes_per_row = bytes_per_row
    made.decide(0)
    return made.backend


def test_heavy_python_goes_to_processes():
    assert decide(lane(20_000), per_row=200e-6) == "processes"


def test_native_work_goes_to_threads():
    assert decide(lane(20_000, share=0.05), per_row=2e-3, bytes_per_row=600e3) == "threads"


@pytest.mark.parametrize("batches", [False, True])
def test_the_gil_is_sampled_only_where_functions_may_hold_it(batches):
    """While other stages keep the cores busy, a look at the lock tells little of native work."""
    rows = sv.from_columns({"x": [[1, 2]] * 8})
    rows = rows.batch(4) if batches else rows
    native = rows.derive(y=sv.list("x").embed(np.ones((4, 3), np.float32)))
    python = rows.derive(y=lambda x: x)
    probes = []
    for pipeline in (native, python):
        with pipeline.loader(workers=2) as loader:
            for _ in loader:
                pass
            probes.append(next(iter(loader._executor.lanes.values())).probe)
    assert probes[0] is None
    assert probes[1] is not None


def test_little_work_stays_where_it_is():
    assert decide(lane(1_000), per_row=1e-6) == "inline"
    assert decide(lane(1_000_000), per_row=0.2e-6) == "inline"


def test_one_worker_pays_when_the_trainer_is_busy_meanwhile():
    alone = lane(20_000, workers=1, share=0.05)
    assert decide(alone, per_row=1e-3) == "inline"
    beside = lane(20_000, workers=1, share=0.05)
    assert decide(beside, per_row=1e-3, consumer=1.0) == "threads"


def test_short_epochs_are_added_up():
    made = lane(4_000)
    assert decide(made, per_row=114e-6) == "inline"
    made.begin(4_000, epoch=3, epochs=None)
    assert decide(made, per_row=114e-6) == "processes"
    made = lane(4_000)
    made.begin(4_000, epoch=0, epochs=10)
    assert decide(made, per_row=114e-6) == "processes"


def test_the_choice_of_a_backend_is_explained():
    made = lane(20_000)
    decide(made, per_row=200e-6)
    assert "200 µs per row" in made.reason
    assert "the GIL is held 100%" in made.reason


@pytest.mark.parametrize("workers", [0, 1, "auto"])
def test_auto_gives_the_same_stream(workers):
    rows = sv.from_columns({"x": range(300)}).derive(y=lambda x: sum(range(x))).batch(7)
    with rows.loader(workers=workers) as loader:
        assert stream(loader) == stream(rows.loader(backend="inline"))


def test_operators_of_ones_own_work_in_processes():
    def negate(columns, params, draw):
        return Array(-columns[0].settled().data * params["times"])

    sv.register_operator(sv.Operator("test.negate", negate))

    class Number(sv.Expr):
        def negate(self, times):
            return self._call("test.negate", times=times)

    rows = sv.from_columns({"x": np.arange(5)}).derive(y=Number("x").negate(2)).batch(5)
    with rows.loader(backend="processes", workers=1) as loader:
        assert next(iter(loader))["y"].tolist() == [0, -2, -4, -6, -8]


def test_memory_bounds_what_waits_and_one_large_row_goes_alone():
    made = Blocks(LaneStats(), lambda held: 1000, calls_python=False, alone=False)
    made.bytes_per_row, made.rows = 400.0, 1
    none, one, two = (in_flight(count) for count in range(3))
    two.running_rows, two.done_bytes = 1, 400
    assert made.admits(none, width=2, ahead=2)
    assert made.admits(one, width=2, ahead=2)
    assert not made.admits(two, width=2, ahead=2)
    made.bytes_per_row = 1e9
    assert made.admits(none, width=2, ahead=2)
    assert not made.admits(one, width=2, ahead=2)


def test_no_more_is_done_ahead_than_memory_that_is_kept_for_reuse():
    made = Blocks(LaneStats(), lambda held: 1 << 40, calls_python=False, alone=False)
    made.stats.blocks = 100
    windows = [in_flight(count) for count in range(20)]
    for bytes_per_row, most in ((1 << 20, 17), (24 << 20, 10), (100 << 20, 5)):
        made.bytes_per_row = float(bytes_per_row)
        admitted = [made.admits(window, width=2, ahead=8) for window in windows]
        assert admitted.index(False) == most


def in_flight(count: int) -> TasksInFlight[None]:
    """Tasks of one row each, in flight."""
    flights: TasksInFlight[None] = TasksInFlight()
    for _ in range(count):
        task = Task(None, None, None)  # type: ignore[arg-type]
        flights.add(Flight(None, task, InlinePool(), 1))
    return flights
