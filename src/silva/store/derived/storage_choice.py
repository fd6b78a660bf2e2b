"""Which derived columns are worth their bytes.

A column is stored if

    reads × (compute + inputs)  >  write + hold + reads × own

over the whole table, in seconds: computing it and reading its inputs each time, against writing it
once, keeping its bytes, and reading it. So that a column does not come and go, the other way must
be better by half before anything changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silva.facts.formatting import seconds, size

BETTER = 1.5
"""How many times better the other way must be."""
_ENDLESS = float("inf")


@dataclass(frozen=True)
class Costs:
    """The costs of one column, over all rows of the table."""

    compute: float = 0.0
    """Seconds to compute the column."""
    inputs: float = 0.0
    """Seconds to read its inputs."""
    bytes: float = 0.0
    """Its bytes when stored."""
    write: float = 0.0
    """Seconds to write it, plus the cost of keeping its bytes."""
    own: float = 0.0
    """Seconds to read it when stored."""


@dataclass(frozen=True)
class Candidate:
    name: str
    costs: Costs
    reads: float
    """Expected and observed reads."""
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
class StorageChoice:
    name: str
    store: bool
    why: str


def choose(candidates: Sequence[Candidate], budget: float | None = None) -> list[StorageChoice]:
    """Decides for each column whether to store it, within a budget of bytes.

    >>> cheap, dear = Costs(0.1, 0, 1e6, 1, 0.1), Costs(50, 0, 1e6, 1, 0.1)
    >>> made = choose([Candidate("a", cheap, 3, False), Candidate("b", dear, 3, False)])
    >>> [(decision.name, decision.store) for decision in made]
    [('a', False), ('b', True)]
    """
    room = _ENDLESS if budget is None else budget
    made: dict[str, StorageChoice] = {}
    for candidate in sorted(candidates, key=_rank):
        decision = _decided(candidate)
        if decision.store and candidate.costs.bytes > room:
            why = f"{decision.why}, but the budget has no room for {size(candidate.costs.bytes)}"
            decision = StorageChoice(candidate.name, False, why)
        room -= candidate.costs.bytes if decision.store else 0
        made[candidate.name] = decision
    return [made[candidate.name] for candidate in candidates]


def _rank(candidate: Candidate) -> tuple[bool, float]:
    """Pinned columns first, then those that save the most per byte."""
    saved = candidate.on_read - candidate.when_stored
    return candidate.pin != "always", -saved / max(candidate.costs.bytes, 1.0)


def _decided(candidate: Candidate) -> StorageChoice:
    name = candidate.name
    if candidate.unstorable is not None:
        return StorageChoice(name, False, candidate.unstorable)
    if candidate.pin is not None:
        return StorageChoice(name, candidate.pin == "always", f"it is pinned: {candidate.pin}")
    on_read, stored = candidate.on_read, candidate.when_stored
    compared = (
        f"{candidate.reads:,.4g} reads cost {seconds(on_read)} on read, {seconds(stored)} stored"
    )
    if candidate.stored:
        keep = stored <= BETTER * on_read
        return StorageChoice(name, keep, compared)
    store = on_read > BETTER * stored
    close = not store and on_read > stored
    return StorageChoice(name, store, compared + (", which is not worth a change" if close else ""))
