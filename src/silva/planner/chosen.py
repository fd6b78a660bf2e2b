"""What the search has chosen: a plan, its form and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from silva.plan.decision import Decision
from silva.plan.node import Node
from silva.planner.cache_locations import CacheLocation

Part = tuple[int, bool, object]
"""A unit of the search in terms that hold for later costs too: its step, whether it completes the
step, and the expression up to it."""
WHY = {
    "order": "cheap filters that drop many rows run first",
    "cache": "rows are cached instead of computed in every epoch",
}
"""What the choices of the search are good for."""


@dataclass(frozen=True)
class Form:
    """How the steps of one run are arranged."""

    order: tuple[Part, ...]
    cache_after: int | None = None
    location: CacheLocation | None = None


@dataclass(frozen=True)
class Chosen:
    """A plan, and the choices that led to it."""

    plan: Node
    twin: Node
    """The same plan, with the steps between caches in the order written."""
    choices: tuple[Decision, ...] = ()
    forms: Mapping[int, Form] = field(default_factory=dict)
    """Runs that are arranged in another way than written, by their number."""
