"""Engines that take over from each other when tables and indices have new versions.

An engine is pinned to the versions that there were when it was made. `Refreshing` looks for new
ones now and then, opens an engine with them beside the old one, and lets it answer the requests
that come from then on; those in flight end where they began. A version that cannot be opened
changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from silva.errors import SilvaError
from silva.physical.stage.context import Context
from silva.plan.expr import Call, Term, rebuild
from silva.plan.node import Derive, Filter, Node, PlannedSource, Source, transform
from silva.plan.right_side import right_side, with_right_side
from silva.plan.turn import Turn
from silva.serve.engine.engine import Engine, Outcome
from silva.serve.engine.garbage import SetAside
from silva.serve.engine.station import Elsewhere, Station
from silva.serve.index.index import IndexRef
from silva.serve.tenant import NOBODY, Tenant
from silva.store.derived.table_source import TableSource

logger = logging.getLogger("silva.serve")


def refreshed(plan: Node) -> Node:
    """The plan with the last versions of its tables and indices, except those that were chosen by
    their version. The same object if there is nothing new."""

    def newest(node: Node) -> Node:
        if isinstance(node, Source) and isinstance(node.source, TableSource):
            source = node.source.refreshed()
            new = source is not node.source
            return replace(node, source=cast(PlannedSource, source)) if new else node
        if isinstance(node, Derive | Filter) and isinstance(node.step, Call):
            changed: list[Term] = []

            def change(term: Term) -> Term:
                found = _newest_call(term)
                if found is not term:
                    changed.append(found)
                return found

            step = rebuild(node.step, change)
            return replace(node, step=step) if changed else node
        return node

    return transform(plan, newest)


def _newest_call(term: Term) -> Term:
    """A call with the last version of the table or index that it reads."""
    if not isinstance(term, Call):
        return term
    side = right_side(term)
    if side is not None:
        plan = refreshed(side.plan)
        return term if plan is side.plan else with_right_side(term, replace(side, plan=plan))
    params = tuple((name, _newest_param(value)) for name, value in term.params)
    if all(new is old for (_, new), (_, old) in zip(params, term.params, strict=True)):
        return term
    return replace(term, params=params)


def _newest_param(value: Any) -> Any:
    if isinstance(value, IndexRef) and not value.index.is_pinned:
        index = value.index.refresh()
        return value if index.identity == value.identity else IndexRef(index.identity, index)
    if isinstance(value, Turn):
        plan = refreshed(value.plan)
        return value if plan is value.plan else replace(value, plan=plan)
    return value


def _learn(engine: Engine, old: Engine) -> None:
    """Lets an engine begin with what is known about the costs of its steps."""
    for new, known in zip(engine.stations, old.stations, strict=False):
        if new.unit.label == known.unit.label:
            new.curve, new.width, new.quick = known.curve, known.width, known.quick
            new.batches, new.rows, new.shared = known.batches, known.rows, known.shared
            new.overtakes = known.overtakes


class Refreshing:
    """The engine of a plan with the last versions of its tables and indices."""

    def __init__(self, plan: Node, *, refresh: float | None = None, **arguments: Any) -> None:
        """`refresh`: seconds between two looks for new versions; None for none. `arguments` are
        those of `Engine`."""
        self._plan = plan
        self._every = refresh
        self._arguments = arguments
        self._engine = Engine(plan, **arguments)
        self._flying: Counter[Engine] = Counter()
        self._watching: asyncio.Task[None] | None = None
        self._set_aside: SetAside | None = None
        self.names = self._engine.names
        self.columns = self._engine.columns
        self.refreshes = 0
        """How often new versions took over."""

    @property
    def context(self) -> Context:
        """The seed and the policy of the engine that answers now."""
        return self._engine.context

    def move(self, places: Mapping[int, Elsewhere]) -> None:
        """Lets steps run elsewhere. New versions of tables and indices cannot take over then."""
        assert self._every is None
        self._engine.move(places)

    @property
    def stations(self) -> list[Station]:
        """The units of the engine that answers now."""
        return self._engine.stations

    @property
    def is_warm(self) -> bool:
        """Whether all models and indices are open."""
        return self._engine.is_warm

    async def answer(
        self, row: Mapping[str, Any], *, deadline: float, tenant: Tenant = NOBODY
    ) -> Outcome:
        """What `Engine.answer` does, by the engine that answers now."""
        engine = self._engine
        self._flying[engine] += 1
        try:
            return await engine.answer(row, deadline=deadline, tenant=tenant)
        finally:
            self._flying[engine] -= 1
            self._retire(engine)

    async def warm(self) -> None:
        """Opens all models and indices, and begins to look for new versions."""
        await self._engine.warm()
        if self._set_aside is None:
            self._set_aside = SetAside()
        if self._every is not None and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch(self._every))

    async def _watch(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            try:
                await self.refresh()
            except (SilvaError, OSError) as error:
                logger.warning("the versions that are served stay: a new one fails: %s", error)

    async def refresh(self) -> bool:
        """Takes over new versions, if there are any."""
        plan = await asyncio.to_thread(refreshed, self._plan)
        if plan is self._plan:
            return False
        engine = await asyncio.to_thread(self._opened, plan)
        old, self._plan, self._engine = self._engine, plan, engine
        _learn(engine, old)
        self.refreshes += 1
        self._retire(old)
        return True

    def _opened(self, plan: Node) -> Engine:
        engine = Engine(plan, **self._arguments)
        try:
            engine.open()
        except BaseException:
            engine.close()
            raise
        return engine

    def _retire(self, engine: Engine) -> None:
        """Ends an engine that no request needs any more; its threads may take a while."""
        if engine is not self._engine and not self._flying[engine]:
            del self._flying[engine]
            loop = asyncio.get_running_loop()
            ended = loop.run_in_executor(None, engine.close)
            if (kept := self._set_aside) is not None:  # once nothing refers to the engine
                ended.add_done_callback(lambda _: loop.run_in_executor(None, kept.renew))

    def close(self) -> None:
        """Ends all engines. The task that looks for new versions ends with its event loop."""
        if self._watching is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._watching.get_loop().call_soon_threadsafe(self._watching.cancel)
        for engine in {self._engine, *self._flying}:
            engine.close()
        if self._set_aside is not None:
            self._set_aside.close()
