"""What the book of earlier runs knows of a pipeline that has not run yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from silva.cost.book import Book
from silva.cost.model import Work
from silva.cost.replay import Own
from silva.plan.node import Node
from silva.planner.candidates import Units
from silva.planner.known_costs import from_book
from silva.planner.movable_runs import step_runs
from silva.planner.search import arrange


@dataclass(frozen=True)
class KnownWork:
    """The work of earlier runs for a row of the source."""

    work: Work
    kept: float
    """The share of the rows that the consumer gets."""
    own: Own
    """What the consumer takes for a row that it gets."""


def known_work(plan: Node, workers: int) -> KnownWork | None:
    """The work of a pipeline of one source, in the order of `plan`; None unless every step of it
    is known."""
    runs = list(step_runs(plan))
    if len(runs) != 1 or runs[0].source is None:
        return None
    run = runs[0]
    known = from_book(Book(), runs[0].source, run.steps)
    if not known.knows(run.steps) or not (known.read.rows or known.late.rows):
        return None
    units = Units(plan, run, known, workers, reorders=False)
    kept = math.prod(movable.keeps for movable in units.movables)
    if not kept:
        return None
    found = arrange(units.movables, range(len(units.movables)), hardware=units.hardware)
    loop = known.loop
    return KnownWork(found.first, kept, Own(loop.seconds_a_row / kept, loop.cpu_a_row / kept))
