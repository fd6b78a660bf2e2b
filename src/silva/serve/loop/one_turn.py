"""One turn of a loop as a step: the engine lets requests that are at any turn share its batches.

Between two turns, the column that the loop writes holds how far the row has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from silva.physical.stage.steps import Evaluate, Step
from silva.plan.expr import Call, Col
from silva.plan.function import show_step
from silva.plan.turn import turn_of
from silva.serve.loop.turns import Progress

_PROGRESS = "progress of the loop"
"""The column in which the kernel finds how far each row has come."""


@dataclass(frozen=True, eq=False)
class OneTurn:
    """A loop that is run turn by turn."""

    step: Evaluate
    into: str

    @staticmethod
    def of(step: Step) -> OneTurn | None:
        """That of a step; None if it is no loop, or computes more than that."""
        call = step.runs
        if not isinstance(step, Evaluate) or not isinstance(call, Call) or turn_of(call) is None:
            return None
        if not all(isinstance(arg, Col) for arg in call.args):
            return None
        draw = call.draw or (step.id, len(call.args))  # as it has without the column more
        term = replace(call, args=(*call.args, Col(_PROGRESS)), draw=draw)
        shown = step.written or show_step(call)
        return OneTurn(Evaluate(term, step.into, step.id, shown), step.into[0])

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the step reads it."""
        found = row.get(self.into)
        progress = found if isinstance(found, Progress) else None
        given = {**row, _PROGRESS: progress}
        if progress is not None:
            given[self.into] = None
        return given

    def settled(self, values: list[Any]) -> tuple[list[Any], bool]:
        """What the rows of a request have after a turn, and whether they need another one. A value
        that is no progress took the place of a row that failed."""
        found = [
            v if isinstance(v, Progress) else Progress({}, 0.0, v, is_over=True) for v in values
        ]
        if all(one.is_over for one in found):
            return [one.turns for one in found], False
        return found, True
