"""When rewrites that depend on numbers are checked: blocks of a run are gathered until there are
enough of every stage that such rewrites change, and are then compared on another thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from silva.columns import Block
from silva.physical.plan import BatchSegment, PhysicalNode, Segment
from silva.physical.stage.batch_value import BatchValue
from silva.physical.stage.context import Context
from silva.physical.stage.read import Places, UnitRows
from silva.physical.stage.stage import Result
from silva.physical.written_form import segments

if TYPE_CHECKING:
    from silva.planner.check_rewrites import Check, Verdict, Witness, Witnesses

PlanWithout = Callable[[frozenset[str]], PhysicalNode]
"""The physical plan, made without some rules and laws."""
CheckedNode = Segment | BatchSegment
"""A node whose blocks can be checked; those of batches never are."""
Payload = Places | UnitRows | Block | BatchValue
"""The input of a stage, or the places where it reads its input itself."""


class Checking:
    """Gathers blocks and checks rewrites on them.

    `unproven` names the exact rewrites that are not used until they have passed, `close` those that
    are used although they change values.
    """

    def __init__(
        self,
        unproven: Sequence[str],
        close: Sequence[str],
        plan_without: PlanWithout,
        beside: bool,
        rows: Callable[[], int | None],
        clock: Callable[[], float],
    ) -> None:
        """`beside`: check on another thread, not on that of the loop. `rows`: returns the number of
        rows of the run, if it is known. `clock`: CPU seconds of the thread that asks."""
        self._clock = clock
        self._spent = 0.0
        """CPU seconds of gathering blocks, and of checks that are over."""
        self._unproven, self._close = list(unproven), tuple(close)
        self._plan_without = plan_without
        self._beside = beside
        self._rows = rows
        self.witnesses: Witnesses | None = None
        """The blocks gathered so far; None before the first and once there are enough."""
        self._gathers = bool(unproven or close)
        self.check: Check | None = None
        """The check while it runs, and until its verdict has been taken."""
        self._kept: list[Witness] = []
        """Blocks for a check that was cancelled before it had a verdict."""
        self._watched: frozenset[str] | None = None

    @property
    def pending(self) -> bool:
        """Whether a verdict is still to come, or has not been taken yet."""
        return self._gathers or self.check is not None or bool(self._kept)

    @property
    def seconds(self) -> float:
        """CPU seconds that checking took so far."""
        return self._spent + (0.0 if self.check is None else self.check.seconds)

    @property
    def verdict(self) -> Verdict | None:
        return None if self.check is None else self.check.verdict

    def take_verdict(self) -> Verdict | None:
        """Returns the verdict, once."""
        verdict = self.verdict
        if verdict is not None:
            self._spent, self.check, self._kept = self.seconds, None, []
        return verdict

    def note(
        self,
        serving: PhysicalNode,
        node: CheckedNode,
        payload: Payload,
        context: Context,
        results: list[Result],
    ) -> None:
        """Receives a block of the plan `serving`."""
        if not self._gathers:
            return
        began = self._clock()
        kept = self._gathered(serving, node, payload, context, results)
        self._spent += self._clock() - began
        if kept is not None:
            self._begin(kept)

    def _gathered(
        self,
        serving: PhysicalNode,
        node: CheckedNode,
        payload: Payload,
        context: Context,
        results: list[Result],
    ) -> list[Witness] | None:
        """The blocks to check, once there are enough."""
        from silva.planner.check_rewrites import Witness, Witnesses

        if self._watched is None:
            self._watched = self._changed_stages(serving)
        if self.witnesses is None:
            self.witnesses = Witnesses(self._rows())
        witnesses = self.witnesses
        usable = not any(r.failures or r.seeded or r.moved or r.again for r in results)
        is_watched = node.name in self._watched and witnesses.wants(node.name)
        if isinstance(node, Segment) and is_watched and usable:
            witnesses.note(Witness.of(node.name, node.stage, payload, context, witnesses.most))
        done = not self._watched or witnesses.enough_of(sorted(self._watched))
        return witnesses.kept if done else None

    def _changed_stages(self, serving: PhysicalNode) -> frozenset[str]:
        """The names of the stages that the rewrites under check change."""
        others = [frozenset(), frozenset([*self._unproven, *self._close])]
        now = {s.name: s.stage.steps for s in segments(serving)}
        return frozenset(
            s.name
            for without in others
            for s in segments(self._plan_without(without))
            if s.stage.steps != now.get(s.name)
        )

    def _begin(self, kept: list[Witness]) -> None:
        self._gathers, self.witnesses, self._kept = False, None, kept
        self.resume()

    def resume(self) -> None:
        """Starts the check, if there are blocks for it and it is not running."""
        if self._kept and self.check is None:
            from silva.planner.check_rewrites import Check

            self.check = Check(
                self._kept, self._unproven, self._close, self._plan_without, self._clock
            )
            if self._beside:
                self.check.start()
            else:
                self.check.run()

    def close(self) -> None:
        """Cancels a running check; `resume` starts it again."""
        check = self.check
        if check is not None:
            check.close()
            if check.verdict is None:
                self._spent, self.check = self.seconds, None
