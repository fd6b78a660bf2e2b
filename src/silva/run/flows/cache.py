"""A segment that computes each input row once, and afterwards takes what came of it from a store.

The segment's input is cut into runs of rows; of each run only the rows that the store lacks go
through the stage, anywhere, and the store has the rest. What comes out has every row of the run in
its order, as if all had been computed, so trails and failures above do not notice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from silva.columns import Block
from silva.physical import plan as physical
from silva.physical.stage import Result
from silva.run.entries import Entries, Parts
from silva.run.flows.input_of import open_input
from silva.run.flows.missing import MissingRows, Run, identities
from silva.run.flows.segment import SegmentFlow, inner_state
from silva.run.flows.trail import Flow, State
from silva.run.rowstore import RowStore
from silva.run.session import Session


def CacheFlow(node: physical.CacheRows, session: Session, open_flow: Any, state: State) -> Flow:
    segment = node.input
    inner = inner_state(segment, session, state)
    source = open_input(segment, session, open_flow, inner)
    return SegmentFlow(segment, cached_session(node, session), source, state)


def cached_session(node: physical.CacheRows, session: Session) -> CachedSession:
    """A session that asks the store of a cache first."""
    store = session.executor.row_store(node)
    return CachedSession(
        session.context, session.shards, session.shard, session.executor, session.failures, store
    )


@dataclass(frozen=True, eq=False)
class CachedSession(Session):
    """A session that asks a store before it runs a stage."""

    store: RowStore

    def run_segment(
        self, node: physical.Segment, source: Any
    ) -> Iterator[tuple[Any, list[Result]]]:
        self.store.refresh()
        runs = MissingRows(source, node, self.context, self.store)
        try:
            while not runs.ended:
                for run, results in self.executor.run(node, runs, self.context):
                    yield run.trail, self._whole(node, run, results)
                if runs.kept is not None:
                    run, runs.kept = runs.kept, None
                    yield run.trail, self._whole(node, run, [])
        finally:
            self.store.flush()

    def run_here(self, node: physical.Segment, payload: Any) -> list[Result]:
        keys, ids = identities(node, payload, self.context)
        missing = np.flatnonzero(~self.store.has(keys))
        run = Run(payload, keys, ids, missing, None)
        return self._whole(node, run, super().run_here(node, run.todo()) if len(missing) else [])

    def _whole(self, node: physical.Segment, run: Run, results: list[Result]) -> list[Result]:
        """The results for all rows of a run, given those for the missing ones."""
        began = perf_counter()
        made = self._joined(node, run, results)
        self.executor.lane(node).stats.keeping += perf_counter() - began
        return made

    def _joined(self, node: physical.Segment, run: Run, results: list[Result]) -> list[Result]:
        computed = self._kept(run, run.missing, results)
        if len(run.missing) == len(run.keys):
            return results
        absent = np.zeros(len(run.keys), dtype=bool)
        absent[run.missing] = True
        kept = np.flatnonzero(~absent)
        found = self.store.read(run.keys[kept])
        parts: Parts = [(kept[which], entries) for which, entries in found]
        for which, _ in parts:
            absent[which] = True
        lost = np.flatnonzero(~absent)
        if len(lost):  # damaged on disk: rare, so done here and now
            computed += self._kept(run, lost, super().run_here(node, run.payload.take(lost)))
        return [_assembled(run, parts, computed)]

    def _kept(
        self, run: Run, rows: np.ndarray, results: list[Result]
    ) -> list[tuple[np.ndarray, Result]]:
        """Each result with the rows of the run that it is for; they are stored."""
        found = []
        for result in results:
            these, rows = rows[: result.size_in], rows[result.size_in :]
            self._keep(run.keys[these], result)
            found.append((these, result))
        return found

    def _keep(self, keys: np.ndarray, result: Result) -> None:
        """Stores what is sure to be the same next time: no row that failed or was substituted."""
        if result.seeded is not None:
            _warn_random(result.seeded)
            return
        good = np.ones(len(keys), dtype=bool)
        for failure in result.failures:
            good[failure.row] = False
            if self.context.on_error == "raise":  # and the rows after it were not computed
                good[failure.row :] = False
        entries = Entries.of(result)
        if good.all():
            self.store.add(keys, entries, result.seconds)
        elif good.any():
            seconds = result.seconds * float(good.mean())
            self.store.add(keys[good], entries.take(np.flatnonzero(good)), seconds)


def _warn_random(step: str) -> None:
    warnings.warn(
        f"cache keeps no rows: the step `{step}` below it draws from a global random generator, so "
        "its rows differ in every epoch; put cache before it",
        stacklevel=2,
    )


def _assembled(run: Run, parts: Parts, computed: list[tuple[np.ndarray, Result]]) -> Result:
    """One result of what was kept and what was computed, in the order of the run."""
    parts = parts + [(rows, Entries.of(result)) for rows, result in computed]
    parts.sort(key=lambda part: int(part[0][0]))  # often all that there is to put in order
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    entries = Entries.concat([e for _, e in parts])
    if (np.diff(order) != 1).any():
        entries = entries.take(order)
    origin = entries.origin
    columns = {name: column.settled() for name, column in entries.columns.items()}
    ids = run.ids if origin is None else run.ids[origin]
    failures = [
        replace(failure, row=int(rows[failure.row]))
        for rows, result in computed
        for failure in result.failures
    ]
    return Result(
        block=Block(columns, ids, entries.places),
        size_in=len(run.keys),
        origin=origin,
        subs=entries.subs,
        failures=tuple(sorted(failures, key=lambda f: (f.row, f.part))),
        seconds=sum(result.seconds for _, result in computed),
        cpu=sum(result.cpu for _, result in computed),
    )
