"""The check of rewrites that rest on numbers, as it goes along with a run: blocks are gathered
until there are enough of every stage that such rewrites change, and then compared beside the
loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from silva.physical.context import Context
from silva.physical.stage import Result
from silva.physical.twins import segments
from silva.planning.check import Check, Verdict, Witness, Witnesses

PlanWithout = Callable[[frozenset[str]], Any]
"""The plan as it runs, made without some rules and laws."""


class Checking:
    """`suspects` are the exact rewrites that are not used until they have passed, `close` those
    that are used although they differ."""

    def __init__(
        self,
        suspects: Sequence[str],
        close: Sequence[str],
        plan_without: PlanWithout,
        beside: bool,
        rows: Callable[[], int | None],
    ) -> None:
        """`beside`: on a thread of its own, not on that of the loop; `rows`: of the run."""
        self._suspects, self._close = list(suspects), tuple(close)
        self._plan_without = plan_without
        self._beside = beside
        self._rows = rows
        self.witnesses: Witnesses | None = Witnesses() if suspects or close else None
        """None once there are enough."""
        self.check: Check | None = None
        """While it runs, and until its verdict was taken."""
        self._watched: frozenset[str] | None = None

    @property
    def pending(self) -> bool:
        """The verdict is still to come, or to be taken."""
        return self.witnesses is not None or self.check is not None

    @property
    def verdict(self) -> Verdict | None:
        return None if self.check is None else self.check.verdict

    def take_verdict(self) -> Verdict | None:
        """What was found, once."""
        verdict = self.verdict
        if verdict is not None:
            self.check = None
        return verdict

    def note(
        self, serving: Any, node: Any, payload: Any, context: Context, results: list[Result]
    ) -> bool:
        """Sees a block of the plan that is being served; whether more are wanted."""
        witnesses = self.witnesses
        if witnesses is None:
            return False
        if self._watched is None:
            self._watched = self._changed_stages(serving)
            witnesses = self.witnesses = Witnesses(self._rows())
        usable = not any(r.failures or r.seeded or r.moved or r.again for r in results)
        if node.name in self._watched and usable and witnesses.wants(node.name):
            witnesses.note(Witness.of(node.name, node.stage, payload, context, witnesses.most))
        if not self._watched or witnesses.enough_of(sorted(self._watched)):
            self._begin(witnesses.kept)
            return False
        return True

    def _changed_stages(self, serving: Any) -> frozenset[str]:
        """The stages that rewrites which rest on numbers have changed."""
        others = [frozenset(), frozenset([*self._suspects, *self._close])]
        now = {s.name: s.stage.steps for s in segments(serving)}
        return frozenset(
            s.name
            for without in others
            for s in segments(self._plan_without(without))
            if s.stage.steps != now.get(s.name)
        )

    def _begin(self, kept: list[Witness]) -> None:
        self.witnesses = None
        self.check = Check(kept, self._suspects, self._close, self._plan_without)
        if self._beside:
            self.check.start()
        else:
            self.check.run()
