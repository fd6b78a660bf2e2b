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
from typing import Protocol

_MOST_SETS = 40_000
"""Of steps that are looked at: as many as a second has time for."""


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


class CacheOffer(Protocol):
    def after(self, done: int) -> Keeping | None:
        """What a cache after a set of steps would cost; None where there cannot be one."""


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
    return _exact(steps, epochs, offer) or _by_rank(steps, epochs, offer)


@dataclass(slots=True)
class _Way:
    """The cheapest ways to a set of steps."""

    left: float
    """Rows that are left, of each row of the source."""
    keepable: bool
    plain: float = float("inf")
    """Seconds of one epoch, without a cache so far."""
    plain_by: int = -1
    after: float = float("inf")
    """Seconds of all epochs, with a cache on the way."""
    after_by: int = -1
    """The last step; as many as there are steps where it was the cache."""


def _exact(steps: Sequence[Movable], epochs: int, offer: CacheOffer | None) -> Arrangement | None:
    """The best of all orders; None where there are too many sets of steps to look at."""
    count = len(steps)
    ways = {0: _Way(1.0, True, plain=0.0)}
    layer = [0]
    for _ in range(count):
        following: list[int] = []
        for done in layer:
            way = ways[done]
            _place_cache(way, done, count, epochs, offer)
            for number, step in enumerate(steps):
                bit = 1 << number
                if done & bit or step.before & ~done:
                    continue
                then = ways.get(done | bit)
                if then is None:
                    then = _Way(way.left * step.keeps, way.keepable and step.keepable)
                    ways[done | bit] = then
                    following.append(done | bit)
                spent = way.left * step.seconds
                if way.plain + spent < then.plain:
                    then.plain, then.plain_by = way.plain + spent, number
                if way.after + epochs * spent < then.after:
                    then.after, then.after_by = way.after + epochs * spent, number
        if len(ways) > _MOST_SETS:
            return None
        layer = following
    whole = (1 << count) - 1
    last = ways[whole]
    _place_cache(last, whole, count, epochs, offer)
    cached = last.after < epochs * last.plain
    return _traced(ways, whole, count, cached, last.after if cached else epochs * last.plain)


def _place_cache(way: _Way, done: int, count: int, epochs: int, offer: CacheOffer | None) -> None:
    if offer is None or not done or not way.keepable:
        return
    keeping = offer.after(done)
    if keeping is not None:
        cached = _cached(way.plain, way.left, keeping, epochs)
        if cached < way.after:
            way.after, way.after_by = cached, count


def _traced(
    ways: dict[int, _Way], whole: int, count: int, cached: bool, seconds: float
) -> Arrangement:
    """The way to the whole set, walked back."""
    order: list[int] = []
    done, cache_after = whole, None
    while done:
        way = ways[done]
        number = way.after_by if cached else way.plain_by
        if number == count:
            cache_after, cached = done.bit_count(), False
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
