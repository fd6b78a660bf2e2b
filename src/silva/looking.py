"""The verbs of a pipeline that look at it: what it gives, how it is run, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from silva.plan.node import Node
from silva.plan.schema import columns, types
from silva.plan.show import show_plan
from silva.plan.verify import verify

if TYPE_CHECKING:
    from silva.insight.explanation import Explanation
    from silva.insight.headroom import Headroom
    from silva.insight.what_if import WhatIf
    from silva.insight.why import Why
    from silva.joins.leaks import Leaks
    from silva.loader import Loader
    from silva.service.client import Served

_ANALYZED = 5.0
"""Seconds that a pipeline is run for to be measured."""


class Looking:
    """A part of `Pipeline`."""

    __slots__ = ()

    plan: Node

    @overload
    def loader(self, *, service: str, **arguments: Any) -> Served: ...
    @overload
    def loader(self, **arguments: Any) -> Loader: ...
    def loader(self, **arguments: Any) -> Loader | Served:
        """Reads the pipeline; see `Loader` for the arguments, and `Served` for those with
        `service=`, where a service runs it. In a job of several ranks
        (torch.distributed, Ray Train) it reads the share of this one, unless `rank` and `world`
        say something else.

        >>> import silva as sv
        >>> loader = sv.from_columns({"x": range(4)}).batch(2).loader(workers=0)
        >>> sum(int(batch["x"].sum()) for batch in loader)
        6
        """
        from silva.feed.ranks import ranks_here

        if "rank" not in arguments and "world" not in arguments:
            here = ranks_here()
            if here.world > 1:
                arguments = {"group": here.group, **arguments}
                arguments |= {"rank": here.rank, "world": here.world}
        if "service" in arguments:
            return self._served(**arguments)
        return self._whole(**arguments)

    def _served(self, service: str, group: Any = None, **arguments: Any) -> Served:
        """Reads the pipeline from a service that has it."""
        from silva.service.client import Served

        verify(self.plan)
        return Served(service, self.fingerprint, **arguments)

    def _whole(self, **arguments: Any) -> Loader:
        """Reads all rows, in whatever job this is."""
        from silva.loader import Loader  # the engine: not needed to write a pipeline

        verify(self.plan)
        return Loader(self.plan, **arguments)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return columns(self.plan)

    @property
    def schema(self) -> dict[str, str | None]:
        """Column names and their types; None where only running would tell."""
        return types(self.plan)

    @property
    def fingerprint(self) -> str:
        """Identifies what the pipeline gives, across processes."""
        from silva.plan.fingerprint import fingerprint

        return fingerprint(self.plan)

    def check_leaks(
        self, time: str, *, known: str | Sequence[str] = (), times: int = 32, seed: int = 0
    ) -> Leaks:
        """Looks for columns that depend on rows of joined tables from after the row's own time.

        For some of the times in the column `time`, the rows of that time are run again with all
        that was not known by then removed from every joined table. `known` names the columns of
        tables that say when a row was known; by default that of an as-of join is its own, and that
        of any other the column called `time`. See `docs/joins.md` for what this proves.

        >>> import silva as sv
        >>> clicks = sv.from_columns({"user": [1, 2], "ts": [10, 10]})
        >>> totals = {"user": [1, 2], "ts": [9, 99], "total": [3, 8]}
        >>> leaks = clicks.join(totals, on="user", columns="total").check_leaks("ts")
        >>> print(leaks.found[0])
        total at 10: 8, but None was known
        >>> bool(clicks.asof_join(totals, by="user", on="ts").check_leaks("ts"))
        False
        """
        from silva.joins.leaks import check_leaks

        return check_leaks(self.plan, time, known, times, seed)

    def explain(
        self, analyze: bool = False, *, seconds: float = _ANALYZED, **arguments: Any
    ) -> Explanation:
        """The plan as written and the plan as run, with a reason for every difference. With
        `analyze` the pipeline is run, for one epoch or so many seconds, and measured; `arguments`
        are those of the loader.

        >>> import silva as sv
        >>> numbers = sv.from_columns({"x": [1]}).derive(y=lambda x: -x).select("x")
        >>> "nobody reads what these steps write" in numbers.explain()
        True
        """
        from silva.insight.trial import trial

        with self._whole(**arguments) as loader:
            if analyze:
                trial(loader, seconds)
            return loader.explain(analyze)

    def why(self, name: str) -> Why:
        """Every rule, choice, stage and reason that concerns a column, a step or an operator.

        >>> import silva as sv
        >>> print(sv.from_columns({"x": range(4), "unused": range(4)}).select("x").why("unused"))
        `unused` is a column of source columns of 4 rows.
        It is not read: nothing needs it.
        """
        with self._whole() as loader:
            return loader.why(name)

    def what_if(self, *, seconds: float = _ANALYZED, **asked: Any) -> WhatIf:
        """How fast the pipeline would be if something were otherwise, predicted after it was run
        and measured: for one epoch, or so many seconds. See `Loader.what_if`."""
        from silva.insight.trial import trial

        with self._whole() as loader:
            trial(loader, seconds)
            return loader.what_if(**asked)

    def headroom(self, *, seconds: float = 2 * _ANALYZED, **arguments: Any) -> Headroom:
        """How fast the pipeline would be if every step but one were free, for each step: measured
        by running it, and then each step alone on blocks that came to it. `arguments` are those of
        the loader."""
        from silva.insight.headroom import headroom

        with self._whole(**arguments) as loader:
            return headroom(loader, seconds)

    def __repr__(self) -> str:
        return show_plan(self.plan)

    def _repr_html_(self) -> str:
        from silva.insight.html import pipeline_html

        return pipeline_html(self.plan)
