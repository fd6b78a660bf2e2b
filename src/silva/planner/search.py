"""The best order of a run's steps, the best place for a cache in it, and the backend for all of it,
chosen together.

Dynamic programming over sets of steps: the cost of a step depends on which filters came before it,
not on their order, so for each set only those paths to it are kept that could still turn out best.
Steps that may go anywhere take n·2ⁿ evaluations instead of n! orders. The work that a path leaves
is a vector of resources: of two paths, one is dropped if it takes no less of any resource; and any
path is dropped that already takes longer than an order which is found at once, by rank: each
filter, with the steps it needs, by its cost per row that it drops. That is also the order used for
runs of very many steps. A path may contain one cache: the steps before it are paid once, those
after it in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Protocol

from silva.cost.model import NOTHING, Hardware, Work

_MOST_SETS = 20_000
"""Sets of steps that are evaluated at most, in about a second."""
_MOST_PATHS = 1 << 13
"""Paths that are kept at most, to all sets of steps together; at least one to each."""
_SERIAL = Hardware()


class Deadline(NamedTuple):
    """When a search ends, although better orders might be left to find."""

    at: float = float("inf")
    clock: Callable[[], float] = float

    @property
    def passed(self) -> bool:
        return self.clock() >= self.at


NEVER = Deadline()


@dataclass(frozen=True)
class Movable:
    """A step as the search sees it."""

    work: Work
    """The work per row that comes in."""
    keeps: float
    """The share of the rows that it keeps."""
    before: int
    """Steps that must come before it, as bits."""
    keepable: bool
    """It computes the same in every epoch, so a cache may come after it."""
    each: Work = NOTHING
    """The work per row of the source wherever the step runs: blocks take some time however few of
    their rows are left."""

    def after(self, done: Work, left: float) -> Work:
        """The work with this step after some that leave a share of the rows."""
        added = done.plus(self.work, left)
        return added.plus(self.each) if any(self.each) else added


@dataclass(frozen=True)
class Keeping:
    """The cost and the size of a cache after a set of steps."""

    write: float
    """Seconds per cached row, once."""
    read: float
    """Seconds per cached row, in each later epoch."""
    fits: float
    """The share of the rows that fit into it."""


@dataclass(frozen=True)
class Arrangement:
    """An order of steps, with or without a cache, and what it costs."""

    order: tuple[int, ...]
    cache_after: int | None
    """The number of steps before the cache; None for no cache."""
    seconds: float
    """Seconds per row of the source, over all epochs, on the best backend."""
    first: Work
    """The work of the first epoch."""
    later: Work
    """The work of each later epoch."""


class CacheOffer(Protocol):
    """A location where rows may be cached."""

    def after(self, done: int) -> Keeping | None:
        """What a cache after a set of steps would cost; None if there cannot be one."""


def arrange(
    steps: Sequence[Movable],
    order: Sequence[int],
    epochs: int = 1,
    offer: CacheOffer | None = None,
    cache_after: int | None = None,
    hardware: Hardware = _SERIAL,
) -> Arrangement:
    """What one order costs, with a cache after `cache_after` of its steps.

    >>> slow, sharp = Movable(Work(10.0), 1.0, 0, True), Movable(Work(1.0), 0.1, 0, True)
    >>> arrange([slow, sharp], [0, 1]).seconds, arrange([slow, sharp], [1, 0]).seconds
    (11.0, 2.0)
    """
    first = later = hardware.always
    left, done = 1.0, 0
    for count in range(len(order) + 1):
        if offer is not None and count == cache_after:
            keeping = offer.after(done)
            if keeping is None:
                return Arrangement(tuple(order), cache_after, float("inf"), first, later)
            first, later = _cached(first, left, keeping, hardware.always)
        if count < len(order):
            step = steps[order[count]]
            first, later = step.after(first, left), step.after(later, left)
            left *= step.keeps
            done |= 1 << order[count]
    seconds = hardware.seconds(first) + (epochs - 1) * hardware.seconds(later)
    return Arrangement(tuple(order), cache_after, seconds, first, later)


def _cached(prefix: Work, left: float, keeping: Keeping, always: Work) -> tuple[Work, Work]:
    """The work of a cache and of the steps before it, in the first and in each later epoch."""
    kept = keeping.fits * left
    again = NOTHING.plus(prefix, 1 - keeping.fits).plus(always, keeping.fits)
    return (
        prefix.plus(Work(consumer=kept * keeping.write)),
        again.plus(Work(consumer=kept * keeping.read)),
    )


def search(
    steps: Sequence[Movable],
    epochs: int = 1,
    offer: CacheOffer | None = None,
    hardware: Hardware = _SERIAL,
    deadline: Deadline = NEVER,
) -> Arrangement:
    """The fastest arrangement of the steps that keeps their dependencies; once the deadline has
    passed, the one by rank.

    >>> decode, sharp = Movable(Work(10.0), 1.0, 0, True), Movable(Work(1.0), 0.1, 0, True)
    >>> search([decode, sharp]).order
    (1, 0)
    """
    by_rank = _by_rank(steps, epochs, offer, hardware)
    return _Search(steps, epochs, offer, hardware, by_rank, deadline).run() or by_rank


class _Path(NamedTuple):
    """A way to do a set of steps: its last step, and the path before that."""

    seconds: float
    """Seconds per row over all epochs, if nothing came after it."""
    first: Work
    later: Work
    last: int
    """The last step; -1 for the cache."""
    before: _Path | None


@dataclass(slots=True)
class _Set:
    """A set of steps, and the paths to it."""

    left: float
    """The share of the source's rows that is left."""
    keepable: bool
    plain: list[_Path]
    """Paths without a cache so far."""
    cached: list[_Path]


class _Search:
    """Looks for an arrangement that is faster than a known one."""

    def __init__(
        self,
        steps: Sequence[Movable],
        epochs: int,
        offer: CacheOffer | None,
        hardware: Hardware,
        known: Arrangement,
        deadline: Deadline,
    ) -> None:
        self._deadline = deadline
        self._steps = steps
        self._epochs = epochs
        self._offer = offer
        self._took = hardware.seconds
        self._always = always = hardware.always
        self._known = known
        self._slowest = known.seconds * (1 - 1e-9)  # sums of the same are rounded differently
        self._orders = [_best_for(steps, resource) for resource in range(len(always))]
        self._most = max(_MOST_PATHS >> len(steps), 1)
        self._sets = {0: _Set(1.0, True, [_Path(0.0, always, always, -1, None)], [])}

    def run(self) -> Arrangement | None:
        """The best of all orders; None if none is faster than the known one, if there are too many
        sets of steps, or if the deadline has passed."""
        layer = [0]
        for _ in self._steps:
            following: list[int] = []
            for done in layer:
                following += self._extend(done)
                if self._deadline.passed:
                    return None
            layer = following
            if len(self._sets) > _MOST_SETS:
                return None
        if not layer:
            return None
        last = self._finished(layer[0])
        found = min([*last.plain, *last.cached], key=_seconds, default=None)
        if found is None or found.seconds >= self._known.seconds:
            return None
        return _arrangement(found)

    def _extend(self, done: int) -> list[int]:
        """Adds each possible next step to a set; returns the sets that are new."""
        here = self._finished(done)
        new: list[int] = []
        if not here.plain and not here.cached:
            return new
        for number, step in enumerate(self._steps):
            bit = 1 << number
            if done & bit or step.before & ~done:
                continue
            then = self._sets.get(done | bit)
            if then is None:
                keepable = here.keepable and step.keepable
                then = self._sets[done | bit] = _Set(here.left * step.keeps, keepable, [], [])
                new.append(done | bit)
            then.plain += [self._with_step(path, number, here.left) for path in here.plain]
            then.cached += [self._with_step(path, number, here.left) for path in here.cached]
        return new

    def _finished(self, done: int) -> _Set:
        """A set to which all paths are known, with the best of them, and with a cache after it."""
        here = self._sets[done]
        offer = self._offer if here.keepable else None
        here.plain = self._contenders(here.plain, done, here.left, cacheable=offer is not None)
        keeping = offer.after(done) if offer is not None and done and here.plain else None
        if keeping is not None:
            for path in here.plain:
                first, later = _cached(path.first, here.left, keeping, self._always)
                here.cached.append(_Path(self._seconds(first, later), first, later, -1, path))
        here.cached = self._contenders(here.cached, done, here.left, cacheable=False)
        return here

    def _contenders(
        self, paths: list[_Path], done: int, left: float, *, cacheable: bool
    ) -> list[_Path]:
        """The best paths to a set, as far as they may lead to something faster than the known
        arrangement. `cacheable`: a cache may still come."""
        most = self._slowest * (self._epochs if cacheable else 1)
        found = [path for path in _best(paths, self._most) if path.seconds < most]
        if not found:
            return found
        rest = self._rest(done, left)
        return [path for path in found if self._may_win(path, rest, cacheable=cacheable)]

    def _rest(self, done: int, left: float) -> Work:
        """The least that the other steps can take: of each resource, what they take in the best
        order for it alone."""
        found: list[float] = []
        for order in self._orders:
            spent, rows = 0.0, left
            for bit, seconds, keeps, each in order:
                if not done & bit:
                    spent += rows * seconds + each
                    rows *= keeps
            found.append(spent)
        return Work(*found)

    def _may_win(self, path: _Path, rest: Work, *, cacheable: bool) -> bool:
        """Whether a path with the least that must follow is faster than the known arrangement.
        `cacheable`: a cache may follow, so that later epochs take nothing but `always`."""
        first = later = path.first.plus(rest)
        if cacheable:
            later = self._always
        elif path.later is not path.first:
            later = path.later.plus(rest)
        return self._seconds(first, later) < self._slowest

    def _with_step(self, path: _Path, number: int, left: float) -> _Path:
        step = self._steps[number]
        first = later = step.after(path.first, left)
        if path.later is not path.first:
            later = step.after(path.later, left)
        return _Path(self._seconds(first, later), first, later, number, path)

    def _seconds(self, first: Work, later: Work) -> float:
        """Seconds per row over all epochs."""
        if first is later:
            return self._epochs * self._took(first)
        return self._took(first) + (self._epochs - 1) * self._took(later)


def _best_for(steps: Sequence[Movable], resource: int) -> list[tuple[int, float, float, float]]:
    """The order of the steps that takes least of one resource, whatever must come before what: the
    bit of each, its seconds per row that comes in, the share of the rows that it keeps, and its
    seconds per row of the source. Empty where no step takes any."""

    def rank(step: tuple[int, float, float, float]) -> tuple[bool, bool, float]:
        _, seconds, keeps, _ = step
        return keeps > 1.0, keeps == 1.0, seconds / (1.0 - keeps) if keeps != 1.0 else 0.0

    found = [(1 << i, s.work[resource], s.keeps, s.each[resource]) for i, s in enumerate(steps)]
    return sorted(found, key=rank) if any(a or b for _, a, _, b in found) else []


def _best(paths: list[_Path], most: int) -> list[_Path]:
    """The fastest paths, without those that take no less of any resource than another one."""
    found: list[_Path] = []
    for path in sorted(paths, key=_seconds):
        if len(found) == most:
            break
        if not any(_takes_no_more(other, path) for other in found):
            found.append(path)
    return found


_seconds = itemgetter(0)


def _takes_no_more(one: _Path, other: _Path) -> bool:
    """Whether one path takes no more of any resource than another, in any epoch."""
    for mine, theirs in zip(one.first, other.first, strict=True):
        if mine > theirs:
            return False
    if one.first is one.later and other.first is other.later:
        return True
    return all(mine <= theirs for mine, theirs in zip(one.later, other.later, strict=True))


def _arrangement(found: _Path) -> Arrangement:
    """The arrangement that a path to the whole set describes."""
    order: list[int] = []
    cache_at: int | None = None
    path = found
    while path.before is not None:
        if path.last < 0:
            cache_at = len(order)
        else:
            order.append(path.last)
        path = path.before
    cache_after = None if cache_at is None else len(order) - cache_at
    return Arrangement(tuple(reversed(order)), cache_after, found.seconds, found.first, found.later)


def _by_rank(
    steps: Sequence[Movable], epochs: int, offer: CacheOffer | None, hardware: Hardware
) -> Arrangement:
    """Filters by the cost of them and of the steps they still need, per row that they drop; then
    the other steps in the order written, those that compute the same in every epoch first; then the
    best place for a cache in that order."""
    order: list[int] = []
    done = 0

    def needed(number: int) -> list[int]:
        """The step and the steps that must still come before it, in the order written."""
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
    found = [arrange(steps, order, epochs, offer, place, hardware) for place in places]
    return min(found, key=lambda one: one.seconds)


def _rank(steps: Sequence[Movable], group: Sequence[int]) -> float:
    """Seconds of a group of steps per row that it drops."""
    spent, left = 0.0, 1.0
    for number in group:
        spent += left * steps[number].work.seconds
        left *= steps[number].keeps
    return spent / max(1.0 - left, 1e-9)
