"""From what was measured to a better plan: the order of the steps, and what to keep of them, judged
by the places that suit what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silva.optimize.model import duration
from silva.optimize.runs import Run, replaced, runs
from silva.optimize.search import Arrangement, arrange, search
from silva.plan.node import Cache, Filter, Node, walk
from silva.plan.show_steps import show_step
from silva.planning.measured import Measured
from silva.planning.units import Offer, Room, Units

_ORDER_GAIN = 1.05
"""Predicted: less is within what measuring can tell."""
_CACHE_GAIN = 1.15
"""A cache holds memory or disk that others could use."""


@dataclass(frozen=True)
class EpochCost:
    """Of an epoch that is served from a cache, and of one that is not."""

    rows: int
    """Of the source."""
    without: float
    """Seconds for each of them."""
    within: float
    """Seconds for each of them with the cache, once it is full."""


@dataclass(frozen=True)
class Choice:
    """Something that the search decided."""

    name: str
    """`order` or `cache`."""
    note: str
    gain: float
    """Predicted: how many times as fast the steps become, over the epochs to come."""
    epoch: EpochCost | None = None
    """Of a cache: what it makes of one of them."""


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
        units = Units(plan, run, known, workers, reorders)
        found = _best(units, epochs, () if _is_cached(plan, run) else rooms)
        if found is None:
            continue
        plan, twin = replaced(plan, run, found.top), replaced(twin, run, found.twin)
        choices = [*found.choices, *choices]
    return Chosen(plan, twin, tuple(choices))


def _is_cached(plan: Node, run: Run) -> bool:
    """Whether somebody keeps the rows of a run already."""
    return any(isinstance(node, Cache) and run.top in walk(node) for node in walk(plan))


@dataclass(frozen=True)
class _Found:
    top: Node
    twin: Node
    choices: list[Choice]


def _best(units: Units, epochs: int, rooms: tuple[Room, ...]) -> _Found | None:
    """The run as it should be; None to leave it as it is."""
    written = tuple(range(len(units.movables)))
    plain = arrange(units.movables, written, epochs, pace=units.pace)
    order = search(units.movables, epochs, pace=units.pace)
    best, room = order, None
    if epochs > 1 and units.rows:
        for offered in rooms:
            if offered.folder is not None and not units.portable:
                continue  # a later run could not tell whose rows they are
            found = search(units.movables, epochs, Offer(units, offered), units.pace)
            if found.cache_after is not None and found.seconds * _CACHE_GAIN < best.seconds:
                best, room = found, offered
    reorders = plain.seconds >= _ORDER_GAIN * order.seconds
    if room is None and not reorders:
        return None
    cache_after = best.cache_after if room is not None else None
    as_written = _in_written_order(best.order, cache_after)
    chosen = best.order if reorders else as_written
    choices: list[Choice] = []
    if reorders and units.steps(chosen) != units.steps(as_written):
        note = _order_note(units, chosen) + _moved(units, plain, order)
        choices.append(Choice("order", note, plain.seconds / order.seconds))
    if room is not None:
        without = order if reorders else plain
        choices.append(_cache_choice(units, best, room, epochs, without))
    return _Found(
        units.arranged(chosen, cache_after, room),
        units.arranged(as_written, cache_after, room),
        choices,
    )


def _in_written_order(order: Sequence[int], cache_after: int | None) -> tuple[int, ...]:
    """The order as it was, as far as a cache in between allows."""
    at = 0 if cache_after is None else cache_after
    return (*sorted(order[:at]), *sorted(order[at:]))


def _order_note(units: Units, order: Sequence[int]) -> str:
    """The filters that come earlier now, with what they keep and cost."""
    steps = units.steps(order)
    at = {number: place for place, number in enumerate(steps)}
    notes = []
    for number, step in enumerate(units.run.steps):
        later = [i for i in range(number) if at[i] > at[number]]
        if isinstance(step, Filter) and later:
            cost = units.known.steps[step.id]
            notes.append(
                f"{show_step(step.step)} before {', '.join(map(units.name, later))}: keeps "
                f"{cost.selectivity:.0%} for {duration(cost.seconds_a_row)} a row"
            )
    return "; ".join(notes) or ", ".join(map(units.name, steps))


def _moved(units: Units, before: Arrangement, after: Arrangement) -> str:
    """Where the steps are fastest from then on, if that is another place."""
    was, now = units.pace.best(before.later), units.pace.best(after.later)
    return "" if was == now else f"; then {now} should be fastest, not {was}"


def _cache_choice(
    units: Units, best: Arrangement, room: Room, epochs: int, without: Arrangement
) -> Choice:
    """`without` is the run without it."""
    before = best.order[: best.cache_after]
    offer = Offer(units, room)
    keeping = offer.after(sum(1 << n for n in before))
    assert keeping is not None
    last = units.units[max(before)]
    after = "reading" if last.step < 0 else units.name(last.step)
    if last.term is not None:
        after += f" up to {last.term.op.rpartition('.')[2]}"
    share = "all rows" if keeping.fits >= 1 else f"{keeping.fits:.0%} of the rows"
    where = "in memory" if room.folder is None else "on disk"
    size = offer.total(before) / 2**20
    spent = arrange(units.movables, before).first.seconds
    gain = without.seconds / best.seconds
    return Choice(
        "cache",
        f"{where} after {after}: {share} ({size:,.0f} MiB), {duration(spent)} a row once instead "
        f"of in each of {epochs} epochs, in all {gain:.1f}×{_moved(units, without, best)}",
        gain,
        EpochCost(units.rows or 0, without.seconds / epochs, units.pace(best.later)),
    )
