"""The search against plain enumeration of every order and every place of a cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silva.optimize.search import CacheOffer, Keeping, Movable, cost_of, search


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


def _cheapest(steps: list[Movable], epochs: int, offer: CacheOffer | None) -> float:
    best = float("inf")
    for order in _legal(steps):
        best = min(best, cost_of(steps, order, epochs))
        for place in range(1, len(order) + 1) if offer else ():
            if not steps[order[place - 1]].keepable:
                break
            best = min(best, cost_of(steps, order, epochs, offer, place))
    return best


@st.composite
def _steps(draw: st.DrawFn) -> list[Movable]:
    count = draw(st.integers(1, 5))
    return [
        Movable(
            seconds=draw(st.floats(0.01, 10)),
            keeps=draw(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.01])),
            before=draw(st.integers(0, (1 << i) - 1)) if i else 0,
            keepable=draw(st.booleans()),
        )
        for i in range(count)
    ]


@settings(max_examples=150, deadline=None)
@given(_steps(), st.integers(1, 5), st.none() | st.floats(0.1, 1.0), st.floats(0.01, 5.0))
def test_nothing_is_cheaper_than_what_is_found(
    steps: list[Movable], epochs: int, fits: float | None, read: float
) -> None:
    offer = None if fits is None else Offer(fits, read)
    found = search(steps, epochs, offer)
    assert found.order in set(_legal(steps))
    assert found.seconds == pytest.approx(_cheapest(steps, epochs, offer), rel=1e-9)
    again = cost_of(steps, found.order, epochs, offer, found.cache_after)
    assert again == pytest.approx(found.seconds, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(_steps(), st.integers(2, 4))
def test_many_steps_are_arranged_lawfully(steps: list[Movable], epochs: int) -> None:
    from silva.optimize.search import _by_rank

    many: list[Movable] = []
    for i in range(20):
        step = steps[i % len(steps)]
        many.append(replace(step, before=step.before << (i - i % len(steps))))
    many = [
        Movable(s.seconds, s.keeps, s.before & ((1 << i) - 1), s.keepable)
        for i, s in enumerate(many)
    ]
    found = _by_rank(many, epochs, Offer(1.0, 0.1))
    assert sorted(found.order) == list(range(20))
    done = 0
    for number in found.order:
        assert not many[number].before & ~done
        done |= 1 << number


def test_twelve_free_steps_are_looked_at_set_by_set() -> None:
    steps = [Movable(1.0 + i, 0.5 + 0.04 * i, 0, True) for i in range(12)]
    offer = CountedOffer(1.0, 0.5)
    found = search(steps, 3, offer)
    ranks = [steps[i].seconds / (1 - steps[i].keeps) for i in found.order]
    assert ranks == sorted(ranks)
    assert offer.asked == (1 << 12) - 1  # and not 12! = 479,001,600


class CountedOffer(Offer):
    asked = 0

    def after(self, done: int) -> Keeping | None:
        self.asked += 1
        return super().after(done)
