"""What a person may call a part of a pipeline: a column, a step's id, an operator, reading."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError
from silva.profile.costs import Cost
from silva.run.lane import Lane

READ = "read"


@dataclass(frozen=True)
class Part:
    """Something that takes time: a step of a stage, or an operator within one."""

    lane: Lane
    cost: Cost
    share: float
    """Of the stage's time."""
    id: str
    columns: tuple[str, ...] = ()
    operator: str | None = None
    """Set where it is an operator within the step."""
    number: int = 0
    """Of the step in its stage; 0 for reading."""

    @property
    def text(self) -> str:
        return self.id if self.operator is None else f"{self.operator} in {self.id}"


def parts(lanes: Iterable[Lane]) -> list[Part]:
    """Every step that was measured, and every operator within."""
    return [part for lane in lanes for part in _parts(lane)]


def _parts(lane: Lane) -> Iterator[Part]:
    costs = [*lane.stats.steps, lane.stats.late]
    total = sum(cost.seconds for cost in costs) or 1.0
    ran = [None, *stage_parts(lane.stage), None]
    if len(ran) != len(costs):
        return
    for number, (step, cost) in enumerate(zip(ran, costs, strict=True)):
        if not cost.rows:
            continue
        share = cost.seconds / total
        if step is None:
            if getattr(lane.stage, "read", None) is not None:
                yield Part(lane, cost, share, READ)
            continue
        own = getattr(step, "id", "")
        if not own:
            continue
        yield Part(lane, cost, share, own, tuple(getattr(step, "into", ())), number=number)
        for name, of in cost.shares().items():
            yield Part(lane, cost, share * of, own, (), name, number)


def stage_parts(stage: Any) -> tuple[Any, ...]:
    """The steps of a stage of rows, or the nodes of a stage of batches."""
    found: tuple[Any, ...] = getattr(stage, "steps", ()) or getattr(stage, "nodes", ())
    return found


def find(found: list[Part], name: str) -> list[Part]:
    """The parts that a name stands for: one step, or one operator wherever it is used.

    A name that could mean two things is refused, with what there is.
    """
    by_id = [p for p in found if p.operator is None and p.id == name]
    if by_id:
        return by_id
    by_column = [p for p in found if name in p.columns]
    by_operator = [p for p in found if p.operator is not None and name in short_names(p.operator)]
    several = len({(p.lane.name, p.id) for p in by_column}) > 1
    if several or (by_column and by_operator):
        meant = sorted({p.text for p in [*by_column, *by_operator]})
        raise PlanError(f"{name!r} could be any of {', '.join(meant)}: name one by its id")
    if by_column or by_operator:
        return by_column or by_operator
    raise PlanError(
        f"there is no step, column or operator {name!r} here; {offer(name, known(found))}"
    )


def short_names(operator: str) -> set[str]:
    """An operator by its last name, its full name, and each that was merged into it.

    >>> sorted(short_names("image.normalize + to_chw"))
    ['image.normalize + to_chw', 'normalize', 'to_chw']
    """
    return {operator, *(part.rpartition(".")[2] for part in operator.split(" + "))}


def known(found: Iterable[Part]) -> list[str]:
    """All names that mean something, each once."""
    names: dict[str, None] = {}
    for part in found:
        own = (part.operator.rpartition(".")[2],) if part.operator else (*part.columns, part.id)
        names.update(dict.fromkeys(own))
    return list(names)


def offer(name: str, there: list[str]) -> str:
    """What may have been meant, or what there is."""
    close = difflib.get_close_matches(name, there, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there is {', '.join(map(repr, there)) or 'nothing that was measured'}"
