"""What all workers of a machine share, more workers do not make faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.cost.model import Load, Shared, choose_place, predict
from silva.cost.pace import Pace, Work
from silva.cost.system import Loaded, throughput
from silva.planner.search import Keeping, Movable, search

seconds = st.floats(1e-6, 1e-2)
some = st.one_of(st.just(0.0), seconds)
loads = st.builds(
    Load,
    seconds=seconds,
    cpu=seconds,
    lock_share=st.floats(0, 1),
    nbytes=st.floats(0, 1e7),
    shared=st.builds(Shared, some, some, some),
)
local = st.sampled_from(["inline", "threads", "processes"])
LIMITS = {"memory": "memory bandwidth", "disk": "the disk", "network": "the network"}


@given(loads, local, st.integers(1, 1000))
def test_no_backend_is_faster_than_a_shared_resource(load, backend, workers):
    found = predict(load, backend, workers, cores=workers)
    for taken in load.shared:
        assert found.rows_per_second * taken <= 1 + 1e-9
    without = predict(replace(load, shared=Shared()), backend, workers, cores=workers)
    assert found.rows_per_second <= without.rows_per_second
    assert found.limit == without.limit or found.limit in LIMITS.values()


@pytest.mark.parametrize("resource", LIMITS)
@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_the_bottleneck_is_named(resource, backend):
    load = Load(1e-3, 1e-3, 0.1, 0, shared=Shared(**{resource: 2e-3}))
    found = predict(load, backend, 64, 64)
    assert (found.rows_per_second, found.limit) == (500, LIMITS[resource])


def test_actors_do_not_share_the_resources_of_this_machine():
    load = Load(1e-3, 1e-3, 0.1, 0, shared=Shared(disk=2e-3))
    assert predict(load, "ray", 64, 2).limit == "workers"


def test_stages_share_the_resources_of_a_machine():
    read = Load(1e-3, 1e-4, 0.1, 0, shared=Shared(network=1e-3))
    stages = [Loaded("one", read, "threads", 8), Loaded("two", read, "processes", 8)]
    found = throughput(stages, cores=64)
    assert (found.rows_per_second, found.limit) == (500, "the network")


def test_workers_are_not_asked_for_what_they_cannot_make_faster():
    load = Load(1e-3, 1e-3, 0.1, 0)
    assert choose_place(load, 8).backend != "inline"
    slow = replace(load, shared=Shared(memory=0.95e-3))
    place = choose_place(slow, 8)
    assert place.backend == "inline"
    assert "memory bandwidth" in place.reason


class Room:
    """A cache that costs 20 µs a row, wherever it is."""

    def after(self, done):
        return Keeping(write=2e-5, read=2e-5, fits=1.0)


def test_rows_from_a_slow_line_are_kept_though_reading_takes_no_time():
    """What comes over the line is read ahead: nobody waits for a single row, but all for the
    line."""
    pace = Pace(workers=8, cores=8)
    read = Movable(Work(1e-5, 1e-5, 1e-6), 1.0, 0, True)
    crop = Movable(Work(1e-4, 1e-4, 1e-5), 1.0, 1, False)
    assert search([read, crop], epochs=10, offer=Room(), pace=pace).cache_after is None
    slow = replace(read, work=read.work._replace(device=1e-3))
    found = search([slow, crop], epochs=10, offer=Room(), pace=pace)
    assert found.cache_after == 1
    assert found.seconds < 1.5 * pace(slow.work)


def test_a_filter_comes_before_what_is_fetched_over_a_slow_line():
    pace = Pace(workers=8, cores=8)
    fetch = Movable(Work(1e-5, 1e-5, device=1e-3), 1.0, 0, True)
    few = Movable(Work(2e-5, 2e-5), 0.1, 0, True)
    assert search([fetch, few], pace=pace).order == (1, 0)
