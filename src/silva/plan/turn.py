"""A turn of a loop: the steps that are repeated on a row, as a parameter of the loop's call.

The steps have columns of their own: what the loop reads of the row are the arguments of its call,
and rules that rename or move those never look into the turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from silva.plan.class_tags import tagged
from silva.plan.expr import Call, Term, walk
from silva.plan.function import Function, Step, show_step
from silva.plan.node import Derive, Node
from silva.plan.node import walk as nodes

UNTIL = "until"
"""The id of the step that says whether a loop ends, the last one of a turn."""


@tagged("Turn", "plan reads records at_most seconds tokens money")
@dataclass(frozen=True)
class Turn:
    """The steps of one turn, and when a loop of them ends."""

    plan: Node
    """It reads requests; its last step derives whether the loop ends."""
    reads: tuple[str, ...]
    """The columns of the row that the first turn reads, by the order of the call's arguments."""
    records: tuple[str, ...]
    """The columns that a turn writes, in their order."""
    at_most: int
    seconds: float | None = None
    tokens: int | None = None
    money: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what runs it in this process."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        steps = [node for node in nodes(self.plan) if isinstance(node, Derive)]
        shown = [f"{', '.join(one.into)} = {show_step(one.step)}" for one in steps[:-1]]
        bounds = {"seconds": self.seconds, "tokens": self.tokens, "money": self.money}
        more = [f"{name}={value:g}" for name, value in bounds.items() if value is not None]
        until = f"until={show_step(steps[-1].step)}"
        return f"loop({', '.join([*shown, until, f'at_most={self.at_most}', *more])})"


def turn_of(term: Term) -> Turn | None:
    """The turn that a call repeats; None if it is no loop."""
    if not isinstance(term, Call):
        return None
    return next((value for _, value in term.params if isinstance(value, Turn)), None)


def every_part(step: Step) -> Iterator[Term | Function]:
    """The parts of a step, and those of the turns of the loops in it."""
    if isinstance(step, Function):
        yield step
        return
    for part in walk(step):
        yield part
        turn = turn_of(part)
        for node in nodes(turn.plan) if turn is not None else ():
            if node.runs is not None:
                yield from every_part(node.runs)
