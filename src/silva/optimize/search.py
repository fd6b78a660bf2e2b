"""The best order of a run's steps and the best place for a cache in it, chosen together.

Dynamic programming over sets of steps: what a step costs depends on which filters came before it,
not on their order, so for each set only the cheapest way to it is kept. Steps that may go anywhere
take n·2ⁿ looks instead of n! orders. A cache may be placed once on the way: what is before it is
paid once, what is after it in every epoch. Runs of many steps are arranged by rank instead: each
filter, with what it needs, by cost for each row that it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_EXACT_STEPS = 13
"""Up to here every order is looked at."""


@dataclass(frozen=True)
class Movable:
    """A step as the search sees it."""

    seconds: float
    """For each row that comes in."""
    keeps: float
    """Of the rows that come in, the share that goes on."""
    before: int
    """Steps that must come before it, as bits."""
    keepable: bool
    """Gives the same in every epoch: a cache may come after it."""


@dataclass(frozen=True)
class Keeping:
    """What a cache after a set of steps would cost and hold."""

    write: float
    """Seconds for each row that is kept, once."""
    read: float
    """Seconds for each row that is kept, in each later epoch."""
    fits: float
    """The share of the rows that there is room for."""


@dataclass(frozen=True)
class Arrangement:
    order: tuple[int, ...]
    cache_after: int | None
    """A cache comes after so many steps; None for no cache."""
    seconds: float
    """For each row of the source, over all epochs."""


class CacheOffer:
    """Says what a cache after a set of steps would cost; None where there cannot be one."""

    def after(self, done: int) -> Keeping | None:
        raise NotImplementedError


def cost_of(
    steps: Sequence[Movable],
    order: Sequence[int],
    epochs: int = 1,
    offer: CacheOffer | None = None,
    cache_after: int | None = None,
) -> float:
    """Seconds for each row of the source over all epochs, for one arrangement.

    >>> slow, sharp = Movable(10.0, 1.0, 0, True), Movable(1.0, 0.1, 0, True)
    >>> cost_of([slow, sharp], [0, 1]), cost_of([slow, sharp], [1, 0])
    (11.0, 2.0)
    """
    total, left, done = 0.0, 1.0, 0
    once = 0.0
    keeping = None
    for count, number in enumerate([*order, -1]):
        if offer is not None and count == cache_after:
            keeping = offer.after(done)
            if keeping is None:
                return float("inf")
            once, total = total, 0.0
            once_left = left
        if number < 0:
            break
        total += left * steps[number].seconds
        left *= steps[number].keeps
        done |= 1 << number
    if keeping is None:
        return epochs * total
    return _cached(once, once_left, keeping, epochs) + epochs * total


def _cached(prefix: float, left: float, keeping: Keeping, epochs: int) -> float:
    """Seconds over all epochs of what comes before a cache, and of the cache."""
    fits = keeping.fits
    again = fits * left * keeping.read + (1 - fits) * prefix
    return prefix + fits * left * keeping.write + (epochs - 1) * again


def search(
    steps: Sequence[Movable], epochs: int = 1, offer: CacheOffer | None = None
) -> Arrangement:
    """The cheapest arrangement of the steps that keeps their dependencies.

    >>> decode, sharp = Movable(10.0, 1.0, 0, True), Movable(1.0, 0.1, 0, True)
    >>> search([decode, sharp]).order
    (1, 0)
    """
    if len(steps) > _EXACT_STEPS:
        return _by_rank(steps, epochs, offer)
    return _exact(steps, epochs, offer)


def _exact(steps: Sequence[Movable], epochs: int, offer: CacheOffer | None) -> Arrangement:
    count = len(steps)
    size = 1 << count
    left = [1.0] * size
    keepable = [True] * size
    for done in range(1, size):
        low = (done & -done).bit_length() - 1
        rest = done & (done - 1)
        left[done] = left[rest] * steps[low].keeps
        keepable[done] = keepable[rest] and steps[low].keepable
    endless = float("inf")
    # the cheapest way to each set: without a cache so far (for one epoch), and after one (for all)
    plain, plain_by = [endless] * size, [-1] * size
    after, after_by = [endless] * size, [-1] * size
    plain[0] = 0.0
    for done in range(size):
        here = plain[done]
        if here == endless:
            continue
        if offer is not None and done and keepable[done]:
            keeping = offer.after(done)
            if keeping is not None:
                cached = _cached(here, left[done], keeping, epochs)
                if cached < after[done]:
                    after[done], after_by[done] = cached, count  # by placing the cache here
        weight = left[done]
        for number, step in enumerate(steps):
            bit = 1 << number
            if done & bit or step.before & ~done:
                continue
            then = done | bit
            spent = here + weight * step.seconds
            if spent < plain[then]:
                plain[then], plain_by[then] = spent, number
            spent = after[done] + epochs * weight * step.seconds
            if spent < after[then]:
                after[then], after_by[then] = spent, number
    whole = size - 1
    if after[whole] < epochs * plain[whole]:
        return _traced(after_by, plain_by, whole, count, after[whole])
    return _traced(plain_by, plain_by, whole, count, epochs * plain[whole])


def _traced(
    by: list[int], plain_by: list[int], whole: int, count: int, seconds: float
) -> Arrangement:
    """The way to the whole set, walked back."""
    order: list[int] = []
    done, cache_after = whole, None
    while done:
        number = by[done]
        if number == count:
            cache_after = done.bit_count()
            by = plain_by
            continue
        order.append(number)
        done &= ~(1 << number)
    return Arrangement(tuple(reversed(order)), cache_after, seconds)


def _by_rank(steps: Sequence[Movable], epochs: int, offer: CacheOffer | None) -> Arrangement:
    """Filters by what they cost, with all that they still need, for each row that they drop; then
    the rest as written, what gives the same in every epoch first; then the best place of a cache in
    that order."""
    order: list[int] = []
    done = 0

    def needed(number: int) -> list[int]:
        """The step and what must come before it and is not done, in the order written."""
        found, waiting = {number}, [number]
        while waiting:
            open_bits = steps[waiting.pop()].before & ~done
            for i in range(len(steps)):
                if open_bits >> i & 1 and i not in found:
                    found.add(i)
                    waiting.append(i)
        return sorted(found)

    while True:
        groups = [
            (needed(i), i) for i, s in enumerate(steps) if not done >> i & 1 and s.keeps < 1.0
        ]
        if not groups:
            break
        best, _ = min(groups, key=lambda group: _rank(steps, group[0]))
        order += best
        done |= sum(1 << i for i in best)
    rest = [i for i in range(len(steps)) if not done >> i & 1]
    for number in sorted(rest, key=lambda i: not steps[i].keepable):
        missing = [i for i in needed(number) if not done >> i & 1]
        order += missing
        done |= sum(1 << i for i in missing)
    places: list[int | None] = [None]
    if offer is not None:
        for count in range(1, len(order) + 1):
            if not steps[order[count - 1]].keepable:
                break
            places.append(count)
    costs = [(cost_of(steps, order, epochs, offer, place), place) for place in places]
    seconds, cache_after = min(costs, key=lambda found: found[0])
    return Arrangement(tuple(order), cache_after, seconds)


def _rank(steps: Sequence[Movable], group: Sequence[int]) -> float:
    spent, left = 0.0, 1.0
    for number in group:
        spent += left * steps[number].seconds
        left *= steps[number].keeps
    return spent / max(1.0 - left, 1e-9)
