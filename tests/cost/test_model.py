"""Laws of the cost model: no plan is promised more than the scarcest resource gives."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from silva.cost.model import COPYING, Hardware, Placed, Prediction, Work, choose_place, predict
from silva.planner.search import Keeping, Movable, search

seconds = st.floats(1e-6, 1e-2)
some = st.one_of(st.just(0.0), seconds)
share = st.floats(0, 1)


@st.composite
def works(draw: st.DrawFn) -> Work:
    took = draw(seconds)
    cpu = took * draw(share)
    shared = {name: draw(some) for name in LIMITS}
    return Work(took, cpu, cpu * draw(share), pickling=draw(some), back=draw(some), **shared)


backends = st.sampled_from(["inline", "threads", "processes", "ray"])
counts = st.integers(1, 1000)
loops = st.builds(lambda took, cpu: Work(took, took * cpu), some, share)
LIMITS = {"memory": "memory bandwidth", "disk": "the disk", "network": "the network"}
ROUNDING = 1 + 1e-9


def one(work: Work, backend: str, workers: int, cores: int, loop: Work | None = None) -> Prediction:
    return predict([Placed("stage 1", work, backend, workers)], cores, loop or Work())


@given(works(), backends, counts, counts, loops)
def test_no_stage_is_faster_than_a_resource_that_it_needs(work, backend, workers, cores, loop):
    found = one(work, backend, workers, cores, loop)
    rate = found.rows_per_second
    assert rate * loop.seconds <= ROUNDING
    assert rate * found.cpu_per_row <= cores * ROUNDING
    if backend != "ray":  # whose workers have the cores, disks and networks of other machines
        for name in LIMITS:
            assert rate * getattr(work, name) <= ROUNDING
        assert rate * (work.cpu + loop.cpu) <= cores * ROUNDING
        assert rate * work.seconds <= max(workers, 1) * ROUNDING
    if backend in ("processes", "ray"):
        assert rate * (work.back + loop.seconds) <= ROUNDING


@given(works(), backends, counts, counts, counts, counts, loops)
def test_more_cores_and_workers_are_never_slower(work, backend, workers, more, cores, others, loop):
    assume(backend != "threads" or workers > 1)  # a single thread hands the GIL to nobody
    less = one(work, backend, workers, cores, loop)
    assert (
        less.rows_per_second
        <= one(work, backend, workers + more, cores + others, loop).rows_per_second * ROUNDING
    )


@given(works(), counts, counts, st.booleans(), some)
def test_the_search_and_the_prediction_agree(work, workers, cores, processes, own):
    """The work of the search holds the loop's own seconds as well."""
    hardware = Hardware(workers, cores, processes)
    loop = Work(own)
    expected = max(one(work, b, workers, cores, loop).rows_per_second for b in hardware.backends)
    assert 1 / hardware.seconds(work._replace(consumer=own)) == pytest.approx(expected)


@given(works(), counts, counts, loops)
def test_a_place_is_chosen_because_it_is_predicted_faster(work, workers, cores, loop):
    place = choose_place(work, workers, cores, consumer=loop)
    if place.backend == "inline":
        return
    found = one(work, place.backend, workers, cores, loop)
    assert found.rows_per_second > one(work, "inline", 0, cores, loop).rows_per_second
    if place.backend == "processes":
        threads = one(work, "threads", workers, cores, loop)
        assert found.rows_per_second > threads.rows_per_second


@given(works(), counts, counts)
def test_processes_are_not_chosen_if_their_results_take_as_long_as_the_work(work, workers, cores):
    slow = work._replace(back=work.seconds)
    assert choose_place(slow, workers, cores).backend != "processes"


def test_eight_workers_on_two_cores_are_promised_two_cores():
    [threads, processes] = choose_place(Work(1e-3, 1e-3, 1e-4), 8, cores=2).speeds
    assert threads == ("threads", pytest.approx(2.0))
    assert processes == ("processes", pytest.approx(2.0))


def test_time_in_line_for_a_core_is_not_a_wait_that_workers_overlap():
    crowded = Work(4e-3, 1e-3, 1e-4, queued=3e-3)
    [threads, _] = choose_place(crowded, 8, cores=2).speeds
    assert threads == ("threads", pytest.approx(2.0))


def test_workers_do_not_help_where_the_trainer_computes_on_the_only_core():
    work, trainer = Work(1e-3, 1e-3, 1e-4), Work(1e-3, 1e-3)
    assert choose_place(work, 8, cores=1, consumer=trainer).backend == "inline"
    assert choose_place(work, 8, cores=2, consumer=trainer).backend == "threads"


@pytest.mark.parametrize("resource", LIMITS)
@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_the_bottleneck_is_named(resource, backend):
    found = one(Work(1e-3, 1e-3, 1e-4, **{resource: 2e-3}), backend, 64, 64)
    assert (found.rows_per_second, found.limit) == (500, LIMITS[resource])


def test_copying_results_back_is_named():
    found = one(Work(1e-3, 1e-3, back=2e-3), "processes", 64, 64)
    assert (found.rows_per_second, found.limit, found.stage) == (500, COPYING, "stage 1")


def test_actors_do_not_share_the_resources_of_this_machine():
    assert one(Work(1e-3, 1e-3, disk=2e-3), "ray", 64, 2).limit == "the actors"


def test_stages_share_the_resources_of_a_machine():
    read = Work(1e-3, 1e-4, 1e-4, network=1e-3)
    stages = [Placed("one", read, "threads", 8), Placed("two", read, "processes", 8)]
    found = predict(stages, cores=64)
    assert (found.rows_per_second, found.limit) == (500, "the network")


def test_workers_are_not_asked_for_what_they_cannot_make_faster():
    work = Work(1e-3, 1e-3, 1e-4)
    assert choose_place(work, 8, cores=8).backend != "inline"
    place = choose_place(work._replace(memory=0.95e-3), 8, cores=8)
    assert place.backend == "inline"
    assert "memory bandwidth" in place.reason


class Room:
    """A cache that costs 20 µs a row, wherever it is."""

    def after(self, done):
        return Keeping(write=2e-5, read=2e-5, fits=1.0)


def test_rows_from_a_slow_line_are_kept_though_reading_takes_no_time():
    """What comes over the line is read ahead: nobody waits for a single row, but all for the
    line."""
    hardware = Hardware(workers=8, cores=8)
    read = Movable(Work(1e-5, 1e-5, 1e-6), 1.0, 0, True)
    crop = Movable(Work(1e-4, 1e-4, 1e-5), 1.0, 1, False)
    assert search([read, crop], epochs=10, offer=Room(), hardware=hardware).cache_after is None
    slow = Movable(read.work._replace(network=1e-3), 1.0, 0, True)
    found = search([slow, crop], epochs=10, offer=Room(), hardware=hardware)
    assert found.cache_after == 1
    assert found.seconds < 1.5 * hardware.seconds(slow.work)


def test_a_filter_comes_before_what_is_fetched_over_a_slow_line():
    hardware = Hardware(workers=8, cores=8)
    fetch = Movable(Work(1e-5, 1e-5, network=1e-3), 1.0, 0, True)
    few = Movable(Work(2e-5, 2e-5), 0.1, 0, True)
    assert search([fetch, few], hardware=hardware).order == (1, 0)
