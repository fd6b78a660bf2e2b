"""The best order of a run's steps, the best place for a cache in it, and where all of it should
run, chosen together.

Dynamic programming over sets of steps: what a step costs depends on which filters came before it,
not on their order, so for each set only the ways to it are kept that could still turn out best.
Steps that may go anywhere take n·2ⁿ looks instead of n! orders. What a way leaves to do is a bundle
of resources (see `pace`): of two ways, one is dropped where it takes no less of anything; and any
is dropped that takes longer already than an order which is found at once, by rank: each filter,
with what it needs, by cost for each row that it drops. That is also the order of runs of very many
steps. A cache may be placed once on the way: what is before it is paid once, what is after it in
every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Protocol

from silva.optimize.pace import Pace, Work

_MOST_SETS = 20_000
"""Of steps that are looked at: as many as a second has time for."""
_MOST_WAYS = 1 << 13
"""To all sets of steps; at least one to each."""
_SERIAL = Pace()


@dataclass(frozen=True)
class Movable:
    """A step as the search sees it."""

    work: Work
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
    """For each row of the source, over all epochs, in the best places."""
    first: Work
    """In the first epoch."""
    later: Work
    """In each later one."""


class CacheOffer(Protocol):
    def after(self, done: int) -> Keeping | None:
        """What a cache after a set of steps would cost; None where there cannot be one."""


def arrange(
    steps: Sequence[Movable],
    order: Sequence[int],
    epochs: int = 1,
    offer: CacheOffer | None = None,
    cache_after: int | None = None,
    pace: Pace = _SERIAL,
) -> Arrangement:
    """What one order costs, with a cache after so many of its steps.

    >>> slow, sharp = Movable(Work(10.0), 1.0, 0, True), Movable(Work(1.0), 0.1, 0, True)
    >>> arrange([slow, sharp], [0, 1]).seconds, arrange([slow, sharp], [1, 0]).seconds
    (11.0, 2.0)
    """
    first = later = Work()
    left, done = 1.0, 0
    for count in range(len(order) + 1):
        if offer is not None and count == cache_after:
            keeping = offer.after(done)
            if keeping is None:
                return Arrangement(tuple(order), cache_after, float("inf"), first, later)
            first, later = _cached(first, left, keeping)
        if count < len(order):
            step = steps[order[count]]
            first, later = first.plus(step.work, left), later.plus(step.work, left)
            left *= step.keeps
            done |= 1 << order[count]
    seconds = pace(first) + (epochs - 1) * pace(later)
    return Arrangement(tuple(order), cache_after, seconds, first, later)


def _cached(prefix: Work, left: float, keeping: Keeping) -> tuple[Work, Work]:
    """What comes before a cache, and the cache: in the first epoch, and in each later one."""
    kept = keeping.fits * left
    again = Work().plus(prefix, 1 - keeping.fits)
    return (
        prefix.plus(Work(alone=kept * keeping.write)),
        again.plus(Work(alone=kept * keeping.read)),
    )


def search(
    steps: Sequence[Movable],
    epochs: int = 1,
    offer: CacheOffer | None = None,
    pace: Pace = _SERIAL,
) -> Arrangement:
    """The fastest arrangement of the steps that keeps their dependencies.

    >>> decode, sharp = Movable(Work(10.0), 1.0, 0, True), Movable(Work(1.0), 0.1, 0, True)
    >>> search([decode, sharp]).order
    (1, 0)
    """
    at_once = _by_rank(steps, epochs, offer, pace)
    return _faster(at_once, steps, epochs, offer, pace) or at_once


class _Way(NamedTuple):
    """A way to a set of steps."""

    seconds: float
    """Over all epochs, if nothing came after it."""
    first: Work
    later: Work
    last: int
    """The last step; -1 where it was the cache."""
    before: _Way | None


@dataclass(slots=True)
class _Set:
    """A set of steps, and the ways to it."""

    left: float
    """Rows that are left, of each row of the source."""
    keepable: bool
    plain: list[_Way]
    """Without a cache so far."""
    cached: list[_Way]


def _faster(
    known: Arrangement,
    steps: Sequence[Movable],
    epochs: int,
    offer: CacheOffer | None,
    pace: Pace,
) -> Arrangement | None:
    """The best of all orders; None where none is faster than one that is known, or where there are
    too many sets of steps to look at."""
    count = len(steps)
    most = max(_MOST_WAYS >> count, 1)
    begun = Work()
    sets = {0: _Set(1.0, True, [_Way(0.0, begun, begun, -1, None)], [])}

    def in_all(first: Work, later: Work) -> float:
        if first is later:
            return epochs * pace(first)
        return pace(first) + (epochs - 1) * pace(later)

    def look(done: int) -> _Set:
        """A set to which all ways are known, with the best of them."""
        here = sets[done]
        here.plain = _best(here.plain, most)
        paid = 1 if offer is None or not here.keepable else epochs  # a cache may still come
        here.plain = [way for way in here.plain if way.seconds < paid * known.seconds]
        keeping = offer.after(done) if offer is not None and done and here.keepable else None
        if keeping is not None:
            for way in here.plain:
                first, later = _cached(way.first, here.left, keeping)
                here.cached.append(_Way(in_all(first, later), first, later, -1, way))
        here.cached = [way for way in _best(here.cached, most) if way.seconds < known.seconds]
        return here

    layer = [0]
    for _ in range(count):
        following: list[int] = []
        for done in layer:
            here = look(done)
            if not here.plain and not here.cached:
                continue
            for number, step in enumerate(steps):
                bit = 1 << number
                if done & bit or step.before & ~done:
                    continue
                then = sets.get(done | bit)
                if then is None:
                    keepable = here.keepable and step.keepable
                    then = sets[done | bit] = _Set(here.left * step.keeps, keepable, [], [])
                    following.append(done | bit)
                for ways, on in ((here.plain, then.plain), (here.cached, then.cached)):
                    for way in ways:
                        first = later = way.first.plus(step.work, here.left)
                        if way.later is not way.first:
                            later = way.later.plus(step.work, here.left)
                        on.append(_Way(in_all(first, later), first, later, number, way))
        if len(sets) > _MOST_SETS:
            return None
        layer = following
    if not layer:
        return None
    last = look(layer[0])
    found = min([*last.plain, *last.cached], key=_seconds, default=None)
    return None if found is None or found.seconds >= known.seconds else _traced(found)


def _best(ways: list[_Way], most: int) -> list[_Way]:
    """The fastest ways, without those that take no less of anything than another one."""
    found: list[_Way] = []
    for way in sorted(ways, key=_seconds):
        if len(found) == most:
            break
        if not any(_takes_no_more(other, way) for other in found):
            found.append(way)
    return found


_seconds = itemgetter(0)


def _takes_no_more(one: _Way, other: _Way) -> bool:
    """Of anything, in any epoch."""
    for mine, theirs in zip(one.first, other.first, strict=True):
        if mine > theirs:
            return False
    if one.first is one.later and other.first is other.later:
        return True
    return all(mine <= theirs for mine, theirs in zip(one.later, other.later, strict=True))


def _traced(found: _Way) -> Arrangement:
    """A way to the whole set, walked back."""
    order: list[int] = []
    cache_at: int | None = None
    way = found
    while way.before is not None:
        if way.last < 0:
            cache_at = len(order)
        else:
            order.append(way.last)
        way = way.before
    cache_after = None if cache_at is None else len(order) - cache_at
    return Arrangement(tuple(reversed(order)), cache_after, found.seconds, found.first, found.later)


def _by_rank(
    steps: Sequence[Movable], epochs: int, offer: CacheOffer | None, pace: Pace
) -> Arrangement:
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
    found = [arrange(steps, order, epochs, offer, place, pace) for place in places]
    return min(found, key=lambda one: one.seconds)


def _rank(steps: Sequence[Movable], group: Sequence[int]) -> float:
    spent, left = 0.0, 1.0
    for number in group:
        spent += left * steps[number].work.seconds
        left *= steps[number].keeps
    return spent / max(1.0 - left, 1e-9)
