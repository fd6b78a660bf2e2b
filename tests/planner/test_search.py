"""The search against plain enumeration of every order, place of a cache, and place to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silva.cost.model import NOTHING, Hardware, Work
from silva.planner.search import CacheOffer, Keeping, Movable, arrange, search


class Offer(CacheOffer):
    """A cache whose rows are as large as the number of steps before it."""

    def __init__(self, fits: float, read: float) -> None:
        self.fits, self.read = fits, read

    def after(self, done: int) -> Keeping | None:
        size = done.bit_count()
        return Keeping(write=0.1 * size, read=self.read * size, fits=self.fits)


def _legal(steps: list[Movable]) -> Iterator[tuple[int, ...]]:
    for order in itertools.permutations(range(len(steps))):
        done = 0
        for number in order:
            if steps[number].before & ~done:
                break
            done |= 1 << number
        else:
            yield order


def _cheapest(
    steps: list[Movable], epochs: int, offer: CacheOffer | None, hardware: Hardware
) -> float:
    best = float("inf")
    for order in _legal(steps):
        best = min(best, arrange(steps, order, epochs, hardware=hardware).seconds)
        for place in range(1, len(order) + 1) if offer else ():
            if not steps[order[place - 1]].keepable:
                break
            best = min(best, arrange(steps, order, epochs, offer, place, hardware).seconds)
    return best


_works = st.builds(
    lambda seconds, cpu, lock: Work(seconds, cpu * seconds, lock * cpu * seconds),
    st.floats(0.01, 10), st.sampled_from([0.1, 0.7, 1.0]), st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)  # fmt: skip
_always = st.builds(
    lambda cpu, back, consumer: Work(cpu=cpu, back=back, consumer=consumer),
    st.floats(0, 1), st.floats(0, 5), st.floats(0, 1),
)  # fmt: skip
_hardware = st.builds(Hardware, st.integers(0, 8), st.integers(1, 8), st.booleans(), _always)


@st.composite
def _steps(draw: st.DrawFn) -> list[Movable]:
    count = draw(st.integers(1, 5))
    return [
        Movable(
            work=draw(_works),
            keeps=draw(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.01])),
            before=draw(st.integers(0, (1 << i) - 1)) if i else 0,
            keepable=draw(st.booleans()),
            each=draw(st.just(NOTHING) | _works),
        )
        for i in range(count)
    ]


@settings(max_examples=200)
@given(
    _steps(), st.integers(1, 5), st.none() | st.floats(0.1, 1.0), st.floats(0.01, 5.0),
    _hardware,
)  # fmt: skip
def test_the_search_finds_the_fastest_arrangement(
    steps: list[Movable],
    epochs: int,
    fits: float | None,
    read: float,
    hardware: Hardware,
) -> None:
    offer = None if fits is None else Offer(fits, read)
    found = search(steps, epochs, offer, hardware)
    assert found.order in set(_legal(steps))
    cheapest = _cheapest(steps, epochs, offer, hardware)
    assert found.seconds == pytest.approx(cheapest, rel=1e-9)
    again = arrange(steps, found.order, epochs, offer, found.cache_after, hardware)
    assert again.seconds == pytest.approx(found.seconds, rel=1e-9)
    assert again.later == pytest.approx(found.later, rel=1e-9, abs=1e-12)


def test_the_order_depends_on_where_the_steps_run() -> None:
    """A filter in native code that takes long, and one in Python that takes less: threads do the
    second one at a time, and one of two processes is as fast with either."""
    native = Movable(Work(3.0, 3.0, 0.1), 0.5, 0, True)
    python = Movable(Work(2.0, 2.0, 2.0), 0.5, 0, True)
    eight = {"workers": 8, "cores": 8}
    assert search([native, python], hardware=Hardware(**eight, processes=False)).order == (0, 1)
    sent = search([native, python], hardware=Hardware(**eight, always=Work(back=0.01)))
    assert sent.order == (1, 0)


def test_a_cache_is_judged_by_what_the_workers_can_do_without_it() -> None:
    """Eight threads are not faster than one at what holds the lock, so it is worth to keep."""
    native, python = (Movable(Work(1.0, 1.0, lock), 1.0, 0, True) for lock in (0.0, 1.0))
    hardware, offer = Hardware(8, 8, processes=False), Offer(1.0, read=0.2)
    assert search([native], 10, offer, hardware).cache_after is None
    assert search([python], 10, offer, hardware).cache_after == 1


@given(_steps(), st.integers(2, 4))
def test_many_steps_are_arranged_lawfully(steps: list[Movable], epochs: int) -> None:
    from silva.planner.search import _by_rank

    many: list[Movable] = []
    for i in range(20):
        step = steps[i % len(steps)]
        many.append(replace(step, before=step.before << (i - i % len(steps))))
    many = [
        Movable(s.work, s.keeps, s.before & ((1 << i) - 1), s.keepable, s.each)
        for i, s in enumerate(many)
    ]
    found = _by_rank(many, epochs, Offer(1.0, 0.1), Hardware())
    assert sorted(found.order) == list(range(20))
    done = 0
    for number in found.order:
        assert not many[number].before & ~done
        done |= 1 << number


def test_twelve_free_steps_are_looked_at_set_by_set() -> None:
    steps = [Movable(Work(1.0 + i), 0.5 + 0.04 * i, 0, True) for i in range(12)]
    offer = CountedOffer(1.0, 0.5)
    found = search(steps, 3, offer)
    ranks = [steps[i].work.seconds / (1 - steps[i].keeps) for i in found.order]
    assert ranks == sorted(ranks)
    assert offer.asked < 2 * (1 << 12)  # and not 12! = 479,001,600


@dataclass(frozen=True)
class CountedHardware(Hardware):
    """Counts what the search computes."""

    asked: list[Work] = field(default_factory=list)

    def seconds(self, work: Work) -> float:
        self.asked.append(work)
        return super().seconds(work)


def test_sets_of_steps_that_cannot_lead_to_anything_faster_are_left_alone() -> None:
    """Of filters in one order that suits every resource, the first few sets show it."""
    works = [Work(s, s, 0.1 * s) for s in (1.0 + i for i in range(12))]
    for keeps in (0.5, 0.98, 1.0):
        hardware = CountedHardware(8, 8, False)
        steps = [Movable(work, keeps, 0, True) for work in works]
        assert search(steps[::-1], hardware=hardware).seconds == pytest.approx(
            arrange(steps, range(12), hardware=Hardware(8, 8, False)).seconds
        )
        assert len(hardware.asked) < 100, "and not one for each of 12 * 2 ** 11 steps to a set"


class CountedOffer(Offer):
    asked = 0

    def after(self, done: int) -> Keeping | None:
        self.asked += 1
        return super().after(done)
