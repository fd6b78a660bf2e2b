"""A segment that computes each input row once, and reads its result from a store afterwards.

The input is cut into runs of rows. Of each run, only the rows that the store lacks go through the
stage. The result has every row of the run in order, as if all had been computed, so that trails and
failures are the same as without a cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from silva.cache.entries import Entries, FoundEntries
from silva.cache.row_store import RowStore
from silva.columns import Block
from silva.errors import ColumnError
from silva.physical import plan as physical
from silva.physical.stage.context import IN_SOURCE, Context
from silva.physical.stage.read import Places, ReadPlaces, ReadUnits
from silva.physical.stage.stage import Result
from silva.run.executor import Executor, TaskSource
from silva.run.flows.flow import Cursor, Flow, Joined, Session, Trail, trail_from
from silva.run.flows.inputs import Input
from silva.run.flows.segment import SegmentFlow
from silva.run.pools.task import RowsPayload

_RUN_BYTES = 4 << 20
_RUN_ROWS = 4096
"""A run of rows has at most so many rows, and so many bytes if it is all stored."""


@dataclass(frozen=True, eq=False, slots=True)
class InputRun:
    """Consecutive input rows, and which of them must be computed."""

    payload: RowsPayload
    keys: np.ndarray
    ids: np.ndarray
    missing: np.ndarray
    trail: Trail

    def todo(self) -> RowsPayload:
        """The input for the stage."""
        if len(self.missing) == len(self.keys):
            return self.payload
        return self.payload.take(self.missing)


class MissingRows(TaskSource[InputRun]):
    """A segment's input as the executor sees it: only what is missing.

    If the store has every row of a run, the executor's input pauses there (`kept`): the stage has
    nothing to compute, and later rows must not overtake the run.
    """

    def __init__(
        self, source: Input, node: physical.Segment, context: Context, store: RowStore
    ) -> None:
        self._source, self._node, self._context, self._store = source, node, context, store
        self._ahead: InputRun | None = None
        self._following: InputRun | None = None
        """A run that was read ahead, so that the store can prefetch it."""
        self.kept: InputRun | None = None
        self.ended = False

    def next(self, rows: int) -> tuple[RowsPayload, InputRun] | None:
        """The next run with at most `rows` missing rows."""
        ahead = self._ahead or self._following or self._read(rows)
        if ahead is self._following:
            self._following = None
        if ahead is None:
            self.ended = True
            return None
        stop = len(ahead.keys)
        if len(ahead.missing) > rows * self._source.slack:
            stop = int(ahead.missing[rows])
        run = _cut(ahead, 0, stop)
        self._ahead = _cut(ahead, stop, len(ahead.keys)) if stop < len(ahead.keys) else None
        if len(run.missing):
            return run.todo(), run
        self.kept = run
        if self._ahead is None and isinstance(run.payload, Places):
            self._expect(rows)
        return None

    def _expect(self, rows: int) -> None:
        """Reads one run ahead, so that the store can prefetch its rows. Only for places, which cost
        nothing and never fail: other inputs must not be read before they are needed."""
        self._following = following = self._read(rows)
        if following is not None:
            kept = np.ones(len(following.keys), dtype=bool)
            kept[following.missing] = False
            self._store.expect(following.keys[kept])

    def _read(self, rows: int) -> InputRun | None:
        """Reads the next run: a longer one if many rows are stored, which need no computing."""
        kept = len(self._store)
        if kept:
            rows = max(rows, min(_RUN_ROWS, _RUN_BYTES * kept // max(self._store.nbytes, 1)))
        found = self._source.next(rows)
        if found is None:
            return None
        payload, trail = found
        keys, ids = identities(self._node, payload, self._context)
        return InputRun(payload, keys, ids, np.flatnonzero(~self._store.has(keys)), trail)


def _cut(run: InputRun, start: int, stop: int) -> InputRun:
    if stop - start == len(run.keys):
        return run
    missing = run.missing[(run.missing >= start) & (run.missing < stop)] - start
    payload, keys, ids = run.payload.slice(start, stop), run.keys[start:stop], run.ids[start:stop]
    return InputRun(payload, keys, ids, missing, trail_from(run.trail, start))


def identities(
    node: physical.Segment, payload: RowsPayload, context: Context
) -> tuple[np.ndarray, np.ndarray]:
    """The store's key and the identity in the plan of each row.

    The key does not contain the number of the source in the plan: another plan with the same
    fingerprint below its cache may number its sources differently.
    """
    if isinstance(payload, Block):
        return payload.ids & np.uint64(IN_SOURCE), payload.ids
    read = node.stage.read
    if isinstance(payload, Places):
        assert isinstance(read, ReadPlaces)
        return read.identities(payload, context)
    assert isinstance(read, ReadUnits)
    return read.identities(payload, context)


def open_cache(node: physical.CacheRows, session: Session, cursor: Cursor) -> Flow:
    """A cache that the user wrote, continuing from its cursor."""
    runner = CachedRunner(node, session.executor)
    return SegmentFlow(node.input, session, runner, node.input, cursor)


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

    def run_here(
        self, node: physical.Segment, payload: RowsPayload, context: Context
    ) -> list[Result]:
        keys, ids = identities(node, payload, context)
        missing = np.flatnonzero(~self._store.has(keys))
        run = InputRun(payload, keys, ids, missing, Joined([]))
        computed = self._executor.run_here(node, run.todo(), context) if len(missing) else []
        return self._whole(node, run, computed, context)

    def _whole(
        self, node: physical.Segment, run: InputRun, results: list[Result], context: Context
    ) -> list[Result]:
        """The results for all rows of a run, given those for the missing ones."""
        began = perf_counter()
        made = self._joined(node, run, results, context)
        self._executor.lane(node).stats.keeping += perf_counter() - began
        return made

    def _joined(
        self, node: physical.Segment, run: InputRun, results: list[Result], context: Context
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
        self, run: InputRun, rows: np.ndarray, results: list[Result], context: Context
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


def _assembled(
    run: InputRun, parts: FoundEntries, computed: list[tuple[np.ndarray, Result]]
) -> Result:
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
