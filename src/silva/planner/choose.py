"""Chooses a better plan from measurements: the order of the steps, and what to cache of them,
judged on the backend that suits the remaining work best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from silva.cost.model import GAIN, duration
from silva.order.length import plan_rows
from silva.plan.decision import Decision, Quantity
from silva.plan.function import show_step
from silva.plan.node import Cache, Filter, Node, Source, walk
from silva.planner.cache_locations import CacheLocation
from silva.planner.candidates import Offer, Units
from silva.planner.chosen import WHY, Chosen, Form, Part
from silva.planner.known_costs import Measured
from silva.planner.movable_runs import StepRun, replace_run, step_runs
from silva.planner.search import NEVER, Arrangement, Deadline, arrange, search


def choose(
    plan: Node,
    measured: Sequence[Measured],
    *,
    epochs: int,
    workers: int,
    locations: tuple[CacheLocation, ...],
    reorders: bool = True,
    deadline: Deadline = NEVER,
) -> Chosen:
    """The plan with each of its runs arranged as its measured costs suggest. `epochs` are those
    still to come, including this one. `deadline`: for the search of the best order."""
    twin = plan
    choices: list[Decision] = []
    forms: dict[int, Form] = {}
    # from the top down: replacing a run makes new nodes of everything above it
    for number, run, known in reversed(
        [(n, *pair) for n, pair in enumerate(zip(step_runs(plan), measured, strict=True))]
    ):
        if not known.knows(run.steps):
            continue
        # a block with a cache in it could not be repeated with the filter after the explode
        crosses = epochs == 1 or not locations
        units = Units(plan, run, known, workers, reorders, crosses)
        found = _best(units, epochs, () if _is_cached(plan, run) else locations, deadline)
        if found is None:
            continue
        plan, twin = replace_run(plan, run, found.top), replace_run(twin, run, found.twin)
        choices, forms[number] = [*found.choices, *choices], found.form
    return Chosen(plan, twin, tuple(choices), forms)


def price(
    plan: Node,
    measured: Sequence[Measured],
    forms: Mapping[int, Form],
    *,
    epochs: int,
    workers: int,
    warm: bool = False,
) -> float | None:
    """Seconds per row of the largest source with these forms of the runs, over all `epochs` to
    come; `warm` where caches are full already. None where the costs or the parts of a step are
    other ones now."""
    total = 0.0
    runs = list(step_runs(plan))
    for number, (run, known, rows) in enumerate(
        zip(runs, measured, _rows_into(runs, measured), strict=True)
    ):
        if not known.knows(run.steps):
            continue
        units, form = Units(plan, run, known, workers, reorders=True), forms.get(number)
        order: Sequence[int] = range(len(units.units))
        if form is not None:
            at = {part: number for number, part in enumerate(_parts(units))}
            if set(at) != set(form.order):
                return None
            order = [at[part] for part in form.order]
        offer = None if form is None or form.location is None else Offer(units, form.location)
        after = None if offer is None or form is None else form.cache_after
        made = arrange(units.movables, order, epochs, offer, after, units.hardware)
        whole = warm and offer is not None
        total += rows * (epochs * units.hardware.seconds(made.later) if whole else made.seconds)
    return total


def _rows_into(runs: Sequence[StepRun], measured: Sequence[Measured]) -> list[float]:
    """The rows that enter each run, for each row of the largest source: steps above a concat are
    reached by what the filters of all its branches keep."""
    tops = {id(run.top): (run, known) for run, known in zip(runs, measured, strict=True)}
    sources = [node for run in runs for node in walk(run.below) if isinstance(node, Source)]
    sizes = [plan_rows(source) for source in sources]
    largest = 0 if None in sizes else max(filter(None, sizes), default=0)

    def rows(node: Node) -> float:
        if isinstance(node, Source):
            return (plan_rows(node) or 0) / largest if largest else 1.0
        if (found := tops.get(id(node))) is None:
            return sum(map(rows, node.inputs))
        run, known = found
        steps = [known.steps.get(step.id) for step in run.steps if isinstance(step, Filter)]
        parts = [known.explodes.get(explode.column) for _, explode in run.explodes]
        return rows(run.below) * math.prod(c.selectivity for c in (*steps, *parts) if c)

    return [rows(run.below) for run in runs]


def _parts(units: Units) -> list[Part]:
    reading: list[Part] = [(-1, True, "at once"), (-1, True, "late")]
    return reading + [(unit.step, unit.last, unit.term) for unit in units.units[2:]]


def _is_cached(plan: Node, run: StepRun) -> bool:
    """Whether the rows of a run are cached already."""
    return any(isinstance(node, Cache) and run.top in walk(node) for node in walk(plan))


@dataclass(frozen=True)
class _Found:
    """A new form of one run, and the choices that led to it."""

    top: Node
    twin: Node
    choices: list[Decision]
    form: Form


def _best(
    units: Units, epochs: int, locations: tuple[CacheLocation, ...], deadline: Deadline
) -> _Found | None:
    """The best form of the run; None to leave it as it is."""
    written = tuple(range(len(units.movables)))
    plain = arrange(units.movables, written, epochs, hardware=units.hardware)
    order = search(units.movables, epochs, hardware=units.hardware, deadline=deadline)
    best, location = order, None
    if epochs > 1 and units.rows:
        for offered in locations:
            if offered.folder is not None and not units.portable:
                continue  # a later run could not tell which pipeline the rows belong to
            found = search(units.movables, epochs, Offer(units, offered), units.hardware, deadline)
            # rows that the loop cannot take any faster are not worth the memory
            beside = units.seconds(best, epochs) / units.seconds(found, epochs)
            gain = min(best.seconds / found.seconds, beside)
            if found.cache_after is not None and gain > GAIN:
                best, location = found, offered
    reorders = plain.seconds >= GAIN * order.seconds
    if location is None and not reorders:
        return None
    cache_after = best.cache_after if location is not None else None
    as_written = _in_written_order(best.order, cache_after)
    chosen = best.order if reorders else as_written
    choices: list[Decision] = []
    if reorders and units.steps(chosen) != units.steps(as_written):
        notes = (*_order_notes(units, chosen), *_moved(units, plain, order))
        predicted, default = (Quantity(epochs / max(a.seconds, 1e-12)) for a in (order, plain))
        choices.append(Decision("order", WHY["order"], predicted, default=default, notes=notes))
    if location is not None:
        without = order if reorders else plain
        choices.append(_cache_choice(units, best, location, epochs, without))
    return _Found(
        units.arranged(chosen, cache_after, location),
        units.arranged(as_written, cache_after, location),
        choices,
        Form(tuple(_parts(units)[number] for number in chosen), cache_after, location),
    )


def _in_written_order(order: Sequence[int], cache_after: int | None) -> tuple[int, ...]:
    """The written order, as far as a cache in between allows."""
    at = 0 if cache_after is None else cache_after
    return (*sorted(order[:at]), *sorted(order[at:]))


def _order_notes(units: Units, order: Sequence[int]) -> list[str]:
    """The filters that now come earlier, with the share of rows they keep and their cost."""
    steps = units.steps(order)
    at = {number: place for place, number in enumerate(steps)}
    notes = []
    for number, step in enumerate(units.run.steps):
        later = [i for i in range(number) if at[i] > at[number]]
        if isinstance(step, Filter) and later:
            cost = units.known.steps[step.id]
            notes.append(
                f"{show_step(step.step)} runs before {', '.join(map(units.name, later))}: it "
                f"keeps {cost.selectivity:.0%} of the rows and takes "
                f"{duration(cost.seconds_a_row)} per row"
            )
    return notes or [", ".join(map(units.name, steps))]


def _moved(units: Units, before: Arrangement, after: Arrangement) -> list[str]:
    """The backend on which the steps should be fastest from then on, if it is another one."""
    was, now = units.hardware.best(before.later), units.hardware.best(after.later)
    return [] if was == now else [f"from then on, {now} should be faster than {was}"]


def _cache_choice(
    units: Units, best: Arrangement, location: CacheLocation, epochs: int, without: Arrangement
) -> Decision:
    """The decision for a cache; `without` is the best arrangement without one."""
    before = best.order[: best.cache_after]
    offer = Offer(units, location)
    keeping = offer.after(sum(1 << n for n in before))
    assert keeping is not None
    last = units.units[max(before)]
    after = "reading" if last.step < 0 else units.name(last.step)
    if last.term is not None:
        after += f" up to {last.term.op.rpartition('.')[2]}"
    share = "all rows" if keeping.fits >= 1 else f"{keeping.fits:.0%} of the rows"
    where = "in memory" if location.folder is None else "on disk"
    size = offer.total(before) / 2**20
    spent = arrange(units.movables, before).first.seconds
    gain = without.seconds / best.seconds
    note = (
        f"{where} after {after}: {share} ({size:,.0f} MiB), {duration(spent)} per row are "
        f"spent once instead of in each of {epochs} epochs, {gain:.1f}× as fast overall"
    )
    took = without.seconds / epochs, units.hardware.seconds(best.later)
    default, predicted = (Quantity(1 / max(seconds, 1e-12)) for seconds in took)
    return Decision(
        "cache",
        WHY["cache"],
        predicted,
        default=default,
        notes=(note, *_moved(units, without, best)),
        of="epochs that read it",
    )
