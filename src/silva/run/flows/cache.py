"""A segment that computes each input row once, and reads its result from a store afterwards.

The input is cut into runs of rows. Of each run, only the rows that the store lacks go through the
stage. The result has every row of the run in order, as if all had been computed, so that trails and
failures are the same as without a cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np

from silva.cache.entries import Entries, FoundEntries
from silva.columns import Block
from silva.errors import ColumnError
from silva.physical import plan as physical
from silva.physical.stage.context import Context
from silva.physical.stage.stage import Result
from silva.run.executor import Executor
from silva.run.flows.inputs import Input
from silva.run.flows.missing import MissingRows, Payload, Run, identities
from silva.run.flows.segment import open_segment
from silva.run.flows.trail import Cursor, Flow, OpenFlow, Trail
from silva.run.session import Session


def CacheFlow(
    node: physical.CacheRows, session: Session, open_flow: OpenFlow, cursor: Cursor
) -> Flow:
    runner = CachedRunner(node, session.executor)
    return open_segment(node.input, session, open_flow, cursor, runner)


class CachedRunner:
    """Runs the stage of a segment for the rows that a store lacks."""

    def __init__(self, node: physical.CacheRows, executor: Executor) -> None:
        self._executor = executor
        self._store = executor.row_store(node)
        self._planned = node.spec.planned
        """The planner chose this cache: rows that cannot be kept are computed again."""

    def run(
        self, node: physical.Segment, source: Input, context: Context
    ) -> Iterator[tuple[Trail, list[Result]]]:
        self._store.refresh()
        runs = MissingRows(source, node, context, self._store)
        try:
            while not runs.ended:
                for run, results in self._executor.run(node, runs, context):
                    yield run.trail, self._whole(node, run, results, context)
                if runs.kept is not None:
                    run, runs.kept = runs.kept, None
                    yield run.trail, self._whole(node, run, [], context)
        finally:
            self._store.flush()

    def run_here(self, node: physical.Segment, payload: Payload, context: Context) -> list[Result]:
        keys, ids = identities(node, payload, context)
        missing = np.flatnonzero(~self._store.has(keys))
        run = Run(payload, keys, ids, missing, None)
        computed = self._executor.run_here(node, run.todo(), context) if len(missing) else []
        return self._whole(node, run, computed, context)

    def _whole(
        self, node: physical.Segment, run: Run, results: list[Result], context: Context
    ) -> list[Result]:
        """The results for all rows of a run, given those for the missing ones."""
        began = perf_counter()
        made = self._joined(node, run, results, context)
        self._executor.lane(node).stats.keeping += perf_counter() - began
        return made

    def _joined(
        self, node: physical.Segment, run: Run, results: list[Result], context: Context
    ) -> list[Result]:
        computed = self._kept(run, run.missing, results, context)
        if len(run.missing) == len(run.keys):
            return results
        absent = np.zeros(len(run.keys), dtype=bool)
        absent[run.missing] = True
        kept = np.flatnonzero(~absent)
        found = self._store.read(run.keys[kept])
        parts: FoundEntries = [(kept[which], entries) for which, entries in found]
        for which, _ in parts:
            absent[which] = True
        lost = np.flatnonzero(~absent)
        if len(lost):  # damaged on disk: rare, so done here and now
            again = self._executor.run_here(node, run.payload.take(lost), context)
            computed += self._kept(run, lost, again, context)
        return [_assembled(run, parts, computed)]

    def _kept(
        self, run: Run, rows: np.ndarray, results: list[Result], context: Context
    ) -> list[tuple[np.ndarray, Result]]:
        """Stores each result, and returns it with the rows of the run that it belongs to."""
        found = []
        for result in results:
            these, rows = rows[: result.size_in], rows[result.size_in :]
            self._keep(run.keys[these], result, context)
            found.append((these, result))
        return found

    def _keep(self, keys: np.ndarray, result: Result, context: Context) -> None:
        """Stores the rows that will be the same next time: none that failed or was substituted."""
        if result.seeded is not None:
            _warn_random(result.seeded)
            return
        good = np.ones(len(keys), dtype=bool)
        for failure in result.failures:
            good[failure.row] = False
            if context.on_error == "raise":  # and the rows after it were not computed
                good[failure.row :] = False
        entries, seconds = Entries.of(result), result.seconds
        if not good.all():
            seconds *= float(good.mean())
            keys, entries = keys[good], entries.take(np.flatnonzero(good))
        try:
            if len(keys):
                self._store.add(keys, entries, seconds)
        except ColumnError:
            if not self._planned:
                raise


def _warn_random(step: str) -> None:
    warnings.warn(
        f"cache keeps no rows: the step `{step}` below it draws from a global random generator, so "
        "its rows differ in every epoch; put cache before it",
        stacklevel=2,
    )


def _assembled(run: Run, parts: FoundEntries, computed: list[tuple[np.ndarray, Result]]) -> Result:
    """Joins stored and computed rows into one result, in the order of the run."""
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
        failures=tuple(sorted(failures, key=lambda f: (f.row, f.parts))),
        seconds=sum(result.seconds for _, result in computed),
        cpu=sum(result.cpu for _, result in computed),
    )
