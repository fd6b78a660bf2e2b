"""Which derived columns are worth their bytes.

A column is stored if

    reads × (compute + inputs)  >  write + hold + reads × own

over the whole table, in seconds: what it costs to compute it each time and to read what it is
computed of, against writing it once, the bytes it holds, and reading it. So that a column does not
come and go, the better way must be better by half before anything changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silva.insight.words import seconds, size

BETTER = 1.5
"""By how much the other way must be better."""
_ENDLESS = float("inf")


@dataclass(frozen=True)
class Costs:
    """Of one column, over all rows of the table."""

    compute: float
    """Seconds to compute it."""
    inputs: float
    """Seconds to read what it is computed of."""
    bytes: float
    """That it takes when stored."""
    write: float
    """Seconds to write it, and what its bytes are worth until it is given up."""
    own: float
    """Seconds to read it when stored."""


@dataclass(frozen=True)
class Candidate:
    name: str
    costs: Costs
    reads: float
    """How often it will be read, as was said and as was seen."""
    stored: bool
    pin: str | None = None
    unstorable: str | None = None

    @property
    def on_read(self) -> float:
        return self.reads * (self.costs.compute + self.costs.inputs)

    @property
    def when_stored(self) -> float:
        return self.costs.write + self.reads * self.costs.own


@dataclass(frozen=True)
class Decision:
    name: str
    store: bool
    why: str


def choose(candidates: Sequence[Candidate], budget: float | None = None) -> list[Decision]:
    """For each column whether to store it, such that all that are stored fit the budget of bytes.

    >>> cheap, dear = Costs(0.1, 0, 1e6, 1, 0.1), Costs(50, 0, 1e6, 1, 0.1)
    >>> made = choose([Candidate("a", cheap, 3, False), Candidate("b", dear, 3, False)])
    >>> [(decision.name, decision.store) for decision in made]
    [('a', False), ('b', True)]
    """
    room = _ENDLESS if budget is None else budget
    made: dict[str, Decision] = {}
    for candidate in sorted(candidates, key=_rank):
        decision = _decided(candidate)
        if decision.store and candidate.costs.bytes > room:
            why = f"{decision.why}, but the budget has no room for {size(candidate.costs.bytes)}"
            decision = Decision(candidate.name, False, why)
        room -= candidate.costs.bytes if decision.store else 0
        made[candidate.name] = decision
    return [made[candidate.name] for candidate in candidates]


def _rank(candidate: Candidate) -> tuple[bool, float]:
    """Pinned columns first, then those that save the most for their bytes."""
    saved = candidate.on_read - candidate.when_stored
    return candidate.pin != "always", -saved / max(candidate.costs.bytes, 1.0)


def _decided(candidate: Candidate) -> Decision:
    name = candidate.name
    if candidate.unstorable is not None:
        return Decision(name, False, candidate.unstorable)
    if candidate.pin is not None:
        return Decision(name, candidate.pin == "always", f"it is pinned: {candidate.pin}")
    on_read, stored = candidate.on_read, candidate.when_stored
    compared = (
        f"{candidate.reads:,.4g} reads cost {seconds(on_read)} on read, {seconds(stored)} stored"
    )
    if candidate.stored:
        keep = stored <= BETTER * on_read
        return Decision(name, keep, compared)
    store = on_read > BETTER * stored
    close = not store and on_read > stored
    return Decision(name, store, compared + (", which is not worth a change" if close else ""))
