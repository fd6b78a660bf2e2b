"""From what was measured to a better plan: the order of the steps, and what to keep of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silva.optimize.model import duration
from silva.optimize.runs import Run, replaced, runs, wanted
from silva.optimize.search import Arrangement, CacheOffer, Keeping, Movable, cost_of, search
from silva.order.length import plan_rows
from silva.plan.node import Cache, Derive, Filter, Node, Select
from silva.plan.schema import columns
from silva.plan.show_steps import show_step
from silva.plan.traits import step_is_random, traits
from silva.planning.measured import Measured
from silva.profile.costs import Cost

_ORDER_GAIN = 1.05
"""Predicted: less is within what measuring can tell."""
_CACHE_GAIN = 1.15
"""A cache holds memory or disk that others could use."""
_ROW_SECONDS = 3e-6
"""To look a row up and put it into its block."""
_NOT_MEASURED = Cost()


@dataclass(frozen=True)
class Speeds:
    """Seconds a byte costs to be kept and to be read again."""

    write: float
    read: float


@dataclass(frozen=True)
class Room:
    """Where rows may be kept."""

    folder: str | None
    """None for memory."""
    nbytes: int
    speeds: Speeds


@dataclass(frozen=True)
class Choice:
    """Something that the search decided."""

    name: str
    """`order` or `cache`."""
    note: str
    gain: float
    """Predicted: how many times as fast the steps become, over the epochs to come."""


@dataclass(frozen=True)
class Chosen:
    plan: Node
    twin: Node
    """The same with the steps between caches in the order in which they were."""
    choices: tuple[Choice, ...]


def choose(
    plan: Node,
    measured: Sequence[Measured],
    *,
    epochs: int,
    workers: int,
    rooms: tuple[Room, ...],
    reorders: bool = True,
) -> Chosen:
    """The plan with each of its runs arranged as what was measured of it suggests. `epochs` are
    those still to come, this one included."""
    twin = plan
    choices: list[Choice] = []
    # from the top down: replacing a run makes new nodes of what is above it
    for run, known in reversed(list(zip(runs(plan), measured, strict=True))):
        if not known.knows(run.steps):
            continue
        found = _Arranging(plan, run, known, epochs, workers, reorders).best(rooms)
        if found is None:
            continue
        top, plain, made = found
        plan, twin = replaced(plan, run, top), replaced(twin, run, plain)
        choices = [*made, *choices]
    return Chosen(plan, twin, tuple(choices))


class _Arranging:
    """One run on its way to an arrangement.

    The search sees reading as steps, too: number 0 is what is read at once, number 1 what can wait
    until something needs it.
    """

    def __init__(
        self, plan: Node, run: Run, known: Measured, epochs: int, workers: int, reorders: bool
    ) -> None:
        self.run, self.known, self.epochs = run, known, epochs
        self.reorders = reorders
        self.wanted = wanted(plan, run.top)
        self.width = max(workers, 1)
        self.costly = self._costly()
        self.movables = self._movables()
        self.written = tuple(range(len(self.movables)))

    def _costly(self) -> frozenset[str]:
        source = self.run.source
        return (
            frozenset(getattr(source.source, "costly", ())) if source is not None else frozenset()
        )

    def _movables(self) -> list[Movable]:
        known, own = self.known, self.run.source is not None
        late = known.late if known.late.rows else known.read if self.costly else _NOT_MEASURED
        first = _NOT_MEASURED if late is known.read else known.read
        found = [
            Movable(self._seconds(first) if own else 0.0, 1.0, 0, True),
            Movable(self._seconds(late) if own else 0.0, 1.0, 0b1, True),
        ]
        for step, before in zip(self.run.steps, self.run.before(), strict=True):
            cost = known.steps[step.id]
            needs = 0b11 if traits(step).reads & self.costly else 0b1
            keeps = cost.selectivity if isinstance(step, Filter) else 1.0
            if not self.reorders:
                before = (1 << (len(found) - 2)) - 1
            random = step_is_random(step.step)
            found.append(Movable(self._seconds(cost), keeps, before << 2 | needs, not random))
        return found

    def _seconds(self, cost: Cost) -> float:
        return cost.seconds_a_row / self.width

    def best(self, rooms: tuple[Room, ...]) -> tuple[Node, Node, list[Choice]] | None:
        """The run as it should be, its twin, and what was decided; None to leave it as it is."""
        plain = cost_of(self.movables, self.written, self.epochs)
        order = search(self.movables, self.epochs)
        best, place = order, None
        rows = plan_rows(self.run.below) if self.run.at_source and self.epochs > 1 else None
        for room in rooms if rows else ():
            offer = _Offer(self, room, rows or 0)
            found = search(self.movables, self.epochs, offer)
            if found.cache_after is not None and found.seconds * _CACHE_GAIN < best.seconds:
                best, place = found, room
        if place is None and plain < _ORDER_GAIN * order.seconds:
            return None
        return self._made(plain, order, best, place)

    def _made(
        self, plain: float, order: Arrangement, best: Arrangement, place: Room | None
    ) -> tuple[Node, Node, list[Choice]]:
        choices: list[Choice] = []
        steps = [n - 2 for n in best.order if n >= 2]
        reordered = steps != sorted(steps) and plain >= _ORDER_GAIN * order.seconds
        if reordered:
            gain = plain / order.seconds
            choices.append(Choice("order", self._order_note(steps), gain))
        elif place is not None:
            steps = self._as_written(best)
        kept = None
        if place is not None:
            assert best.cache_after is not None
            kept = sum(n >= 2 for n in best.order[: best.cache_after])
            without = order.seconds if reordered else plain
            choices.append(self._cache_choice(best, place, without / best.seconds))
        twin = sorted(steps) if kept is None else [*sorted(steps[:kept]), *sorted(steps[kept:])]
        return self._arranged(steps, kept, place), self._arranged(twin, kept, place), choices

    def _as_written(self, best: Arrangement) -> list[int]:
        """The order as it was, as far as a cache between them allows."""
        cut = best.cache_after or 0
        first = sorted(n - 2 for n in best.order[:cut] if n >= 2)
        return first + sorted(n - 2 for n in best.order[cut:] if n >= 2)

    def _arranged(self, steps: list[int], kept: int | None, place: Room | None) -> Node:
        if kept is None or place is None:
            return self.run.arranged(steps)
        live = self.live(set(steps[:kept]))

        def cached(node: Node) -> Node:
            names = tuple(name for name in columns(node) if name in live)
            below = node if columns(node) == names else Select(node, names)
            return Cache(below, place.folder)

        return self.run.arranged(steps, kept, cached)

    def live(self, done: set[int]) -> frozenset[str]:
        """Columns that are still needed after these steps."""
        rest = [s for i, s in enumerate(self.run.steps) if i not in done]
        made = {name for s in rest for name in getattr(s, "into", ())}
        needed = {name for s in rest for name in traits(s).reads}
        there = {name for i in done for name in getattr(self.run.steps[i], "into", ())}
        there |= set(columns(self.run.below))
        return frozenset(((self.wanted - made) | needed) & there)

    def nbytes(self, done: set[int]) -> float | None:
        """Bytes a row has after these steps; None where a column was never seen."""
        total = 0.0
        writers = {
            name: self.known.steps[self.run.steps[i].id]
            for i in sorted(done)
            for name in getattr(self.run.steps[i], "into", ())
        }
        for name in self.live(done):
            first = self.known.late if name in self.known.late.columns else self.known.read
            cost = writers.get(name, first)
            if name not in cost.columns:
                return None
            total += cost.bytes_a_row(name)
        return total

    # Words.

    def _order_note(self, steps: list[int]) -> str:
        """The filters that come earlier now, with what they keep and cost."""
        at = {number: place for place, number in enumerate(steps)}
        notes = []
        for number, step in enumerate(self.run.steps):
            later = [i for i in range(number) if at[i] > at[number]]
            if isinstance(step, Filter) and later:
                cost = self.known.steps[step.id]
                names = ", ".join(_name(self.run.steps[i]) for i in later)
                notes.append(
                    f"{show_step(step.step)} before {names}: keeps {cost.selectivity:.0%} for "
                    f"{duration(cost.seconds_a_row)} a row"
                )
        return "; ".join(notes) or f"{', '.join(_name(self.run.steps[i]) for i in steps)}"

    def _cache_choice(self, best: Arrangement, place: Room, gain: float) -> Choice:
        done = {n - 2 for n in best.order[: best.cache_after] if n >= 2}
        offer = _Offer(self, place, plan_rows(self.run.below) or 0)
        bits = sum(1 << n for n in best.order[: best.cache_after])
        keeping = offer.after(bits)
        assert keeping is not None
        after = _name(self.run.steps[max(done)]) if done else "reading"
        spent = sum(self.movables[n].seconds for n in best.order[: best.cache_after]) * self.width
        share = "all rows" if keeping.fits >= 1 else f"{keeping.fits:.0%} of the rows"
        where = "in memory" if place.folder is None else "on disk"
        size = offer.total(bits) / 2**20
        return Choice(
            "cache",
            f"{where} after {after}: {share} ({size:,.0f} MiB), {duration(spent)} a row once "
            f"instead of in each of {self.epochs} epochs",
            gain,
        )


def _name(step: Derive | Filter) -> str:
    return ", ".join(step.into) if isinstance(step, Derive) else f"filter {show_step(step.step)}"


class _Offer(CacheOffer):
    """What a cache in a room would cost after a set of steps."""

    def __init__(self, arranging: _Arranging, room: Room, rows: int) -> None:
        self._of, self._room, self._rows = arranging, room, rows
        self._random = [i for i, m in enumerate(arranging.movables) if not m.keepable]

    def after(self, done: int) -> Keeping | None:
        steps = {n - 2 for n in _bits(done) if n >= 2}
        # a step that was written after a filter may rely on it: both are kept, or neither
        for i, step in enumerate(self._of.run.steps):
            if isinstance(step, Filter) and i not in steps and steps and max(steps) > i:
                return None
        nbytes = self._of.nbytes(steps)
        if not nbytes:
            return None
        total = self.total(done)
        fits = min(1.0, self._room.nbytes / total) if total else 1.0
        speeds = self._room.speeds
        return Keeping(
            write=nbytes * speeds.write + _ROW_SECONDS,
            read=nbytes * speeds.read + _ROW_SECONDS,
            fits=fits,
        )

    def total(self, done: int) -> float:
        """Bytes of all rows."""
        numbers = _bits(done)
        left = 1.0
        for number in numbers:
            left *= self._of.movables[number].keeps
        nbytes = self._of.nbytes({n - 2 for n in numbers if n >= 2}) or 0.0
        return self._rows * left * nbytes


def _bits(done: int) -> list[int]:
    return [i for i in range(done.bit_length()) if done >> i & 1]
